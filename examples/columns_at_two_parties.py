"""A clinic and a registry know different things about the same people: align, run, verify.

    python examples/columns_at_two_parties.py

Everything is on this machine, in a temporary folder: the two files are cut from the bundled
breast cancer table, with a patient number, in different orders, and each lacks some patients.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from understudy import Records, Study, run
from understudy.data.align import align_here, identifiers
from understudy.data.bundled import bundled
from understudy.simulation import verify


def main() -> None:
    """From two files to a release."""
    schema, records = bundled("breast_cancer")
    assert records.frame is not None
    columns = [column.name for column in schema.columns]
    held = {"clinic": [*columns[:15], "diagnosis"], "registry": columns[15:30]}
    table = records.frame.assign(patient=[f"N-{i:04}" for i in range(len(records))])
    rng = np.random.default_rng(0)
    files = {
        name: table.sample(frac=0.95, random_state=rng)[["patient", *own]]
        for name, own in held.items()
    }

    ids = [identifiers([frame["patient"].tolist()]) for frame in files.values()]
    rows, _ = align_here(ids)
    print(f"{len(rows[0])} patients are known to both")
    aligned = [
        Records(frame=frame.iloc[chosen].drop(columns="patient").reset_index(drop=True))
        for frame, chosen in zip(files.values(), rows, strict=True)
    ]

    parties = [{"name": name, "columns": own, "data": f"{name}.csv"} for name, own in held.items()]
    head = {"study": {"name": "two registers", "recipe": "fedmoments"}}
    study = Study.parse({**head, "privacy": {"epsilon": 20.0}, "party": parties}, schema=schema)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "release"
        release = run(study, aligned, out=out, rows=100)
        for check in verify(out).checks:
            print(check)
    for claim in release.claims:
        print(claim.words)
    print(release.sample(5).frame)


if __name__ == "__main__":
    main()
