"""`Transport` over NVIDIA FLARE's network layer (CellNet), used as a library: no jobs, no admin.

Sites open one outbound connection each, under mutual TLS, and are called by the name in their
certificate. What travels are our own bytes. Left alone, CellNet would pass requests from one site
on to another and decode what it is sent: each end drops whatever is not for it, from its direct
peer, and plain bytes (`_foreign`). FLARE's waiting is cut off at our deadline. A site whose
connection is lost is waited for a while (``patience``, counted from the loss), and then counts as
missing until it comes back by itself. FLARE would keep a connection that has gone silent for ever:
both ends ask gRPC to give it up (`_watched`).
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from understudy.errors import StudyError
from understudy.runtime.transport import LATE, Handler, collected

__all__ = ["FLARE", "MOST_SITES", "Address", "FlareSite", "FlareTransport", "Tls", "check_flare"]

FLARE = "2.9.0"  # CellNet is no public interface of FLARE: another version may differ
MOST_SITES = 90  # FLARE's gRPC server has 100 threads, and every connection holds one
LARGEST = (1 << 30) + (2 << 20)  # bytes of a message, as `wire` has it
_SERVER, _CHANNEL, _TOPIC = "server", "understudy", "message"
_MOMENT = 0.05  # seconds between looks at who is there
_NOTICED = 1.0  # seconds until FLARE knows that a connection is gone
_SILENCE = 10  # seconds without a word until an end asks whether the other is there
_ANSWER = 60  # seconds for the answer, which on a slow line waits behind what is being sent:
_AHEAD = 1 << 18  # bytes of a piece, and again of what is sent before the first are taken in
_PROGRESS = 3600  # seconds that FLARE waits for a sign of progress: deadlines are ours
_TRIES = 3  # of a message that does not get through
_BYE = "bye"


@dataclass(frozen=True)
class Tls:
    """The three files of a party; ``server`` is the name in the server's certificate."""

    ca: Path
    cert: Path
    key: Path
    server: str


@dataclass(frozen=True)
class Address:
    """Where the server listens, as this end sees it. Without ``tls`` nothing is encrypted."""

    host: str
    port: int
    tls: Tls | None = None

    def options(self, name: str) -> dict[str, Any]:
        """What a cell of this name is made with."""
        options = {
            "fqcn": name,
            "root_url": f"grpc://{self.host}:{self.port}",
            "secure": self.tls is not None,
            "credentials": self._credentials(name == _SERVER),
            "create_internal_listener": False,
        }
        if self.tls is None:
            return options
        own = self.tls.server if name == _SERVER else name
        return {**options, "auth_identity": own, "auth_identity_map": {_SERVER: self.tls.server}}

    def _credentials(self, server: bool) -> dict[str, str]:
        from nvflare.fuel.f3.drivers.driver_params import DriverParams as Params

        if self.tls is None:
            return {Params.CONNECTION_SECURITY.value: "clear"}
        at_server, at_site = ("SERVER_CERT", "SERVER_KEY"), ("CLIENT_CERT", "CLIENT_KEY")
        cert, key = at_server if server else at_site
        return {
            Params.CONNECTION_SECURITY.value: "mtls",
            Params.CA_CERT.value: str(self.tls.ca),
            Params[cert].value: str(self.tls.cert),
            Params[key].value: str(self.tls.key),
        }


def check_flare() -> None:
    """Refuse to go on without FLARE, or with a version that was not tried."""
    do = "in a clone of Understudy: pip install -e '.[federated]'"
    try:
        found = version("nvflare")
    except PackageNotFoundError as error:
        raise StudyError(f"NVIDIA FLARE {FLARE}, for runs over a network", "none", do) from error
    if found != FLARE:
        raise StudyError(f"NVIDIA FLARE {FLARE}, for runs over a network", found, do)


def _cell(address: Address, name: str, limit: int) -> Any:
    """A cell that takes in nothing but bytes for itself, up to ``limit``, and forwards nothing."""
    check_flare()
    logging.getLogger("nvflare").setLevel(logging.CRITICAL + 1)  # what it reports is not for users
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    os.environ["NVFLARE_STREAMING_MAX_BLOB_SIZE"] = str(limit)
    os.environ["NVFLARE_STREAMING_CHUNK_SIZE"] = str(_AHEAD)
    os.environ["NVFLARE_STREAMING_ACK_WAIT"] = str(_PROGRESS)
    os.environ["NVFLARE_STREAMING_ACK_PROGRESS_TIMEOUT"] = str(_PROGRESS)
    _watched()
    from nvflare.fuel.f3.cellnet.cell import Cell

    cell = Cell(**address.options(name))
    cell.core_cell.add_incoming_filter("*", "*", _foreign, name)
    return cell


def _watched() -> None:
    """Connections end when the other side no longer answers: a line may break without a word.

    An answer waits behind what is under way, so that must be little: gRPC would have megabytes.
    """
    from nvflare.fuel.f3.drivers import grpc_driver

    watch = {
        "grpc.keepalive_time_ms": _SILENCE * 1000,
        "grpc.keepalive_timeout_ms": _ANSWER * 1000,
        "grpc.http2.ping_timeout_ms": _ANSWER * 1000,  # of gRPC's other pings: these hold ours up
        "grpc.http2.max_pings_without_data": 0,  # however long a site is not asked anything
        "grpc.http2.min_ping_interval_without_data_ms": _SILENCE * 500,  # which is too often
        "grpc.http2.bdp_probe": 0,
        "grpc.http2.lookahead_bytes": _AHEAD,
    }
    grpc_driver.GRPC_DEFAULT_OPTIONS = [*(dict(grpc_driver.GRPC_DEFAULT_OPTIONS) | watch).items()]


def _close(cell: Any, name: str) -> None:
    """Stop a cell, and make FLARE forget its name, so that a later run can use it."""
    from nvflare.fuel.f3.stats_pool import StatsPoolManager

    cell.core_cell.stop()
    cell.core_cell.ALL_CELLS.pop(name, None)
    for pool in [each for each in StatsPoolManager.pools if each.endswith(f"@{name}")]:
        del StatsPoolManager.pools[pool]


def _foreign(message: Any, name: str) -> Any:
    """A reply, which ends the matter, to what this end must not take in; None to the rest."""
    from nvflare.fuel.f3.cellnet.defs import CellChannel, MessageHeaderKey, MessagePropKey
    from nvflare.fuel.f3.cellnet.utils import make_reply
    from nvflare.fuel.f3.streaming.stream_const import STREAM_CHANNEL, StreamHeaderKey

    said = message.get_header
    peer = getattr(message.get_prop(MessagePropKey.ENDPOINT), "name", None)
    ours = said(MessageHeaderKey.DESTINATION) == name and said(MessageHeaderKey.ORIGIN) == peer
    ours &= peer == _SERVER or name == _SERVER
    plain = {said(MessageHeaderKey.PAYLOAD_ENCODING), said(StreamHeaderKey.PAYLOAD_ENCODING)}
    ours &= plain <= {None, "none", "bytes"}
    subject = (said(MessageHeaderKey.CHANNEL), said(MessageHeaderKey.TOPIC))
    inner = CellChannel.RETURN_ONLY if name == _SERVER else _CHANNEL
    if subject[0] == STREAM_CHANNEL:
        ours &= said(StreamHeaderKey.CHANNEL) in (None, inner)
    else:
        ours &= subject == (CellChannel.CELLNET, _BYE)
    return None if ours else make_reply("invalid_request")


@dataclass
class _Question:
    """A message to one site: its connection when it was asked, and what ends the waiting."""

    name: str
    message: bytes
    until: float
    stop: Any
    agent: Any = None


class FlareTransport:
    """The server's end; use as a context manager. It listens as long as it is open."""

    def __init__(
        self, names: Sequence[str], address: Address, patience: float = 60.0, limit: int = LARGEST
    ) -> None:
        self._names, self._address, self._patience = tuple(names), address, patience
        self._seen = dict.fromkeys(self._names, time.monotonic())  # or since when it is waited for
        self._cell = _cell(address, _SERVER, limit)
        self.watch: Callable[[Sequence[str]], None] = lambda there: None  # told while it waits

    def __enter__(self) -> FlareTransport:
        self._cell.start()
        return self

    def __exit__(self, *_: object) -> None:
        _close(self._cell, _SERVER)

    @property
    def ran(self) -> str:
        return "network" if self._address.tls else "open network"

    def sites(self) -> Sequence[str]:
        """Those that are connected, in the order of the study."""
        there = set(self._cell.core_cell.agents)
        now = time.monotonic()
        self._seen |= {name: now for name in self._names if name in there}
        return [name for name in self._names if name in there]

    def awaited(self) -> Sequence[str]:
        """Sites that are missing, but not for long: they may come back."""
        there, now = self.sites(), time.monotonic()
        missing = [name for name in self._names if name not in there]
        return [name for name in missing if now - self._seen[name] < self._patience]

    def exchange(
        self, messages: Mapping[str, bytes], deadline: float
    ) -> tuple[dict[str, bytes], dict[str, str]]:
        """One thread per message, ended at the deadline whatever FLARE is waiting for."""
        from nvflare.apis.signal import Signal

        until = time.monotonic() + deadline
        asked = {n: _Question(n, m, until, Signal()) for n, m in messages.items()}
        pool = ThreadPoolExecutor(max(1, len(messages)))
        jobs = {name: pool.submit(self._ask, question) for name, question in asked.items()}
        while time.monotonic() < until and not all(job.done() for job in jobs.values()):
            wait(jobs.values(), timeout=_MOMENT)
            self.watch(self.sites())  # a loss counts from now, not from before the question
            for name, question in asked.items():
                if question.agent is not None and self._agent(name) is not question.agent:
                    question.stop.trigger("connection lost")
        for question in asked.values():
            question.stop.trigger(LATE)
        pool.shutdown(wait=False, cancel_futures=True)
        return collected(jobs)

    def _agent(self, name: str) -> Any:
        """FLARE's record of a connection: another one after a site has come back."""
        return self._cell.core_cell.agents.get(name)

    def _ask(self, question: _Question) -> bytes:
        """The reply; a message that did not get through is sent again, which sites do not mind."""
        for _ in range(_TRIES):
            self._find(question)
            code, payload = self._send(question)
            if code == "ok":
                return _plain(payload)
            if late := question.stop.triggered or code == "timeout":
                break
            self._settle(question)
        if self._gone(question):
            raise ConnectionError("connection lost")
        raise ConnectionError(LATE if late else code)

    def _find(self, question: _Question) -> None:
        """Wait for a site that may come back."""
        while (agent := self._agent(question.name)) is None:
            if question.name not in self.awaited() or question.stop.triggered:
                raise ConnectionError("not connected")
            time.sleep(_MOMENT)
        question.agent = agent

    def _send(self, question: _Question) -> tuple[str, object]:
        from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
        from nvflare.fuel.f3.cellnet.utils import new_cell_message

        reply = self._cell.send_request(
            channel=_CHANNEL,
            topic=_TOPIC,
            target=question.name,
            request=new_cell_message({}, question.message),
            timeout=max(question.until - time.monotonic(), _MOMENT),
            abort_signal=question.stop,
        )
        return reply.get_header(MessageHeaderKey.RETURN_CODE), reply.payload

    def _settle(self, question: _Question) -> None:
        """Give FLARE a moment to notice that a connection is gone."""
        until = time.monotonic() + _NOTICED
        while not self._gone(question) and time.monotonic() < until:
            time.sleep(_MOMENT)

    def _gone(self, question: _Question) -> bool:
        return self._agent(question.name) is not question.agent


def _plain(payload: object) -> bytes:
    if isinstance(payload, (bytes, bytearray, memoryview)):
        return bytes(payload)
    return b""  # which is no message of ours


class FlareSite:
    """A site's end; use as a context manager. It calls out, and comes back by itself."""

    def __init__(self, name: str, address: Address, handler: Handler, limit: int = LARGEST) -> None:
        self._handler, self._name = handler, name
        self._cell = _cell(address, name, limit)
        self._cell.register_request_cb(channel=_CHANNEL, topic=_TOPIC, cb=self._answer)

    def __enter__(self) -> FlareSite:
        self._cell.start()
        return self

    def __exit__(self, *_: object) -> None:
        _close(self._cell, self._name)

    @property
    def connected(self) -> bool:
        return _SERVER in self._cell.core_cell.agents

    def _answer(self, message: Any) -> Any:
        from nvflare.fuel.f3.cellnet.utils import make_reply

        return make_reply("ok", "", self._handler(_plain(message.payload)))
