"""Data to start with: no download, and a schema written by hand.

The table and the images are real and come with scikit-learn; the series are made here.
The bounds below are round figures that leave room on both sides, written down once;
nothing is fitted when the data is loaded. All sets are public.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from understudy.data.records import by_time, crossing
from understudy.data.schema import Column, Schema
from understudy.data.table import Records, from_frame
from understudy.errors import DataError

__all__ = ["BUNDLED", "bundled", "holdout", "sines"]

SINES = 5_000
"""How many series "sines" has; FedSTDG takes 50,000 from the same law: `sines` draws any number."""

# name: low, high and decimals of the mean, its standard error, and the worst of three cells
_CELLS: dict[str, tuple[tuple[float, float, int], ...]] = {
    "radius": ((5, 35, 2), (0, 4, 4), (5, 45, 2)),
    "texture": ((5, 45, 2), (0, 6, 4), (10, 60, 2)),
    "perimeter": ((30, 220, 2), (0, 30, 3), (40, 300, 2)),
    "area": ((100, 3000, 1), (0, 700, 2), (100, 5000, 1)),
    "smoothness": ((0.04, 0.2, 5), (0, 0.04, 6), (0.05, 0.3, 5)),
    "compactness": ((0, 0.4, 5), (0, 0.2, 6), (0, 1.2, 5)),
    "concavity": ((0, 0.5, 5), (0, 0.5, 6), (0, 1.5, 5)),
    "concave points": ((0, 0.25, 5), (0, 0.07, 6), (0, 0.35, 5)),
    "symmetry": ((0.1, 0.4, 4), (0, 0.1, 6), (0.1, 0.7, 4)),
    "fractal dimension": ((0.04, 0.12, 5), (0, 0.04, 6), (0.04, 0.25, 5)),
}


def bundled(name: str) -> tuple[Schema, Records]:
    """Schema and records of "breast_cancer" (a table), "digits" (images) or "sines" (series)."""
    if name not in BUNDLED:
        raise DataError(f"bundled data among {', '.join(BUNDLED)}", repr(name), "choose one")
    return BUNDLED[name]()


def holdout(
    records: Records, share: float = 0.25, *, rng: np.random.Generator
) -> tuple[Records, Records]:
    """Cut records at random into (train, test), ``share`` of them for the test.

    Windows that overlap are cut by time: the last ones of each recording serve as the test, and
    those that share steps with them are in neither part.
    """
    parts = _cut_by_time(records, share)
    if parts is not None:
        return parts
    order = rng.permutation(len(records))
    cut = round(len(records) * (1 - share))
    return records.take(np.sort(order[:cut])), records.take(np.sort(order[cut:]))


def _cut_by_time(records: Records, share: float) -> tuple[Records, Records] | None:
    """The parts if windows overlap."""
    timed = by_time(records)
    if timed is None or records.series is None:
        return None
    (order, recording, start), length = timed, records.series.shape[1]
    if not crossing(np.arange(len(order)), recording, start, length).any():
        return None
    counts = np.bincount(recording)
    place = np.arange(len(order)) - (np.cumsum(counts) - counts)[recording]
    late = place >= np.rint(counts * (1 - share))[recording]
    shared = crossing(late, recording, start, length)
    train, test = order[~late & ~shared], order[late]
    return records.take(np.sort(train)), records.take(np.sort(test))


def _breast_cancer() -> tuple[Schema, Records]:
    from sklearn.datasets import load_breast_cancer

    columns = [
        Column(name, "numeric", low, high, decimals=decimals)
        for i, words in enumerate(("mean {}", "{} error", "worst {}"))
        for name, (low, high, decimals) in ((words.format(c), _CELLS[c][i]) for c in _CELLS)
    ]
    label = Column("diagnosis", "categorical", categories=("benign", "malignant"))
    schema = Schema("table", "breast_cancer", 569, (*columns, label), label="diagnosis")
    held = load_breast_cancer()
    frame = pd.DataFrame(held.data, columns=[c.name for c in columns])
    frame["diagnosis"] = np.array(held.target_names)[held.target]
    return schema, from_frame(frame, schema)


def _digits() -> tuple[Schema, Records]:
    from sklearn.datasets import load_digits

    held = load_digits()
    names = tuple(str(i) for i in range(10))
    schema = Schema("image", "digits", 1797, classes=names, shape=(8, 8))
    images = np.rint(held.images * (255 / 16)).astype(np.uint8)
    return schema, Records(images=images, labels=held.target.astype(np.int64))


def sines(n: int, *, rng: np.random.Generator) -> np.ndarray:
    """Series [n, 30, 5] by TimeGAN's law (Yoon et al. 2019): (sin(f·t + φ) + 1) / 2.

    Steps t = 0 … 29; frequency f and phase φ uniform on [0, 0.1), for each series and channel.
    """
    rate, phase = rng.uniform(0, 0.1, (2, n, 1, 5))
    return (np.sin(rate * np.arange(30)[:, None] + phase) + 1) / 2


def _sines() -> tuple[Schema, Records]:
    channels = tuple(Column(f"wave{i}", "numeric", 0.0, 1.0, decimals=6) for i in range(1, 6))
    layout = dict(layout="long", series="series", time="step", every=1.0)
    schema = Schema("series", "sines", SINES, channels, shape=(30, 5), **layout)  # type: ignore[arg-type]
    held = sines(SINES, rng=np.random.default_rng(0)).round(6)
    place = np.arange(SINES)
    return schema, Records(series=held, recording=place, start=np.zeros_like(place))


BUNDLED = {"breast_cancer": _breast_cancer, "digits": _digits, "sines": _sines}
