"""What a site refuses: each lie of a server, or of another site, at the leg where it is told."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from contracts.secure import TASK, Lab
from understudy.errors import PrivacyError, UnderstudyError, WireError
from understudy.federation.secure.keys import Announced, announce
from understudy.federation.secure.party import Party
from understudy.federation.secure.roster import Place, Roster, identities, pack, unpack
from understudy.federation.secure.session import Session
from understudy.privacy.clip import Sealed

NUMBERS = torch.arange(10).reshape(5, 2)


def flags(*clients: int) -> bytes:
    found = np.zeros(5, bool)
    found[list(clients)] = True
    return pack(found)


def after(leg: str, **terms: object) -> tuple[Lab, dict[str, dict[int, bytes]]]:
    """A round that has come to this leg, and what each site was told in each leg."""
    lab = Lab(NUMBERS, 4, 1, **terms)  # type: ignore[arg-type]
    asked: dict[str, dict[int, bytes]] = {}
    before: dict[str, dict[int, Session]] = {}

    def noting(name: str) -> Callable[[int, bytes], bytes]:
        def note(client: int, message: bytes) -> bytes:
            asked.setdefault(name, {})[client] = message
            if client in lab.sessions:
                before.setdefault(name, {})[client] = lab.sessions[client]
            return message

        return note

    for name in ("keys", "shares", "masked", "survivors", "unmask"):
        lab.asking[name] = noting(name)
    lab.total()
    lab.sessions = before.get(leg, {})
    lab.asking.clear()
    return lab, asked


def refused(lab: Lab, leg: str, message: bytes, match: str) -> None:
    party, session = lab.parties[0], lab.sessions[0]
    step = party.receive if leg == "masked" else getattr(party, leg)
    with pytest.raises(UnderstudyError, match=match):
        step(lab.place, session, message)


def test_the_messages_of_a_round_are_accepted_again_as_they_were() -> None:
    """So that the refusals below are for the lie and nothing else."""
    for leg in ("shares", "survivors", "unmask"):
        lab, asked = after(leg)
        assert len(lab.answer(leg, 0, asked[leg][0])) > 0
    lab, asked = after("masked")
    lab.parties[0].receive(lab.place, lab.sessions[0], asked["masked"][0])


def with_keys(message: bytes, peer: int, keys: bytes) -> bytes:
    """The message of leg 2 to site 0, with other keys for a peer."""
    start = 1 + (peer - 1) * 160
    return message[:start] + keys + message[start + 160 :]


def test_forged_keys_are_refused() -> None:
    lab, asked = after("shares")
    mallory = identities(["x"])[1][0]
    forged = announce(Session(TASK), lab.place, mallory).to_bytes()
    refused(lab, "shares", with_keys(asked["shares"][0], 2, forged), "roster's sites signed")


def test_unsigned_keys_are_refused() -> None:
    lab, asked = after("shares")
    bare = asked["shares"][0][1 + 160 : 1 + 256] + bytes(64)
    refused(lab, "shares", with_keys(asked["shares"][0], 2, bare), "roster's sites signed")


def test_one_sites_keys_under_anothers_name_are_refused() -> None:
    lab, asked = after("shares")
    other = asked["shares"][0][1 : 1 + 160]
    refused(lab, "shares", with_keys(asked["shares"][0], 2, other), "roster's sites signed")


@pytest.mark.parametrize("kind", ["channel", "mask"])
def test_a_key_that_two_sites_have_is_refused(kind: str) -> None:
    lab, asked = after("shares")
    one = Announced.read(asked["shares"][0][1 : 1 + 160])
    session = Session(TASK)
    made = announce(session, lab.place, lab.parties[2].identity)
    fields = {"channel": made.channel, "mask": made.mask, "own": made.own, "signature": b""}
    twin = Announced(**{**fields, kind: getattr(one, kind)})
    signature = lab.parties[2].identity.sign(twin.statement(lab.place, 2, TASK))
    keys = Announced(twin.channel, twin.mask, twin.own, signature).to_bytes()
    refused(lab, "shares", with_keys(asked["shares"][0], 2, keys), "one twice")


def test_a_key_that_makes_agreements_known_is_refused() -> None:
    lab, asked = after("shares")
    made = announce(Session(TASK), lab.place, lab.parties[2].identity)
    weak = Announced(bytes(32), made.mask, made.own, b"")
    signature = lab.parties[2].identity.sign(weak.statement(lab.place, 2, TASK))
    keys = Announced(weak.channel, weak.mask, weak.own, signature).to_bytes()
    refused(lab, "shares", with_keys(asked["shares"][0], 2, keys), "sound public key")


PLACES = {
    "an old round": {"round": 4},
    "another run": {"run": "other"},
    "another study": {"study": b"other"},
    "other terms": {"survivors": 5},
    "another roster": {"roster": b"other"},
}


@pytest.mark.parametrize("change", PLACES.values(), ids=PLACES.keys())
def test_keys_of_another_place_are_refused(change: dict[str, object]) -> None:
    lab, asked = after("shares", round=5)
    terms = {**lab.place.__dict__, **change}
    fields = ("roster", "study", "run", "round", "survivors", "colluders")
    elsewhere = Place(**{name: terms[name] for name in fields})
    stale = announce(Session(TASK), elsewhere, lab.parties[2].identity).to_bytes()
    refused(lab, "shares", with_keys(asked["shares"][0], 2, stale), "roster's sites signed")


def test_a_peer_that_was_given_another_task_is_refused() -> None:
    """Sites compare the hash of the task before any of them trains."""
    lab, asked = after("shares")
    other = announce(Session(b"u" * 32), lab.place, lab.parties[2].identity).to_bytes()
    refused(lab, "shares", with_keys(asked["shares"][0], 2, other), "study and task")


def test_a_set_of_sites_that_cannot_be_is_refused() -> None:
    lab, asked = after("shares")
    rest = asked["shares"][0][1:]
    refused(lab, "shares", flags(1, 2, 3, 4) + rest, "this one in it")
    refused(lab, "shares", flags(0, 1, 2) + rest[: 2 * 160], "4 to 6 sites")
    refused(lab, "shares", b"\xff" + rest, "a set of 5 sites")
    refused(lab, "shares", asked["shares"][0][:-1], "160 bytes")
    refused(lab, "shares", b"", "a set of 5 sites")


def test_shares_from_a_site_that_was_told_of_others_cannot_be_read() -> None:
    """Who was called is bound into every share on its way."""
    lab, asked = after("masked")
    other = Lab(NUMBERS, 4, 1, made=(lab.roster, [p.identity for p in lab.parties]))
    other.absent = {"keys": {4}}
    other.collector.open(range(5))
    mixed = asked["masked"][0][:1] + other.told["shares"][1][:80] + asked["masked"][0][81:]
    refused(lab, "masked", mixed, "told the same")


def test_replayed_and_tampered_shares_are_refused() -> None:
    lab, asked = after("masked")
    message = asked["masked"][0]
    refused(lab, "masked", message[:-1] + bytes([message[-1] ^ 1]), "told the same")
    refused(lab, "masked", message[:1] + message[81:161] * 2 + message[161:], "told the same")
    refused(lab, "masked", flags(0, 1, 2) + message[1:161], "at least 4 survivors")


def test_a_site_does_not_take_its_own_shares_for_a_peers() -> None:
    """What it sent to a peer comes back under the peer's name."""
    lab, asked = after("masked")
    own = lab.told["shares"][0][:80]
    refused(lab, "masked", asked["masked"][0][:1] + own + asked["masked"][0][81:], "told the same")


def test_fewer_survivors_than_the_minimum_are_refused() -> None:
    lab, _ = after("survivors")
    refused(lab, "survivors", flags(0, 1, 2), "at least 4 survivors")
    refused(lab, "survivors", flags(1, 2, 3, 4), "this one in it")
    refused(lab, "survivors", flags(0, 1, 2, 3, 4) + b"x", "another length")


def test_a_survivor_that_never_shared_is_refused() -> None:
    lab, _ = after("survivors", absent={"shares": {4}})
    refused(lab, "survivors", flags(0, 1, 2, 4), "more of them")


def test_a_second_set_of_survivors_is_refused() -> None:
    lab, _ = after("unmask")  # by now the first is signed
    session, signature = lab.parties[0].survivors(lab.place, lab.sessions[0], flags(0, 1, 2, 3, 4))
    assert session == lab.sessions[0] and signature == lab.told["survivors"][0]
    refused(lab, "survivors", flags(0, 1, 2, 3), "one set of survivors")


def test_too_few_signatures_are_refused() -> None:
    lab, asked = after("unmask")
    message = asked["unmask"][0]
    refused(lab, "unmask", flags(0, 1, 2) + message[1:129], "at least 4 signatures")


def test_signatures_of_another_set_are_refused() -> None:
    """What the server would need to have both kinds of one site's secrets."""
    lab, asked = after("unmask")
    split = after("unmask", made=(lab.roster, [p.identity for p in lab.parties]))[0]
    session = split.sessions[1]
    lie = Session(**{**session.__dict__, "survivors": b""})
    _, signature = split.parties[1].survivors(split.place, lie, flags(0, 1, 2, 3))
    message = asked["unmask"][0]
    refused(lab, "unmask", message[:1] + signature + message[65:], "what this site signed")
    refused(lab, "unmask", message[:1] + bytes(64) + message[65:], "what this site signed")


def test_a_set_signed_before_cannot_serve_a_later_round() -> None:
    lab, _ = after("unmask")
    later = after("unmask", round=1, made=(lab.roster, [p.identity for p in lab.parties]))
    message = later[1]["unmask"][0]
    old = lab.told["survivors"][1]
    refused(later[0], "unmask", message[:1] + old + message[65:], "what this site signed")


def test_secrets_are_gone_once_shares_are_told() -> None:
    lab, asked = after("unmask")
    session, _ = lab.parties[0].unmask(lab.place, lab.sessions[0], asked["unmask"][0])
    assert (session.channel, session.mask, session.own, session.held) == (b"", b"", b"", {})


def test_what_a_site_keeps_comes_back_from_disk_and_never_shows_a_secret() -> None:
    lab, _ = after("unmask")
    session = lab.sessions[0]
    assert Session.from_bytes(session.to_bytes()) == session
    for secret in (session.channel, session.mask, session.own):
        assert repr(secret) not in repr(session)


BAD = {
    "floats": torch.zeros(1, 2),
    "not finite": torch.tensor([[float("nan"), 0.0]]),
    "another shape": torch.zeros(1, 3, dtype=torch.int64),
    "beyond the modulus": torch.tensor([[1 << 20, 0]]),
    "below zero": torch.tensor([[-1, 0]]),
}


@pytest.mark.parametrize("value", BAD.values(), ids=BAD.keys())
def test_a_share_that_is_not_whole_or_does_not_fit_is_refused(value: torch.Tensor) -> None:
    lab, _ = after("survivors")
    sealed = Sealed("share", 0, {"a": value}, ())
    with pytest.raises(PrivacyError, match=r"whole numbers|numbers of 20 bits"):
        lab.parties[0].mask(lab.place, lab.sessions[0], sealed, lab.layout)


@pytest.mark.parametrize("kind, round", [("noised", 0), ("masked", 0), ("share", 1)])
def test_only_a_share_of_this_round_is_masked(kind: str, round: int) -> None:
    lab, _ = after("survivors")
    sealed = Sealed(kind, round, {"a": NUMBERS[:1]}, ())  # type: ignore[arg-type]
    with pytest.raises(WireError, match="share of this round"):
        lab.parties[0].mask(lab.place, lab.sessions[0], sealed, lab.layout)


def test_a_roster_has_one_name_and_one_key_for_each() -> None:
    roster, _ = identities(["a", "b"])
    for names, keys in [
        (("a", "a"), roster.keys),
        (("a", "b"), (roster.keys[0],) * 2),
        (("a",), roster.keys),
        (("a", "b"), (roster.keys[0], b"short")),
    ]:
        with pytest.raises(PrivacyError, match="a roster with"):
            Roster(names, keys)
    assert Roster(("b", "a"), roster.keys).hash != roster.hash
    assert np.array_equal(unpack(pack(np.array([True, False])), 2), [True, False])


def test_a_site_of_another_roster_signs_for_nobody() -> None:
    lab = Lab(NUMBERS, 4, 1)
    stranger = identities([f"site-{i}" for i in range(5)])[1][2]
    lab.parties[2] = Party(stranger, lab.roster)
    lab.total()
    assert 2 not in lab.collector.surviving
