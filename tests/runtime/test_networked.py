"""Rounds over bytes: faults cost a retry or a site, never fresh noise or a second charge."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from contracts.faults import Fault, Faults, Faulty
from contracts.harness import small_study
from contracts.toys import ToyMean, ToyStep, ToySum, engine, networked, rows, study
from understudy.errors import ReleaseError
from understudy.federation.budget import Budget
from understudy.federation.checkpoint import Checkpoint
from understudy.federation.memory import SiteMemory
from understudy.federation.sites import Sites
from understudy.privacy.clip import Sealed
from understudy.privacy.gaussian import Gaussian
from understudy.privacy.ledger import Ledger, read_entries, receipts_in
from understudy.release.verify import verify
from understudy.runtime.networked import Networked
from understudy.runtime.participant import Participant
from understudy.runtime.store import Store
from understudy.runtime.wire import (
    Agreement,
    Envelope,
    Refused,
    decode_sealed,
    encode_call,
    encode_sealed,
)
from understudy.simulation import run, run_apart, simulate

KINDS = [(ToyMean, "central"), (ToyMean, "local"), (ToySum, "local"), (ToyStep, "local")]
RECOVERED: list[Fault] = ["drop", "lose", "late", "delay", "duplicate", "truncate", "reorder"]


def recipe(kind: Any = ToyMean, trust: str = "local", *, rounds: int = 3, **tables: Any) -> Any:
    privacy = {"trust": trust, **({} if trust == "none" else {"noise": 1.0})}
    asked = study(kind.info.name, 4, study={"rounds": rounds}, privacy=privacy, **tables)
    return kind.build(asked)


@contextmanager
def drawn() -> Iterator[Counter[tuple[int, str]]]:
    """How often noise is added in each round, by part."""
    counts: Counter[tuple[int, str]] = Counter()
    original = Gaussian.add_noise

    def add_noise(self: Gaussian, bounded: Any, use: Any) -> Any:
        counts[use.round, use.part.name] += 1
        return original(self, bounded, use)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Gaussian, "add_noise", add_noise)
        yield counts


def apart(
    toy: Any, folder: Path, faults: Faults | None = None, **terms: Any
) -> tuple[dict[str, torch.Tensor], Networked]:
    """The final state of a run over bytes, and the server's end of it."""
    folder.mkdir()
    made, ledger = engine(toy, folder)
    made.runtime = networked(made.runtime.sites, folder, faults, **terms)
    with ledger:
        return made.train(), made.runtime


def together(toy: Any, folder: Path, absent: tuple[int, ...] = ()) -> dict[str, torch.Tensor]:
    """The same run in one process, without the sites that are ``absent``."""
    folder.mkdir()
    made, ledger = engine(toy, folder)
    made.runtime.sites.allowance[:, list(absent)] = 0
    with ledger:
        return made.train()


def ledger_of(folder: Path) -> str:
    return (folder / "ledger.jsonl").read_text()


def equal(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[n], two[n]) for n in one)


@pytest.mark.parametrize("kind, trust", [*KINDS, (ToySum, "central"), (ToySum, "none")])
def test_bytes_change_nothing(tmp_path: Path, kind: Any, trust: str) -> None:
    rate = {} if (kind, trust) == (ToySum, "central") else {"cohort": {"rate": 0.6}}
    toy = recipe(kind, trust, **rate)
    found, runtime = apart(toy, tmp_path / "apart")
    assert equal(found, together(toy, tmp_path / "together")) and runtime.failures == {}
    assert ledger_of(tmp_path / "apart") == ledger_of(tmp_path / "together")


@pytest.mark.parametrize("fault", RECOVERED)
@pytest.mark.parametrize("kind, trust", KINDS)
def test_a_fault_that_a_retry_recovers_changes_nothing(
    tmp_path: Path, kind: Any, trust: str, fault: Fault
) -> None:
    """In the first, a middle and the last round: the same model, ledger and number of draws."""
    toy = recipe(kind, trust)
    with drawn() as expected:
        whole, _ = apart(toy, tmp_path / "whole")
    for number, place in enumerate([("site-1", 0), ("site-3", 1), ("site-4", 2)]):
        with drawn() as counted:
            found, runtime = apart(toy, tmp_path / str(number), {place: fault})
        assert equal(found, whole) and runtime.failures == {}
        assert counted == expected, "noise was drawn again"
        assert ledger_of(tmp_path / str(number)) == ledger_of(tmp_path / "whole")


@pytest.mark.parametrize("kind, trust", KINDS)
def test_many_faults_at_once_change_nothing(tmp_path: Path, kind: Any, trust: str) -> None:
    toy = recipe(kind, trust)
    whole, _ = apart(toy, tmp_path / "whole")
    names, kinds = [f"site-{i}" for i in (1, 2, 3, 4)], [*RECOVERED, *RECOVERED]
    faults: Faults = {
        (name, 2 * message): kinds[place + message]
        for place, name in enumerate(names)
        for message in range(4)
    }
    found, _ = apart(toy, tmp_path / "faulty", faults, attempts=6)
    assert equal(found, whole)


@pytest.mark.parametrize("kind, trust", KINDS)
def test_a_dead_site_is_left_out_and_the_run_goes_on(tmp_path: Path, kind: Any, trust: str) -> None:
    toy = recipe(kind, trust)
    found, runtime = apart(toy, tmp_path / "dead", {("site-2", 0): "die"})
    assert equal(found, together(toy, tmp_path / "without", absent=(1,)))
    assert set(runtime.failures) == {"site-2"} and "no answer" in runtime.failures["site-2"]
    assert ledger_of(tmp_path / "dead") == ledger_of(tmp_path / "without")
    rounds = [
        receipt.round for receipt in receipts_in([*read_entries(ledger_of(tmp_path / "dead"))])
    ]
    assert sorted(set(rounds)) == [0, 1, 2]


def test_a_site_that_dies_later_counts_until_then(tmp_path: Path) -> None:
    toy = recipe(ToyMean)
    found, _ = apart(toy, tmp_path / "dead", {("site-2", 1): "die"})
    first = together(recipe(ToyMean), tmp_path / "with")
    assert not equal(found, first)
    assert not equal(found, together(toy, tmp_path / "never", absent=(1,)))


@pytest.mark.parametrize("trust", ["local", "none"])
def test_a_round_in_which_all_are_silent_is_void_charged_and_moves_nothing(
    tmp_path: Path, trust: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[torch.Tensor] = []
    task = ToyMean.task

    def noted(self: ToyMean, state: dict, round: int) -> Any:
        seen.append(state["mean"])
        return task(self, state, round)

    monkeypatch.setattr(ToyMean, "task", noted)
    toy = recipe(ToyMean, trust)
    silent: Faults = {(f"site-{i}", n): "drop" for i in (1, 2, 3, 4) for n in (1, 2, 3)}
    found, _ = apart(toy, tmp_path / "run", silent)
    assert torch.equal(seen[1], seen[2]) and not torch.equal(seen[0], seen[1])
    assert not torch.equal(found["mean"], seen[2])
    with Ledger(tmp_path / "run" / "ledger.jsonl") as ledger:
        charged = [receipt.round for receipt in receipts_in(ledger.entries)]
    assert charged == ([0, 1, 2] if trust == "local" else [])


def test_a_run_in_which_nobody_ever_answers_ends_with_a_clear_error(tmp_path: Path) -> None:
    dead: Faults = {(f"site-{i}", 0): "die" for i in (1, 2, 3, 4)}
    with pytest.raises(ReleaseError, match="no site answered"):
        apart(recipe(ToyMean), tmp_path / "run", dead)
    with Ledger(tmp_path / "run" / "ledger.jsonl") as ledger:
        assert [receipt.round for receipt in receipts_in(ledger.entries)] == [0, 1, 2]


def test_under_central_trust_silence_is_hidden_by_the_servers_noise(tmp_path: Path) -> None:
    dead: Faults = {(f"site-{i}", 0): "die" for i in (1, 2, 3, 4)}
    found, _ = apart(recipe(ToyMean, "central"), tmp_path / "run", dead)
    assert (found["mean"] != 0).all()


# A server that is killed and goes on, with sites that are started again beside it.


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize(
    "owner, name", [(Ledger, "charge"), (ToyMean, "step"), (Checkpoint, "save")]
)
@pytest.mark.parametrize("trust", ["central", "local"])
def test_a_killed_server_goes_on_and_no_site_answers_a_round_twice(
    tmp_path: Path, trust: str, owner: type, name: str
) -> None:
    toy = recipe(ToyMean, trust, rounds=4)

    def attempt() -> Networked:
        made, ledger = engine(toy, tmp_path, seed=None, checkpoint=Checkpoint(tmp_path))
        made.runtime = networked(made.runtime.sites, tmp_path)
        with ledger:
            made.train()
        return made.runtime

    original, calls = getattr(owner, name), []

    def killed(self: Any, *args: Any, **terms: Any) -> Any:
        calls.append(1)
        found = original(self, *args, **terms)
        if len(calls) == 2:
            raise Killed
        return found

    with drawn() as counts:
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
            patch.setattr(owner, name, killed)
            attempt()
        assert attempt().failures == {}
    each = 1 if trust == "central" else 4
    asked = [0, 2, 3] if owner is Ledger else [0, 1, 2, 3]  # the charged round is void
    assert counts == {(round, "mean"): each for round in asked}
    with Ledger(tmp_path / "ledger.jsonl") as ledger:
        assert [receipt.round for receipt in receipts_in(ledger.entries)] == [0, 1, 2, 3]


@pytest.mark.parametrize("trust", ["central", "distributed", "local"])
def test_an_interrupted_run_of_sites_apart_is_finished_and_verifies(
    tmp_path: Path, trust: str
) -> None:
    asked, out = small_study("fedmoments", "site", trust, study={"rounds": 3}), tmp_path / "out"

    def press(doing: str, done: int, total: int) -> None:
        if doing == "training" and done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_apart(asked, rows(3), out=out, progress=press, seed=2)
    run_apart(asked, rows(3), out=out, resume=True, rows=5)
    whole = run(asked, rows(3), seed=2, rows=5)
    found = verify(out).release
    assert equal(found.model.arrays, whole.model.arrays) and found.ledger == whole.ledger


# The same with a real recipe, from rows to the release.


def released(faults: Faults, trust: str) -> Any:
    asked = small_study("fedmoments", "record", trust)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulate, "Loopback", lambda handlers: Faulty(handlers, faults))
        return run_apart(asked, rows(3), seed=5, rows=20)


@pytest.mark.parametrize("trust", ["central", "local"])
def test_faults_do_not_change_the_release_of_fedmoments(trust: str) -> None:
    names = small_study("fedmoments", "record", trust).site_names
    with drawn() as expected:
        whole = run(small_study("fedmoments", "record", trust), rows(3), seed=5, rows=20)
    each = 3 if trust == "local" else 1  # a stack of three sites is one call
    for number, fault in enumerate(RECOVERED):
        with drawn() as counted:
            found = released({(names[1], number % 2): fault}, trust)
        assert equal(found.model.arrays, whole.model.arrays), fault
        assert found.ledger == whole.ledger and found.claims == whole.claims
        assert counted == {place: each * count for place, count in expected.items()}


@pytest.mark.parametrize("trust", ["central", "local"])
def test_fedmoments_without_a_dead_site_is_released_and_charged_once(trust: str) -> None:
    names = small_study("fedmoments", "record", trust).site_names
    found, whole = (released(f, trust) for f in ({(names[1], 0): "die"}, {}))
    assert not equal(found.model.arrays, whole.model.arrays)
    assert found.ledger == whole.ledger and found.claims == whole.claims


# A site and what it refuses.

HEAD = "site-1"


def alone(toy: Any, folder: Path, **terms: Any) -> Participant:
    """The first site, as a process of its own holds it; started again on the same folder or not."""
    folder.mkdir(exist_ok=True)
    (folder / "server").mkdir(exist_ok=True)
    made, ledger = engine(toy, folder / "server", **terms)
    ledger.close()
    (folder / "site").mkdir(exist_ok=True)
    own = made.runtime.sites.alone(0, SiteMemory(toy.memory, [HEAD]))
    return Participant(own, Agreement.of("study", toy), Store(folder / "site"))


def message(toy: Any, round: int, **changes: Any) -> bytes:
    agreement = replace(Agreement.of("study", toy), **changes.pop("agreement", {}))
    envelope = Envelope(
        **{**dict(agreement=agreement, run="run", site=HEAD, round=round), **changes}
    )
    return encode_call(envelope, toy.task(toy.init(rng=None), round))


def refusal(toy: Any, reply: bytes, round: int = 0) -> str:
    """Why a site said no; fails where it did not."""
    with pytest.raises(Refused) as refused:
        decode_sealed(reply, Envelope(Agreement.of("study", toy), "run", HEAD, round, 9))
    return str(refused.value)


def accepted(toy: Any, reply: bytes, round: int) -> Any:
    return decode_sealed(reply, Envelope(Agreement.of("study", toy), "run", HEAD, round, 9))


@pytest.mark.parametrize(
    "changes, why",
    [
        (dict(agreement={"study": "other"}), "study"),
        (dict(agreement={"schema": "other"}), "schema"),
        (dict(agreement={"plan": "other"}), "plan"),
        (dict(agreement={"version": "0.0.0"}), "version"),
        (dict(site="site-2"), "site"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_site_refuses_what_was_not_agreed_on_and_spends_nothing(
    tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    toy = recipe()
    site = alone(toy, tmp_path)
    with drawn() as counts:
        said = refusal(toy, site.handle(message(toy, 0, **changes)))
    assert f"a message of this {why}" in said
    assert not counts and site.store.kept.round == -1
    assert site.sites.allowance.tolist() == [[3]]
    accepted(toy, site.handle(message(toy, 0)), 0)


def test_the_plan_of_another_noise_is_another_plan(tmp_path: Path) -> None:
    """The server cannot lower the noise by building its recipe from other numbers."""
    toy = recipe()
    site = alone(toy, tmp_path)
    quiet = replace(toy, plan=toy.plan.with_noise(0.01))
    assert "a message of this plan" in refusal(toy, site.handle(message(quiet, 0)))


def test_a_site_refuses_an_old_round_and_another_run(tmp_path: Path) -> None:
    toy = recipe()
    site = alone(toy, tmp_path)
    for round in (0, 1):
        accepted(toy, site.handle(message(toy, round)), round)
    with drawn() as counts:
        assert "round 1 or later" in refusal(toy, site.handle(message(toy, 0)))
        assert "another" in refusal(toy, site.handle(message(toy, 2, run="other")))
    assert not counts and site.sites.allowance.tolist() == [[1]]


@pytest.mark.parametrize("data", [b"", b"UNDY", b"x" * 100])
def test_a_site_answers_nonsense_with_a_refusal(tmp_path: Path, data: bytes) -> None:
    toy = recipe()
    site = alone(toy, tmp_path)
    refusal(toy, site.handle(data))
    assert site.sites.allowance.tolist() == [[3]]


@pytest.mark.parametrize("trust", ["central", "local"])
def test_a_round_beyond_the_plan_is_refused_and_costs_nothing(tmp_path: Path, trust: str) -> None:
    toy = recipe(ToyMean, trust)
    site = alone(toy, tmp_path)
    assert "3 planned rounds" in refusal(toy, site.handle(message(toy, 3)))
    accepted(toy, site.handle(message(toy, 0)), 0)
    assert site.sites.allowance.tolist() == [[2]], "a site counts what it was never asked for"


@pytest.mark.parametrize("trust", ["central", "local"])
def test_a_retry_gets_the_same_bytes_even_from_a_site_that_was_started_again(
    tmp_path: Path, trust: str
) -> None:
    toy = recipe(ToyMean, trust)
    first = alone(toy, tmp_path, seed=None)  # noise of the system: drawn again it would differ
    reply = first.handle(message(toy, 0))
    with drawn() as counts:
        assert first.handle(message(toy, 0, attempt=1)) == reply
        second = alone(toy, tmp_path, seed=None)
        assert second.handle(message(toy, 0, attempt=2)) == reply
    assert not counts
    assert second.sites.allowance.tolist() == first.sites.allowance.tolist() == [[2]]


def test_a_task_that_was_changed_for_a_retry_gets_the_first_answer(tmp_path: Path) -> None:
    """Another model for the same round would be a second question at the price of one."""
    toy = recipe()
    site = alone(toy, tmp_path)
    reply = site.handle(message(toy, 0))
    task = replace(toy.task(toy.init(rng=None), 0), arrays={"mean": torch.full((3,), 5.0)})
    envelope = Envelope(Agreement.of("study", toy), "run", HEAD, 0, 1)
    assert site.handle(encode_call(envelope, task)) == reply


def test_memory_goes_on_where_the_last_reply_left_it(tmp_path: Path) -> None:
    toy = recipe(ToyMean, "none")
    replies = []
    for restarted in (False, True):
        folder = tmp_path / str(restarted)
        site = alone(toy, folder)
        found = []
        for round in range(3):
            site = alone(toy, folder) if restarted else site
            found.append(site.handle(message(toy, round)))
        replies.append(found)
        assert float(site.sites.memory.gather(np.array([0]))["rounds"]) == 3.0
    assert replies[0] == replies[1]


@pytest.mark.parametrize("at", ["answer", "reply"])
def test_a_round_cut_short_is_refused_afterwards_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """Noise may have been drawn for it, so it is never drawn again."""
    toy = recipe()
    site = alone(toy, tmp_path)
    accepted(toy, site.handle(message(toy, 0)), 0)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):

        def killed(*_: object) -> None:
            raise Killed

        if at == "answer":
            patch.setattr(Sites, "answer", killed)
        else:  # after the noise, before its bytes are kept
            patch.setattr("understudy.runtime.participant.encode_sealed", killed)
        site.handle(message(toy, 1))
    again = alone(toy, tmp_path)
    with drawn() as counts:
        assert "cut short" in refusal(toy, again.handle(message(toy, 1, attempt=1)), 1)
    assert not counts and again.sites.allowance.tolist() == [[1]]
    assert float(again.sites.memory.gather(np.array([0]))["rounds"]) == 1.0
    accepted(toy, again.handle(message(toy, 2)), 2)
    assert again.sites.allowance.tolist() == [[0]]


def test_allowances_survive_a_restart_of_the_site(tmp_path: Path) -> None:
    toy = recipe(rounds=6, cohort={"joins": 2})
    for round in range(4):
        site = alone(toy, tmp_path)
        reply = site.handle(message(toy, round))
        if round < 2:
            accepted(toy, reply, round)
        else:
            assert "budget" in refusal(toy, reply, round)
        assert site.sites.allowance.tolist() == [[max(0, 1 - round)]]


def test_a_site_that_refuses_is_left_out_and_not_asked_again(tmp_path: Path) -> None:
    toy = recipe(rounds=2, cohort={"joins": 1})
    asked: Counter[str] = Counter()
    folder = tmp_path / "run"
    folder.mkdir()
    made, ledger = engine(toy, folder)
    made.runtime = networked(made.runtime.sites, folder)
    handlers = dict(made.runtime.transport.handlers)

    def counting(name: str) -> Any:
        def handle(data: bytes) -> bytes:
            asked[name] += 1
            return handlers[name](data)

        return handle

    made.runtime.transport.handlers = {name: counting(name) for name in handlers}
    with ledger:
        made.train()
    assert made.runtime.failures == dict.fromkeys(handlers, "refused")
    assert asked == dict.fromkeys(handlers, 2), "one answer, one refusal, no more questions"


def test_a_reply_that_speaks_for_another_site_is_not_counted(tmp_path: Path) -> None:
    """A site may not vote under another's name, and its own vote counts once."""
    toy = recipe(ToyMean, "none", rounds=1)
    (tmp_path / "run").mkdir()
    made, ledger = engine(toy, tmp_path / "run")
    made.runtime = networked(made.runtime.sites, tmp_path / "run")
    handlers = dict(made.runtime.transport.handlers)
    forged = Sealed("not private", 0, {"mean": torch.full((1, 3), 9.0)}, ())
    other = Envelope(Agreement.of("study", toy), "run", "site-1", 0)
    handlers["site-2"] = lambda data: encode_sealed(forged, other)
    made.runtime.transport.handlers = handlers
    with ledger:
        found = made.train()
    assert equal(found, together(toy, tmp_path / "without", absent=(1,)))
    assert "of this site" in made.runtime.failures["site-2"]


# A site's own budget: it pays by its own ledger before it answers, or refuses.


def paying(folder: Path, cap: float, budget_of: str = "site-1") -> tuple[Participant, Any]:
    """A site with a cap and a ledger of its own, and the task of its first round."""
    toy = recipe(ToyMean, "local")
    made, ledger = engine(toy, folder)
    ledger.close()
    sites = made.runtime.sites.alone(0, SiteMemory(toy.memory, [budget_of]))
    sites.budgets = [Budget(budget_of, cap, folder.parent / "own.jsonl")]
    agreement = Agreement.of("study", toy)
    task = toy.task(toy.init(rng=made.streams), 0)
    return Participant(sites, agreement, Store()), (task, agreement)


def asked(site: Participant, told: Any, run_id: str) -> bytes:
    task, agreement = told
    return site.handle(encode_call(Envelope(agreement, run_id, site.name, 0), task))


def test_a_site_pays_by_its_own_ledger_before_it_answers_and_once_per_run(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    site, told = paying(tmp_path / "a", cap=1e6)
    for _ in range(2):
        reply = asked(site, told, "run")
    assert decode_sealed(reply, Envelope(told[1], "run", site.name, 0)).parts
    entries = list(read_entries((tmp_path / "own.jsonl").read_text()))
    assert [(e["kind"], e["body"]["run"]) for e in entries] == [("reserve", "run"), ("join", "run")]


def test_a_site_refuses_a_run_beyond_its_cap_and_draws_nothing(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    first, told = paying(tmp_path / "a", cap=18.0)
    assert asked(first, told, "one")[:4] == b"UNDY" and first.store.kept.reply
    again, told = paying(tmp_path / "b", cap=18.0)
    with drawn() as draws, pytest.raises(Refused, match="this site can pay for") as refusal:
        decode_sealed(asked(again, told, "two"), Envelope(told[1], "two", again.name, 0))
    assert "spent" not in str(refusal.value), "what it spent elsewhere stays with the site"
    assert not draws and again.store.kept.round == -1
    entries = read_entries((tmp_path / "own.jsonl").read_text())
    assert [entry["kind"] for entry in entries] == ["reserve", "join"]  # of the first run


def test_an_error_at_a_site_keeps_its_words_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An IndexError tells a label; it stays in the site's log."""
    toy = recipe()
    here = alone(toy, tmp_path / "here")

    def fails(self: Any, task: Any, site: Any) -> Any:
        raise IndexError("index 3 is out of bounds")

    monkeypatch.setattr(type(toy), "local", fails)
    reply = here.handle(message(toy, 0))
    assert b"index 3" not in reply and b"an error at the site" in reply


def test_a_round_is_on_disk_before_noise_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy, done = recipe(), []
    here = alone(toy, tmp_path / "here")
    sync, add_noise = os.fsync, Gaussian.add_noise
    monkeypatch.setattr(os, "fsync", lambda handle: (done.append("sync"), sync(handle))[1])
    monkeypatch.setattr(
        Gaussian, "add_noise", lambda *given: (done.append("noise"), add_noise(*given))[1]
    )
    here.handle(message(toy, 0))
    assert done.index("sync") < done.index("noise") and done[-1] == "sync"
