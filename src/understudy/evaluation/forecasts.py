"""Series: how well a model predicts the next step when it only ever saw synthetic series.

The usefulness test of Jiang's thesis (§5.6.2, table 5.3), after the predictive score of TimeGAN
(Yoon et al. 2019): a one-layer LSTM learns from synthetic windows to predict step t + 1 from the
steps up to t, and is tested on held-out real windows. The score is the mean absolute error over
all steps, channels and windows, in units of the public range ([0, 1] after encoding). The same
model trained on real rows stands beside it. A random forest and a two-layer network do the same
for the last step alone, from all steps before it.

The thesis gives neither size nor settings of its LSTM. Here it has 64 units and a linear output
(a sigmoid flattens what lies near the public bounds), learns by Adam from the absolute error, and
takes a fixed number of steps with a falling rate, enough for real rows to converge. What it
predicts is one number per channel, so it is told nothing about classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from torch import Tensor

from understudy.data.schema import Schema
from understudy.evaluation.measures import absolute_error, compare
from understudy.evaluation.rows import Rows
from understudy.evaluation.score import Compared
from understudy.evaluation.students import Tick, silent
from understudy.evaluation.utility import Progress, StudentScores, ticker
from understudy.nets.student import Dense, Student, init, logits, one_thread
from understudy.rng import Streams

__all__ = [
    "MAE",
    "REPEATING",
    "Forecaster",
    "Forecasting",
    "Forecasts",
    "forecasters",
    "measure_forecasts",
]

MAE = "next-step error (MAE)"
REPEATING = "repeating the last step"
"""What guessing is."""
EVERY_STEP = "LSTM"
"""The model that predicts every step; the others predict the last one."""
TREES = 50
MOST = 4000


@dataclass(frozen=True)
class Forecasting:
    """How the networks learn; the rate falls linearly to zero."""

    steps: int = 1500
    batch: int = 128
    rate: float = 5e-3
    hidden: int = 64
    dense: int = 96


FORECASTING = Forecasting()

Forecaster = Callable[[np.ndarray, np.ndarray, Streams, Tick], np.ndarray]
"""From windows ``[n, L, W]`` to learn from and to be tested on: the error of each of the latter."""
Network = tuple[list[Any], Callable[[Tensor], Tensor]]
"""Parameters, and the error of each window of a batch under them."""


@dataclass(frozen=True)
class Forecasts:
    """Every model's error beside that of repeating the last step, which needs no model."""

    models: tuple[StudentScores, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def main(self) -> Compared | None:
        """The LSTM's error: the one to quote."""
        return self.models[0][MAE] if self.models else None


def forecasters(training: Forecasting | None = None) -> Mapping[str, Forecaster]:
    """The models by name: the LSTM for all steps, the other two for the last one."""
    how = training or FORECASTING
    return {EVERY_STEP: _lstm(how), "random forest": _forest, "two-layer network": _dense(how)}


def measure_forecasts(
    schema: Schema,
    synthetic: Rows,
    train: Rows,
    test: Rows,
    *,
    rng: Streams,
    progress: Progress = silent,
) -> Forecasts:
    """Train every model on ``synthetic`` and on ``train``; test both on ``test``. Series only."""
    if schema.kind != "series":
        return Forecasts()
    if schema.shape[0] < 2 or not len(synthetic) or not len(test):
        why = "Predicting the next step needs two or more steps, synthetic rows and held-out rows."
        return Forecasts(notes=(why,))
    sides = {"synthetic": synthetic, "real": train} if len(train) else {"synthetic": synthetic}
    held = _windows(schema, test)
    table = forecasters()
    models = []
    for i, (name, learn) in enumerate(table.items()):
        found = {}
        for j, (source, rows) in enumerate(sides.items()):
            stage = f"next step, {name} on {source}"
            tick = ticker(progress, stage, len(sides) * i + j, len(sides) * len(table))
            streams = rng.child("forecaster", i)
            windows = _windows(schema, rows.some(MOST, streams.numpy("thin")))
            found[source] = absolute_error(MAE, learn(windows, held, streams, tick))
            tick(1, 1)
        guess = absolute_error(MAE, _repeated(held, every=name == EVERY_STEP))
        scores = (compare(found["synthetic"], found.get("real"), guess),)
        models.append(StudentScores(name, scores))
    notes = () if len(train) else ("No real training rows: models learn from synthetic rows only.",)
    return Forecasts(tuple(models), notes)


def _repeated(held: np.ndarray, *, every: bool) -> np.ndarray:
    """The error of repeating the step before: over every step, or for the last one."""
    moved = np.abs(np.diff(held, axis=1))
    return moved.mean((1, 2)) if every else moved[:, -1].mean(1)


def _windows(schema: Schema, rows: Rows) -> np.ndarray:
    return rows.x.reshape(len(rows), *schema.shape)


def _lstm(how: Forecasting) -> Forecaster:
    def build(length: int, width: int, rng: torch.Generator) -> Network:
        cells: torch.nn.Module = torch.nn.LSTM(width, how.hidden, batch_first=True, device="meta")
        readout: torch.nn.Module = torch.nn.Linear(how.hidden, width, device="meta")
        # From "meta", so that nothing is drawn from torch's global generator.
        cells, readout = (net.to_empty(device="cpu") for net in (cells, readout))
        params = [*cells.parameters(), *readout.parameters()]
        _start(params, 1 / math.sqrt(how.hidden), rng)
        return params, lambda x: (readout(cells(x[:, :-1])[0]) - x[:, 1:]).abs().mean((1, 2))

    return _trained(build, how)


def _dense(how: Forecasting) -> Forecaster:
    def build(length: int, width: int, rng: torch.Generator) -> Network:
        spec = Student(((length - 1) * width,), width, hidden=(Dense(how.dense),))
        params = {k: v.requires_grad_() for k, v in init(spec, rng=rng).items()}

        def error(x: Tensor) -> Tensor:
            return (logits(spec, params, x[:, :-1].flatten(1)) - x[:, -1]).abs().mean(1)

        return list(params.values()), error

    return _trained(build, how)


def _trained(build: Callable[[int, int, torch.Generator], Network], how: Forecasting) -> Forecaster:
    """The forecaster that trains this network."""

    @one_thread()
    def learn(train: np.ndarray, test: np.ndarray, rng: Streams, tick: Tick) -> np.ndarray:
        length, width = train.shape[1:]
        network = build(length, width, rng.torch("weights"))
        _descend(network, train, how, rng, tick)
        windows = torch.from_numpy(np.ascontiguousarray(test, np.float32))
        with torch.no_grad():
            found = torch.cat([network[1](part) for part in windows.split(1024)])
        return found.numpy().astype(np.float64)

    return learn


def _forest(train: np.ndarray, test: np.ndarray, rng: Streams, tick: Tick) -> np.ndarray:
    from sklearn.ensemble import RandomForestRegressor

    seed = int(rng.numpy("forest").integers(2**31))
    past, last = train[:, :-1].reshape(len(train), -1), train[:, -1]
    with threadpool_limits(1):
        model = RandomForestRegressor(TREES, max_features="sqrt", random_state=seed)
        model.fit(past, last[:, 0] if last.shape[1] == 1 else last)
        guess = model.predict(test[:, :-1].reshape(len(test), -1)).reshape(len(test), -1)
    return np.abs(guess - test[:, -1]).mean(1)


@torch.no_grad()
def _start(params: list[torch.nn.Parameter], limit: float, rng: torch.Generator) -> None:
    """PyTorch's own initial weights, from a generator of ours."""
    for value in params:
        value.uniform_(-limit, limit, generator=rng)


def _descend(
    network: Network, train: np.ndarray, how: Forecasting, rng: Streams, tick: Tick
) -> None:
    """Adam on batches of windows, each epoch in a new order."""
    params, error = network
    windows = torch.from_numpy(np.ascontiguousarray(train, np.float32))
    optimiser = torch.optim.Adam(params, how.rate, fused=True)
    order, rows = rng.torch("batches"), torch.empty(0, dtype=torch.int64)
    for step in range(how.steps):
        if len(rows) < min(how.batch, len(windows)):
            rows = torch.randperm(len(windows), generator=order)
        batch, rows = rows[: how.batch], rows[how.batch :]
        optimiser.param_groups[0]["lr"] = how.rate * (1 - step / how.steps)
        optimiser.zero_grad()
        error(windows[batch]).mean().backward()
        optimiser.step()
        if (step + 1) % 50 == 0:
            tick(step + 1, how.steps)
