from dataclasses import replace

import numpy as np
import pytest

from understudy.data.schema import Column, Schema
from understudy.evaluation import forecasts
from understudy.evaluation.forecasts import (
    FORECASTING,
    MAE,
    forecasters,
    measure_forecasts,
)
from understudy.evaluation.rows import Rows
from understudy.evaluation.students import silent
from understudy.rng import Streams

SHORT = replace(FORECASTING, steps=300, hidden=32)
SCHEMA = Schema(
    "series",
    "s",
    99,
    columns=tuple(Column(c, "numeric", low=0.0, high=1.0) for c in "ab"),
    shape=(10, 2),
)


def waves(n: int, seed: int) -> np.ndarray:
    draw = np.random.default_rng(seed)
    phase, step = draw.random((n, 1, 2)), np.arange(10)[None, :, None]
    return (np.sin(2 * np.pi * (phase + step / 8)) / 2 + 0.5).astype(np.float32)


def noise(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random((n, 10, 2)).astype(np.float32)


def rows(windows: np.ndarray) -> Rows:
    return Rows(windows.reshape(len(windows), SCHEMA.width), np.zeros(len(windows), np.int64))


def mae(train: np.ndarray, test: np.ndarray, seed: int = 0) -> float:
    learn = forecasters(SHORT)["LSTM"]
    return float(learn(train, test, Streams.from_seed(seed), silent).mean())


@pytest.mark.slow
def test_constant_series_are_predicted_and_the_error_is_in_units_of_the_range() -> None:
    low, high = (np.full((40, 10, 2), v, np.float32) for v in (0.2, 0.7))
    assert mae(low, low) < 0.02
    assert mae(low, high) == pytest.approx(0.5, abs=0.25)


def test_an_lstm_learns_waves_and_beats_repeating_the_last_step() -> None:
    test = waves(100, 1)
    assert mae(waves(300, 0), test) < np.abs(np.diff(test, axis=1)).mean() / 2


def test_noise_teaches_nothing_about_waves() -> None:
    assert mae(noise(300, 0), waves(100, 1)) > 3 * mae(waves(300, 0), waves(100, 1))


def test_best_guess_of_uniform_noise_is_off_by_a_quarter() -> None:
    assert mae(noise(2000, 0), noise(500, 1)) == pytest.approx(0.25, abs=0.02)


@pytest.mark.slow
def test_same_streams_give_the_same_error_and_others_do_not() -> None:
    data = waves(60, 0), waves(30, 1)
    assert mae(*data) == mae(*data) != mae(*data, seed=1)


@pytest.mark.parametrize("name", ["random forest", "two-layer network"])
def test_models_of_the_last_step_judge_the_last_step_alone(name: str) -> None:
    train, test = waves(300, 0), waves(100, 1)
    learn = forecasters(SHORT)[name]
    errors = learn(train, test, Streams.from_seed(0), lambda done, total: None)
    changed = test.copy()
    changed[:, -1] = 1 - changed[:, -1]
    worse = learn(train, changed, Streams.from_seed(0), lambda done, total: None)
    assert errors.shape == (100,)
    assert errors.mean() < np.abs(test[:, -1] - test[:, -2]).mean()
    assert errors.mean() < worse.mean()


def test_one_channel_is_enough() -> None:
    train, test = waves(50, 0)[:, :, :1], waves(20, 1)[:, :, :1]
    for learn in forecasters(SHORT).values():
        errors = learn(train, test, Streams.from_seed(0), lambda done, total: None)
        assert errors.shape == (20,) and errors.max() < 1


@pytest.mark.slow
def test_scores_stand_beside_those_of_real_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecasts, "FORECASTING", SHORT)
    monkeypatch.setattr(forecasts, "MOST", 250)
    seen: list[float] = []
    found = measure_forecasts(
        SCHEMA,
        rows(noise(300, 0)),
        rows(waves(300, 1)),
        rows(waves(80, 2)),
        rng=Streams.from_seed(0),
        progress=lambda stage, done, total: seen.append(done / total),
    )
    assert [m.student for m in found.models] == ["LSTM", "random forest", "two-layer network"]
    for model in found.models:
        error = model[MAE]
        assert error.real is not None and error.real.n == 80
        assert error.real.high < error.synthetic.low
    moved = np.abs(np.diff(waves(80, 2), axis=1))
    for model, expected in zip(found.models, (moved, moved[:, -1], moved[:, -1]), strict=True):
        assert model[MAE].guess is not None
        assert model[MAE].guess.value == pytest.approx(expected.mean(), 1e-4)
    assert seen == sorted(seen) and seen[-1] == 1


def test_other_kinds_have_no_next_step_and_empty_sides_are_a_note() -> None:
    table = Schema("table", "t", 9, columns=(Column("a", "numeric", low=0.0, high=1.0),))
    some, none = rows(waves(9, 0)), rows(waves(0, 0))
    assert measure_forecasts(table, some, some, some, rng=Streams.from_seed(0)).models == ()
    assert measure_forecasts(SCHEMA, some, some, none, rng=Streams.from_seed(0)).notes
