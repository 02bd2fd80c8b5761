"""Generators that do harm, found by asking a member's own rows (the paper's defence, §IV).

A student is trained on what generators draw and asked about the member's rows. A generator is
dropped if, alone, it teaches worse than guessing (its labels are probably swapped), or if random
halves of the pool teach better without it than with it: among all others at once, the harm of one
would drown. Both must be more than chance would explain: 5 %, shared out among the generators. The
worst goes first, then all is measured again.

The scores come from real rows without noise. They stay here: nothing of them is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import norm

from understudy.data.encode import encode
from understudy.data.records import Records
from understudy.data.schema import Schema
from understudy.errors import ExchangeError
from understudy.evaluation.regressors import numbers, predict_numeric, regressors
from understudy.evaluation.rows import Rows, joined
from understudy.evaluation.students import answer, silent, students
from understudy.evaluation.utility import Progress
from understudy.exchange.dataset import drawn, knows
from understudy.release.bundle import Release
from understudy.rng import Streams

__all__ = ["Screened", "screen"]

_EACH, _MOST = 300, 4000  # rows of each class from each generator, and from all
_HALVES = 32  # of the pool, each time that one is judged
_LEVEL = 0.05
_FEWEST = 10  # of the member's rows
_Half = tuple[frozenset[str], np.ndarray]


@dataclass(frozen=True)
class Screened:
    """A generator, what it and halves of the pool teach, and whether it was dropped.

    Scores are balanced accuracy, or R² where the label is a number. ``beside`` is the mean score of
    the halves that it was in when it was judged last, ``without`` that of the others.
    """

    name: str
    alone: float
    beside: float
    without: float
    dropped: bool = False
    why: str = ""


@dataclass(frozen=True)
class _Judge:
    """A member's rows, and how students do on each of them: the mean of points is the score."""

    schema: Schema
    real: Rows
    rng: Streams

    @property
    def guess(self) -> np.ndarray:
        """The points of a student that knows nothing."""
        if self.schema.task == "regression":
            return np.zeros(len(self.real))
        return np.full(len(self.real), 1 / self.schema.n_classes) * self._weights

    @property
    def _weights(self) -> np.ndarray:
        """Classes count alike, however many rows they have."""
        found, counts = np.unique(self.real.y, return_counts=True)
        return len(self.real) / (len(found) * counts[np.searchsorted(found, self.real.y)])

    def points(self, rows: Rows) -> np.ndarray:
        """For each real row, what a student of these rows gets for it."""
        if self.schema.task == "regression":
            return self._numeric(rows)
        student = students(self.schema)["logistic regression"]
        found = answer(student, self.schema, rows, self.real.x, self.rng, silent)
        assert found is not None
        return (found.argmax(1) == self.real.y) * self._weights

    def _numeric(self, rows: Rows) -> np.ndarray:
        student, real = regressors()["ridge regression"], numbers(self.schema, self.real)
        taught = numbers(self.schema, rows)
        found = predict_numeric(student, self.schema, taught, real.x, self.rng, silent)
        assert found is not None
        return 1 - (found - real.y) ** 2 / max(float(real.y.var()), 1e-12)


def screen(
    releases: Mapping[str, Release], real: Records, *, rng: Streams, tick: Progress = silent
) -> list[Screened]:
    """Every generator with its scores, in the order given; those that do harm are ``dropped``."""
    schema = next(iter(releases.values())).schema
    judge = _Judge(schema, _rows(schema, real), rng.child("students"))
    each = max(10, min(_EACH, _MOST // len(releases)))
    pool = {
        name: drawn(release, dict.fromkeys(knows(release), each), rng=rng.child("rows", i))
        for i, (name, release) in enumerate(releases.items())
    }
    alone = {}
    for i, (name, rows) in enumerate(pool.items()):
        tick("one by one", i, 2 * len(pool))
        alone[name] = judge.points(rows)
    verdicts: dict[str, Screened] = {}
    limit = float(norm.isf(_LEVEL / len(pool)))
    while pool:
        tick("in halves", len(releases) + len(verdicts), 2 * len(releases))
        halves = _halves(judge, pool, rng.numpy("halves", len(pool)))
        found, worst = _round(judge, halves, {name: alone[name] for name in pool}, limit)
        verdicts |= found
        if worst is None:
            break
        del pool[worst]
    return [verdicts[name] for name in releases]


def _rows(schema: Schema, real: Records) -> Rows:
    if schema.task != "regression" and schema.n_classes < 2:
        raise ExchangeError("a schema with a label, to screen by", "none", "leave --screen out")
    found = encode(schema, real)
    if len(found.y) < _FEWEST:
        raise ExchangeError(
            f"at least {_FEWEST} rows to screen with", f"{len(found.y)}", "give more rows"
        )
    return Rows(found.x, found.y)


def _halves(judge: _Judge, pool: Mapping[str, Rows], rng: np.random.Generator) -> list[_Half]:
    """Random halves of the pool, and the points of what each teaches; none of a single generator.

    They come in pairs that leave nobody out, so that each generator is in as many as it is not in,
    or nearly.
    """
    names, found = list(pool), []
    for _ in range(_HALVES // 2 if len(names) > 1 else 0):
        order = [names[i] for i in rng.permutation(len(names))]
        middle = len(order) // 2
        for half in (order[:middle], order[middle:]):
            found.append((frozenset(half), judge.points(joined([pool[name] for name in half]))))
    return found


def _round(
    judge: _Judge, halves: list[_Half], alone: Mapping[str, np.ndarray], limit: float
) -> tuple[dict[str, Screened], str | None]:
    """What can be said of all that are left, and which one does most harm."""
    found, harm = {}, {}
    for name, points in alone.items():
        beside, without = (
            np.mean([p for half, p in halves if (name in half) is within] or [points], axis=0)
            for within in (True, False)
        )
        own, all_, others = (float(p.mean()) for p in (points, beside, without))
        score = Screened(name, own, all_, others)
        below, better = _sure(judge.guess - points), _sure(without - beside)
        if below > limit:
            score = replace(score, dropped=True, why=_WORSE)
        elif better > limit:
            score = replace(score, dropped=True, why=_BETTER)
        found[name] = score
        if score.dropped:
            harm[name] = max(below, better)
    worst = max(harm, key=harm.__getitem__, default=None)
    kept = {n: s if n == worst else replace(s, dropped=False, why="") for n, s in found.items()}
    return kept, worst


_WORSE = "alone it teaches worse than guessing: its labels may be swapped"
_BETTER = "the others teach better without it"


def _sure(gain: np.ndarray) -> float:
    """How many standard errors the mean gain is above zero."""
    spread = float(gain.std(ddof=1)) / np.sqrt(len(gain))
    mean = float(gain.mean())
    return mean / spread if spread > 0 else float(np.sign(mean)) * np.inf if mean else 0.0
