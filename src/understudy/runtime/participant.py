"""A site on a network: it answers every message of a server, and never one twice differently.

A `Participant` checks that both ends agree on study, schema, plan and version, counts the round
before noise is drawn, and keeps its sealed bytes together with its memory, so that a retry gets
the same bytes and never fresh noise. In a secure sum a round has legs (`federation.secure.party`):
they come in order, each is answered for one message only, and all that the site must not forget
between them is on disk before it answers.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, field, replace
from threading import Lock

import numpy as np

from understudy.errors import BudgetError, WireError
from understudy.federation.masking import layout_of, place_of, task_hash
from understudy.federation.product_party import (
    PRODUCT_LEGS,
    ProductParty,
    product_place,
    sealed_products,
)
from understudy.federation.products import product_part
from understudy.federation.recipe import State, Task
from understudy.federation.secure.party import LEGS, Party
from understudy.federation.secure.roster import Place
from understudy.federation.secure.session import Session
from understudy.federation.sites import Sites
from understudy.runtime.store import Kept, Store
from understudy.runtime.wire import (
    Agreement,
    Envelope,
    answered,
    decode_call,
    encode_sealed,
    encode_told,
)

__all__ = ["Participant"]

_LOG = logging.getLogger(__name__)


@dataclass
class Participant:
    """One site. ``party`` is its half of secure sums or of product sums, if the plan has them."""

    sites: Sites
    agreement: Agreement
    store: Store
    party: Party | ProductParty | None = None
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        kept = self.store.kept
        if kept.round >= 0:
            self.sites.allowance[:, 0] = kept.allowance
        if kept.memory:
            self.sites.memory.scatter(_ALONE, kept.memory)

    @property
    def name(self) -> str:
        return self.sites.names[0]

    def handle(self, data: bytes) -> bytes:
        """The reply to a message: a sealed update, a leg's answer, or a refusal that says why."""
        with self._lock:
            return answered(lambda: self._called(data), self.agreement, self.name)

    def _called(self, data: bytes) -> bytes:
        task, told, envelope = decode_call(data, self.agreement, self.name)
        self._check_turn(envelope, self.store.kept)
        if envelope.leg or self._legs(envelope.round):
            return self._answer_leg(task, told, envelope)
        return self._answer(task, envelope)

    def _legs(self, round: int) -> tuple[str, ...]:
        """Those of this round; none where it has one exchange."""
        if isinstance(self.party, ProductParty):
            return PRODUCT_LEGS if product_part(self.sites.recipe.plan, round) else ()
        return () if self.party is None else LEGS

    def _answer(self, task: Task, envelope: Envelope) -> bytes:
        kept = self.store.kept
        if envelope.round == kept.round:
            return kept.reply  # a retry: the same bytes, never fresh noise
        return self._trained(task, envelope, self._joined(envelope))

    def _joined(self, envelope: Envelope) -> Kept:
        """What the site keeps once it has paid for the run and joined the round."""
        if not self.store.kept.run:  # first of all: a crash while it pays is no state that was lost
            self.store.save(replace(self.store.kept, run=envelope.run))
        kept = self.store.kept
        paid = kept.paid or self._pay(envelope.run)  # at most once per run
        if not len(self.sites.join(_ALONE, envelope.round)):
            raise WireError("a round within this site's budget", "one more", "leave the site out")
        kept = replace(
            kept,
            paid=paid,
            run=envelope.run,
            round=envelope.round,
            allowance=tuple(self.sites.allowance[:, 0].tolist()),
            reply=b"",
            leg="",
            asked="",
            session=b"",
        )
        self.store.save(kept)
        return kept

    def _trained(self, task: Task, envelope: Envelope, kept: Kept) -> bytes:
        """Train, seal, mask in a secure sum, and keep the reply together with the memory."""
        kept = self._noted(envelope, kept)
        sealed, memory = self.sites.answer(task, envelope.round, _ALONE)
        if isinstance(self.party, Party):
            session = Session.from_bytes(kept.session)
            layout = layout_of(self.sites.recipe.plan, envelope.round)
            sealed = self.party.mask(self._place(envelope), session, sealed, layout)
        reply = encode_sealed(sealed, envelope)
        self.store.save(replace(kept, reply=reply, memory=_single(memory)))
        self.sites.memory.scatter(_ALONE, memory)
        return reply

    def _answer_leg(self, task: Task, told: bytes, envelope: Envelope) -> bytes:
        """One leg of a secure sum; a retry gets the same bytes, another message a refusal."""
        kept, leg = self.store.kept, envelope.leg
        asked = hashlib.sha256(task_hash(task) + told).hexdigest()
        if (envelope.round, leg) == (kept.round, kept.leg):
            if asked != kept.asked:
                raise WireError(f"one message in leg {leg!r}", "a second", "leave the round")
            return kept.reply
        self._check_leg(leg, envelope.round, kept)
        if leg == "keys":
            kept = self._joined(envelope)
        kept = replace(kept, leg=leg, asked=asked)
        if leg == "masked":
            return self._answer_masked(task, told, envelope, kept)
        if leg == "products":
            return self._answer_products(task, told, envelope, kept)
        session, answer = self._step(task, told, envelope, kept)
        reply = encode_told(answer, envelope)
        self.store.save(replace(kept, reply=reply, session=session.to_bytes()))
        return reply

    def _answer_products(self, task: Task, told: bytes, envelope: Envelope, kept: Kept) -> bytes:
        assert isinstance(self.party, ProductParty)
        session, place = self._announced(task, kept), self._place(envelope)
        begun = replace(kept, reply=b"", session=session.closed().to_bytes())
        self.store.save(begun)  # noise is drawn once: a leg that is cut short stays so
        begun = self._noted(envelope, begun)
        held = self.sites.held(task, envelope.round, 0)
        sealed = sealed_products(self.party, place, session, told, held)
        reply = encode_sealed(sealed, envelope)
        self.store.save(replace(begun, reply=reply))
        return reply

    def _announced(self, task: Task, kept: Kept) -> Session:
        """What is kept of the round, if this is the task that was announced in it."""
        session = Session.from_bytes(kept.session)
        if task_hash(task) != session.task:
            raise WireError("the task that was announced", "another", "leave the round")
        return session

    def _answer_masked(self, task: Task, told: bytes, envelope: Envelope, kept: Kept) -> bytes:
        assert isinstance(self.party, Party)
        session = self._announced(task, kept)
        session = self.party.receive(self._place(envelope), session, told)
        begun = replace(kept, reply=b"", session=session.to_bytes())
        self.store.save(begun)  # noise is drawn once: a leg that is cut short stays so
        return self._trained(task, envelope, begun)

    def _step(
        self, task: Task, told: bytes, envelope: Envelope, kept: Kept
    ) -> tuple[Session, bytes]:
        party, place = self.party, self._place(envelope)
        assert party is not None
        if envelope.leg == "keys":
            return party.keys(place, told)
        if isinstance(party, ProductParty):
            session, rows = self._announced(task, kept), self.sites.held(task, envelope.round, 0)
            return party.matrices(place, session, told, rows.rows)
        steps = {"shares": party.shares, "survivors": party.survivors, "unmask": party.unmask}
        return steps[envelope.leg](place, Session.from_bytes(kept.session), told)

    def _place(self, envelope: Envelope) -> Place:
        assert self.party is not None
        plan, roster = self.sites.recipe.plan, self.party.roster
        if isinstance(self.party, ProductParty):
            return product_place(roster, self.agreement.hash, envelope.run, envelope.round)
        return place_of(plan, envelope.round, roster, self.agreement.hash, envelope.run)

    def _check_leg(self, leg: str, round: int, kept: Kept) -> None:
        """Legs of one round in order, and only where the plan asks for a secure sum."""
        legs = self._legs(round)
        if leg not in legs:
            expected = "a leg of a round" if legs else "an update in one exchange"
            raise WireError(expected, f"leg {leg[:20]!r}", "compare the studies")
        before = legs[legs.index(leg) - 1] if leg != "keys" else None
        if before != (kept.leg if round == kept.round else None):
            raise WireError(f"the legs of a round in order, before {leg!r}", "another", "drop it")

    def _pay(self, run: str) -> tuple[int, str] | None:
        """Charge the site's own ledger; what it spent elsewhere is not the server's to know."""
        try:
            return self.sites.charge(0, run, self.store.place)
        except BudgetError as error:
            found = "one that exceeds its cap, or was joined before"
            raise WireError("a run that this site can pay for", found, "leave it out") from error

    def _noted(self, envelope: Envelope, kept: Kept) -> Kept:
        """Note the round in the site's own ledger, as the last thing before its noise is drawn.

        The state has it already: the ledger never has a round that the newest state lacks. Any
        state from before is refused here, one from an earlier leg of the same round too.
        """
        try:
            return replace(kept, paid=self.sites.note(0, envelope.run, envelope.round))
        except BudgetError as error:
            _LOG.error("%s", error)
            expected = "a round that this site has not joined before"
            raise WireError(expected, "one that it has", "leave it out") from error

    def _check_turn(self, envelope: Envelope, kept: Kept) -> None:
        """One run, planned rounds in order, and none that was begun and not finished."""
        if kept.run not in ("", envelope.run):
            raise WireError("the run this site has joined", "another", "join it in another folder")
        if envelope.round < kept.round:
            raise WireError(f"round {kept.round} or later", "an earlier one", "drop the message")
        if envelope.round >= (length := self.sites.recipe.plan.length):
            raise WireError(f"one of {length} planned rounds", "a later one", "drop the message")
        if envelope.round == kept.round and not kept.reply:
            raise WireError(
                "a round that was answered here",
                "one that was cut short",
                "go on without this site",
            )


_ALONE = np.array([0])


def _single(memory: State) -> State:
    """What the one site keeps, with its axis of sites."""
    return {name: value.detach().clone() for name, value in memory.items()}
