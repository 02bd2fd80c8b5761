"""What learns from members' rows and from pulled ones in `bench/sgde.py`, tables of two classes.

* ``fitted``: logistic regression by lbfgs on standardised features, to convergence.
* ``by steps``: the paper's, as far as it says (§IV.A, D): logistic regression by gradient steps,
  the number of epochs found by cross-validation. Its optimiser is not named: here Adam at 1e-3,
  which it names for images, batches of 32, at most 30 epochs, numbers standardised, categories as
  flags. Of the readings that were tried (all or no features standardised; 30, 100, 300 epochs),
  this one's Local is nearest to the paper's on members' rows; what it does for Synthetic was not
  looked at. A member that learns from pulled rows picks the number of steps on its own real rows.
* ``joined``: the fitted one, of a member's own rows and the pulled ones together, all of which
  weigh `PULLED` times as much as own ones: chosen on held-out training rows.
* ``calibrated``: the fitted one of pulled rows, its scores brought to scale on a member's own rows
  (Platt), with classes in equal weight as in the pulled rows; ``by steps, calibrated`` likewise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from understudy import Schema
from understudy.data.encode import blocks
from understudy.evaluation.rows import Rows

__all__ = ["alone_by_steps", "calibrated", "joined", "pooled_by_steps"]

RATE, BATCH, EPOCHS, FOLDS = 1e-3, 32, 30, 10
LONGEST = 12_000  # steps on pulled rows
PULLED, THINNED = 0.1, 5  # one pulled row in five is enough

Marks = dict[str, float]
Judge = Callable[[np.ndarray, np.ndarray], Marks]
"""Marks of a member's guesses ``[n, 2]`` for rows of these classes."""


def alone_by_steps(
    schema: Schema, rows: Rows, test: Rows, judge: Judge, rng: np.random.Generator
) -> tuple[Marks, Marks]:
    """A member's own classifier: marks on the test rows, and by ten folds on its own."""
    place = _scaled(schema, rows.x)
    own, fold = place(rows.x), rng.permutation(len(rows)) % FOLDS
    drawn = [np.flatnonzero(fold != k) for k in range(FOLDS)] + [np.arange(len(rows))]
    each = max(1, -(-len(rows) // BATCH))
    best: tuple[float, Marks, np.ndarray] | None = None
    for _, weights in _steps(own, rows.y, drawn, range(each, each * EPOCHS + 1, each), rng):
        guess = np.zeros(len(rows))
        for k in range(FOLDS):
            guess[fold == k] = _asked(weights[k], own[fold == k])
        marks = judge(_both(guess), rows.y)
        if best is None or _mean(marks) > best[0]:
            best = _mean(marks), marks, weights[FOLDS]
    assert best is not None
    return judge(_both(_asked(best[2], place(test.x))), test.y), best[1]


def pooled_by_steps(
    schema: Schema,
    pool: Rows,
    sides: tuple[Rows, list[Rows]],
    judge: Judge,
    rng: np.random.Generator,
) -> dict[str, list[Marks]]:
    """Members' classifiers of pulled rows: marks on the test rows, on own rows, and to scale."""
    test, members = sides
    place = _scaled(schema, pool.x)
    when = sorted({int(step) for step in np.geomspace(20, LONGEST, 60)})
    path = [w[0] for _, w in _steps(place(pool.x), pool.y, [np.arange(len(pool))], when, rng)]
    found: dict[str, list[Marks]] = {"test": [], "members": [], "calibrated": []}
    for own in members:
        mine = [judge(_both(_asked(w, place(own.x))), own.y) for w in path]
        best = max(range(len(path)), key=lambda i: _mean(mine[i]))
        guess, own_guess = (_asked(path[best], place(x)) for x in (test.x, own.x))
        found["members"].append(mine[best])
        found["test"].append(judge(_both(guess), test.y))
        scaled = _to_scale(_score(own_guess), own.y, _score(guess))
        found["calibrated"].append(judge(scaled, test.y))
    return found


def joined(own: Rows, pool: Rows, x: np.ndarray) -> np.ndarray:
    """Probabilities ``[n, 2]`` by a classifier of own and pulled rows."""
    some = pool.take(np.arange(0, len(pool), THINNED))
    weight = np.repeat([1.0, PULLED * len(own) / len(some)], [len(own), len(some)])
    rows, y = np.concatenate([own.x, some.x]), np.concatenate([own.y, some.y])
    scale = StandardScaler().fit(rows)
    model = LogisticRegression(max_iter=300).fit(scale.transform(rows), y, sample_weight=weight)
    found: np.ndarray = model.predict_proba(scale.transform(x))
    return found


def calibrated(pool: Rows, members: list[Rows], x: np.ndarray) -> list[np.ndarray]:
    """For each member, probabilities ``[n, 2]`` by the classifier of pulled rows, to scale."""
    scale = StandardScaler().fit(pool.x)
    model = LogisticRegression(max_iter=300).fit(scale.transform(pool.x), pool.y)

    def scored(rows: np.ndarray) -> np.ndarray:
        found: np.ndarray = model.decision_function(scale.transform(rows))
        return found

    return [_to_scale(scored(own.x), own.y, scored(x)) for own in members]


def _to_scale(mine: np.ndarray, y: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Probabilities ``[n, 2]`` for ``theirs`` by one logistic curve through own scores."""
    spread = mine.std() + 1e-9
    line = LogisticRegression(class_weight="balanced").fit(mine[:, None] / spread, y)
    found: np.ndarray = line.predict_proba(theirs[:, None] / spread)
    return found


def _score(guess: np.ndarray) -> np.ndarray:
    bounded = guess.clip(1e-12, 1 - 1e-12)
    found: np.ndarray = np.log(bounded / (1 - bounded))
    return found


def _scaled(schema: Schema, x: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Numbers with mean 0 and deviation 1 on these rows, flags as they are, and a constant."""
    flags = ("categorical", "boolean", "missing")
    numbers = [i for b in blocks(schema) if b.kind not in flags for i in range(b.start, b.stop)]
    mean, deviation = x[:, numbers].mean(0), x[:, numbers].std(0) + 1e-9

    def place(rows: np.ndarray) -> np.ndarray:
        made = np.column_stack([rows.astype(np.float64), np.ones(len(rows))])
        made[:, numbers] = (made[:, numbers] - mean) / deviation
        return made

    return place


def _steps(
    x: np.ndarray,
    y: np.ndarray,
    drawn: list[np.ndarray],
    when: range | list[int],
    rng: np.random.Generator,
) -> Iterator[tuple[int, np.ndarray]]:
    """Adam on the logistic loss, one model for each set of rows; weights ``[models, d]``."""
    weights = np.zeros((len(drawn), x.shape[1]))
    first, second = np.zeros_like(weights), np.zeros_like(weights)
    wanted = set(when)
    for step in range(1, max(wanted) + 1):
        rows = np.stack([own[rng.integers(0, len(own), BATCH)] for own in drawn])
        wrong = _asked(weights[:, None], x[rows]) - y[rows]
        gradient = np.einsum("mb,mbd->md", wrong, x[rows]) / BATCH
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        moved = first / (1 - 0.9**step) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
        weights = weights - RATE * moved
        if step in wanted:
            yield step, weights


def _asked(weights: np.ndarray, x: np.ndarray) -> np.ndarray:
    found: np.ndarray = 1 / (1 + np.exp(-(x * weights).sum(-1)))
    return found


def _both(guess: np.ndarray) -> np.ndarray:
    return np.column_stack([1 - guess, guess])


def _mean(marks: Marks) -> float:
    """What epochs are chosen by: the mean of the three (§IV.B)."""
    return float(np.nanmean(list(marks.values())))
