"""What a site finds before it connects: no server, another one, one that refuses it."""

from __future__ import annotations

import datetime
import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "deployment"))
from parties import Line, enrol, eventually, free_port

from understudy.deployment import certificates
from understudy.deployment.enrolment import renew_server
from understudy.errors import KeysError, WireError
from understudy.runtime import reach
from understudy.runtime.flare import Address, Tls
from understudy.runtime.reach import awaited, probe

SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return enrol(tmp_path_factory.mktemp("keys"), ("north", "east"))


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return enrol(tmp_path_factory.mktemp("others"), ("north",))


def tls(folder: Path, server: str = "hub") -> Tls:
    return Tls(folder / "ca.pem", folder / "tls.pem", folder / "tls.key", server)


@contextmanager
def listening(keys: Tls | None, port: int = 0) -> Iterator[int]:
    """Something that answers connections as a server would."""
    with socket.create_server(("127.0.0.1", port)) as server:
        server.settimeout(0.1)
        over = threading.Event()
        thread = threading.Thread(target=_answer, args=(server, keys, over))
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            over.set()
            thread.join()


def _answer(server: socket.socket, keys: Tls | None, over: threading.Event) -> None:
    while not over.is_set():
        _answer_one(server, keys)


def _answer_one(server: socket.socket, keys: Tls | None) -> None:
    with suppress(OSError):
        raw, _ = server.accept()
        with raw:
            raw.settimeout(5)
            if keys is None:
                raw.sendall(SETTINGS)
                raw.recv(64)
                return
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(keys.cert, keys.key)
            context.load_verify_locations(keys.ca)
            context.verify_mode = ssl.CERT_REQUIRED
            with context.wrap_socket(raw, server_side=True) as secured:
                secured.sendall(SETTINGS)
                secured.recv(64)


def test_the_right_server_is_found(keys: Path) -> None:
    with listening(tls(keys / "hub")) as port:
        assert not probe(Address("localhost", port, tls(keys / "north")))


def test_a_server_that_is_not_there_yet_is_waited_for(keys: Path) -> None:
    assert "nobody answers" in probe(Address("localhost", free_port(), tls(keys / "north")))


@pytest.mark.parametrize("secured", [True, False])
def test_a_tunnel_whose_server_is_not_up_is_waited_for(keys: Path, secured: bool) -> None:
    """It takes connections, and hangs up at once; what is wrong is said when the server is up."""
    line, over, said = Line(free_port()), threading.Event(), list[str]()
    address = Address("localhost", line.port, tls(keys / "north") if secured else None)
    thread = threading.Thread(target=awaited, args=(address, over, said.append), daemon=True)
    thread.start()
    eventually(lambda: said)
    assert thread.is_alive() and "hangs up" in said[0] and str(line.port) in said[0]
    with listening(tls(keys / "hub") if secured else None, line.to):
        thread.join(10)
    assert not thread.is_alive() and len(said) == 1
    line.end()


def test_a_server_that_says_nothing_is_waited_for(
    keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reach, "_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for secured in (tls(keys / "north"), None):
            assert "says nothing" in probe(Address("localhost", port, secured))


def test_a_server_of_another_authority_is_refused(keys: Path, others: Path) -> None:
    with listening(tls(others / "hub")) as port, pytest.raises(KeysError, match="fingerprints"):
        probe(Address("localhost", port, tls(keys / "north")))


@pytest.mark.parametrize(("days", "said"), [(-400, "expired"), (400, "not yet valid")])
def test_a_server_whose_certificate_is_not_valid_today_is_refused_with_the_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: int, said: str
) -> None:
    then = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=days)
    clock = SimpleNamespace(**vars(datetime) | {"datetime": SimpleNamespace(now=lambda tz: then)})
    enrol(tmp_path, ("north",))
    with monkeypatch.context() as patched:
        patched.setattr(certificates, "datetime", clock)
        renew_server(tmp_path / "hub", ["localhost"], 30)
    address = tls(tmp_path / "north")
    with listening(tls(tmp_path / "hub")) as port, pytest.raises(KeysError) as found:
        probe(Address("localhost", port, address))
    assert said in found.value.found and "check both clocks" in found.value.do
    assert "keys init FOLDER --renew" in found.value.do


def test_a_site_of_the_same_authority_is_no_server(keys: Path) -> None:
    with listening(tls(keys / "east")) as port, pytest.raises(KeysError):
        probe(Address("localhost", port, tls(keys / "north")))


def test_a_server_under_another_name_is_refused(keys: Path) -> None:
    with listening(tls(keys / "hub")) as port, pytest.raises(KeysError, match="the server other"):
        probe(Address("localhost", port, tls(keys / "north", "other")))


def test_a_site_that_the_server_does_not_know_is_told(keys: Path, others: Path) -> None:
    mixed = Tls(keys / "hub" / "ca.pem", others / "north" / "tls.pem",
                others / "north" / "tls.key", "hub")  # fmt: skip
    with listening(tls(keys / "hub")) as port, pytest.raises(KeysError, match="request approved"):
        probe(Address("localhost", port, mixed))


def test_a_server_without_tls_is_refused_and_one_with_it_where_none_is_wanted(keys: Path) -> None:
    with listening(None) as port, pytest.raises(WireError, match="--insecure"):
        probe(Address("localhost", port, tls(keys / "north")))
    with listening(None) as port:
        assert not probe(Address("localhost", port))
    with listening(tls(keys / "hub")) as port, pytest.raises(WireError, match="--keys"):
        probe(Address("localhost", port))


def test_a_name_that_nobody_has_is_refused() -> None:
    with pytest.raises(WireError, match="no machine of that name"):
        probe(Address("no-such-machine.invalid", 1))
