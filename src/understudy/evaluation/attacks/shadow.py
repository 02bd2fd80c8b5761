"""Shadow models: does the release look as if this record had been in it?

Who knows the recipe and has rows of the same kind runs it himself, many times, on rows of his own
and on a random half of the targets (after Stadler et al. 2022; chapter 4 of Jiang's thesis, which
trains a pair of models for each target). From what his synthetic rows show around each target he
learns to tell those that were in from those that were not, and asks the release the same. It needs
a way to run the recipe, so `evaluate` cannot offer it; a bench or a notebook can::

    def make(rows, rng):  # train on these rows, as the study does; give synthetic ones
        ...
    found = shadow_models(targets, make, rng=Streams.from_seed(0))
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn.linear_model import LogisticRegression

from understudy.evaluation.attacks.membership import ASKS, nearness
from understudy.evaluation.attacks.outcome import Attack, by_score
from understudy.evaluation.attacks.targets import Targets, placed
from understudy.evaluation.rows import Rows, joined
from understudy.rng import Streams

__all__ = ["shadow_models"]

Make = Callable[[Rows, Streams], Rows]
MOST = 100  # targets on each side


def shadow_models(t: Targets, make: Make, *, rng: Streams, shadows: int = 32) -> Attack:
    """Membership inference by ``shadows`` runs of ``make``; half of the reference trains each."""
    n = min(MOST, t.n)
    both = joined([side.take(np.arange(n)) for side in (t.members, t.controls)])
    draw, centre = rng.numpy("shadows"), placed(t.schema, t.reference).mean(0)
    x = placed(t.schema, both)
    inside = draw.random((shadows, len(both))) < 0.5
    size = len(t.reference) // 2
    seen = []
    for i, chosen in enumerate(inside):
        own = t.reference.take(draw.permutation(len(t.reference))[: max(size - chosen.sum(), 0)])
        made = make(joined([own, both.take(np.flatnonzero(chosen))]), rng.child("shadow", i))
        seen.append(_signs(x, placed(t.schema, made), centre))
    shown = np.stack(seen)  # [shadows, targets, signs]
    usual, spread = shown.mean(0), shown.std(0) + 1e-9
    judge = LogisticRegression(max_iter=1000)
    judge.fit(((shown - usual) / spread).reshape(-1, shown.shape[2]), inside.ravel())

    def evidence(pool: Rows) -> tuple[np.ndarray, np.ndarray]:
        signs = (_signs(x, placed(t.schema, pool), centre) - usual) / spread
        logits = judge.decision_function(signs)
        return logits[:n], logits[n:]

    naive = t.reference.take(draw.permutation(len(t.reference))[:size])
    return by_score("shadow models", ASKS, evidence(t.synthetic), evidence(naive))


def _signs(x: np.ndarray, pool: np.ndarray, centre: np.ndarray) -> np.ndarray:
    """What synthetic rows show around each target ``[n, 5]``.

    How near they are, in three ways, and how far their mean and their spread lean its way.
    """
    away, rows = x - centre, pool - centre
    lean = away @ rows.mean(0)
    spread = np.einsum("nf,fg,ng->n", away, rows.T @ rows / len(rows), away)
    return np.column_stack([*nearness(x, pool), lean, spread])
