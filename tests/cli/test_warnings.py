"""What ``plan`` warns of where a table's classes are at stake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from understudy.cli import app
from understudy.data.schema import Column, Schema

EQUAL = "drawn in equal shares"
ILL = Column("ill", "categorical", categories=("no", "yes"))
AGE = Column("age", "integer", 0, 100)


def warned(folder: Path, privacy: str, recipe: str = "dpd_fvae", **schema: object) -> list[str]:
    table = Schema("table", "people", 500, (AGE, ILL), label="ill", **schema)  # type: ignore
    (folder / "schema.toml").write_text(table.to_toml())
    (folder / "study.toml").write_text(
        f'[study]\nname = "t"\nschema = "schema.toml"\nrecipe = "{recipe}"\n'
        f'[privacy]\nunit = "record"\ntrust = "central"\n{privacy}\n'
        '[simulation]\ndata = "rows.csv"\nsites = 5\n'
    )
    result = CliRunner().invoke(app, ["plan", str(folder / "study.toml"), "--json"])
    assert result.exit_code == 0, result.output
    found: list[str] = json.loads(result.stdout)["warnings"]
    return found


def test_classes_that_nothing_counts_are_warned_about(tmp_path: Path) -> None:
    assert any(EQUAL in warning for warning in warned(tmp_path, "noise = 2.0"))


@pytest.mark.parametrize(
    ("privacy", "recipe", "schema"),
    [
        ("epsilon = 4.0", "dpd_fvae", {}),
        ("noise = 2.0", "dpd_fvae", {"balance": (0.9, 0.1)}),
        ("noise = 2.0", "fedmoments", {}),
    ],
    ids=["a warm start counts them", "the schema declares them", "moments count them"],
)
def test_classes_that_are_counted_or_declared_are_not(
    tmp_path: Path, privacy: str, recipe: str, schema: dict
) -> None:
    assert not any(EQUAL in warning for warning in warned(tmp_path, privacy, recipe, **schema))
