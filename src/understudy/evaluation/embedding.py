"""A picture of whole records: real and synthetic ones on one map (t-SNE).

t-SNE lays records out so that neighbours stay neighbours (van der Maaten and Hinton 2008; Jiang's
thesis, figure 5.5). Where the two kinds mix, the synthetic records are like real ones; an area
with one kind only is something that was missed, or made up. Distances across the map, the sizes
of groups and the axes mean nothing. Each dot is a record, so the picture is internal.
"""

from __future__ import annotations

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from understudy.evaluation.clouds import equal_samples
from understudy.evaluation.rows import Rows
from understudy.rng import Streams

__all__ = ["Embedding", "embed"]

MOST = 500
LEAST = 10
STEPS = 500

Embedding = tuple[np.ndarray, np.ndarray]
"""Places of real and of synthetic records ``[n, 2]``, on one map."""


def embed(real: Rows, synthetic: Rows, *, rng: Streams) -> Embedding | None:
    """Lay out as many of each, `MOST` at most; None if they are too few, or all equal."""
    chosen = equal_samples([real, synthetic], MOST, rng.numpy("chosen"))
    n, both = len(chosen[0]), np.concatenate(chosen)
    if n < LEAST or np.ptp(both, axis=0).max() == 0:
        return None
    seed = int(rng.numpy("layout").integers(2**31))
    places = _layout(both, seed)
    return places[:n], places[n:]


@threadpool_limits.wrap(limits=1)
def _layout(x: np.ndarray, seed: int) -> np.ndarray:
    from sklearn.manifold import TSNE

    if x.shape[1] == 1:  # a map has two directions to start from
        x = np.column_stack([x, np.zeros(len(x), x.dtype)])
    perplexity = min(30.0, (len(x) - 1) / 3)
    how = TSNE(perplexity=perplexity, max_iter=STEPS, init="pca", random_state=seed)
    return how.fit_transform(x)
