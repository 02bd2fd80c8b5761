"""Take a safeguard of the exchange away: what it refused goes through, so the tests rest on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exchange.conftest import Join
from exchange.test_admission import RULES
from exchange.test_service import borrowed_name, late, other_body, replayed
from understudy.errors import ReleaseError
from understudy.exchange import access, admission, members, signing
from understudy.simulation.verification import verify


def nothing(*_: Any, **__: Any) -> None:
    """In place of a check."""


def taken(path: Path, rules: admission.Rules, earlier: Any = ()) -> bool:
    try:
        admission.examine(path, rules, earlier, verify)
    except ReleaseError:
        return False
    return True


def test_without_the_cap_a_dear_push_is_taken(
    pushed: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not taken(pushed["dear"], RULES)
    monkeypatch.setattr(admission, "_check_total", nothing)
    assert taken(pushed["dear"], RULES)


def test_without_the_sum_earlier_pushes_are_forgotten(
    pushed: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    share = admission.examine(pushed["one"], RULES, [], verify)["facts"]["share"]
    assert not taken(pushed["two"], RULES, [share] * 9)
    monkeypatch.setattr(admission, "total", lambda shares, _: shares[-1].epsilon)
    assert taken(pushed["two"], RULES, [share] * 9)


def test_without_the_requirements_any_unit_is_taken(
    pushed: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = replace(RULES, unit="site")
    assert not taken(pushed["one"], other)
    monkeypatch.setattr(admission, "_check_claim", lambda release, _: release.claims[0])
    assert taken(pushed["one"], other)


@pytest.mark.parametrize(
    "ask, owner, name, instead",
    [
        (replayed, members, "_use_up", nothing),
        (late, signing.Stamp, "check_time", nothing),
        (borrowed_name, members, "holds", lambda *_: True),
        (other_body, members, "holds", lambda *_: True),
    ],
    ids=["nonce", "clock", "key", "body"],
)
def test_without_its_check_a_request_goes_through(
    join: Join,
    monkeypatch: pytest.MonkeyPatch,
    ask: Callable[..., Any],
    owner: Any,
    name: str,
    instead: Any,
) -> None:
    north = join("north")
    assert ask(north).status_code == 401
    monkeypatch.setattr(owner, name, instead)
    assert ask(north).status_code != 401


def test_without_the_csrf_value_a_form_of_others_goes_through(
    join: Join, pushed: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    mara, north = join("mara", "steward"), join("north")
    id = north.push(pushed["one"])["id"]
    mara.web.get(mara.send("POST", "/sessions").json()["path"])
    form = {"verdict": "approve", "csrf": "guessed"}
    assert mara.web.post(f"/releases/{id}/decision", data=form).status_code == 403
    monkeypatch.setattr(access, "csrf", lambda token: "guessed")
    assert mara.web.post(f"/releases/{id}/decision", data=form).status_code == 303
