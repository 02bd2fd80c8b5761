"""One end of some runs in tests, as a process, with a seed, which no command line offers.

``end.py SEED PORT KEYS NAME PLACE STUDY …``: the server is "hub", and PLACE the folder of its
releases; for a site it is the file of its rows. One run after the other, in one process.
"""

from __future__ import annotations

import sys
from pathlib import Path

from understudy.cli.attending import alignment_of
from understudy.deployment.attendance import Attendant, attend
from understudy.deployment.joining import prepare
from understudy.deployment.keys import load_keys
from understudy.deployment.serving import Serving, serve
from understudy.federation.budget import Budget
from understudy.runtime.flare import Address, Tls
from understudy.study import Study

seed, port = int(sys.argv[1]), int(sys.argv[2])
name, place = sys.argv[4], Path(sys.argv[5])
keys = load_keys(Path(sys.argv[3]) / name)
address = Address("localhost", port, Tls(keys.ca, keys.cert, keys.key, keys.server))
for path in map(Path, sys.argv[6:]):
    study = Study.load(path)
    if name == "hub":
        serve(study, Serving(place / path.stem, keys, port=port, seed=seed, rows=20, wait=60))
    else:
        state = place.parent / f"{name}.{path.stem}"
        held = alignment_of(study, place, None)
        joining = prepare(study, place, Budget(name), state, keys, seed, held)
        attend(Attendant(joining, print), address, print)
