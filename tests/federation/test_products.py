"""Product sums: exact, noisy by every party, and blind where they should be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from understudy.errors import PrivacyError, WireError
from understudy.federation import product_party, products
from understudy.federation.product_party import (
    KEY,
    ProductParty,
    between,
    hidden,
    product_place,
    times,
)
from understudy.federation.products import ProductSum, Together, assembled, deal
from understudy.federation.recipe import Task
from understudy.federation.secure.keys import announce, unlock
from understudy.federation.secure.roster import identities
from understudy.federation.secure.shamir import fresh_secret
from understudy.federation.site import Columned
from understudy.privacy.mechanism import Use
from understudy.privacy.plan import Part, Phase, PrivacyPlan
from understudy.privacy.products import MODULUS, SCALE, Products
from understudy.rng import Draws, NoiseSource, Streams


class Held:
    """Sites that hold nothing but their half of a product."""

    def __init__(self, plan: PrivacyPlan, features: list[torch.Tensor], seed: int) -> None:
        self.plan, self.features = plan, features
        self.names = [f"party-{i}" for i in range(len(features))]
        self.source = NoiseSource.seeded(Streams.from_seed(seed))
        self.away: set[int] = set()

    def join(self, clients: np.ndarray, round: int) -> np.ndarray:
        return np.array([c for c in clients if c not in self.away])

    def held(self, task: Task, round: int, client: int) -> Columned:
        part = self.plan.own.parts[0]
        mechanism = part.mechanism
        assert isinstance(mechanism, Products)
        use = Use(part, "record", round, self.source.sites(round, [client]))
        rows = mechanism.rounded(self.features[client], client)
        return Columned(rows, mechanism, client, use, self.plan)


def setting(
    widths: tuple[int, ...], *, rows: int = 30, noise: float = 1.0, seed: int = 0
) -> tuple[ProductSum, Held]:
    mechanism = Products(widths, tuple(1.0 for _ in widths), most=rows + 5, noise=noise)
    part = Part("moments", (sum(widths),) * 2, "sum", "client", mechanism)
    phase = Phase((part,), 1, len(widths))
    plan = PrivacyPlan("record", "local", (phase,), rows + 5, 1e-5, held="columns")
    draw = np.random.default_rng(seed)
    features = [torch.from_numpy(draw.normal(0, 0.5, (rows, w))) for w in widths]
    sites = Held(plan, features, seed)
    together = Together.of(sites, b"study", "run")  # type: ignore[arg-type]
    roster = together.parties[0].roster
    return ProductSum(plan, sites.source, together, roster, b"study", "run"), sites


def total(made: ProductSum) -> np.ndarray:
    found = made.total(lambda *_: iter(()), Task(), 0, np.arange(len(made.roster)))
    assert found is not None, made.void
    return found["moments"].double().numpy()


def plainly(sites: Held) -> np.ndarray:
    """The product of all rows as whole numbers, in Python's own integers."""
    held = [sites.held(Task(), 0, i).rows for i in range(len(sites.names))]
    whole = np.concatenate(held, axis=1).astype(object)
    return np.asarray(whole.T @ whole / SCALE**2, np.float64)


def multiplying(sites: Held) -> Products:
    mechanism = sites.plan.own.parts[0].mechanism
    assert isinstance(mechanism, Products)
    return mechanism


def own_noise(sites: Held, party: int) -> tuple[np.ndarray, list[np.ndarray]]:
    held = sites.held(Task(), 0, party)
    return held.mechanism.noises(party, held.use.draws)


@pytest.fixture
def noiseless(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Products.noises

    def none(self: Products, party: int, draws: object) -> tuple[np.ndarray, list[np.ndarray]]:
        own, others = real(self, party, draws)  # type: ignore[arg-type]
        return own * 0, [each * 0 for each in others]

    monkeypatch.setattr(Products, "noises", none)


@pytest.mark.parametrize("widths", [(1, 1), (3, 2), (1, 5, 2), (2, 1, 3, 4)])
@pytest.mark.usefixtures("noiseless")
def test_shares_add_up_to_the_product_exactly(widths: tuple[int, ...]) -> None:
    for seed in range(5):
        made, sites = setting(widths, seed=seed)
        assert np.array_equal(total(made), plainly(sites).astype(np.float32))


def check_noise(made: ProductSum, sites: Held) -> None:
    """Whoever takes its own noise off what it sees is left with a full one of the other's."""
    left, mechanism = total(made) - plainly(sites), multiplying(sites)
    spans = mechanism.spans()
    diagonal, beside = (v**0.5 / SCALE**2 for v in mechanism.variances)
    for insider in range(2):
        (own,) = own_noise(sites, insider)[1]
        seen = left[spans[0], spans[1]] - (own if insider == 0 else own.T) / SCALE**2
        assert seen.std() == pytest.approx(beside, rel=0.1), f"seen by {insider}"
    for party, span in enumerate(spans):
        block = left[span, span]
        upper = block[np.triu_indices(len(block), 1)]
        assert upper.std() == pytest.approx(beside, rel=0.15), f"block of {party}"
        assert np.diagonal(block).std() == pytest.approx(diagonal, rel=0.4), f"diagonal of {party}"


def test_each_insider_sees_the_full_noise_of_the_other() -> None:
    check_noise(*setting((24, 20), noise=2.0))


@pytest.mark.parametrize("silent", [0, 1])
@pytest.mark.parametrize("where", ["across", "block", "diagonal"])
def test_noise_that_one_party_leaves_out_is_caught(
    where: str, silent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Products.noises

    def less(self: Products, party: int, draws: Draws) -> tuple[np.ndarray, list[np.ndarray]]:
        own, others = real(self, party, draws)
        if party != silent:
            return own, others
        if where == "across":
            return own, [each * 0 for each in others]
        return (np.triu(own, 1) if where == "diagonal" else own * 0), others

    made, sites = setting((24, 20), noise=2.0)
    monkeypatch.setattr(Products, "noises", less)
    caught = f"seen by {1 - silent}" if where == "across" else f"{where} of {silent}"
    with pytest.raises(AssertionError, match=caught):
        check_noise(made, sites)


def test_a_party_sends_nothing_with_less_noise_than_the_plan_promises() -> None:
    made, sites = setting((2, 3), noise=2.0)
    real = sites.held

    def weak(task: Task, round: int, client: int) -> Columned:
        held = real(task, round, client)
        return replace(held, mechanism=held.mechanism.with_noise(1.0))

    sites.held = weak  # type: ignore[method-assign]
    with pytest.raises(PrivacyError, match="noise"):
        total(made)


def parties(many: int = 2) -> tuple[list[ProductParty], Products]:
    roster, each = identities([f"p{i}" for i in range(many)])
    mechanism = Products((2,) * many, (1.0,) * many, most=6, noise=1.0)
    return [ProductParty(identity, roster) for identity in each], mechanism


def check_uniform(words: np.ndarray) -> None:
    """By Pearson's test in 16 cells: a chance below 1e-9 to refuse uniform words."""
    counts = np.bincount((words.ravel() >> np.uint64(MODULUS - 4)).astype(int), minlength=16)
    expected = words.size / 16
    assert ((counts - expected) ** 2 / expected).sum() < 75, "not uniform"


def without_the_deal(made: ProductSum, sites: Held, dealt: list[bytes]) -> list[np.ndarray]:
    """Both shares of one round, less all of them but noise and pair mask."""
    sent: list[np.ndarray] = []
    real = type(made)._words
    made._words = lambda *given: sent.append(real(made, *given)) or sent[-1]  # type: ignore
    total(made)
    place = product_place(made.roster, b"study", "run", 0)
    rows = [sites.held(Task(), 0, i).rows.view(np.uint64) for i in range(2)]
    masks = [hidden(place, dealt[i][:32], i, *rows[i].shape) for i in range(2)]
    shape = (rows[0].shape[1], rows[1].shape[1])
    correction = np.frombuffer(dealt[1][32:], np.uint64).reshape(shape)
    first = times(rows[0], rows[1] - masks[1]) + between(place, dealt[0][:32], (0, 1), shape)
    second = times(masks[1], rows[0] - masks[0]) + correction.T
    shares = [words[-first.size :] for words in sent]
    known = (first.ravel(), second.ravel())
    return [(s - k) & np.uint64(2**MODULUS - 1) for s, k in zip(shares, known, strict=True)]


def check_blind(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left of a share is uniform, and new whenever the keys are, with all else the same."""
    made, sites = setting((24, 20))
    fixed = deal(product_place(made.roster, b"study", "run", 0), multiplying(sites))
    monkeypatch.setattr(products, "deal", lambda *_: fixed)
    one, other = (without_the_deal(made, sites, fixed) for _ in range(2))
    for party in range(2):
        check_uniform(one[party])
        check_uniform((one[party] - other[party]) & np.uint64(2**MODULUS - 1))


def test_a_share_without_the_other_is_uniform_to_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check_blind(monkeypatch)


@pytest.mark.parametrize("party", [0, 1])
def test_a_share_without_its_pair_mask_is_caught(
    party: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = ProductParty._under_mask

    def bare(self: ProductParty, share: np.ndarray, *rest: object) -> np.ndarray:
        return share if self.client == party else real(self, share, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(ProductParty, "_under_mask", bare)
    with pytest.raises(AssertionError, match=r"not uniform|void"):
        check_blind(monkeypatch)


def test_a_pair_mask_that_the_server_could_know_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product_party, "pair_mask", lambda *_: bytes(32))
    with pytest.raises(AssertionError, match="not uniform"):
        check_blind(monkeypatch)


def check_rows_hidden() -> None:
    """Masked rows and their keys do not open with anything the server has, and never repeat."""
    (first, second), mechanism = parties()
    place = product_place(first.roster, b"s", "run", 0)
    sessions, keys = zip(*(p.keys(place, bytes(32)) for p in (first, second)), strict=True)
    dealt = deal(place, mechanism)
    told, rows = b"".join(keys) + dealt[0], np.ones((6, 2), np.int64)
    session, sent = first.matrices(place, sessions[0], told, rows)
    _, again = first.matrices(place, sessions[0], told, rows)
    assert sent[KEY:] != again[KEY:], "repeated"
    known = bytes(32) + told + dealt[1] + place.salt + place.roster + session.task
    bound = product_party._bound(place, session, 0)
    for start in range(len(known) - 31):
        for locked in (sent[:KEY], sent[KEY:]):
            with pytest.raises(WireError):
                unlock(known[start : start + 32], locked, bound)


def test_masked_rows_are_hidden_from_the_server() -> None:
    check_rows_hidden()


def test_a_key_of_masked_rows_that_repeats_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product_party, "os", SimpleNamespace(urandom=bytes))
    with pytest.raises(AssertionError, match="repeated"):
        check_rows_hidden()


def test_a_key_of_masked_rows_that_the_server_has_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fresh = iter((bytes(32), b"other than the first, as it were"))
    monkeypatch.setattr(product_party, "os", SimpleNamespace(urandom=lambda _: next(fresh)))
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        check_rows_hidden()


def test_a_party_that_sends_larger_numbers_reads_a_row_of_another() -> None:
    """Why nothing is claimed against a party that departs from the protocol."""
    made, sites = setting((3, 2))
    real = sites.held

    def cheating(task: Task, round: int, client: int) -> Columned:
        held, rows = real(task, round, client), np.zeros((35, 2), np.int64)
        rows[7] = 2**40
        return replace(held, rows=rows) if client == 1 else held

    victim = real(Task(), 0, 0).rows[7]
    sites.held = cheating  # type: ignore[method-assign]
    read = total(made)[:3, 3] * SCALE**2 / 2**40
    assert np.abs(read - victim).max() < 1  # noise and all


def test_a_second_deal_in_one_round_is_refused() -> None:
    (first, second), mechanism = parties()
    place = product_place(first.roster, b"s", "run", 0)
    sessions, keys = zip(*(p.keys(place, bytes(32)) for p in (first, second)), strict=True)
    rows = np.ones((6, 2), np.int64)
    dealt = [b"".join(keys) + each for each in deal(place, mechanism)]
    session, _ = first.matrices(place, sessions[0], dealt[0], rows)
    with pytest.raises(WireError, match="one deal a round"):
        first.matrices(place, session, b"".join(keys) + deal(place, mechanism)[0], rows)
    other = product_place(first.roster, b"s", "run", 1)
    with pytest.raises(WireError, match="signed for this round"):
        first.matrices(other, sessions[0], dealt[0], rows)


def test_a_key_that_two_parties_have_is_refused() -> None:
    (first, second), mechanism = parties()
    place = product_place(first.roster, b"s", "run", 0)
    session, own = first.keys(place, bytes(32))
    twin = announce(replace(session, own=fresh_secret()), place, second.identity).to_bytes()
    told = own + twin + deal(place, mechanism)[0]
    with pytest.raises(WireError, match="one twice"):
        first.matrices(place, session, told, np.ones((6, 2), np.int64))


def test_masks_of_one_seed_differ_from_round_to_round() -> None:
    (first, _), _ = parties()
    one, other = (
        product_party.hidden(product_place(first.roster, b"s", "run", r), bytes(32), 0, 6, 2)
        for r in (0, 1)
    )
    assert not np.array_equal(one, other)


def test_masked_rows_that_were_changed_on_the_way_are_refused() -> None:
    made, _ = setting((2, 3))
    real = made.holders.sealed

    def changed(leg: str, task: Task, round: int, messages: Mapping[int, bytes]) -> object:
        return real(leg, task, round, {i: m[:-1] + b"\0" for i, m in messages.items()})

    made.holders.sealed = changed  # type: ignore[method-assign, assignment]
    with pytest.raises(WireError):
        total(made)


def test_rows_that_changed_after_they_were_masked_are_not_multiplied() -> None:
    """As where a file is replaced and its party started again between two legs."""
    made, sites = setting((2, 3))
    real = made.holders.sealed

    def changed(leg: str, task: Task, round: int, messages: Mapping[int, bytes]) -> object:
        sites.features[1] = sites.features[1] / 2
        return real(leg, task, round, messages)

    made.holders.sealed = changed  # type: ignore[method-assign, assignment]
    with pytest.raises(WireError, match="rows that were masked"):
        total(made)


def test_a_round_without_one_of_the_parties_is_void() -> None:
    made, sites = setting((2, 3))
    sites.away = {1}
    assert made.total(lambda *_: iter(()), Task(), 0, np.arange(2)) is None
    assert "party-1 did not answer" in made.void


def test_shares_of_another_length_make_the_round_void() -> None:
    mechanism = Products((2, 2), (1.0, 1.0), most=6, noise=1.0)
    with pytest.raises(Exception, match="do not fit"):
        assembled({0: np.zeros(7, np.uint64), 1: np.zeros(6, np.uint64)}, mechanism)
