"""Was this record used? Four attacks that see nothing but synthetic rows.

Generators that learn by heart place synthetic rows closer to their training rows. Each attack
turns that into evidence per target:

* *neighbourhood*: synthetic rows within ρ of the target, ρ the median distance to the nearest one
  (Hilprecht et al. 2019; chapters 5 and 6 of Jiang's thesis); the nearest decides among equals;
* *closest record* (DCR): how near the nearest synthetic row is (GAN-Leaks, Chen et al. 2020);
* *distance ratio* (NNDR): how much nearer it is than the next one;
* *density ratio* (DOMIAS, van Breugel et al. 2023): density among synthetic rows over density
  among reference rows, both by Gaussian kernels on up to `AXES` principal axes.

The naive attacks are the same with reference rows in place of synthetic ones. That of the density
ratio has other members there, as far as there are enough of them: it sees whether members and
controls are of one source, which the ratio would else mistake for a leak.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from understudy.evaluation.attacks.outcome import Attack, Evidence, by_score
from understudy.evaluation.attacks.targets import FEWEST, Targets, placed
from understudy.evaluation.distances import CHUNK, nearest, squares

__all__ = ["ASKS", "membership", "nearness"]

AXES = 8
ASKS = "was this record used?"
NAMES = ("neighbourhood", "closest record (DCR)", "distance ratio (NNDR)")


def membership(t: Targets) -> Iterator[Attack]:
    """Every attack in turn."""
    synthetic, members, controls, reference = (
        placed(t.schema, rows) for rows in (t.synthetic, t.members, t.controls, t.reference)
    )
    both = np.vstack([members, controls])
    found, naive = (nearness(both, pool) for pool in (synthetic, reference))
    for name, evidence, blind in zip(NAMES, found, naive, strict=True):
        yield by_score(name, ASKS, _sides(evidence), _sides(blind))
    half, others = len(reference) // 2, placed(t.schema, t.others)
    ratio = _density_ratio(both, synthetic, reference)
    apart = (others, reference) if len(others) >= FEWEST else np.split(reference, [half])
    blind = _density_ratio(both, *apart)
    yield by_score("density ratio (DOMIAS)", ASKS, _sides(ratio), _sides(blind))


def _sides(evidence: np.ndarray) -> Evidence:
    half = len(evidence) // 2
    return evidence[:half], evidence[half:]


def nearness(targets: np.ndarray, pool: np.ndarray) -> tuple[np.ndarray, ...]:
    """Evidence of the three attacks by distance."""
    first, second = nearest(targets, pool, 2)[1].T
    radius, chunks = float(np.median(first)) ** 2, range(0, len(targets), CHUNK)
    inside = np.concatenate(
        [(squares(targets[i : i + CHUNK], pool) <= radius).sum(1) for i in chunks]
    )
    closeness = first / (1 + first.max())  # below 1: decides among equal counts only
    return inside - closeness, -first, -first / np.maximum(second, 1e-12)


def _density_ratio(targets: np.ndarray, over: np.ndarray, under: np.ndarray) -> np.ndarray:
    """The logarithm of two kernel densities' ratio."""
    axes = _principal(np.vstack([over, under]))
    places = [(side - axes[0]) @ axes[1] for side in (targets, over, under)]
    return _log_density(places[0], places[1]) - _log_density(places[0], places[2])


def _principal(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean, and the main axes ``[F, a]`` scaled to a spread of one."""
    mean = rows.mean(0)
    spread, axes = np.linalg.eigh(np.cov(rows - mean, rowvar=False).reshape(rows.shape[1], -1))
    kept = spread > 1e-9 * max(spread.max(), 1e-12)
    spread, axes = spread[kept][-AXES:], axes[:, kept][:, -AXES:]
    return mean, axes / np.sqrt(spread)


def _log_density(x: np.ndarray, pool: np.ndarray) -> np.ndarray:
    """Gaussian kernels of Scott's width, up to a constant."""
    width = len(pool) ** (-1 / (4 + pool.shape[1]))
    found = []
    for start in range(0, len(x), CHUNK):
        power = -squares(x[start : start + CHUNK], pool) / (2 * width**2)
        top = power.max(1, keepdims=True)
        found.append(top[:, 0] + np.log(np.exp(power - top).mean(1)))
    scale = pool.shape[1] * np.log(width)
    return np.concatenate(found) - scale
