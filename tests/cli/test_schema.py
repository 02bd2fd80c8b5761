from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from understudy.cli.schema import app

runner = CliRunner()
ROWS = "name,age,ward\n" + "".join(f"Smith{i},{20 + 2 * i % 30},{'ab'[i % 2]}\n" for i in range(30))
SCHEMA = """
kind = "table"
name = "t"
records = 30
[columns.name]
kind = "ignore"
[columns.age]
kind = "integer"
low = 0
high = 40
[columns.ward]
kind = "categorical"
categories = ["a", "b"]
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text(ROWS)
    (tmp_path / "schema.toml").write_text(SCHEMA)
    return tmp_path


def call(*arguments: str):
    return runner.invoke(app, list(arguments), env={"COLUMNS": "200"})


def test_draft_then_decide_then_check(folder) -> None:
    result = call("draft", "rows.csv", "-o", "new.toml", "--label", "ward")
    assert result.exit_code == 0 and "Smith" not in result.output
    assert "come from the rows" in result.output and "decision" in result.output
    assert call("check", "new.toml", "rows.csv").exit_code == 2
    text = (folder / "new.toml").read_text()
    (folder / "new.toml").write_text(text.replace('"unclassified"', '"ignore"'))
    result = call("check", "new.toml", "rows.csv")
    assert result.exit_code == 0 and "fits" in result.output


def test_draft_prints_the_schema_alone_to_stdout(folder) -> None:
    result = call("draft", "rows.csv")
    assert result.stdout.startswith("# A DRAFT") and "decision" not in result.stdout
    assert "decision" in result.stderr


def test_draft_as_json(folder) -> None:
    found = json.loads(call("draft", "rows.csv", "--json", "--name", "clinic").stdout)
    assert 'name = "clinic"' in found["schema"] and len(found["warnings"]) > 2


def test_draft_does_not_overwrite_unless_told(folder) -> None:
    result = call("draft", "rows.csv", "-o", "schema.toml")
    assert result.exit_code == 9 and (folder / "schema.toml").read_text() == SCHEMA
    assert call("draft", "rows.csv", "-o", "schema.toml", "--force").exit_code == 0


def test_check_counts_in_plain_words(folder) -> None:
    result = call("check", "schema.toml", "rows.csv")
    assert result.exit_code == 0
    assert "30 rows" in result.output and "8 values outside 0 to 40 are clamped" in result.output


def test_a_party_checks_its_file_against_the_columns_that_it_holds(folder) -> None:
    (folder / "clinic.csv").write_text("age\n" + "".join(f"{20 + i}\n" for i in range(15)))
    held = call("check", "schema.toml", "clinic.csv", "--columns", "age")
    assert held.exit_code == 0 and "15 rows" in held.output
    assert call("check", "schema.toml", "clinic.csv").exit_code == 3  # not the whole table
    other = call("check", "schema.toml", "clinic.csv", "--columns", "age, ward")
    assert other.exit_code == 3 and "ward" in other.output
    unknown = call("check", "schema.toml", "clinic.csv", "--columns", "agee")
    assert unknown.exit_code == 2 and "agee" in unknown.output


def test_check_fails_on_rows_that_do_not_fit(folder) -> None:
    (folder / "rows.csv").write_text(ROWS + "Smith,secret,z\n")
    result = call("check", "schema.toml", "rows.csv")
    assert result.exit_code == 3 and "secret" not in result.output
    assert "whole numbers" in result.output and "public categories" in result.output


def test_check_tells_an_empty_file_from_one_without_rows(folder) -> None:
    (folder / "rows.csv").write_text("")
    result = call("check", "schema.toml", "rows.csv")
    assert result.exit_code == 3 and "no columns, no rows" in result.output
    assert "fits" not in result.output and "fit as they are" not in result.output
    (folder / "rows.csv").write_text("name,age,ward\n")
    result = call("check", "schema.toml", "rows.csv")
    assert result.exit_code == 0 and "no rows" in result.output and "fits" in result.output


def test_check_as_json(folder) -> None:
    found = json.loads(call("check", "schema.toml", "rows.csv", "--json").stdout)
    assert found["ok"] and {"level", "text", "column", "rows"} == set(found["findings"][0])
    result = call("check", "nothing.toml", "rows.csv", "--json")
    assert result.exit_code == 2 and not json.loads(result.stdout)["ok"]


@pytest.mark.parametrize("command", ["draft", "check"])
def test_help_shows_examples(command: str) -> None:
    assert f"understudy schema {command} " in call(command, "--help").output
