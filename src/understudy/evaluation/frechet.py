"""Fréchet distance between images: how far two clouds of features are apart, as Gaussians.

The distance is |m₁ - m₂|² + tr(C₁ + C₂ - 2 (C₁C₂)^½) of the features' means and covariances
(Heusel et al. 2017; DPD-fVAE §5.1). What it means depends on the features, so each kind has its
own name. `FID` uses Inception-v3 with the weights the user supplies and nothing else.
`CNN_DISTANCE` uses the penultimate layer of the CNN student, trained on the real training rows: it
is **not** FID, and is comparable only between releases that were evaluated against the same real
rows with the same seed. Both are exact statistics of real rows, hence internal. Beside each stands
the same distance from real training rows to the test rows. (The CNN has seen those training rows,
so that floor is a little high.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from understudy.data.schema import Schema
from understudy.evaluation import students
from understudy.evaluation.rows import Rows
from understudy.evaluation.score import Compared, Score, distance, weights
from understudy.evaluation.students import Tick, silent
from understudy.evaluation.utility import Progress, share
from understudy.nets.student import Student, cnn_student, features, fit, one_thread
from understudy.rng import Streams

if TYPE_CHECKING:
    from understudy.evaluation.inception import Inception

__all__ = ["CNN_DISTANCE", "FID", "Frechet", "frechet_distance", "measure_frechet"]

FID = "FID (Inception-v3)"
CNN_DISTANCE = "Fréchet distance, CNN features (not FID)"
RESAMPLES = 40
CNN_REMARK = (
    f"“{CNN_DISTANCE}” is measured in the last hidden layer of a small CNN that was trained on the "
    "real training data. Compare it only between releases that were evaluated on the same real "
    "data with the same seed, and never with an FID."
)
FID_REMARK = (
    f"“{FID}” depends on the number of images: here {{:,}} synthetic and {{:,}} real ones; papers "
    "use 10,000 or more. It has no interval. Weights: sha256 {}…"
)

Extractor = Callable[[np.ndarray], np.ndarray]
"""From encoded rows ``[n, F]`` to features ``[n, D]``."""
Sides = tuple[Rows, Rows, Rows]
"""Synthetic, real to train on, real to test on."""


@dataclass(frozen=True)
class Frechet:
    """Distances by name, what weakens them, and how they may be read."""

    scores: tuple[Compared, ...] = ()
    notes: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


def measure_frechet(
    schema: Schema,
    synthetic: Rows,
    train: Rows,
    test: Rows,
    *,
    rng: Streams,
    inception: Inception | None = None,
    progress: Progress = silent,
) -> Frechet:
    """Both distances from ``synthetic``, and from ``train``, to ``test``; images only."""
    if schema.kind != "image" or min(len(synthetic), len(test)) < 2:
        return Frechet()
    sides = (synthetic, train, test)
    if inception is None:
        return _by_cnn(schema, sides, rng, progress)
    mine = _by_cnn(schema, sides, rng, share(progress, 0, 200))
    fid = _by_inception(schema, sides, inception, share(progress, 200, 1000))
    return Frechet(mine.scores + fid.scores, mine.notes + fid.notes, mine.remarks + fid.remarks)


def _by_cnn(schema: Schema, sides: Sides, rng: Streams, tell: Progress) -> Frechet:
    train = sides[1]
    spec = cnn_student(schema.shape, schema.n_classes)
    if not spec.convs or len(np.unique(train.y)) < 2:
        why = "images of at least 4 by 4 and real training data of two or more classes"
        return Frechet(notes=(f"{CNN_DISTANCE} needs {why}.",))
    extract = _cnn(spec, train, rng, partial(tell, "features of a CNN"))
    found, notes = _compare(CNN_DISTANCE, extract, sides, rng.numpy("bootstrap"), RESAMPLES)
    return Frechet((found,), notes, (CNN_REMARK,))


def _by_inception(schema: Schema, sides: Sides, network: Inception, tell: Progress) -> Frechet:
    from understudy.evaluation.inception import inception_features

    tick = partial(tell, "features of Inception-v3")
    extract = partial(inception_features, network, schema, tick=tick)
    found, notes = _compare(FID, extract, sides, np.random.default_rng(0), times=0)
    remark = FID_REMARK.format(len(sides[0]), len(sides[2]), network.sha256[:16])
    return Frechet((found,), notes, (remark,))


def _cnn(spec: Student, train: Rows, rng: Streams, tick: Tick) -> Extractor:
    """The penultimate layer of the CNN student of the real training rows."""
    x, y = map(torch.from_numpy, (train.x, train.y))
    # A third of a student's steps: what the features tell apart, they tell apart by then.
    how = replace(students.IMAGE_TRAINING, steps=students.IMAGE_TRAINING.steps // 3)
    params = fit(spec, x, y, rng=rng, training=how, progress=tick)

    @one_thread()
    @torch.no_grad()
    def extract(rows: np.ndarray) -> np.ndarray:
        parts = [features(spec, params, part) for part in torch.from_numpy(rows).split(1024)]
        return torch.cat(parts).numpy()

    return extract


def _few(name: str, clouds: list[np.ndarray]) -> tuple[str, ...]:
    least, width = min(len(c) for c in clouds if len(c)), clouds[0].shape[1]
    if least >= width:
        return ()
    return (
        f"{name}: {least:,} images for {width:,} features. With fewer images than features the "
        "distance is far too large: compare it only between equal numbers of images.",
    )


def frechet_distance(
    a: np.ndarray, b: np.ndarray, drawn: Sequence[np.ndarray | None] = (None, None)
) -> float:
    """Fréchet distance of the Gaussians fitted to features ``[n, D]`` and ``[m, D]``.

    Rows count as often as they are ``drawn``, or once. (C₁C₂)^½ has the trace of
    (C₁^½ C₂ C₁^½)^½, which is symmetric.
    """
    (mean, cover), (other_mean, other) = map(_moments, (a, b), drawn)
    values, vectors = np.linalg.eigh(cover)
    root = vectors * np.sqrt(_positive(values)) @ vectors.T
    shared = np.sqrt(_positive(np.linalg.eigvalsh(root @ other @ root))).sum()
    apart = ((mean - other_mean) ** 2).sum() + np.trace(cover) + np.trace(other)
    return float(max(0.0, apart - 2 * shared))


def _moments(x: np.ndarray, drawn: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance in float64."""
    x = x.astype(np.float64)
    w = np.ones(len(x)) if drawn is None else drawn.astype(np.float64)
    mean = w @ x / w.sum()
    x -= mean
    return mean, (x * w[:, None]).T @ x / (w.sum() - 1)


def _positive(values: np.ndarray) -> np.ndarray:
    """Eigenvalues without those that are zero but for rounding: their roots would add up."""
    least = len(values) * np.finfo(np.float64).eps * max(values.max(initial=0), 0)
    return np.where(values > least, values, 0.0)


def _compare(
    name: str, extract: Extractor, sides: Sides, rng: np.random.Generator, times: int
) -> tuple[Compared, tuple[str, ...]]:
    """The distance in these features, and what weakens it."""
    whole = extract(np.concatenate([rows.x for rows in sides]))  # in one go: one progress bar
    clouds = np.split(whole, np.cumsum([len(rows) for rows in sides])[:-1])
    synthetic, train, test = clouds
    real = _score(name, train, test, rng, times) if len(train) > 1 else None
    return Compared(name, _score(name, synthetic, test, rng, times), real), _few(name, clouds)


def _score(
    name: str, side: np.ndarray, test: np.ndarray, rng: np.random.Generator, times: int
) -> Score:
    pairs = zip(*(weights(len(x), rng=rng, times=times) for x in (side, test)), strict=True)
    draws = [frechet_distance(side, test, pair) for pair in pairs]
    return distance(name, np.array(draws), len(test))
