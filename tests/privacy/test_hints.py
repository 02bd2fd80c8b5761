"""Solved noise that is kept on disk: found again, and never trusted."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

import pytest

from understudy.privacy import account
from understudy.privacy.account import Event, cost, solve_noise
from understudy.privacy.hints import on_disk

EPSILON, DELTA = 1.0, 1e-5


def solved(epsilon: float = EPSILON) -> float:
    with on_disk():
        return solve_noise(lambda z: [Event((z,), 0.01, 100)], epsilon, DELTA)


@pytest.fixture
def hints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "understudy" / "noise"


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    search = account._Search.solve

    def counted(self: account._Search) -> float:
        found.append(self.epsilon)
        return search(self)

    monkeypatch.setattr(account._Search, "solve", counted)
    return found


def test_the_same_noise_is_searched_for_once(hints: Path, searches: list[float]) -> None:
    first = solved()
    assert solved() == first and searches == [EPSILON]
    assert solved(1.5) < first and searches == [EPSILON, 1.5]


@pytest.mark.parametrize("hint", ["0.3", "90.0", "NaN", "-1.0", "[]", "true", "", '"x"'])
def test_an_altered_hint_is_not_believed(hints: Path, searches: list[float], hint: str) -> None:
    honest = solved()
    (path,) = hints.iterdir()
    path.write_text(hint)
    assert solved() == honest and len(searches) == 2
    assert json.loads(path.read_text()) == honest


def test_another_machine_of_the_same_folder_searches_for_itself(
    hints: Path, searches: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processors may round differently, and a plan must be built again to the last digit."""
    solved()
    monkeypatch.setattr("platform.node", lambda: "another")
    solved()
    assert len(searches) == 2


def test_too_little_noise_is_refused_however_close(hints: Path, searches: list[float]) -> None:
    honest = solved()
    (path,) = hints.iterdir()
    path.write_text(repr(honest * 0.998))
    assert cost([Event((honest * 0.998,), 0.01, 100)], DELTA).epsilon > EPSILON
    assert solved() == honest and len(searches) == 2


def test_nothing_is_read_or_kept_unless_asked_for(hints: Path, searches: list[float]) -> None:
    for _ in range(2):
        solve_noise(lambda z: [Event((z,), 0.01, 100)], EPSILON, DELTA)
    assert len(searches) == 2 and not hints.exists()


def test_a_cache_that_cannot_be_written_changes_nothing(hints: Path) -> None:
    honest = solved()
    for path in hints.iterdir():
        path.unlink()
    hints.rmdir()
    hints.write_text("a file where the folder should be")
    assert solved() == honest


def test_prices_are_read_where_they_are_only_shown_and_nowhere_else(
    hints: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`plan` shows what is on disk; what is run, claimed or verified is priced anew."""
    event, found = Event((2.0,), 0.01, 100), []

    def price(shown: bool) -> float:
        account._pld_found.cache_clear()  # as in another process
        with on_disk(prices=shown):
            return cost([event], DELTA).epsilon

    exact = account._pld_found.__wrapped__
    monkeypatch.setattr(
        account, "_pld_found", lru_cache(lambda *asked: found.append(asked) or exact(*asked))
    )
    honest = price(shown=True)
    assert price(shown=True) == honest and len(found) == 1
    (path,) = hints.iterdir()
    path.write_text(json.dumps(honest / 2))
    assert price(shown=True) == honest / 2  # the reader of the folder fools itself alone
    assert price(shown=False) == honest and len(found) == 2
