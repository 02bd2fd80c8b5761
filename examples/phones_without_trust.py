"""A hundred and forty phones learn one classifier; nobody is trusted, and each answers once.

A phone trains on its four rows and sends a sign and three coordinates of its update, 16 bytes,
drawn so that they would be almost as likely for any other rows. Run it anywhere: it makes a folder
``phones`` with a public table, a study, the release and its predictions for held-out rows.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from understudy import Study, run, verify
from understudy.data.bundled import bundled, holdout
from understudy.data.table import write

STUDY = """
[study]
name = "phones without trust"
schema = "schema.toml"
recipe = "signds"
rounds = 14

[privacy]
epsilon = 8.0             # the total ε of a phone: it is called once

[cohort]
size = 10                 # phones a round, by a public schedule

[recipe]
model = "logistic"
global_rate = 4.0

[training]
optimiser = "sgd"
rate = 0.1

[simulation]
data = "rows.csv"
sites = 140
"""


def main() -> None:
    """Write schema and rows, run the study, verify the release and ask it."""
    folder = Path("phones")
    folder.mkdir()
    schema, records = bundled("breast_cancer")
    train, held = holdout(records, rng=np.random.default_rng(0))
    (folder / "schema.toml").write_text(schema.to_toml(), encoding="utf-8")
    (folder / "study.toml").write_text(STUDY, encoding="utf-8")
    write(train, folder / "rows.csv")
    release = run(Study.load(folder / "study.toml"), out=folder / "release")
    print(release.claims[0].words)
    assert verify(folder / "release").checks
    guess = release.predict(held)
    right = (guess["predicted"].to_numpy() == held.frame["diagnosis"].to_numpy()).mean()
    print(f"{right:.0%} of {len(held)} held-out rows (internal: measured on real rows)")


if __name__ == "__main__":
    main()
