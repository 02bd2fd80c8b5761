"""What the pages are made of: previews, plots, comparison, the address, and text by strangers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra 'exchange' is not installed")

from contracts.toys import MAKERS
from understudy import Study, run
from understudy.data.column import Column
from understudy.exchange.pages import plots
from understudy.exchange.pages.compare import unlike, usual
from understudy.exchange.pages.query import Query
from understudy.exchange.pages.words import templates
from understudy.exchange.preview import _bars, preview
from understudy.exchange.refusal import Refused
from understudy.exchange.views import BudgetView, ReleaseView
from understudy.release.bundle import Release

NASTY = '"><script>alert(1)</script>'


def view(**changes: Any) -> ReleaseView:
    known = dict(
        id="0" * 16, member="north", dataset="main", state="accepted", pushed=1.0, decided=2.0,
        by=None, bytes=9, sha256="", pulls=0, name="n", recipe="fedmoments", generator="mixture",
        data="table", unit="record", trust="local", relation="add or remove one", epsilon=1.0,
        delta=1e-5, words="", together=1.0, parameters=1, classes={"no": 0.5, "yes": 0.5},
        conditional=True, preview={},
    )  # fmt: skip
    return ReleaseView(**{**known, **changes})


def drawn(kind: str) -> dict[str, Any]:
    """The preview of what fedmoments makes of toys."""
    schema, records = MAKERS[kind]
    tables = {
        "study": {"name": "toys", "recipe": "fedmoments"},
        "privacy": {"trust": "local", "epsilon": 5.0},
        "simulation": {"data": "-", "sites": 1},
    }
    return preview(run(Study.parse(tables, schema=schema()), [records(40)], seed=0, rows=4))


def test_a_table_is_shown_as_columns_its_label_first(pushed: dict[str, Path]) -> None:
    found = preview(Release.load(pushed["one"]))
    assert [column["name"] for column in found["columns"]] == ["ill", "height", "smoker", "age"]
    for column in found["columns"]:
        assert sum(column["counts"]) == 400
        assert plots.bars(column).count("<rect") == sum(count > 0 for count in column["counts"])


def test_series_are_shown_as_lines_and_images_as_a_sheet_of_classes() -> None:
    found = drawn("series")
    assert [channel["name"] for channel in found["channels"]] == ["pulse", "flow"]
    assert plots.lines(found["channels"][0]).count("<polyline") == 5
    sheet = drawn("image")
    assert sheet["classes"] == ["no", "yes"]
    assert sheet["sheet"].startswith("data:image/png;base64,")


def test_whole_numbers_of_a_short_range_are_counted_one_by_one() -> None:
    import numpy as np

    found = _bars(Column("stage", "integer", 0, 4), np.array([0, 0, 1, 4]))
    assert found["labels"] == ["0", "1", "2", "3", "4"] and found["counts"] == [2, 1, 0, 0, 1]


def column(*counts: int) -> dict[str, Any]:
    labels = [str(i) for i in range(len(counts))]
    return {"name": "age", "kind": "categories", "labels": labels, "counts": list(counts)}


def test_a_push_is_held_against_what_others_have_in_the_pool() -> None:
    pool = [view(member=name, preview={"columns": [column(50, 50)]}) for name in ("south", "east")]
    same = view(preview={"columns": [column(5, 5)]})
    other = view(preview={"columns": [column(10, 0)]}, classes={"no": 0.8, "yes": 0.2})
    assert [each.share for each in unlike(same, pool)] == [0.0, 0.0]
    found = [(each.what, round(each.share, 9)) for each in unlike(other, pool)]
    assert found == [("age", 0.5), ("the shares of classes", 0.3)]
    assert unlike(other, [replace(other, preview={})]) == []  # its own do not count
    assert usual([*pool, other]) == pytest.approx(0.25)  # of .25, .25 and .5
    assert usual([other]) is None


def test_spending_rises_in_steps_and_stays_below_the_cap() -> None:
    budget = BudgetView("north", "ward", 1.0, 2.0, 1e-5, [(50.0, 0.5), (75.0, 1.0)])
    picture = plots.spending(budget, 0.0, 100.0)
    assert 'd="M0,36.0H60.00V28.50H90.00V21.00H120"' in picture
    assert "0.5 from 1 Jan 1970; 1 from 1 Jan 1970; the cap is 2" in picture


@pytest.mark.parametrize(
    "given",
    [{"sort": "colour"}, {"epsilon": "x"}, {"epsilon": "nan"}, {"epsilon": "-1"}, {"page": "0"}],
    ids=str,
)
def test_an_address_that_makes_no_sense_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(Refused) as refusal:
        Query.of(given)
    assert refusal.value.status == 422


def test_a_long_pool_is_shown_page_by_page_with_its_filters() -> None:
    pool = [view(id=f"{i:016x}", epsilon=0.1 * (i + 1)) for i in range(60)]
    shown = Query.of({"epsilon": "5.05", "page": "3"}).shown(pool)
    assert (shown["found"], shown["page"], shown["last"]) == (50, 3, 3)
    assert len(shown["releases"]) == 2
    assert shown["turned"](2) == "/?sort=newest&epsilon=5.05&page=2"
    assert Query.of({"covers": "maybe"}).shown(pool)["found"] == 0


def test_what_strangers_write_stays_text() -> None:
    card = templates.filters["markdown"](
        f"# {NASTY}\n[a](https://x)\n\n![b](https://y)\n\n|a|\n|-|"
    )
    assert "<script" not in card and "<a" not in card and "<img" not in card
    assert "<h4>" in card and '<th scope="col">' in card
    named = {**column(1, 2), "name": NASTY}
    assert "<script" not in plots.bars(named) and "&lt;script&gt;" in plots.bars(named)
