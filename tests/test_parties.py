"""Parties in a study: who holds which columns, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from understudy.data.columns import Columns, records_of
from understudy.data.encode import encode
from understudy.data.records import Records
from understudy.data.schema import Column, Schema
from understudy.data.split import check_options
from understudy.errors import DataError, StudyError
from understudy.recipes import build
from understudy.release.rebuild import agreed
from understudy.simulation import run, run_apart
from understudy.study import Study

SCHEMA = Schema(
    "table",
    "t",
    20_000,
    (
        Column("a", "numeric", 0, 1),
        Column("b", "integer", 0, 9),
        Column("c", "categorical", categories=("x", "y")),
        Column("d", "boolean"),
        Column("e", "categorical", categories=("no", "yes")),
    ),
    label="e",
)


def party(name: str, *columns: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "columns": list(columns), "data": f"{name}.csv", **more}


def study(*parties: dict[str, Any], **tables: Any) -> Study:
    head = {"study": {"name": "s", "recipe": "fedmoments"}, "privacy": {"epsilon": 4.0}}
    return Study.parse({**head, "party": list(parties), **tables}, schema=SCHEMA)


TWO = (party("clinic", "a", "b", "e"), party("insurer", "c", "d"))


def test_a_party_has_its_part_of_the_schema() -> None:
    held = study(*TWO).held
    assert held is not None and held.labelled == 0 and held.number("insurer") == 1
    assert held.schema_of(0).label == "e" and held.schema_of(1).n_classes == 1
    assert [c.name for c in held.schema_of(1).columns] == ["c", "d"]


@pytest.mark.parametrize(
    ("parties", "message"),
    [
        ((TWO[0],), "2 to 16"),
        ((TWO[0], party("insurer", "c")), "a party that holds 'd'"),
        ((TWO[0], party("insurer", "c", "d", "a")), "declare it shared"),
        ((TWO[0], party("insurer", "c", "d", "a", shared=["a"])), "declare it shared"),
        ((TWO[0], party("insurer", "c", "d", "z")), "columns of the schema"),
        ((TWO[0], party("insurer", "c", "d", shared=["a"])), "columns of the schema"),
        ((TWO[0], party("insurer", "c", "d", "d")), "columns of the schema"),
        ((TWO[0], {**TWO[1], "name": "clinic"}), "different name"),
        ((party("clinic", "e"), party("insurer", "a", "b", "c", "d")), "besides the label"),
    ],
)
def test_parties_that_do_not_make_one_table_are_refused(
    parties: tuple[dict[str, Any], ...], message: str
) -> None:
    with pytest.raises(StudyError, match=message):
        study(*parties)


def test_in_one_process_every_party_s_rows_are_at_hand() -> None:
    with pytest.raises(StudyError, match=r"party\.data of party insurer"):
        run(study(party("clinic", "a", "b", "e"), {"name": "insurer", "columns": ["c", "d"]}))
    cut = {"data": "x.csv", "split": "columns"}
    with pytest.raises(StudyError, match=r"no party\.data"):
        study(*TWO, simulation=cut)


def test_shared_columns_count_at_the_first_party() -> None:
    found = study(
        party("clinic", "a", "b", "e", shared=["a"]), party("insurer", "c", "d", "a", shared=["a"])
    ).held
    assert found is not None and found.own(0) == ("a", "b", "e") and found.own(1) == ("c", "d")


def test_a_simulation_deals_columns_by_a_seed_and_never_by_rows() -> None:
    tables = {"simulation": {"data": "x.csv", "split": "columns", "sites": 3}}
    first, again = study(**tables), study(**tables)
    other = study(simulation={**tables["simulation"], "seed": 1})
    assert first.parties == again.parties != other.parties
    names = sorted(n for entry in first.parties for n in entry.columns)
    assert names == list("abcde") and len(first.parties) == 3


@pytest.mark.parametrize("more", [{"sites": 1}, {"sites": 9}, {}, {"sites": 2, "only": 1}])
def test_a_simulation_of_no_parties_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(StudyError):
        study(simulation={"data": "x.csv", "split": "columns", **more})


def test_a_simulation_of_parties_knows_its_options() -> None:
    check_options("columns", {"seed": 3})
    bare = [{k: v for k, v in entry.items() if k != "data"} for entry in TWO]
    with pytest.raises(StudyError, match=r"unknown key simulation\.alpha"):
        study(*bare, simulation={"data": "x.csv", "split": "columns", "alpha": 1})


def test_rows_and_columns_are_not_held_at_once() -> None:
    with pytest.raises(StudyError, match="keep one kind"):
        study(*TWO, site=[{"name": "s", "data": "s.csv"}])
    bare = [{k: v for k, v in entry.items() if k != "data"} for entry in TWO]
    with pytest.raises(StudyError, match="keep one kind"):
        study(*bare, simulation={"data": "x.csv", "sites": 2})


def test_the_agreement_says_who_holds_what_and_no_names() -> None:
    made = study(*TWO)
    told = made.agreement()
    assert told["parties"] == [{"columns": ["a", "b", "e"]}, {"columns": ["c", "d"]}]
    assert "clinic" not in str(told)
    again = agreed(told, SCHEMA)
    assert build(again).plan == build(made).plan and again.hash == made.hash


def test_recipes_without_a_form_for_parties_refuse_them() -> None:
    head = {"study": {"name": "s", "recipe": "fedvae"}, "party": list(TWO)}
    with pytest.raises(StudyError, match="parties that hold columns"):
        build(Study.parse({**head, "privacy": {"epsilon": 4.0}}, schema=SCHEMA))


def frame(n: int = 40) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "a": [i / n for i in range(n)],
            "b": [i % 10 for i in range(n)],
            "c": ["x", "y"] * (n // 2),
            "d": [i % 3 == 0 for i in range(n)],
            "e": ["no", "yes"] * (n // 2),
        }
    )


@pytest.mark.parametrize("play", [run, run_apart], ids=["together", "apart"])
def test_parties_with_different_numbers_of_rows_are_refused_before_anything_is_spent(
    play: Callable[..., Any], tmp_path: Path
) -> None:
    rows = [Records(frame=frame()[["a", "b", "e"]]), Records(frame=frame(38)[["c", "d"]])]
    with pytest.raises(DataError, match="same people in the same order"):
        play(study(*TWO), rows, seed=0, out=tmp_path / "out")
    with pytest.raises(DataError, match="people that all parties know"):
        play(study(*TWO), [r.take(slice(0, 0)) for r in rows], seed=0, out=tmp_path / "out")
    assert not list(tmp_path.glob("**/*.jsonl")), "a ledger was begun"
    assert not (tmp_path / "out").exists()


def test_a_party_is_asked_for_alone() -> None:
    held = study(*TWO).held
    assert held is not None
    whole = Records(frame=frame())
    parts = [encode(held.schema_of(i), records_of(whole, held.columns[i])) for i in range(2)]
    made = Columns.of(parts)
    assert made.take([1]).x.shape == (40, 3) and made.counts.tolist() == [40, 40]
