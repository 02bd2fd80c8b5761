"""What ``plan`` and ``run`` tell a study whose sites are named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from understudy.cli import app
from understudy.data.schema import Column, Schema

HEADER = "age,ill\n"


def study(folder: Path, privacy: str = 'trust = "central"', cap: float = 2.5) -> Path:
    """Three sites with caps and ledgers."""
    columns = (Column("age", "integer", 0, 100), Column("ill", "boolean"))
    table = Schema("table", "people", 60, columns, label="ill")
    (folder / "schema.toml").write_text(table.to_toml())
    sites = ""
    for name in ("north", "south", "west"):
        rows = "".join(f"{20 + i},{i % 2 == 0}\n" for i in range(20))
        (folder / f"{name}.csv").write_text(HEADER + rows)
        kept = f'epsilon = {cap}\nledger = "{name}.jsonl"'
        sites += f'[[site]]\nname = "{name}"\ndata = "{name}.csv"\n{kept}\n'
    (folder / "study.toml").write_text(
        '[study]\nname = "t"\nschema = "schema.toml"\nrecipe = "fedmoments"\n'
        f'[privacy]\nunit = "record"\nepsilon = 2.0\n{privacy}\n{sites}'
    )
    return folder / "study.toml"


def invoke(*words: object, code: int = 0, env: dict[str, str] | None = None) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words], env=env)
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


def test_plan_reads_the_ledgers_and_refuses_what_run_would(tmp_path: Path) -> None:
    file = study(tmp_path)
    assert "north: ε = 0 of 2.5 spent, 2" in invoke("plan", file)
    assert not (tmp_path / "north.jsonl").exists(), "plan made a ledger"
    said = invoke("run", file, "--out", tmp_path / "out", "--quiet")
    assert "north has spent ε = 2 of 2.5: about 0.5" in said and "understudy ledger show" in said
    before = (tmp_path / "north.jsonl").read_bytes()
    refused = invoke("plan", file, code=6)
    assert "(site north)" in refused and "2 spent already" in refused
    assert (tmp_path / "north.jsonl").read_bytes() == before
    found = json.loads(invoke("plan", study(tmp_path, cap=9.0), "--json"))["sites"]
    assert [site["name"] for site in found] == ["north", "south", "west"]
    assert found[0]["before"] < found[0]["after"] < found[0]["cap"] == 9.0


@pytest.mark.parametrize("text", ["", HEADER], ids=["no bytes", "a header"])
def test_a_site_without_rows_is_told_before_anything_is_charged(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = study(tmp_path)
    (tmp_path / "west.csv").write_text(text)

    def charged(*_: object) -> None:
        print("charged")

    monkeypatch.setattr("understudy.privacy.ledger.Ledger.reserve", charged)
    said = invoke("run", file, "--out", tmp_path / "out", "--quiet")
    note = "site west: the file has no rows; it takes part and contributes nothing"
    assert said.index(note) < said.index("charged") and "site north: the file" not in said
    kept = [path.read_text() for path in (tmp_path / "out").glob("*.json*")]
    assert not any("no rows" in each for each in kept)


def test_sites_that_trust_each_other_are_warned(tmp_path: Path) -> None:
    note = "nothing is promised between the sites"
    shared = 'trust = "distributed"'
    assert note in invoke("plan", study(tmp_path, f"{shared}\ncolluders = 0"))
    assert note not in invoke("plan", study(tmp_path, shared))


def test_plan_says_what_a_missing_site_costs_and_only_what_would_be_better(tmp_path: Path) -> None:
    shared, wide = 'trust = "distributed"', {"COLUMNS": "400"}
    said = invoke("plan", study(tmp_path, shared), env=wide)
    assert "If fewer answer, the round gives nothing and its ε is spent all the same." in said
    assert "1.22 times a trusted server's; it would be as much with colluders = 0" in said
    said = invoke("plan", study(tmp_path, f"{shared}\ncolluders = 0"), env=wide)
    assert "no site is assumed to side with the server" in said
    assert "the noise is as much as a trusted server's" in said and "it would be" not in said


def test_projection_says_for_which_studies_it_works(tmp_path: Path) -> None:
    said = invoke("plan", study(tmp_path), "--project", "1000", code=5, env={"COLUMNS": "400"})
    assert 'unit = "site"' in said and "[recipe] warm_start = 0" in said and "one phase" in said


def test_plan_names_files_that_are_not_there(tmp_path: Path) -> None:
    file = study(tmp_path)
    assert "there is no file" not in invoke("plan", file)
    (tmp_path / "west.csv").unlink()
    said = invoke("plan", file)
    assert "Site west: there is no file west.csv." in said and "Site north: there" not in said


def test_plan_refuses_a_sum_that_no_modulus_holds_with_the_bits_it_needs(tmp_path: Path) -> None:
    file = study(tmp_path, 'trust = "distributed"')
    schema = tmp_path / "schema.toml"
    schema.write_text(schema.read_text().replace("records = 60", "records = 900_000_000_000_000"))
    said = invoke("plan", file, code=5)
    assert "within 56 bits" in said and "bits needed for 900,000,000,000,000 units" in said


def test_plan_refuses_shares_that_hide_nothing_with_the_fix(tmp_path: Path) -> None:
    shared = 'trust = "distributed"'
    assert "at most 3, the sites asked" in invoke(
        "plan", study(tmp_path, f"{shared}\nsurvivors = 4"), code=5
    )
    assert "at least two of 3 survivors must be honest" in invoke(
        "plan", study(tmp_path, f"{shared}\ncolluders = 2"), code=5
    )


def test_plan_tells_what_the_party_sends_that_sends_most(tmp_path: Path) -> None:
    columns = tuple(Column(name, "boolean") for name in "abcde")
    (tmp_path / "schema.toml").write_text(Schema("table", "t", 500, columns).to_toml())
    (tmp_path / "study.toml").write_text(
        '[study]\nname = "t"\nschema = "schema.toml"\nrecipe = "vertigan"\nrounds = 2\n'
        '[privacy]\nnoise = 9.0\n[simulation]\ndata = "rows.csv"\nsplit = "columns"\n'
        '[[party]]\nname = "x"\ncolumns = ["a", "b", "c"]\n'
        '[[party]]\nname = "y"\ncolumns = ["d", "e"]\n'
    )
    plan = json.loads(invoke("plan", tmp_path / "study.toml", "--json"))
    sizes = [8 * part["shape"][0] for part in plan["plan"]["phases"][0]["parts"]]
    assert plan["bytes_per_round_and_site"] == max(sizes) > min(sizes)
