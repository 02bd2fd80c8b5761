"""Servers that do not follow the protocol: each attack fails, and works once its safeguard is gone.

And one that does, with a colluding site: what the two see fits the claim.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import beta

from contracts.secure import TASK, Lab
from contracts.toys import ToyMean, study
from understudy.errors import UnderstudyError
from understudy.federation.secure import keys as keys_module
from understudy.federation.secure import party as party_module
from understudy.federation.secure.keys import Primitives, announce, channel, unlock
from understudy.federation.secure.masks import add_mask
from understudy.federation.secure.party import Party, agreed_on, own_mask, pair_mask
from understudy.federation.secure.roster import digest, identities, pack
from understudy.federation.secure.session import Session
from understudy.federation.secure.shamir import recover
from understudy.privacy import integer
from understudy.privacy.claim import claims
from understudy.privacy.integer import IntegerGaussian
from understudy.privacy.mechanism import Use
from understudy.privacy.plan import PrivacyPlan
from understudy.rng import NoiseSource, Streams

Patch = pytest.MonkeyPatch
NUMBERS = torch.randint(0, 1 << 20, (9, 5), generator=torch.Generator().manual_seed(0))
NINE = identities([f"site-{i}" for i in range(9)])


def flags(sites: int, clients: Any) -> bytes:
    found = np.zeros(sites, bool)
    found[list(clients)] = True
    return pack(found)


# Each attack raises an AssertionError if it learns what it must not.


def middleman() -> None:
    """The server gives site 0 keys of its own in the place of its peers', and reads everything."""
    lab = Lab(NUMBERS[:5], 4, 1)
    lab.collector.open(range(5))
    fakes = {i: Session(TASK) for i in range(1, 5)}
    told = {i: announce(fake, lab.place, lab.parties[i].identity) for i, fake in fakes.items()}
    lies = [replace(each, signature=bytes(64)).to_bytes() for each in told.values()]
    party = lab.parties[0]
    session, _ = party.keys(lab.place, TASK)
    own = Session(**{**session.__dict__})
    try:
        session, sent = party.shares(lab.place, session, flags(5, range(5)) + b"".join(lies))
    except UnderstudyError:
        return
    bound, mine = agreed_on(lab.place, session), session.keys[0]
    shares = []
    for place, (i, fake) in enumerate(fakes.items()):
        agreed = Primitives().agree(fake.channel, told[i].channel, [mine[:32]])[0]
        key = channel(lab.place, agreed, 0, i)
        shares.append(unlock(key, sent[80 * place : 80 * place + 80], bound)[:32])
    assert recover(range(1, 5), shares) != own.own, "the server has the secret of a site's mask"


def split_views() -> None:
    """Each site is told of other survivors, so that only two honest sites end up in the sum.

    Nine sites, t = 6, c = 2 (sites 7 and 8 side with the server). Every set that is told has six
    members, and yet each of five sites is called lost by four honest ones.
    """
    lab = Lab(NUMBERS, 6, 2, made=NINE)
    messages = lab.collector.open(range(9))
    for client, message in messages.items():
        lab.mask(client, message)
    lost = {i: {(i + step) % 5 for step in (1, 2, 3)} for i in range(5)}
    lost |= {5: {0, 1, 2}, 6: {3, 4}}
    held = {i: dict(lab.sessions[i].held) for i in range(9)}
    told = {i: shown(lab, i, set(range(9)) - gone) for i, gone in lost.items()}
    masks = [shares_of(held, told, lost, i, survivor=False) for i in range(5)]
    owns = [shares_of(held, told, lost, i, survivor=True) for i in range(5, 9)]
    enough = all(len(found) >= 6 for found in (*masks, *owns))
    assert not enough, "the sum over two honest sites can be unmasked"


def shown(lab: Lab, client: int, survivors: set[int]) -> bool:
    """Whether a site tells its shares for survivors that only colluders confirm."""
    try:
        lab.answer("survivors", client, flags(9, survivors))
        statement = agreed_on(lab.place, lab.sessions[client])
        signers = sorted(survivors - {client})
        signed = b"".join(_forged(lab, i, statement) for i in signers)
        lab.answer("unmask", client, flags(9, survivors) + signed)
    except UnderstudyError:
        return False
    return True


def _forged(lab: Lab, client: int, statement: bytes) -> bytes:
    """What the server can show as a site's signature: that of a colluder, or nothing of worth."""
    return lab.parties[client].identity.sign(statement) if client > 6 else bytes(64)


def shares_of(
    held: dict[int, dict[int, bytes]],
    told: dict[int, bool],
    lost: dict[int, set[int]],
    client: int,
    survivor: bool,
) -> list[int]:
    """Who has told a share of this kind of a site's secrets; colluders tell both."""
    honest = [i for i in told if told[i] and (client in lost[i]) != survivor]
    return [*honest, *(i for i in (7, 8) if client in held[i])]


def few_survivors() -> None:
    """Fewer survivors than the plan's minimum, told to all alike."""
    lab = Lab(NUMBERS[:5], 4, 1)
    for client, message in lab.collector.open(range(5)).items():
        lab.mask(client, message)
    try:
        lab.answer("survivors", 0, flags(5, (0, 1, 2)))
    except UnderstudyError:
        return
    raise AssertionError("a site signed a set below the minimum")


def second_set() -> None:
    """Two sets of survivors, one after the other."""
    lab = Lab(NUMBERS[:5], 4, 1)
    for client, message in lab.collector.open(range(5)).items():
        lab.mask(client, message)
    lab.answer("survivors", 0, flags(5, range(5)))
    try:
        lab.answer("survivors", 0, flags(5, range(4)))
    except UnderstudyError:
        return
    raise AssertionError("a site signed two sets")


def another_task() -> None:
    """Site 2 is given a task that makes its update stand out."""
    lab = Lab(NUMBERS[:5], 4, 1)
    lab.asking["keys"] = lambda client, task: b"u" * 32 if client == 2 else task
    lab.leg("keys", 0, dict.fromkeys(range(5), TASK))
    told = flags(5, range(5)) + b"".join(lab.told["keys"][i] for i in range(1, 5))
    try:
        lab.answer("shares", 0, told)
    except UnderstudyError:
        return
    raise AssertionError("sites with different tasks are added up")


def two_rounds() -> None:
    """Numbers of two rounds subtracted: were masks the same, what changed would be seen."""
    made = identities([f"site-{i}" for i in range(3)])
    labs = [Lab(NUMBERS[:3], 3, 1, round=round, made=made) for round in (0, 1)]
    for lab in labs:
        for client, message in lab.collector.open(range(3)).items():
            lab.mask(client, message)
    for client in range(3):
        assert not torch.equal(labs[0].masked[client], labs[1].masked[client]), "a mask twice"


# Safeguards taken away.


def no_signatures(patch: Patch) -> None:
    patch.setattr(Primitives, "signed", lambda self, *claim: True)
    patch.setattr(keys_module.Remembered, "signed", lambda self, *claim: True)


def no_consistency(patch: Patch) -> None:
    """Shares are told for whatever survivors a site was told of."""

    def unmask(self: Party, place: Any, session: Session, told: bytes) -> tuple[Session, bytes]:
        return session.closed(), self._told(self._graph(place, session), session)

    patch.setattr(Party, "unmask", unmask)


def no_minimum(patch: Patch) -> None:
    original = Party._sites
    patch.setattr(
        Party, "_sites", lambda self, told, within=None, least=0: original(self, told, within)
    )


def forgetful(patch: Patch) -> None:
    """The first set of survivors is not remembered."""
    original = Party.survivors

    def survivors(self: Party, place: Any, session: Session, told: bytes) -> Any:
        kept, signature = original(self, place, replace(session, survivors=b""), told)
        return replace(kept, survivors=b""), signature

    patch.setattr(Party, "survivors", survivors)


def unbound_keys(patch: Patch) -> None:
    """Announced keys are not bound to the task."""
    patch.setattr(
        keys_module.Announced,
        "statement",
        lambda self, place, client, task: place.digest("keys", self.channel, self.mask, self.own),
    )


def same_masks(patch: Patch) -> None:
    patch.setattr(party_module, "own_mask", lambda place, secret, client: digest(f"{client}"))
    patch.setattr(
        party_module,
        "pair_mask",
        lambda place, agreed, one, other: digest(f"{min(one, other)} {max(one, other)}"),
    )


CASES = {
    "signature check removed": (middleman, no_signatures),
    "signature check removed, split": (split_views, no_signatures),
    "consistency check removed": (split_views, no_consistency),
    "survivor check removed": (few_survivors, no_minimum),
    "second set accepted": (second_set, forgetful),
    "task not compared": (another_task, unbound_keys),
    "mask reused": (two_rounds, same_masks),
}


@pytest.mark.parametrize("attack, mutate", CASES.values(), ids=CASES.keys())
def test_an_attack_fails_and_works_without_its_safeguard(
    attack: Callable[[], None], mutate: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    attack()
    mutate(monkeypatch)
    with pytest.raises(AssertionError):
        attack()


# A server that follows the protocol, with one colluding site.

TRIALS = 150
THREE = identities([f"site-{i}" for i in range(3)])


def three_sites() -> PrivacyPlan:
    """Three sites, one of which may side with the server."""
    terms = {"trust": "distributed", "noise": 4.0, "survivors": 3, "colluders": 1}
    return ToyMean.build(study("toy-mean", 3, study={"rounds": 1}, privacy=terms)).plan


def views(plan: PrivacyPlan, updates: torch.Tensor, seed: int) -> np.ndarray:
    """What server and site 2 know of many rounds, as numbers ``[TRIALS, …]``.

    The sum without the colluder's share; each honest site's numbers without its own mask, which
    was told, and the mask that it shares with the colluder; and the sum of those.
    """
    part = plan.own.parts[0]
    mechanism = part.mechanism
    assert isinstance(mechanism, IntegerGaussian)
    source = NoiseSource.seeded(Streams.from_seed(seed))
    use = Use(part, "site", 0, source.sites(0, range(3 * TRIALS)))
    shares, _ = mechanism.seal(updates.repeat(TRIALS, 1), use)
    bits = mechanism.bits(part)
    found = [_view(shares[3 * i : 3 * i + 3], bits) for i in range(TRIALS)]
    return np.stack(found) * mechanism.grid(part).spacing


def _view(shares: torch.Tensor, bits: int) -> np.ndarray:
    lab = Lab(shares, 3, 1, bits, made=THREE)
    total = lab.total()
    known = torch.stack([without_known_masks(lab, i) for i in (0, 1)])
    seen = torch.stack([total - shares[2], *known, known[0] + known[1]])
    modulus = 1 << bits
    centred = (seen + modulus // 2) % modulus - modulus // 2
    return centred.numpy().reshape(-1).astype(float)


def without_known_masks(lab: Lab, client: int) -> torch.Tensor:
    """A masked row without its own mask, which was told, and the one it shares with site 2."""
    row = lab.layout.row({"a": lab.masked[client][None]})
    shares = [answer[32 * client : 32 * client + 32] for answer in lab.told["unmask"].values()]
    own = recover(range(3), shares)
    add_mask(row, own_mask(lab.place, own, client), -1)
    colluder = Session(**{**lab.first[2].__dict__})
    public = lab.told["keys"][client][32:64]
    agreed = Primitives().agree(colluder.mask, lab.told["keys"][2][32:64], [public])[0]
    add_mask(row, pair_mask(lab.place, agreed, client, 2), -1)
    return lab.layout.split(row)["a"][0]


def lower_bound(one: np.ndarray, two: np.ndarray, delta: float) -> float:
    """The largest ε that a threshold on one number of the views proves, with 99.8 % confidence."""
    best = 0.0
    for column in range(one.shape[1]):
        for a, b in ((one[:, column], two[:, column]), (two[:, column], one[:, column])):
            half = len(a) // 2
            for level in np.quantile(np.concatenate((a[:half], b[:half])), (0.3, 0.5, 0.7)):
                hits, misses = int((a[half:] > level).sum()), int((b[half:] > level).sum())
                low = beta.ppf(0.001, hits, len(a) - half - hits + 1) if hits else 0.0
                high = beta.ppf(0.999, misses + 1, len(b) - half - misses)
                if low > delta:
                    best = max(best, float(np.log((low - delta) / high)))
    return best


WITH = torch.tensor([[0.499, 0.0, 0.0], [0.1, 0.0, -0.1], [0.0, 0.2, 0.0]])
WITHOUT = WITH * torch.tensor([[0.0], [1.0], [1.0]])


def seen(plan: PrivacyPlan) -> float:
    """What the views prove about whether site 0 holds rows."""
    return lower_bound(views(plan, WITH, 1), views(plan, WITHOUT, 2), plan.delta)


@pytest.mark.slow
def test_what_a_server_and_a_colluder_see_fits_the_claim() -> None:
    plan = three_sites()
    claim = claims(plan, "os")[0]
    assert claim.adversary == "the server together with one site" and claim.epsilon < 1.5
    assert 0 <= seen(plan) <= claim.epsilon


@pytest.mark.slow
def test_shares_that_are_much_too_small_are_seen_through(monkeypatch: Patch) -> None:
    """So the test above can fail."""
    plan = three_sites()
    epsilon = claims(plan, "os")[0].epsilon
    integer._grid.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(IntegerGaussian, "honest", property(lambda self: 400))
        found = seen(plan)
    integer._grid.cache_clear()
    assert found > epsilon
