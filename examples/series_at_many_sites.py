"""A hundred sites with fifty series each; one series is protected. Tables in, tables out.

Run it anywhere: it makes a folder ``waves`` with sine waves drawn by TimeGAN's law. The same
files serve for series of your own: change the schema and the path of the data.
"""

from __future__ import annotations

from pathlib import Path

from understudy import Study, run
from understudy.data.bundled import bundled
from understudy.data.check import check
from understudy.data.table import write

STUDY = """
[study]
name = "waves at a hundred sites"
schema = "schema.toml"
recipe = "fedmoments"

[privacy]
unit = "record"           # one series
trust = "central"
epsilon = 2.0

[simulation]
data = "waves.parquet"
sites = 100
split = "column"          # whole series go to sites, in turn
column = "series"
"""


def main() -> None:
    """Write schema and series, check them, run the study, and draw new series."""
    folder = Path("waves")
    folder.mkdir()
    schema, records = bundled("sines")
    (folder / "schema.toml").write_text(schema.to_toml(), encoding="utf-8")
    (folder / "study.toml").write_text(STUDY, encoding="utf-8")
    write(records, folder / "waves.parquet", schema)  # long: a row per series and step
    for finding in check(schema, folder / "waves.parquet"):
        print(finding.text)

    release = run(Study.load(folder / "study.toml"), out=folder / "release")
    print(release.claims[0].words)
    write(release.sample(1000), folder / "synthetic.csv", schema)
    write(release.sample(1000), folder / "synthetic_wide.csv", schema, layout="wide")


if __name__ == "__main__":
    main()
