"""What an exchange asks for: the file, and its page in the documentation."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

import pytest

from exchange.parties import policy, ward
from exchange.test_admission import RULES
from understudy import Study, run
from understudy.data.table import write
from understudy.errors import StudyError
from understudy.exchange.admission import examine
from understudy.exchange.policy import DATABASE_VARIABLE, About, Limits, Policy, Requirements
from understudy.settings import allowed
from understudy.simulation.verification import verify

PAGE = (Path(__file__).parents[2] / "docs" / "exchange.md").read_text("utf-8")


@pytest.mark.parametrize("table", [About, Requirements, Limits], ids=lambda t: t.__name__)
def test_the_page_has_every_setting_with_its_help(table: type) -> None:
    hints = get_type_hints(table)
    lines = [
        f"| `{f.name}` | {allowed(hints[f.name], f.metadata['range'])} | {f.metadata['help']} |"
        for f in fields(table)
    ]
    assert [line for line in lines if line not in PAGE] == []


def test_the_file_on_the_page_can_be_loaded(tmp_path: Path) -> None:
    policy(tmp_path)  # for its schema
    example, _ = re.findall(r"```toml\n(.*?)```", PAGE, re.S)
    (tmp_path / "exchange.toml").write_text(example, "utf-8")
    found = Policy.load(tmp_path / "exchange.toml")
    assert found.told()["epsilon"] == 1.5 and found.told()["schema_hash"] == found.schema.hash


def test_the_study_on_the_page_makes_a_generator_that_is_taken(tmp_path: Path) -> None:
    policy(tmp_path)
    _, example = re.findall(r"```toml\n(.*?)```", PAGE, re.S)
    (tmp_path / "study.toml").write_text(example, "utf-8")
    write(ward(60, 0), tmp_path / "rows.csv")
    run(Study.load(tmp_path / "study.toml"), out=tmp_path / "release.zip", rows=20)
    examine(tmp_path / "release.zip", RULES, [], verify)


def test_the_database_is_a_file_in_the_store_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert policy(tmp_path).database == f"sqlite:///{tmp_path / 'store' / 'exchange.db'}"
    monkeypatch.setenv(DATABASE_VARIABLE, "postgresql://host/name")
    assert policy(tmp_path).database == "postgresql://host/name"


@pytest.mark.parametrize(
    "tables",
    [
        {"requirements": {"epsilon": 0.0}},
        {"requirements": {"trust": ["none"]}},
        {"limits": {"seconds": -1}},
        {"rules": {}},
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_refused(tmp_path: Path, tables: dict) -> None:
    with pytest.raises(StudyError):
        policy(tmp_path, **tables)
