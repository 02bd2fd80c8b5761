"""Rows and releases that cannot be attacked: a clear error, or a section that says why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from contracts.toys import study
from release.classes import SQUARES, squares
from understudy.data.encode import decode, encode
from understudy.data.table import read
from understudy.errors import UnderstudyError
from understudy.evaluation.attacks.suite import Attacks, attack
from understudy.evaluation.compare import evaluate
from understudy.evaluation.rows import Rows
from understudy.privacy.claim import Claim
from understudy.rng import Streams
from understudy.simulation import run

from ..conftest import CLAIM, IMAGES, TABLE, FakeRelease, image_rows, table_rows


def frame(n: int, seed: int) -> pd.DataFrame:
    rows = table_rows(n, np.random.default_rng(seed))
    found = decode(TABLE, rows.x, rows.y).frame
    assert found is not None
    return found


@pytest.fixture
def attacked(tmp_path: Path) -> Callable[..., Attacks]:
    """Attacks for these members and controls, read from files."""

    def read_back(rows: pd.DataFrame) -> Rows:
        rows.to_csv(tmp_path / "rows.csv", index=False)
        found = encode(TABLE, read(tmp_path / "rows.csv", TABLE))
        return Rows(found.x, found.y)

    def made(real: pd.DataFrame, test: pd.DataFrame, claim: Claim = CLAIM) -> Attacks:
        sides = (read_back(frame(400, 9)), read_back(real), read_back(test))
        rng = Streams.from_seed(0)
        return attack(TABLE, sides, (claim,), rng=rng, progress=lambda *done: None)

    return made


@pytest.mark.parametrize("change, named", [("drop", "smoker"), ("add", "weight")])
def test_rows_with_other_columns_are_refused(tmp_path: Path, change: str, named: str) -> None:
    files = [tmp_path / name for name in ("real.csv", "test.csv")]
    odd = frame(90, 2).drop(columns=named) if change == "drop" else frame(90, 2).assign(weight=1)
    for path, rows in zip(files, (frame(60, 1), odd), strict=True):
        rows.to_csv(path, index=False)
    release = FakeRelease(TABLE, table_rows)
    with pytest.raises(UnderstudyError, match=named):
        evaluate(release, files[0], tmp_path / "out", test=files[1], attacks=True)
    assert not (tmp_path / "out").exists()


def test_too_few_rows_say_how_many_are_needed(attacked) -> None:
    found = attacked(frame(12, 1), frame(90, 2))
    assert found.level == "unknown" and "at least 30 members" in found.headline
    assert not found.found and found.missing


def test_rows_of_one_class_are_attacked(attacked) -> None:
    found = attacked(frame(60, 1).assign(ill=True), frame(90, 2).assign(ill=True))
    assert len(found.found) == 7 and found.level in ("nothing", "found")


def test_a_column_without_any_value_is_attacked(attacked) -> None:
    found = attacked(*(frame(n, n).assign(score=np.nan) for n in (60, 90)))
    assert len(found.found) == 7 and all(0 <= a.p <= 1 for a in found.found)


def test_controls_that_are_members_are_said_to_be(attacked) -> None:
    rows = frame(90, 1)
    found = attacked(rows, rows)
    assert not found.found and "also among the members" in found.headline


def test_a_release_that_promises_nothing_has_no_bound_and_says_so(attacked) -> None:
    found = attacked(frame(60, 1), frame(90, 2), replace(CLAIM, epsilon=None))
    assert found.bound is None and "Nothing is promised" in found.notes[0]
    assert len(found.found) == 7


def test_a_release_of_a_classifier_has_no_rows_to_attack(tmp_path: Path) -> None:
    asked = study(
        "signds", 3, schema=SQUARES, privacy={"epsilon": 8.0, "noise": None},
        recipe={"model": "nn", "hidden": 2},
    )  # fmt: skip
    made = run(asked, [squares(8, seed) for seed in range(3)], seed=0)
    with pytest.raises(UnderstudyError, match="classifier"):
        evaluate(made, squares(60), tmp_path / "out", test=squares(90, 1), attacks=True)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "change, members, said",
    [
        (lambda rows: rows, 3, "at least 30 members"),
        (lambda rows: rows.assign(ill=True), 90, ""),
        (lambda rows: rows.assign(score=np.nan), 90, ""),
        (lambda rows: frame(90, 1), 90, "also among the members"),
    ],
    ids=["fewer rows than folds", "one class", "no value in a column", "members as controls"],
)
def test_a_whole_report_is_made_of_odd_rows_and_says_what_is_missing(
    tmp_path: Path, shorten, change: Callable, members: int, said: str
) -> None:
    shorten(5)
    files = [tmp_path / name for name in ("real.csv", "test.csv")]
    for path, rows in zip(files, (frame(members, 1), frame(90, 2)), strict=True):
        change(rows).to_csv(path, index=False)
    release = FakeRelease(TABLE, table_rows)
    found = evaluate(release, files[0], tmp_path / "out", test=files[1], attacks=True)
    assert found.attacks is not None
    page = " ".join(found.report.read_text("utf-8").split())
    assert bool(found.attacks.found) == (not said) and said in found.attacks.headline
    assert found.attacks.headline in page


def test_a_report_on_a_release_without_a_claim_says_that_nothing_bounds_an_attack(
    tmp_path: Path, shorten
) -> None:
    shorten(5)
    release = FakeRelease(TABLE, table_rows, claims=(replace(CLAIM, epsilon=None),))
    files = [tmp_path / name for name in ("real.csv", "test.csv")]
    for n, path in enumerate(files):
        frame(90, n).to_csv(path, index=False)
    found = evaluate(release, files[0], tmp_path / "out", test=files[1], attacks=True)
    assert found.attacks is not None and found.attacks.bound is None
    assert "nothing bounds an attack" in " ".join(found.report.read_text("utf-8").split())


def test_images_of_one_class_are_attacked_but_not_rebuilt() -> None:
    sides = [image_rows(90, np.random.default_rng(seed)) for seed in (1, 2, 3)]
    rows = [Rows(side.x, np.zeros_like(side.y)) for side in sides]
    tick = lambda *done: None  # noqa: E731
    found = attack(IMAGES, tuple(rows), (CLAIM,), rng=Streams.from_seed(0), progress=tick)
    assert found.inversion is None and any("one class only" in why for why in found.missing)
    assert found.found
