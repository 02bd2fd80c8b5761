"""Whole rounds: the masked sum is the plain one, or there is none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from contracts.secure import TASK, Lab
from understudy.federation.secure import graph as graph_module
from understudy.federation.secure.keys import Announced
from understudy.federation.secure.party import LEGS
from understudy.federation.secure.roster import identities
from understudy.federation.secure.server import Void

ROSTERS = {n: identities([f"site-{i}" for i in range(n)]) for n in range(3, 9)}


def random_lab(rng: np.random.Generator, sites: tuple[int, ...] = (3, 4, 5, 5)) -> Lab:
    """Terms, numbers and drop-outs at every leg, all drawn."""
    n = int(rng.choice(sites))
    colluders = int(rng.integers(0, 2))
    survivors = min(n, (n + colluders) // 2 + 1 + int(rng.random() < 0.2))
    bits = int(rng.choice([8, 16, 24, 40]))
    numbers = torch.from_numpy(rng.integers(0, 1 << bits, (n, int(rng.integers(1, 7)))))
    absent = {leg: set(np.flatnonzero(rng.random(n) < 0.05).tolist()) for leg in LEGS}
    return Lab(numbers, survivors, colluders, bits, made=ROSTERS[n], absent=absent)


def expected(lab: Lab) -> torch.Tensor | None:
    """What the total must be: worked out from who is absent when, without any masks."""
    there, sharing = set(range(len(lab.numbers))), set()
    survivors: set[int] = set()
    for leg in LEGS:
        there -= lab.absent[leg]
        if len(there) < lab.survivors:
            return None
        if leg == "keys" and len(there) + lab.colluders >= 2 * lab.survivors:
            return None
        sharing = set(there) if leg == "shares" else sharing
        survivors = set(there) if leg == "masked" else survivors
    return lab.plain(survivors)


@pytest.mark.slow
def test_the_masked_sum_is_the_plain_one_with_drop_outs_at_every_leg() -> None:
    rng = np.random.default_rng(0)
    whole = void = recovered = 0
    for trial in range(1000):
        lab = random_lab(rng)
        plain = expected(lab)
        if plain is None:
            with pytest.raises(Void):
                lab.total()
            void += 1
            continue
        assert torch.equal(lab.total(), plain), trial
        whole += 1
        recovered += bool(lab.collector.sharing.sum() > len(lab.collector.surviving))
    assert whole > 600 and void > 100 and recovered > 50


@pytest.mark.slow
def test_neighbours_on_a_ring_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight sites with four peers each; a secret needs four of its five holders."""
    monkeypatch.setattr(graph_module, "degree", lambda *terms: (4, 4))
    rng = np.random.default_rng(1)
    for trial in range(60):
        numbers = torch.from_numpy(rng.integers(0, 1 << 20, (8, 3)))
        absent = {leg: set(rng.choice(8, 1).tolist()) for leg in rng.choice(LEGS, 1)}
        lab = Lab(numbers, 6, 1, made=ROSTERS[8], absent=absent, run=f"run {trial}")
        found = lab.total()
        assert lab.collector.graph.degree == 4
        assert torch.equal(found, lab.plain(set(lab.collector.surviving)))
        assert len(lab.collector.surviving) in (7, 8)


def test_a_ring_of_many_sites(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real parameters, with sites that drop out after they have shared."""
    numbers = torch.randint(0, 1 << 20, (104, 2), generator=torch.Generator().manual_seed(0))
    lab = Lab(numbers, 98, 2, absent={"masked": {3, 50}, "survivors": {7}, "unmask": {9}})
    found = lab.total()
    assert lab.collector.graph.degree < 60
    assert torch.equal(found, lab.plain(set(range(104)) - {3, 50}))


def test_what_a_site_sends_is_uniform_whatever_its_numbers() -> None:
    numbers = torch.zeros(3, 20_000, dtype=torch.int64)
    lab = Lab(numbers, 3, 1, bits=8)
    assert torch.equal(lab.total(), torch.zeros(20_000, dtype=torch.int64))
    for sent in lab.masked.values():
        counts = torch.bincount(sent, minlength=256).numpy()
        assert stats.chisquare(counts).pvalue > 1e-6


def test_two_rounds_share_no_mask() -> None:
    """Same sites, same numbers: what they send in two rounds differs by uniform numbers."""
    numbers, made = torch.zeros(3, 20_000, dtype=torch.int64), ROSTERS[3]
    labs = [Lab(numbers, 3, 1, bits=8, round=r, made=made) for r in (0, 1)]
    for lab in labs:
        lab.total()
    one, two = labs
    for client in range(3):
        difference = (one.masked[client] - two.masked[client]) & 0xFF
        assert stats.chisquare(torch.bincount(difference, minlength=256).numpy()).pvalue > 1e-6
    secrets = [{getattr(s, n) for s in lab.sessions.values() for n in ("task",)} for lab in labs]
    assert secrets[0] == secrets[1]  # of what is kept, only the task is the same
    keys = [{key for s in lab.sessions.values() for key in s.keys.values()} for lab in labs]
    assert not keys[0] & keys[1]


def test_of_each_site_one_kind_of_secret_is_told() -> None:
    """The secret of its own mask if it survived, that of its keys if it dropped out."""
    numbers = torch.arange(10).reshape(5, 2)
    lab = Lab(numbers, 4, 1, absent={"masked": {2}})
    held: dict[int, dict[int, bytes]] = {}

    def before(client: int, message: bytes) -> bytes:
        held[client] = dict(lab.sessions[client].held)
        return message

    lab.asking["unmask"] = before
    lab.total()
    for client, answer in lab.told["unmask"].items():
        for target, piece in zip(range(5), range(0, len(answer), 32), strict=True):
            own, keys = held[client][target][:32], held[client][target][32:]
            assert answer[piece : piece + 32] == (keys if target == 2 else own)
        assert own not in answer or keys not in answer
    assert all(not s.held and not s.own and not s.mask for s in survivors(lab))


def survivors(lab: Lab) -> list:
    return [lab.sessions[client] for client in sorted(lab.collector.surviving)]


def test_numbers_that_come_after_the_survivors_are_known_stay_hidden() -> None:
    """A late reply is in no sum, and its site's own mask is never told."""
    numbers = torch.arange(10).reshape(5, 2)
    lab = Lab(numbers, 4, 1, absent={"masked": {2}})
    messages = lab.collector.open(range(5))
    total = lab.collector.add_up(lab._masked(messages), lambda sealed: True)
    late = lab.mask(2, messages[2])
    assert torch.equal(lab.collector.close(total)["a"][0], lab.plain({0, 1, 3, 4}))
    assert not torch.equal(late.parts["a"][0], numbers[2])
    told = b"".join(lab.told["unmask"].values())
    assert lab.sessions[2].held[2][:32] not in told


def test_below_the_minimum_nobody_is_asked_to_tell_anything() -> None:
    lab = Lab(torch.arange(10).reshape(5, 2), 4, 1, absent={"masked": {2, 3}})
    with pytest.raises(Void, match="3 of at least 4"):
        lab.total()
    assert set(lab.told) == {"keys", "shares"}


def test_a_wrong_share_makes_the_round_void_and_never_the_sum_wrong() -> None:
    def flipped(client: int, answer: bytes) -> bytes:
        return answer if client else bytes([answer[0] ^ 1]) + answer[1:]

    lab = Lab(torch.arange(10).reshape(5, 2), 4, 1, answering={"unmask": flipped})
    with pytest.raises(Void, match="wrong shares"):
        lab.total()


@pytest.mark.parametrize("leg", ["keys", "shares", "survivors", "unmask"])
def test_an_answer_of_the_wrong_length_costs_its_site(leg: str) -> None:
    lab = Lab(torch.arange(10).reshape(5, 2), 4, 1)
    lab.answering[leg] = lambda client, answer: answer if client != 2 else answer[:-1]
    found = lab.total()
    gone = {2} if leg in ("keys", "shares") else set()
    assert torch.equal(found, lab.plain(set(range(5)) - gone))


@pytest.mark.parametrize("kind", ["channel", "mask"])
def test_a_key_that_another_site_has_costs_its_site_and_not_the_round(kind: str) -> None:
    lab = Lab(torch.arange(10).reshape(5, 2), 4, 1)
    told: dict[int, Announced] = {}

    def copied(client: int, answer: bytes) -> bytes:
        told[client] = Announced.read(answer)
        if client != 2:
            return answer
        twin = replace(told[2], **{kind: getattr(told[0], kind)})
        signature = lab.parties[2].identity.sign(twin.statement(lab.place, 2, TASK))
        return replace(twin, signature=signature).to_bytes()

    lab.answering["keys"] = copied
    assert torch.equal(lab.total(), lab.plain({0, 1, 3, 4}))


def test_numbers_that_do_not_fit_cost_their_site() -> None:
    lab = Lab(torch.arange(10).reshape(5, 2), 4, 1)
    messages = lab.collector.open(range(5))
    replies = dict(lab._masked(messages))
    replies[1].parts["a"] = replies[1].parts["a"].float()
    total = lab.collector.add_up(replies.items(), lambda sealed: True)
    assert lab.collector.surviving == {0, 2, 3, 4}
    assert torch.equal(lab.collector.close(total)["a"][0], lab.plain({0, 2, 3, 4}))
