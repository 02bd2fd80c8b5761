"""The engine over any `Transport`: the server's end. The sites' is `runtime.participant`.

The server sends every site of the cohort its task and waits until a deadline; whoever has not
answered, or answered with something that does not belong here, is asked again a few times and then
left out of the round. A secure sum has several such exchanges a round, its legs; `Networked` is
the `Parties` of a `federation.masking.SecureSum`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from understudy.errors import WireError
from understudy.federation.gather import Ask, Reply
from understudy.federation.recipe import State, Task
from understudy.privacy.clip import Sealed
from understudy.runtime.transport import Transport
from understudy.runtime.wire import (
    Agreement,
    Envelope,
    Refused,
    decode_sealed,
    decode_told,
    encode_arrays,
    encode_call,
)

__all__ = ["Elsewhere", "Networked"]

Answer = TypeVar("Answer")
Encode = Callable[[int, Envelope], bytes]  # the message to a site, by its number
Decode = Callable[[bytes, Envelope], Answer]


class Elsewhere:
    """What a runtime need not do for sites that count their own rounds, and keep what is theirs."""

    def count_void(self, cohort: np.ndarray, round: int) -> None:
        """Sites know."""

    def save(self) -> State:
        """Nothing is kept here."""
        return {}

    def restore(self, saved: State) -> None:
        """Nothing was saved."""


@dataclass
class Networked(Elsewhere):
    """The server's end. ``failures`` says why sites were left out of the last exchange."""

    transport: Transport
    names: Sequence[str]
    agreement: Agreement
    run: str
    deadline: float = 600.0
    attempts: int = 3
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def ran(self) -> str:
        """What ran where is the transport's to say."""
        return self.transport.ran

    def exchange(self, task: Task, round: int, cohort: np.ndarray) -> Iterator[Reply]:
        """Replies in the order of the cohort, whatever order they came in."""
        nothing = dict.fromkeys(cohort.tolist(), b"")
        for client, sealed in self._told("", round, nothing, task, decode_sealed).items():
            yield np.array([client]), sealed

    def leg(
        self, leg: str, round: int, messages: Mapping[int, bytes], task: Task | None = None
    ) -> dict[int, bytes]:
        """One leg of a round that carries no update: what each site told."""
        return self._told(leg, round, messages, task, decode_told)

    def sealed(
        self, leg: str, task: Task, round: int, messages: Mapping[int, bytes]
    ) -> dict[int, Sealed]:
        """A leg that carries the task, and sealed shares back."""
        return self._told(leg, round, messages, task, decode_sealed)

    def _told(
        self,
        leg: str,
        round: int,
        messages: Mapping[int, bytes],
        task: Task | None,
        decode: Decode[Answer],
    ) -> dict[int, Answer]:
        body = None if task is None else encode_arrays(task.arrays)
        return self._asked(
            list(messages),
            Envelope(self.agreement, self.run, "", round, leg=leg),
            lambda client, envelope: encode_call(envelope, task, messages[client], body),
            decode,
        )

    def masked(
        self, ask: Ask, task: Task, round: int, messages: Mapping[int, bytes]
    ) -> Iterator[tuple[int, Sealed]]:
        """The leg that carries the task, and masked updates back; ``ask`` is not needed."""
        yield from self.sealed("masked", task, round, messages).items()

    def _asked(
        self, called: Sequence[int], draft: Envelope, encode: Encode, decode: Decode[Answer]
    ) -> dict[int, Answer]:
        """What came back from those who were asked, a few times if need be, in their order."""
        replies: dict[int, Answer] = {}
        self.failures = {}
        for attempt in range(self.attempts):
            missing = [i for i in called if i not in replies and not self._refused(i)]
            if not missing:
                break
            drafts = {i: replace(draft, site=self.names[i], attempt=attempt) for i in missing}
            messages = {self.names[i]: encode(i, envelope) for i, envelope in drafts.items()}
            found, failed = self.transport.exchange(messages, self.deadline)
            self.failures |= failed
            replies |= self._accepted(found, drafts, decode)
        return {client: replies[client] for client in called if client in replies}

    def _refused(self, client: int) -> bool:
        return self.failures.get(self.names[client]) == _REFUSED

    def _accepted(
        self, found: dict[str, bytes], drafts: dict[int, Envelope], decode: Decode[Answer]
    ) -> dict[int, Answer]:
        """Replies of those who were asked that belong to their site, run, round and leg."""
        good: dict[int, Answer] = {}
        for client, envelope in drafts.items():
            name = envelope.site
            if name not in found:
                continue
            try:
                good[client] = decode(found[name], envelope)
                self.failures.pop(name, None)
            except Refused:
                self.failures[name] = _REFUSED
            except WireError as error:
                self.failures[name] = str(error)
        return good


_REFUSED = "refused"
