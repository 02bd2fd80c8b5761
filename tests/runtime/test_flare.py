"""The transport over NVIDIA FLARE: what it relies on, and what it keeps out. Real processes."""

from __future__ import annotations

import importlib.metadata
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "deployment"))
from cell import ANSWER, SILENCE
from parties import Line, Process, enrol, eventually, free_port, processes

from understudy.errors import KeysError, StudyError
from understudy.runtime import flare
from understudy.runtime.flare import Address, FlareTransport, Tls, check_flare
from understudy.runtime.reach import probe

CELL = Path(__file__).parent / "cell.py"
Start = Callable[..., Process]


def test_another_version_of_flare_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flare, "version", lambda name: "9.9.9")
    with pytest.raises(StudyError, match=r"FLARE 2\.9\.0.*found 9\.9\.9.*\.\[federated\]"):
        check_flare()


def test_flare_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(flare, "version", missing)
    with pytest.raises(StudyError, match=r"pip install -e '\.\[federated\]'"):
        check_flare()


def test_a_loss_counts_from_when_it_happens_and_not_from_the_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A site that is lost while it trains for long is waited for as any other."""
    agents = {"north": object()}

    def request(**_: object) -> object:
        from nvflare.fuel.f3.cellnet.utils import make_reply

        if len(asked) == 1:
            return make_reply("ok", "", b"2")
        asked.append(1)
        time.sleep(0.6)
        del agents["north"]
        threading.Timer(0.3, lambda: agents.update(north=object())).start()
        return make_reply("comm_error")

    asked: list[int] = []
    cell = SimpleNamespace(core_cell=SimpleNamespace(agents=agents), send_request=request)
    monkeypatch.setattr(flare, "_cell", lambda *_: cell)
    transport = FlareTransport(("north",), Address("localhost", 1), patience=0.4)
    assert not transport.exchange({"north": b"1"}, 10)[0]
    assert transport.exchange({"north": b"1"}, 10) == ({"north": b"2"}, {})


class Net:
    """A server in this process, and sites in others."""

    def __init__(self, folder: Path, start: Start, transport: FlareTransport, port: int) -> None:
        self.folder, self.start, self.transport, self.port = folder, start, transport, port

    def site(
        self, name: str, claimed: str = "", keys: str = "", server: str = "hub", port: int = 0
    ) -> Process:
        log = self.folder / f"{name}.log"
        keys = str(self.folder / (keys or name))
        return self.start(log, CELL, port or self.port, name, claimed or name, keys, server)

    def connected(self, *names: str) -> None:
        eventually(lambda: set(names) <= set(self.transport.sites()))


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return enrol(tmp_path_factory.mktemp("keys"))


@pytest.fixture
def net(keys: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Net]:
    monkeypatch.setattr(flare, "_SILENCE", SILENCE)
    monkeypatch.setattr(flare, "_ANSWER", ANSWER)
    port, hub = free_port(), keys / "hub"
    tls = Tls(hub / "ca.pem", hub / "tls.pem", hub / "tls.key", "hub")
    transport = FlareTransport(
        ("north", "south", "east"), Address("localhost", port, tls), patience=3.0, limit=1 << 20
    )
    with processes() as start, transport:
        yield Net(keys, start, transport, port)


@pytest.mark.slow
def test_what_the_transport_relies_on(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    """The contract with FLARE: names, bytes, deadlines, loss and return, and nothing else let in.

    If this fails with another version of nvflare, do not pin that version.
    """
    first = net.site("north")
    net.site("south")
    net.connected("north", "south")
    exchange = net.transport.exchange
    found, failed = exchange({"north": b"1", "south": b"2"}, 5)
    assert found == {"north": b"north heard 1", "south": b"south heard 2"} and not failed

    # A site must not reach another one: CellNet alone would pass its request on.
    assert exchange({"north": b"ask south"}, 8)[0] == {"north": b"nothing"}

    # Nor have objects unpacked at the server, neither asking nor answering: bytes are all it takes.
    from nvflare.fuel.f3.cellnet import utils

    unpacked: list[object] = []
    monkeypatch.setattr(utils.fobs, "loads", lambda *said, **_: unpacked.append(said))
    assert exchange({"north": b"tell"}, 8)[0] == {"north": b"nothing"}
    assert not exchange({"north": b"objects"}, 2)[0] and not unpacked

    # Our deadline is kept, and the others' answers are not lost.
    begun = time.monotonic()
    found, failed = exchange({"north": b"sleep", "south": b"2"}, 1.0)
    assert found == {"south": b"south heard 2"} and "north" in failed
    assert time.monotonic() - begun < 2.5

    # What is too large is refused before it is taken in.
    found, failed = exchange({"south": b"large"}, 3.0)
    assert not found and "south" in failed

    # A process that dies is noticed at once, and welcome when it is back.
    net.transport._patience = 0.0
    first.kill()
    begun = time.monotonic()
    assert not exchange({"north": b"1"}, 20)[0]
    assert time.monotonic() - begun < 5
    net.transport._patience = 20.0
    net.site("north")
    assert exchange({"north": b"1"}, 20) == ({"north": b"north heard 1"}, {})


@pytest.mark.slow
def test_a_site_whose_connection_went_silent_comes_back(net: Net) -> None:
    """As when a firewall forgets a connection: neither end hears that it is gone."""
    line = Line(net.port)
    net.site("north", port=line.port)
    net.connected("north")
    line.silence()
    assert not net.transport.exchange({"north": b"1"}, 1.0)[0]
    heard = {"north": b"north heard 1"}
    eventually(lambda: net.transport.exchange({"north": b"1"}, 2.0)[0] == heard, 60)
    line.end()


@pytest.mark.slow
def test_a_slow_line_is_not_given_up(net: Net) -> None:
    """An update is under way for far longer than an end that has gone silent is waited for."""
    line = Line(net.port, rate=400_000)
    net.site("north", port=line.port)
    net.connected("north")
    first = net.transport._agent("north")
    found, failed = net.transport.exchange({"north": b"length" + bytes(4 << 20)}, 40.0)
    assert found == {"north": b"north heard 4194310 bytes"}, failed
    assert net.transport._agent("north") is first
    line.end()


@pytest.mark.slow
def test_a_site_cannot_take_another_name_nor_come_without_the_right_keys(
    net: Net, tmp_path: Path
) -> None:
    net.site("north")
    net.site("south", claimed="east")  # with south's certificate
    enrol(tmp_path, ("south",))
    net.site("strange", claimed="south", keys=str(tmp_path / "south"))  # of another authority
    net.site("open", claimed="east", server="-")  # without TLS
    net.connected("north")
    time.sleep(3)
    assert net.transport.sites() == ["north"]
    other, ours = tmp_path / "south", net.folder / "hub" / "ca.pem"
    strange = Tls(ours, other / "tls.pem", other / "tls.key", "hub")
    with pytest.raises(KeysError, match=r"it hung up.*request approved"):  # and not only for ever
        probe(Address("localhost", net.port, strange))


@pytest.mark.slow
def test_a_site_refuses_a_server_with_the_certificate_of_a_site(keys: Path) -> None:
    """A site that is no server, though of the same authority, gets no connection as one."""
    port, fake = free_port(), keys / "east"
    tls = Tls(fake / "ca.pem", fake / "tls.pem", fake / "tls.key", "hub")
    with (
        processes() as start,
        FlareTransport(("north",), Address("localhost", port, tls)) as transport,
    ):
        Net(keys, start, transport, port).site("north")
        time.sleep(4)
        assert not transport.sites()
