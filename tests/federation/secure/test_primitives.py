"""Shares of secrets, masks, and who is whose peer."""

from __future__ import annotations

import itertools
import os

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from understudy.errors import PrivacyError
from understudy.federation.secure.graph import Graph, degree
from understudy.federation.secure.masks import Layout, add_mask, derive
from understudy.federation.secure.roster import Place
from understudy.federation.secure.shamir import fresh_secret, recover, split

PRIME = 2**255 - 19


def at(terms: list[int], x: int) -> int:
    return sum(term * x**power for power, term in enumerate(terms)) % PRIME


def test_any_threshold_of_shares_gives_the_secret() -> None:
    secret = fresh_secret()
    shares = split(secret, 3, 5)
    for ranks in itertools.combinations(range(5), 3):
        assert recover(ranks, [shares[rank] for rank in ranks]) == secret
    assert recover((0, 1), shares[:2]) != secret


def test_shares_are_the_values_of_one_polynomial_in_the_field(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Limbs carry and fold right, for the largest numbers too."""
    for top in (PRIME - 1, 2**255 - 2**200, 12345):
        drawn = iter([top] * 300)
        name = "understudy.federation.secure.shamir.fresh_secret"
        monkeypatch.setattr(name, lambda drawn=drawn: next(drawn).to_bytes(32, "little"))
        found = split(top.to_bytes(32, "little"), 200, 250)
        for rank in (0, 1, 100, 249):
            assert int.from_bytes(found[rank], "little") == at([top] * 200, rank + 1)


def test_fewer_shares_fit_every_secret() -> None:
    """For any two shares of a polynomial of degree two there is one with each secret."""
    shares = split(fresh_secret(), 3, 5)
    for _ in range(5):
        other = fresh_secret()
        third = forced(other, shares[0], shares[1])
        assert recover((0, 1, 2), [*shares[:2], third]) == other


def forced(secret: bytes, one: bytes, two: bytes) -> bytes:
    """The share of rank 2 that goes with these: p(3) = p(0) − 3p(1) + 3p(2)."""
    p0, p1, p2 = (int.from_bytes(value, "little") for value in (secret, one, two))
    return ((p0 - 3 * p1 + 3 * p2) % PRIME).to_bytes(32, "little")


def test_keys_are_hkdf() -> None:
    secret, place = os.urandom(32), os.urandom(32)
    info = b"pair mask" + (3).to_bytes(4, "big") + (7).to_bytes(4, "big")
    known = HKDF(SHA256(), 32, salt=place, info=info).derive(secret)
    assert derive(secret, place, "pair mask", 3, 7) == known


def test_a_key_serves_one_purpose_pair_and_place() -> None:
    secret, base = b"s" * 32, {"roster": b"r", "study": b"s", "run": "u", "round": 0}
    terms = {**base, "survivors": 3, "colluders": 1}
    changes = [{}, {"roster": b"q"}, {"study": b"q"}, {"run": "q"}, {"round": 1}]
    changes += [{"survivors": 4}, {"colluders": 0}]
    places = [Place(**{**terms, **change}).salt for change in changes]
    keys = {derive(secret, place, "pair mask", 0, 1) for place in places}
    keys |= {derive(secret, places[0], "own mask", 0), derive(secret, places[0], "pair mask", 0, 2)}
    assert len(keys) == len(places) + 2


@pytest.mark.parametrize("word", [np.uint8, np.uint16, np.uint32, np.uint64])
@pytest.mark.parametrize("size", [1, 1000, 140_001])
def test_a_mask_is_the_keystream_and_comes_off_again(word: type, size: int) -> None:
    key, row = os.urandom(32), np.arange(size).astype(word)
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    expected = row + np.frombuffer(stream.update(bytes(row.nbytes)), word)
    masked = row.copy()
    add_mask(masked, key)
    assert np.array_equal(masked, expected)
    add_mask(masked, key, -1)
    assert np.array_equal(masked, row)


def test_parts_lie_in_a_row_of_the_smallest_words() -> None:
    layout = Layout((("a", (2, 2), 24), ("b", (), 8)))
    values = {"a": torch.tensor([[[1, 2], [3, (1 << 24) - 1]]]), "b": torch.tensor([255])}
    row = layout.row(values)
    assert row.dtype == np.uint32 and layout.size == 5
    row += np.uint32(1)  # wraps around in each part by itself
    found = layout.split(row)
    assert found["a"].tolist() == [[[2, 3], [4, 0]]] and found["b"].tolist() == [0]
    words = [Layout((("a", (1,), bits),)).word.itemsize for bits in (8, 9, 16, 24, 32, 33, 56)]
    assert words == [1, 2, 2, 4, 4, 8, 8]
    for parts in ((), (("a", (1,), 63),), (("a", (1,), 0),)):
        with pytest.raises(PrivacyError, match="moduli"):
            Layout(parts)


def graph(sites: int, survivors: int, colluders: int, round: int = 0) -> Graph:
    place = Place(b"roster", b"study", "run", round, survivors, colluders)
    return Graph.among(np.ones(sites, bool), place)


def test_up_to_a_hundred_sites_all_are_peers() -> None:
    found = graph(100, 80, 10)
    assert found.complete and found.threshold == 80 and len(found.peers(3)) == 99


@pytest.mark.parametrize("terms", [(5, 6, 1), (5, 3, 1), (4, 2, 0), (5, 4, 4), (5, 4, 3)])
def test_terms_that_promise_nothing_are_refused(terms: tuple[int, int, int]) -> None:
    """Fewer sites than survivors, or two quorums that need not share an honest site."""
    with pytest.raises(PrivacyError, match="sites in a round"):
        graph(*terms)


def test_peers_on_the_ring_are_mutual_and_drawn_anew_each_round() -> None:
    one, two = graph(1000, 900, 50), graph(1000, 900, 50, round=1)
    assert one.degree % 2 == 0 and one.degree < 200
    peers = [set(one.peers(i).tolist()) for i in range(1000)]
    assert all(len(found) == one.degree and i not in found for i, found in enumerate(peers))
    assert all(i in peers[j] for i in range(0, 1000, 50) for j in peers[i])
    assert not np.array_equal(one.peers(7), two.peers(7))
    assert np.array_equal(one.peers(7), graph(1000, 900, 50).peers(7))


def test_two_quorums_of_holders_meet_in_an_honest_one() -> None:
    """The bound of the ring's page, by drawing colluders many times."""
    found = graph(1000, 900, 100)
    rng = np.random.default_rng(0)
    holders = np.stack([found.holders(i) for i in range(1000)])
    for _ in range(50):
        bad = np.zeros(1000, bool)
        bad[rng.choice(1000, 100, replace=False)] = True
        assert (bad[holders].sum(1) < 2 * found.threshold - holders.shape[1]).all()
        gone = np.zeros(1000, bool)
        gone[rng.choice(1000, 100, replace=False)] = True
        assert ((~gone[holders]).sum(1) >= found.threshold).all()


def test_peers_grow_with_the_logarithm_of_the_sites() -> None:
    sizes = [degree(n, int(0.9 * n), n // 20) for n in (10**3, 10**4, 10**5)]
    each = [found[0] for found in sizes if found is not None]
    assert len(each) == 3 and each[2] - each[1] <= 1.2 * (each[1] - each[0])
    assert each[2] < 2 * each[0]


def test_a_ring_that_could_not_hold_is_not_used() -> None:
    assert degree(101, 101, 99) is None
    assert graph(101, 101, 99).complete
