"""Secure sums over bytes: faults at every leg cost a retry or a site, never a sum or a secret."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from contracts.faults import Fault, Faults
from contracts.toys import ToyMean, ToySum, engine, secured, study
from understudy.errors import ReleaseError, WireError
from understudy.federation.budget import Budget
from understudy.federation.checkpoint import Checkpoint
from understudy.federation.engine import Engine
from understudy.federation.masking import SecureSum, checked_sum
from understudy.federation.secure.party import LEGS
from understudy.federation.secure.roster import identities
from understudy.federation.secure.session import Session
from understudy.privacy.clip import Sealed
from understudy.privacy.integer import IntegerGaussian
from understudy.privacy.ledger import Ledger, read_entries, receipts_in
from understudy.runtime.networked import Networked
from understudy.runtime.participant import Participant
from understudy.runtime.store import Store
from understudy.runtime.wire import (
    Agreement,
    Envelope,
    Refused,
    decode_sealed,
    decode_told,
    encode_call,
    encode_sealed,
)

RECOVERED: list[Fault] = ["drop", "lose", "late", "delay", "duplicate", "truncate", "reorder"]
SITES = 5


def recipe(kind: Any = ToyMean, rounds: int = 2, sites: int = SITES) -> Any:
    terms = {"trust": "distributed", "noise": 1.0, "survivors": 4, "colluders": 1}
    return kind.build(study(kind.info.name, sites, study={"rounds": rounds}, privacy=terms))


def apart(
    toy: Any, folder: Path, faults: Faults | None = None, **terms: Any
) -> tuple[dict[str, torch.Tensor], SecureSum]:
    """The final state of a secure run over bytes, and its gather."""
    folder.mkdir()
    made, ledger = engine(toy, folder)
    with ledger:
        gather = secured(made, folder, faults, **terms)
        return made.train(), gather


def together(
    toy: Any, folder: Path, absent: tuple[int, ...] = (), masks: bool = False
) -> dict[str, torch.Tensor]:
    """The same run in one process, without the sites that are ``absent``."""
    folder.mkdir()
    made, ledger = engine(toy, folder)
    sites = made.runtime.sites  # type: ignore[attr-defined]
    sites.allowance[:, list(absent)] = 0
    if masks:
        made.gather = checked_sum(toy.plan, made.source, sites)
    with ledger:
        return made.train()


def equal(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[n], two[n]) for n in one)


def charged(folder: Path) -> list[int]:
    text = (folder / "ledger.jsonl").read_text()
    return sorted({receipt.round for receipt in receipts_in([*read_entries(text)])})


@pytest.mark.parametrize("kind", [ToyMean, ToySum])
def test_masks_and_bytes_change_nothing(tmp_path: Path, kind: Any) -> None:
    toy = recipe(kind)
    plain = together(toy, tmp_path / "plain")
    assert equal(together(toy, tmp_path / "checked", masks=True), plain)
    found, gather = apart(toy, tmp_path / "apart")
    assert equal(found, plain) and gather.survivors == SITES and not gather.void


def test_masks_are_checked_with_sites_that_do_not_join(tmp_path: Path) -> None:
    toy = recipe()
    plain = together(toy, tmp_path / "plain", absent=(2,))
    assert equal(together(toy, tmp_path / "checked", absent=(2,), masks=True), plain)


@pytest.mark.parametrize("fault", RECOVERED)
def test_a_fault_at_any_leg_is_recovered_by_a_retry(tmp_path: Path, fault: Fault) -> None:
    """One site after the other is hit, at every leg of the first round and one of the second."""
    toy = recipe()
    each = 2 if fault == "reorder" else 1  # it hits all sites, so each is sent twice as many
    faults: Faults = {(f"site-{leg + 1}", each * leg): fault for leg in range(5)}
    faults["site-1", 6 + each] = fault  # one more in the second round, or the last leg
    found, gather = apart(toy, tmp_path / "faulty", faults, attempts=4)
    assert gather.survivors == SITES
    assert equal(found, together(toy, tmp_path / "plain"))
    assert charged(tmp_path / "faulty") == [0, 1]


@pytest.mark.parametrize("leg", range(5), ids=LEGS)
def test_a_site_that_dies_at_any_leg_is_recovered_from(tmp_path: Path, leg: int) -> None:
    """Until it sends its numbers it is left out; after that they count, once."""
    toy = recipe(rounds=1)
    found, gather = apart(toy, tmp_path / "dead", {("site-2", leg): "die"}, attempts=2)
    absent = (1,) if leg < 3 else ()
    assert equal(found, together(toy, tmp_path / "plain", absent=absent))
    assert gather.survivors == SITES - len(absent)


@pytest.mark.parametrize("leg", range(5), ids=LEGS)
def test_with_too_few_left_the_round_is_void_charged_and_moves_nothing(
    tmp_path: Path, leg: int
) -> None:
    toy = recipe(rounds=1)
    faults: Faults = {(name, leg): "die" for name in ("site-2", "site-4")}
    with pytest.raises(ReleaseError, match="no site answered"):
        apart(toy, tmp_path / "few", faults, attempts=1)
    assert charged(tmp_path / "few") == [0]


def test_a_void_round_is_not_the_end(tmp_path: Path) -> None:
    faults: Faults = {(name, 2): "drop" for name in ("site-2", "site-4")}
    toy = recipe()
    made, ledger = engine(toy, tmp_path)
    with ledger:
        gather = secured(made, tmp_path, faults, attempts=1)
        assert (made.train()["mean"] != 0).all()
    assert gather.survivors == SITES and charged(tmp_path) == [0, 1]


def restarted(made: Engine) -> None:
    """Every site is started anew, from its folder, before each message."""
    runtime = made.runtime
    assert isinstance(runtime, Networked)
    handlers: dict[str, Any] = dict(runtime.transport.handlers)  # type: ignore[attr-defined]

    def handler(name: str) -> Callable[[bytes], bytes]:
        def handle(message: bytes) -> bytes:
            held: Participant = handlers.pop(name).__self__
            store = Store(held.store._path.parent)  # type: ignore[union-attr]
            fresh = Participant(held.sites, held.agreement, store, held.party)
            handlers[name] = fresh.handle
            return fresh.handle(message)

        return handle

    runtime.transport.handlers = {n: handler(n) for n in handlers}  # type: ignore[attr-defined]


def test_a_site_that_is_restarted_between_legs_goes_on(tmp_path: Path) -> None:
    toy = recipe()
    (tmp_path / "run").mkdir()
    made, ledger = engine(toy, tmp_path / "run")
    with ledger:
        gather = secured(made, tmp_path / "run", {("site-3", 4): "lose"})
        restarted(made)
        found = made.train()
    assert gather.survivors == SITES
    assert equal(found, together(toy, tmp_path / "plain"))


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize(
    "owner, name", [(Ledger, "charge"), (SecureSum, "_fits"), (ToyMean, "step")]
)
def test_a_killed_server_goes_on_and_no_site_draws_noise_twice(
    tmp_path: Path, owner: type, name: str
) -> None:
    """Sites keep their folders; the round that was cut short is void and is not run again."""
    toy, people = recipe(rounds=3), identities([f"site-{i + 1}" for i in range(SITES)])
    drawn: Counter[int] = Counter()
    noise, original, calls = IntegerGaussian.add_noise, getattr(owner, name), []

    def noted(self: IntegerGaussian, bounded: Any, use: Any) -> Any:
        drawn[use.round] += 1
        return noise(self, bounded, use)

    def killed(self: Any, *args: Any, **terms: Any) -> Any:
        calls.append(1)
        if len(calls) == (8 if name == "_fits" else 2):
            raise Killed
        return original(self, *args, **terms)

    def attempt() -> SecureSum:
        made, ledger = engine(toy, tmp_path, seed=None, checkpoint=Checkpoint(tmp_path))
        with ledger:
            gather = secured(made, tmp_path, people=people)
            made.train()
        return gather

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(IntegerGaussian, "add_noise", noted)
        with pytest.MonkeyPatch.context() as inner, pytest.raises(Killed):
            inner.setattr(owner, name, killed)
            attempt()
        assert attempt().survivors == SITES
    assert set(drawn) == {0, 1, 2} and set(drawn.values()) == {SITES}
    assert charged(tmp_path) == [0, 1, 2]


# One site, and a server that lies to it.


class Site:
    """One participant of a round, seen by the server that talks to it."""

    def __init__(self, folder: Path, toy: Any | None = None) -> None:
        self.toy = toy or recipe()
        made, ledger = engine(self.toy, folder)
        ledger.close()
        self.gather = secured(made, folder)
        self.runtime: Any = made.runtime
        self.task = self.toy.task({"mean": torch.zeros(3)}, 0)
        self.handle = self.runtime.transport.handlers["site-1"]
        self.part: Participant = self.handle.__self__
        self.said: dict[str, bytes] = {}  # what site-1 is told, by leg
        handlers = {**self.runtime.transport.handlers, "site-1": self._note}
        self.runtime.transport.handlers = handlers

    def _note(self, data: bytes) -> bytes:
        self.said[_leg(data)] = data
        return self.handle(data)

    def run(self, until: str = "unmask", round: int = 0) -> None:
        """A round up to a leg, that one included."""

        def cut(leg: str, *rest: Any) -> Any:
            if LEGS.index(leg) > LEGS.index(until):
                raise KeyboardInterrupt
            return Networked.leg(self.runtime, leg, *rest)

        self.runtime.leg = cut
        try:
            self.gather.total(self.runtime.exchange, self.task, round, np.arange(SITES))
        except KeyboardInterrupt:
            pass

    def envelope(self, leg: str, round: int = 0) -> Envelope:
        return Envelope(self.runtime.agreement, "run", "site-1", round, leg=leg)

    def ask(self, leg: str, told: bytes, round: int = 0, task: Any = None) -> bytes:
        message = encode_call(self.envelope(leg, round), task, told)
        decode = decode_sealed if leg == "masked" else decode_told
        return decode(self.handle(message), self.envelope(leg, round))  # type: ignore[return-value]


def _leg(data: bytes) -> str:
    return next(leg for leg in LEGS if f'"leg": "{leg}"'.encode() in data)


FOUR, OTHER = bytes([0b11110000]), bytes([0b11101000])


def test_a_second_set_of_survivors_is_refused_and_a_retry_is_not(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.run("shares")
    first = site.ask("survivors", FOUR)
    assert site.ask("survivors", FOUR) == first
    with pytest.raises(Refused, match="a second"):
        site.ask("survivors", OTHER)


def test_after_a_restart_the_second_set_is_refused_too(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.run("shares")
    first = site.ask("survivors", FOUR)
    store = Store(site.part.store._path.parent)  # type: ignore[union-attr]
    site.handle = Participant(site.part.sites, site.part.agreement, store, site.part.party).handle
    assert site.ask("survivors", FOUR) == first
    with pytest.raises(Refused, match="a second"):
        site.ask("survivors", OTHER)


def test_fewer_survivors_than_the_plan_says_are_refused(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.run("shares")
    with pytest.raises(Refused, match="at least 4 survivors"):
        site.ask("survivors", bytes([0b11100000]))
    site.ask("survivors", FOUR)  # nothing was signed, so the right one will do


@pytest.mark.parametrize("leg", ["masked", "survivors", "unmask"])
def test_legs_come_in_order(tmp_path: Path, leg: str) -> None:
    site = Site(tmp_path)
    site.run("keys")
    with pytest.raises(Refused, match="in order"):
        site.ask(leg, b"")


def test_a_leg_is_not_gone_back_to(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.run()
    for leg in LEGS[:-1]:
        with pytest.raises(Refused, match="in order"):
            decode_told(site.handle(site.said[leg]), site.envelope(leg))


def test_an_old_round_is_refused(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.run()
    old = dict(site.said)
    site.run(round=1)
    for leg in LEGS:
        with pytest.raises(Refused, match="round 1 or later"):
            decode_told(site.handle(old[leg]), site.envelope(leg))


def test_another_task_than_the_one_announced_is_refused_before_any_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path)
    trained: list[int] = []
    answer = site.part.sites.answer
    monkeypatch.setattr(
        type(site.part.sites), "answer", lambda self, *a: (trained.append(1), answer(*a))[1]
    )
    said: list[bytes] = []
    site.runtime.masked = lambda ask, task, round, told: said.append(told[0]) or iter(())
    site.run("shares")
    other = site.toy.task({"mean": torch.ones(3)}, 0)
    with pytest.raises(Refused, match="the task that was announced"):
        site.ask("masked", said[0], task=other)
    assert not trained
    assert site.ask("masked", said[0], task=site.task).kind == "masked"  # type: ignore[attr-defined]


def test_a_roster_that_the_site_does_not_know_gets_nothing(tmp_path: Path) -> None:
    """A server with another roster: its own sites sign, and this one refuses their keys."""
    site = Site(tmp_path)
    roster, each = identities([f"site-{i + 1}" for i in range(SITES)])
    for own, handler in zip(
        each[1:], list(site.runtime.transport.handlers.values())[1:], strict=True
    ):
        handler.__self__.party = replace(handler.__self__.party, identity=own, roster=roster)
    site.gather.roster = replace(roster, keys=(site.part.party.roster.keys[0], *roster.keys[1:]))
    assert site.gather.total(site.runtime.exchange, site.task, 0, np.arange(SITES)) is None
    assert "0 of at least 4" in site.gather.void or "1 of at least 4" in site.gather.void


def test_a_share_never_travels_without_its_masks(tmp_path: Path) -> None:
    site = Site(tmp_path)
    sealed, _ = site.part.sites.answer(site.task, 0, np.array([0]))
    assert sealed.kind == "share"
    with pytest.raises(WireError, match="a bare one"):
        encode_sealed(sealed, site.envelope(""))
    plain = encode_call(site.envelope(""), site.task)
    with pytest.raises(Refused, match="a leg of a round"):
        decode_sealed(site.handle(plain), site.envelope(""))
    forged = encode_sealed(replace(sealed, kind="masked"), site.envelope(""))
    with pytest.raises(WireError, match="known kind"):
        decode_sealed(forged.replace(b'"masked"', b'"share" '), site.envelope(""))


def test_a_site_of_another_trust_takes_no_legs(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.part.party = None
    with pytest.raises(Refused, match="one exchange"):
        site.ask("keys", b"t" * 32)


def test_a_masked_leg_that_was_cut_short_is_not_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Noise was drawn: the site is out of the round, and the others recover its masks."""
    site = Site(tmp_path)
    own = site.part.sites

    def killed(sealed: Sealed, envelope: Envelope) -> bytes:
        if envelope.site == "site-1":
            raise KeyboardInterrupt
        return encode_sealed(sealed, envelope)

    monkeypatch.setattr("understudy.runtime.participant.encode_sealed", killed)
    handle, calls = site.handle, []

    def dying(data: bytes) -> bytes:
        try:
            return handle(data)
        except KeyboardInterrupt:
            calls.append(1)
            raise TimeoutError from None

    site.handle = dying
    site.run()
    assert len(calls) == 1 and site.gather.survivors == SITES - 1
    with pytest.raises(Refused, match="cut short"):
        site.ask("survivors", FOUR)
    assert own.allowance[0, 0] == 1  # of two rounds, one is spent


def test_a_state_from_before_the_masked_leg_draws_no_second_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two answers under the same masks would differ by their noise alone."""
    site = Site(tmp_path)
    site.part.sites.budgets = [Budget("site-1", ledger=tmp_path / "own.jsonl")]
    path, older, handle = tmp_path / "site-1" / "site.state", [], site.handle

    def copied(data: bytes) -> bytes:
        if _leg(data) == "masked":
            older.append(path.read_bytes())
        return handle(data)

    site.handle = copied
    site.run("masked")
    assert site.gather.survivors == 0 and len(older) == 1
    path.write_bytes(older[0])
    monkeypatch.setattr(IntegerGaussian, "add_noise", None)
    fresh = Participant(site.part.sites, site.part.agreement, Store(path.parent), site.part.party)
    with pytest.raises(Refused, match="has not joined"):
        decode_sealed(fresh.handle(site.said["masked"]), site.envelope("masked"))


def test_no_secret_is_left_on_disk_once_a_round_is_over(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.run("survivors")
    before = Session.from_bytes(site.part.store.kept.session)
    assert before.own and before.held
    site.run(round=1)
    after = Session.from_bytes(site.part.store.kept.session)
    assert (after.own, after.mask, after.channel, after.held) == (b"", b"", b"", {})
    data = (tmp_path / "site-1" / "site.state").read_bytes()
    assert before.own.hex().encode() not in data and before.mask.hex().encode() not in data


def test_masked_numbers_travel_in_as_few_bytes_as_they_need() -> None:
    numbers = torch.randint(0, 1 << 24, (1, 50, 2))
    site = Envelope(Agreement("study", "schema", "plan", "1"), "run", "site-1", 0, leg="masked")
    data = encode_sealed(Sealed("masked", 0, {"a": numbers}, ()), site)
    assert len(data) < 3 * 100 + 700
    assert torch.equal(decode_sealed(data, site).parts["a"], numbers)
