"""Planted leaks: a generator that learned by heart is caught, one that saw other rows is not."""

from __future__ import annotations

import numpy as np
import pytest

from understudy.data.schema import Schema
from understudy.evaluation.attacks.membership import membership
from understudy.evaluation.attacks.memorised import memorised
from understudy.evaluation.attacks.outcome import ANYWAY, FOUND, NOTHING
from understudy.evaluation.attacks.shadow import shadow_models
from understudy.evaluation.attacks.suite import attack
from understudy.evaluation.attacks.targets import draw_targets
from understudy.evaluation.rows import Rows
from understudy.rng import Streams

from ..conftest import CLAIM, IMAGES, SERIES, TABLE, image_rows, series_rows, table_rows

KINDS = {
    "table": (TABLE, table_rows),
    "image": (IMAGES, image_rows),
    "series": (SERIES, series_rows),
}


def made(draw, n: int, seed: int) -> Rows:
    found = draw(n, np.random.default_rng(seed))
    return Rows(found.x, found.y)


def parrot(rows: Rows, n: int) -> Rows:
    """A generator that repeats the rows it was trained on."""
    return rows.take(np.random.default_rng(9).integers(0, len(rows), n))


def sides(kind: str, leak: bool) -> tuple[Schema, tuple[Rows, Rows, Rows]]:
    schema, draw = KINDS[kind]
    real, controls = made(draw, 400, 1), made(draw, 900, 2)
    synthetic = parrot(real, 1000) if leak else made(draw, 1000, 3)
    return schema, (synthetic, real, controls)


@pytest.mark.parametrize("kind", KINDS)
def test_every_membership_attack_catches_a_generator_that_learned_by_heart(kind: str) -> None:
    schema, rows = sides(kind, leak=True)
    t = draw_targets(schema, *rows, rng=np.random.default_rng(0))
    found = list(membership(t))
    assert len(found) == 4
    for one in found:
        assert one.p < 0.01 and one.level == FOUND, one.name
        assert one.advantage.low > 0 and one.auc is not None and one.auc.low > 0.5, one.name
    assert memorised(t).nearest_is_member.low > 0.9
    assert memorised(t).copies[0] > 0.9


@pytest.mark.parametrize("kind", KINDS)
def test_no_membership_attack_blames_a_generator_that_saw_other_rows(kind: str) -> None:
    schema, rows = sides(kind, leak=False)
    t = draw_targets(schema, *rows, rng=np.random.default_rng(0))
    for one in membership(t):
        assert one.p > 0.01 and one.level == NOTHING, one.name
        assert one.advantage.low <= 0 <= one.advantage.high, one.name
    share = memorised(t).nearest_is_member
    assert share.low <= 0.5 <= share.high


@pytest.mark.parametrize("kind", KINDS)
def test_shadow_models_catch_learning_by_heart_and_nothing_else(kind: str) -> None:
    for leak in (True, False):
        schema, (synthetic, real, controls) = sides(kind, leak)
        t = draw_targets(schema, synthetic, real, controls, rng=np.random.default_rng(0))
        found = shadow_models(
            t, lambda rows, rng: parrot(rows, 1000), rng=Streams.from_seed(0), shadows=8
        )
        assert (found.p < 0.01 and found.advantage.low > 0) == leak
        assert found.naive_p > 0.001


def test_shadow_models_catch_a_model_that_is_no_copy_of_any_row() -> None:
    """Its synthetic rows lean towards its few training rows, none of which is repeated."""
    schema, (_, real, controls) = sides("table", leak=True)
    few = real.take(np.arange(60))

    def make(rows: Rows, rng: Streams) -> Rows:
        """Averages of two training rows, as numbers."""
        draw = rng.numpy("pairs")
        a, b = (draw.integers(0, len(rows), 1000) for _ in range(2))
        return Rows((rows.x[a] + rows.x[b]) / 2, rows.y[a])

    t = draw_targets(
        schema,
        make(few, Streams.from_seed(1)),
        few,
        controls.take(np.arange(240)),
        rng=np.random.default_rng(0),
    )
    found = shadow_models(t, make, rng=Streams.from_seed(0), shadows=16)
    assert found.p < 0.01


def silent(*done: object) -> None:
    pass


def test_inference_attacks_catch_it_too_and_the_claim_is_called_broken() -> None:
    schema, rows = sides("table", leak=True)
    found = attack(schema, rows, (CLAIM,), rng=Streams.from_seed(0), progress=silent)
    assert {a.name for a in found.found if a.level == FOUND} >= {
        "linkability", "attribute inference", "singling out",
    }  # fmt: skip
    assert found.level == "broken" and "More than the claim allows" in found.headline


def test_a_harmless_release_is_reported_as_such() -> None:
    schema, rows = sides("table", leak=False)
    found = attack(schema, rows, (CLAIM,), rng=Streams.from_seed(0), progress=silent)
    assert found.level == "nothing" and "proves nothing" in found.headline
    assert all(a.p > 0.01 for a in found.found)


def test_rates_of_false_alarms_are_as_stated() -> None:
    """Over harmless releases each attack is flagged about one time in a hundred."""
    flags = [
        one.p < 0.01
        for seed in range(20)
        for one in membership(
            draw_targets(
                TABLE,
                made(table_rows, 300, 3 * seed),
                made(table_rows, 60, 3 * seed + 1),
                made(table_rows, 160, 3 * seed + 2),
                rng=np.random.default_rng(seed),
            )
        )
    ]
    assert np.mean(flags) < 0.06


def test_members_and_controls_of_two_kinds_are_told_from_a_leak() -> None:
    """What the naive attack finds too is not the release's fault."""
    schema, (synthetic, _, controls) = sides("table", leak=False)
    odd = made(table_rows, 400, 5)
    moved = Rows(
        np.clip(odd.x * np.array([0.1] + [1] * (odd.x.shape[1] - 1)), 0, 1).astype(np.float32),
        odd.y,
    )
    found = attack(
        schema, (synthetic, controls, moved), (CLAIM,), rng=Streams.from_seed(0), progress=silent
    )
    assert found.level == "unclear"


def test_a_slight_difference_of_two_sources_is_no_leak() -> None:
    """Test images are not by the writers of the training images: the density ratio sees that."""

    def drawn(n: int, seed: int, shift: float) -> Rows:
        rows = made(table_rows, n, seed)
        x = rows.x.copy()
        x[:, [0, 1]] = np.clip(x[:, [0, 1]] + shift, 0, 1)
        return Rows(x, rows.y)

    sides = (drawn(4000, 1, 0.06), drawn(4000, 2, 0.06), drawn(4000, 3, 0.0))
    t = draw_targets(TABLE, *sides, rng=np.random.default_rng(0))
    assert len(t.others) == 3000
    ratio = list(membership(t))[-1]
    assert ratio.p < 0.01 and ratio.naive_p < 0.001 and ratio.level == ANYWAY
    told = attack(TABLE, sides, (CLAIM,), rng=Streams.from_seed(0), progress=silent)
    assert told.level in ("nothing", "unclear") and "without the release" in told.headline
    same = draw_targets(
        TABLE, *(drawn(4000, seed, 0.0) for seed in (4, 5, 6)), rng=np.random.default_rng(0)
    )
    assert list(membership(same))[-1].naive_p > 0.01
