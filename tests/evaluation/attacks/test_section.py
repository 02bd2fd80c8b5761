"""Attacks as a part of an evaluation: report, scores.json, and what cannot be attacked."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from understudy.data.encode import decode
from understudy.errors import UnderstudyError
from understudy.evaluation.attacks.suite import attack
from understudy.evaluation.attacks.targets import unusable
from understudy.evaluation.compare import evaluate
from understudy.evaluation.rows import Rows
from understudy.rng import Streams

from ..conftest import CLAIM, IMAGES, TABLE, FakeRelease, image_rows, table_rows


def rows(draw, n: int, seed: int) -> Rows:
    found = draw(n, np.random.default_rng(seed))
    return Rows(found.x, found.y)


def silent(*done: object) -> None:
    pass


def tried(*sides: Rows, schema=TABLE, claims=(CLAIM,)):
    return attack(schema, sides, claims, rng=Streams.from_seed(0), progress=silent)


def test_the_report_and_the_scores_say_what_was_tried(tmp_path: Path, shorten) -> None:
    shorten(5)
    release = FakeRelease(IMAGES, image_rows)
    real, test = (decode(IMAGES, r.x, r.y) for r in (rows(image_rows, n, n) for n in (100, 120)))
    stages: list[int] = []
    scores = evaluate(
        release,
        real,
        tmp_path / "out",
        test=test,
        attacks=True,
        progress=lambda stage, done, total: stages.append(1000 * done // total),
    )
    assert stages == sorted(stages) and stages[-1] == 1000
    page = scores.report.read_text("utf-8")
    assert page.count('aria-label="Advantage of each attack') == 2  # one is for narrow pages
    assert 'id="attacks"' in page and "ruled out by the claim" in page and "Model inversion" in page
    found = json.loads(scores.path.read_text("utf-8"))["attacks"]
    assert found["mark"].startswith("internal") and len(found["attacks"]) == 6
    assert 0 < found["allowed_advantage"]["value"] < 1
    assert "Members recognised" in page and "real: detected" in found["inversion"]
    assert "epsilon" not in found["average_case"] and "no ε" in found["average_case"]["words"]


def test_attacks_need_controls(tmp_path: Path, table_release, table_records) -> None:
    with pytest.raises(UnderstudyError, match="test rows"):
        evaluate(table_release, table_records, tmp_path / "out", attacks=True)
    assert not (tmp_path / "out").exists()


def test_controls_that_are_members_are_named() -> None:
    real, synthetic = rows(table_rows, 300, 1), rows(table_rows, 300, 2)
    for controls in (
        real,
        Rows(
            *(np.concatenate(p) for p in ((real.x[:150], synthetic.x), (real.y[:150], synthetic.y)))
        ),
    ):
        found = tried(synthetic, real, controls)
        assert found.level == "unknown" and "also among the members" in found.headline
    assert "at least 30" in unusable(real.take(np.arange(20)), synthetic)
    assert not unusable(real, synthetic)


def test_odd_rows_are_attacked_or_named() -> None:
    """One class, a column that is missing throughout, no claim."""

    def odd(r: Rows) -> Rows:
        x = r.x.copy()
        x[:, 1], x[:, 2] = 0.5, 1.0
        return Rows(x, np.zeros_like(r.y))

    sides = [odd(rows(table_rows, 200, seed)) for seed in (1, 2, 3)]
    nothing = replace(CLAIM, epsilon=None)
    found = tried(*sides, claims=(nothing,))
    assert len(found.found) == 7 and found.bound is None
    assert "Nothing is promised" in found.notes[0]
    same = [Rows(np.full_like(r.x, 0.5), np.zeros_like(r.y)) for r in sides]
    flat = tried(*same)
    assert flat.level in ("nothing", "unknown")


def test_a_claim_for_sites_says_what_the_attacks_are_not_about() -> None:
    sides = [rows(table_rows, 150, seed) for seed in (1, 2, 3)]
    found = tried(*sides, claims=(replace(CLAIM, unit="site"),))
    assert found.bound is not None and "whole sites" in found.notes[0]
