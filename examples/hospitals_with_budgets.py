"""Three hospitals with a file, a cap and a ledger each; the second study meets the cap.

Run it anywhere: it makes a folder ``hospitals`` with real rows that come with scikit-learn.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from understudy import Study, run
from understudy.data.bundled import bundled
from understudy.data.table import write
from understudy.errors import BudgetError

STUDY = """
[study]
name = "three hospitals"
schema = "schema.toml"
recipe = "fedmoments"

[privacy]
unit = "record"
trust = "central"
epsilon = 2.0
"""

SITE = """
[[site]]
name = "{name}"
data = "{name}.csv"
epsilon = 2.5             # this hospital's own cap, for all studies together
ledger = "{name}.jsonl"   # where it keeps count
"""


def main() -> None:
    """Write the files, run one study, and see the next one refused."""
    folder = Path("hospitals")
    folder.mkdir()
    schema, records = bundled("breast_cancer")
    (folder / "schema.toml").write_text(schema.to_toml(), encoding="utf-8")
    text = STUDY
    for index, name in enumerate(("north", "south", "west")):
        write(records.take(np.arange(index, len(records), 3)), folder / f"{name}.csv")
        text += SITE.format(name=name)
    (folder / "study.toml").write_text(text, encoding="utf-8")

    study = Study.load(folder / "study.toml")
    release = run(study, out=folder / "release")
    print(release.claims[0].words)
    try:
        run(study, out=folder / "again")
    except BudgetError as refusal:
        print(f"The second study was refused, and nothing was spent. {refusal}")


if __name__ == "__main__":
    main()
