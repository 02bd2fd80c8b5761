"""Copies and near-copies: whose rows are the synthetic ones nearest to?

Among as many members as controls, the nearest real row of a synthetic one is a member half of the
time, unless members were learned by heart. Synthetic rows crowd around the same real ones, so they
are not counted as independent: the interval is that of the members' and controls' shares being
dealt out at random.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from understudy.evaluation.attacks.targets import Targets, placed
from understudy.evaluation.distances import CHUNK, nearest, squares
from understudy.evaluation.score import Score, Z

__all__ = ["Memorised", "memorised"]


@dataclass(frozen=True)
class Memorised:
    """How often a member is nearest, and copies of members and of controls among synthetic rows.

    ``dcr`` and ``nndr`` are medians over synthetic rows (distance to the closest record; its ratio
    to the next), to members and to controls.
    """

    nearest_is_member: Score
    copies: tuple[float, float]
    dcr: tuple[float, float]
    nndr: tuple[float, float]


def memorised(t: Targets) -> Memorised:
    """Measure all of it on the targets."""
    pool = placed(t.schema, t.synthetic)
    sides = [placed(t.schema, rows) for rows in (t.members, t.controls)]
    two = [nearest(pool, side, 2)[1] for side in sides]
    votes = _votes(pool, np.vstack(sides))
    n, rows = t.n, len(pool)
    share = votes[:n].sum() / rows
    sd = np.sqrt(n / (2 * n - 1) / 2 * ((votes - votes.mean()) ** 2).sum()) / rows
    score = Score("nearest is a member", float(share), *_ends(share, sd), rows)
    copies, dcr, nndr = zip(*map(_summary, two), strict=True)
    return Memorised(score, copies, dcr, nndr)


def _ends(share: float, sd: float) -> tuple[float, float]:
    return float(max(0.0, share - Z * sd)), float(min(1.0, share + Z * sd))


def _summary(two: np.ndarray) -> tuple[float, float, float]:
    ratio = two[:, 0] / np.maximum(two[:, 1], 1e-12)
    return float((two[:, 0] == 0).mean()), float(np.median(two[:, 0])), float(np.median(ratio))


def _votes(pool: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Of how many synthetic rows each target is the nearest, ties shared."""
    votes = np.zeros(len(targets))
    for i in range(0, len(pool), CHUNK):
        apart = squares(pool[i : i + CHUNK], targets)
        nearest = apart == apart.min(1, keepdims=True)
        votes += (nearest / nearest.sum(1, keepdims=True)).sum(0)
    return votes
