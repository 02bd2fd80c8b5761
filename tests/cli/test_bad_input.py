"""Bad input through the command line: a clear error, the right exit code, nothing left behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from understudy.cli import app

SCHEMA = """
kind = "table"
name = "clinic"
records = 200
label = "sick"

[columns.age]
kind = "integer"
low = 0
high = 120

[columns.pulse]
kind = "numeric"
low = 30
high = 220

[columns.ward]
kind = "categorical"
categories = ["a", "b"]

[columns.sick]
kind = "categorical"
categories = ["no", "yes"]
"""

STUDY = """
[study]
name = "clinic"
schema = "schema.toml"
recipe = "fedmoments"

[privacy]
unit = "record"
trust = "central"
{privacy}

[simulation]
data = "rows.csv"
sites = {sites}
{extra}
"""

HEADER = "age,pulse,ward,sick"
ROWS = [
    f"{20 + i % 60},{60 + i % 40}.5,{'ab'[i % 2]},{('no', 'yes')[i % 3 == 0]}" for i in range(60)
]


def write_study(
    folder: Path,
    rows: str | None = None,
    schema: str = SCHEMA,
    privacy: str = "epsilon = 1.0",
    sites: int = 3,
    extra: str = "",
) -> Path:
    (folder / "schema.toml").write_text(schema)
    (folder / "rows.csv").write_text(
        rows if rows is not None else "\n".join([HEADER, *ROWS]) + "\n"
    )
    (folder / "study.toml").write_text(STUDY.format(privacy=privacy, sites=sites, extra=extra))
    return folder / "study.toml"


def run(study: Path, *options: str) -> tuple[int, str]:
    out = study.parent / "release"
    result = CliRunner().invoke(
        app, ["run", str(study), "--out", str(out), "--seed", "1", *options]
    )
    return result.exit_code, result.output


def table(*lines: str) -> str:
    return "\n".join(lines) + "\n"


REFUSED = {
    "no rows at all": (dict(rows=table(HEADER)), 3),
    "an empty file": (dict(rows=""), 3),
    "missing column": (dict(rows=table("age,pulse,sick", "30,70,no")), 3),
    "extra column": (dict(rows=table(HEADER + ",extra", "30,70,a,no,1")), 3),
    "duplicate column": (dict(rows=table(HEADER + ",age", "30,70,a,no,30")), 3),
    "unknown category": (dict(rows=table(HEADER, "30,70,z,no")), 3),
    "unknown class": (dict(rows=table(HEADER, "30,70,a,perhaps")), 3),
    "not a number": (dict(rows=table(HEADER, "30,NaN,a,no")), 3),
    "text where a number belongs": (dict(rows=table(HEADER, "30,seventy,a,no")), 3),
    "negative epsilon": (dict(privacy="epsilon = -1.0"), 4),
    "zero epsilon": (dict(privacy="epsilon = 0.0"), 4),
    "epsilon not a number": (dict(privacy="epsilon = nan"), 4),
    "epsilon infinite": (dict(privacy="epsilon = inf"), 4),
    "both epsilon and noise": (dict(privacy="epsilon = 1.0\nnoise = 1.0"), 4),
    "no noise without saying so": (dict(privacy="noise = 0.0"), 4),
    "delta too large": (dict(privacy="epsilon = 1.0\ndelta = 0.01"), 5),
    "unknown key": (dict(privacy="epsilon = 1.0\nepsilom = 2.0"), 4),
    "fixed cohort": (dict(extra="[cohort]\nsize = 2"), 5),
    "no sites": (dict(sites=0), 4),
    "unsupported trust": (dict(privacy="epsilon = 1.0\n[recipe]\nnothing = 1"), 4),
    "bounds the wrong way": (dict(schema=SCHEMA.replace("high = 120", "high = -1")), 2),
    "huge cardinality": (
        dict(schema=SCHEMA.replace('["a", "b"]', str([f"c{i}" for i in range(10_001)]))),
        2,
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_with_a_reason_and_leaves_nothing(case: str, tmp_path: Path) -> None:
    change, code = REFUSED[case]
    study = write_study(tmp_path, **change)
    before = {path.name for path in tmp_path.iterdir()}
    found, text = run(study)
    assert found == code, text
    assert all(word in text for word in ("expected", "found", "do")), text
    assert {path.name for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("secret", ["perhaps", "seventy"])
def test_no_error_shows_a_value_of_a_record(secret: str, tmp_path: Path) -> None:
    for row in (f"30,70,a,{secret}", f"30,{secret},a,no"):
        _, text = run(write_study(tmp_path, rows=table(HEADER, row)))
        assert secret not in text


ACCEPTED = {
    "one row": table(HEADER, "30,70,a,no"),
    "one class": table(HEADER, *["30,70,a,no"] * 20),
    "values out of bounds": table(HEADER, "999,-5,a,no", "30,1e9,b,yes"),
    "byte order mark": "\ufeff" + table(HEADER, *ROWS),
}


@pytest.mark.parametrize("held", ["", table(HEADER)])
def test_a_site_without_rows_takes_part_like_any_other(held: str, tmp_path: Path) -> None:
    study = write_study(tmp_path)
    (tmp_path / "none.csv").write_text(held)
    site = '[[site]]\nname = "{0}"\ndata = "{0}.csv"\n'
    agreed = study.read_text().split("[simulation]")[0]
    study.write_text(agreed + site.format("rows") + site.format("none"))
    code, text = run(study)
    assert code == 0, text


@pytest.mark.parametrize("case", ACCEPTED)
def test_odd_but_honest_data_makes_a_release(case: str, tmp_path: Path) -> None:
    code, text = run(write_study(tmp_path, rows=ACCEPTED[case]))
    assert code == 0, text
    checked = CliRunner().invoke(app, ["verify", str(tmp_path / "release")])
    assert checked.exit_code == 0, checked.output
    assert not (tmp_path / "release.partial").exists()


def test_more_sites_than_rows_leaves_some_empty_and_works(tmp_path: Path) -> None:
    code, text = run(write_study(tmp_path, rows=table(HEADER, *ROWS[:4]), sites=20))
    assert code == 0, text


def test_an_existing_output_is_never_touched(tmp_path: Path) -> None:
    study = write_study(tmp_path)
    (tmp_path / "release").mkdir()
    (tmp_path / "release" / "thesis.txt").write_text("only copy")
    code, text = run(study)
    assert code == 9, text
    assert (tmp_path / "release" / "thesis.txt").read_text() == "only copy"


def test_an_output_that_is_there_is_named_however_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = write_study(tmp_path)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["run", str(study), "--out", "."])
    assert result.exit_code == 9 and ". exists\n" in result.output


def test_an_unreachable_epsilon_names_what_can_be_reached(tmp_path: Path) -> None:
    study = write_study(tmp_path, privacy="epsilon = 1e-9\ndelta = 1e-15")
    code, text = run(study)
    assert code == 5, text
    assert "ε" in text


def test_resume_without_an_interrupted_run_says_so(tmp_path: Path) -> None:
    code, text = run(write_study(tmp_path), "--resume")
    assert code == 9, text
    assert "interrupted" in text
