import numpy as np

from understudy.evaluation import embedding
from understudy.evaluation.embedding import embed
from understudy.evaluation.rows import Rows
from understudy.rng import Streams


def rows(n: int, seed: int, shift: float = 0.0, width: int = 4) -> Rows:
    x = np.random.default_rng(seed).random((n, width)) + shift
    return Rows(x.astype(np.float32), np.zeros(n, np.int64))


def test_the_map_is_seeded_and_has_as_many_of_each(monkeypatch) -> None:
    monkeypatch.setattr(embedding, "MOST", 30)
    first, again = (embed(rows(80, 0), rows(40, 1), rng=Streams.from_seed(0)) for _ in range(2))
    assert first is not None and again is not None
    for place, same in zip(first, again, strict=True):
        assert place.shape == (30, 2) and np.isfinite(place).all()
        assert (place == same).all()


def test_records_that_are_nothing_alike_lie_apart() -> None:
    found = embed(rows(60, 0), rows(60, 1, shift=50), rng=Streams.from_seed(0))
    assert found is not None
    real, synthetic = found
    apart = ((real[:, None] - synthetic[None]) ** 2).sum(2)
    within = ((real[:, None] - real[None]) ** 2).sum(2)
    np.fill_diagonal(within, np.inf)
    assert (within.min(1) < apart.min(1)).all()


def test_too_few_or_equal_records_make_no_map_and_one_feature_does() -> None:
    equal = Rows(np.full((20, 3), 0.5, np.float32), np.zeros(20, np.int64))
    assert embed(rows(5, 0), rows(50, 1), rng=Streams.from_seed(0)) is None
    assert embed(equal, equal, rng=Streams.from_seed(0)) is None
    assert embed(rows(20, 0, width=1), rows(20, 1, width=1), rng=Streams.from_seed(0)) is not None
