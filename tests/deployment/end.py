"""One end of a run in tests, as a process with a seed, which no command line offers.

``end.py SEED hub STUDY KEYS PORT OUT`` or ``end.py SEED NAME STUDY KEYS PORT DATA``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from understudy.deployment.attendance import attend
from understudy.deployment.joining import prepare
from understudy.deployment.keys import load_keys
from understudy.deployment.serving import Serving, serve
from understudy.federation.budget import Budget
from understudy.runtime.flare import Address, Tls
from understudy.study import Study

seed, name, path, folder, port, place = sys.argv[1:]
study, keys = Study.load(path), load_keys(Path(folder) / name)
if name == "hub":
    serve(study, Serving(Path(place), keys, port=int(port), seed=int(seed), rows=20, wait=60))
else:
    tls = Tls(keys.ca, keys.cert, keys.key, keys.server)
    state = Path(place).parent / f"{name}.state"
    joining = prepare(study, Path(place), Budget(name), state, keys, int(seed))
    attend(joining, Address("localhost", int(port), tls), print)
