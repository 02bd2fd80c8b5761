"""Three questions of European data protection law, asked of synthetic rows.

The Article 29 Working Party (Opinion 05/2014) names three ways in which data fail to be anonymous;
the attacks follow Giomi et al. (2023), who measure each on members and on controls:

* *singling out*: is there a description, made from synthetic rows, that fits exactly one row?
* *linkability*: two sources hold different columns of the same people. Do synthetic rows tell
  which belong together?
* *attribute inference*: who knows all but one column takes the missing one from the nearest
  synthetic row. Near is within `NEAR` of the public range, or the same category.

What is learned about controls too is knowledge about people in general, and no breach.
"""

from __future__ import annotations

import numpy as np

from understudy.evaluation.attacks.outcome import Attack, Evidence, by_rate
from understudy.evaluation.attacks.targets import Targets, columns, placed, values
from understudy.evaluation.axes import even_rows
from understudy.evaluation.distances import CHUNK, nearest, squares

__all__ = ["attribute_inference", "linkability", "singling_out"]

DESCRIPTIONS, CLAUSES = 2000, 4
NEIGHBOURS = 5
NEAR = 0.05
SECRETS = 12
AT_ONCE = 200


def singling_out(t: Targets, *, rng: np.random.Generator) -> Attack:
    """Tables only: share of targets that a description from synthetic rows fits alone."""
    cells, category = values(t.schema, t.synthetic)
    even = values(t.schema, even_rows(t.schema, len(cells), rng))[0]
    sides = [values(t.schema, rows)[0] for rows in (t.members, t.controls)]
    found, naive = (_described(source, category, sides, rng) for source in (cells, even))
    said = f"{DESCRIPTIONS:,} descriptions of {min(CLAUSES, cells.shape[1])} columns"
    return by_rate("singling out", "does a description fit one row only?", found, naive, said)


def _described(
    source: np.ndarray, category: np.ndarray, sides: list[np.ndarray], rng: np.random.Generator
) -> Evidence:
    """Which rows of each side are the only one that some description fits."""
    clauses = min(CLAUSES, source.shape[1])
    rows = rng.integers(0, len(source), DESCRIPTIONS)
    order = rng.random((DESCRIPTIONS, source.shape[1])).argsort(1)[:, :clauses]
    middle = np.array([_median(column) for column in source.T])
    wanted = np.take_along_axis(source[rows], order, 1)
    exact, above = category[order], wanted >= middle[order]
    members, controls = (_alone(side, order, wanted, exact, above) for side in sides)
    return members, controls


def _median(column: np.ndarray) -> float:
    known = column[~np.isnan(column)]
    return float(np.median(known)) if len(known) else 0.0


def _alone(
    cells: np.ndarray, order: np.ndarray, wanted: np.ndarray, exact: np.ndarray, above: np.ndarray
) -> np.ndarray:
    alone = np.zeros(len(cells))
    for i in range(0, len(order), AT_ONCE):
        some = slice(i, i + AT_ONCE)
        cell, want = cells[:, order[some]], wanted[some]
        beyond = np.where(above[some], cell >= want, cell <= want)
        fits = np.where(exact[some], cell == want, beyond) | (np.isnan(cell) & np.isnan(want))
        whole = fits.all(2)
        alone[whole[:, whole.sum(0) == 1].any(1)] = 1.0
    return alone


def linkability(t: Targets, *, rng: np.random.Generator) -> Attack:
    """Share of targets whose nearest synthetic rows by one half of the columns and by the other
    have one in common.
    """
    first, second = _halves(t, rng)
    pool = placed(t.schema, t.synthetic)
    k, found, blind = min(NEIGHBOURS, len(pool)), [], []
    for rows in (t.members, t.controls):
        x = placed(t.schema, rows)
        near = [nearest(x[:, part], pool[:, part], k)[0] for part in (first, second)]
        found.append(_meet(*near))
        blind.append(_meet(near[0], rng.integers(0, len(pool), near[1].shape)))
    said = f"{NEIGHBOURS} nearest synthetic rows by each half"
    asks = "do two halves belong together?"
    return by_rate("linkability", asks, (found[0], found[1]), (blind[0], blind[1]), said)


def _halves(t: Targets, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Features that either source knows: columns, channels or steps, left and right of an image."""
    schema, every = t.schema, np.arange(t.schema.width)
    if schema.kind == "table":
        known = columns(schema)
        order = rng.permutation(len(known))
        cut = (len(known) + 1) // 2
        a, b = (np.concatenate([known[i][1] for i in part]) for part in (order[:cut], order[cut:]))
        return a, b
    if schema.kind == "image":
        right = _column(schema.shape) >= schema.shape[1] // 2
        return every[~right], every[right]
    channels, steps = len(schema.columns), schema.shape[0]
    side = every % channels >= channels // 2 if channels > 1 else every >= steps // 2
    return every[~side], every[side]


def _column(shape: tuple[int, ...]) -> np.ndarray:
    """How far right each pixel of a flattened image is."""
    depth = shape[2] if len(shape) > 2 else 1
    return np.tile(np.repeat(np.arange(shape[1]), depth), shape[0])


def _meet(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a[:, :, None] == b[:, None, :]).any((1, 2)).astype(np.float64)


def attribute_inference(t: Targets, *, rng: np.random.Generator) -> Attack | None:
    """Share of secret cells that are guessed right; None where there is nothing to guess."""
    secrets = columns(t.schema)
    pool = placed(t.schema, t.synthetic)
    sides = [placed(t.schema, rows) for rows in (t.members, t.controls)]
    truth = np.vstack(sides)
    secrets = [s for s in secrets if np.ptp(truth[:, s[1]], axis=0).any()]
    if not secrets or pool.shape[1] < 2:
        return None
    chosen = [secrets[i] for i in sorted(rng.permutation(len(secrets))[:SECRETS])]
    found = [_guessed(x, pool, chosen) for x in sides]
    drawn = [pool[rng.integers(0, len(pool), len(x))] for x in sides]
    pairs = zip(sides, drawn, strict=True)
    blind = [np.column_stack([_right(x, row, s) for _, s in chosen]) for x, row in pairs]
    gap = found[0].mean(0) - found[1].mean(0)
    worst = chosen[int(gap.argmax())][0]
    many = "one secret" if len(chosen) == 1 else f"{len(chosen)} secrets"
    said = f"{many}; largest difference for {worst}: {gap.max():+.3f}"
    right, naive = (tuple(side.mean(1) for side in both) for both in (found, blind))
    asks = "what is the missing value?"
    return by_rate("attribute inference", asks, right, naive, said)


def _guessed(x: np.ndarray, pool: np.ndarray, secrets: list[tuple[str, np.ndarray]]) -> np.ndarray:
    """Whether each secret ``[n, secrets]`` is right, taken from the nearest row by all the rest."""
    found = []
    for i in range(0, len(x), CHUNK):
        part = x[i : i + CHUNK]
        whole = squares(part, pool)
        hits = [
            _right(part, pool[(whole - squares(part[:, s], pool[:, s])).argmin(1)], s)
            for _, s in secrets
        ]
        found.append(np.column_stack(hits))
    return np.vstack(found)


def _right(x: np.ndarray, guess: np.ndarray, secret: np.ndarray) -> np.ndarray:
    return (np.abs(x[:, secret] - guess[:, secret]).max(1) <= NEAR).astype(np.float64)
