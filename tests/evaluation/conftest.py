"""A small release made of Gaussians, and the data it stands in for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from understudy.data.encode import Encoded, decode
from understudy.data.schema import Column, Schema
from understudy.data.table import Records
from understudy.evaluation import embedding, forecasts, report, students
from understudy.evaluation.compare import evaluate
from understudy.privacy.account import Event
from understudy.privacy.claim import Claim

CLAIM = Claim(
    adversary="the public",
    unit="record",
    relation="add or remove one",
    trust="the server is trusted",
    sampling="every site joins every round; no amplification",
    events=(Event(noise=(3.73,), rate=None, count=1),),
    delta=1e-5,
    epsilon=1.0,
    epsilon_rdp=1.12,
    noise_source="os",
    excluded=("the schema is public input",),
    caveats=("noise is floating-point Gaussian",),
)


@dataclass
class FakeRelease:
    schema: Schema
    draw: Callable[[int, np.random.Generator], Encoded]
    claims: tuple[Claim, ...] = (CLAIM,)
    path: Path | None = None
    agreement: dict[str, Any] = field(default_factory=dict)

    @property
    def manifest(self) -> dict[str, Any]:
        return {"name": "test", "recipe": "fake", "study": "ab" * 32, "plan": {"rounds": 1}}

    def sample(self, n: int, label: Any = None, seed: int | None = None) -> Records:
        rows = self.draw(n, np.random.default_rng(seed))
        return decode(self.schema, rows.x, rows.y)


TABLE = Schema(
    "table",
    "clinic",
    400,
    columns=(
        Column("age", "integer", low=0, high=120),
        Column("score", "numeric", low=-5.0, high=5.0, missing=True),
        Column("seen", "date", low="2020-01-01", high="2024-12-31"),
        Column("place", "categorical", categories=("$north$", "south <b>", "east"), missing=True),
        Column("smoker", "boolean"),
        Column("ill", "boolean"),
    ),
    label="ill",
)
SERIES = Schema(
    "series",
    "waves",
    300,
    columns=tuple(Column(c, "numeric", low=-1.0, high=1.0) for c in ("slow", "fast <b>")),
    shape=(8, 2),
)
IMAGES = Schema("image", "dots", 300, classes=("left", "right", "both"), shape=(6, 6))


def table_rows(n: int, rng: np.random.Generator) -> Encoded:
    """Two classes that age and score tell apart; some cells are missing."""
    y = rng.integers(0, 2, n)
    x = np.zeros((n, TABLE.width), np.float32)
    x[:, 0] = np.clip(rng.normal(0.35 + 0.25 * y, 0.1), 0, 1)
    x[:, 1] = np.clip(rng.normal(0.4 + 0.2 * y, 0.1), 0, 1)
    x[:, 2] = rng.random(n) < 0.1
    x[x[:, 2] == 1, 1] = 0.5
    x[:, 3] = rng.random(n)
    x[np.arange(n), 4 + rng.integers(0, 4, n)] = 1
    x[:, 8] = rng.random(n) < 0.3
    return Encoded(x, y.astype(np.int64))


def image_rows(n: int, rng: np.random.Generator) -> Encoded:
    """A bright left half, right half, or both."""
    y = rng.integers(0, 3, n)
    x = rng.random((n, 6, 6)).astype(np.float32) * 0.5
    x[y != 1, :, :3] += 0.4
    x[y != 0, :, 3:] += 0.4
    return Encoded(x.reshape(n, 36), y.astype(np.int64))


def series_rows(n: int, rng: np.random.Generator) -> Encoded:
    """Two waves with phases of their own."""
    phase, step = rng.random((n, 1, 2)), np.arange(8)[None, :, None]
    waves = np.sin(2 * np.pi * (phase + step * np.array([1 / 16, 1 / 6])))
    return Encoded((waves / 2 + 0.5).reshape(n, 16).astype(np.float32), np.zeros(n, np.int64))


KINDS = ((TABLE, table_rows), (IMAGES, image_rows), (SERIES, series_rows))


def cut_training(patch: pytest.MonkeyPatch, steps: int) -> None:
    for name in ("TRAINING", "IMAGE_TRAINING"):
        how = replace(getattr(students, name), steps=steps)
        patch.setattr(students, name, how)
    for name in ("TREES", "ROUNDS"):
        patch.setattr(students, name, min(steps, 20))
    patch.setattr(forecasts, "FORECASTING", replace(forecasts.FORECASTING, steps=steps))
    patch.setattr(embedding, "STEPS", 250)


@pytest.fixture
def shorten(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Let students train for so many steps only, and draw few pictures."""
    monkeypatch.setattr(report, "MOST_COLUMNS", 1)
    monkeypatch.setattr(report, "MOST_PAIRS", 1)
    return lambda steps: cut_training(monkeypatch, steps)


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A report on a table, one on images and one on series, made once."""
    folder = tmp_path_factory.mktemp("reports")
    with pytest.MonkeyPatch.context() as patch:
        cut_training(patch, 20)
        found = []
        for schema, draw in KINDS:
            rows = draw(200, np.random.default_rng(5))
            real = decode(schema, rows.x, rows.y)
            found.append(evaluate(FakeRelease(schema, draw), real, folder / schema.name).report)
    return found


@pytest.fixture
def table_release() -> FakeRelease:
    return FakeRelease(TABLE, table_rows)


@pytest.fixture
def image_release() -> FakeRelease:
    return FakeRelease(IMAGES, image_rows)


@pytest.fixture
def series_release() -> FakeRelease:
    return FakeRelease(SERIES, series_rows)


@pytest.fixture
def series_records() -> Records:
    rows = series_rows(200, np.random.default_rng(5))
    return decode(SERIES, rows.x, rows.y)


@pytest.fixture
def table_records() -> Records:
    rows = table_rows(300, np.random.default_rng(5))
    return decode(TABLE, rows.x, rows.y)


@pytest.fixture
def image_records() -> Records:
    rows = image_rows(200, np.random.default_rng(5))
    return decode(IMAGES, rows.x, rows.y)
