"""Shared by tests of real processes: enrolled key folders, free ports, processes ended by id."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from understudy.deployment.enrolment import (
    approve,
    install,
    make_server,
    make_site,
    read_reply,
    read_request,
)

SITES = ("north", "south", "east")
HERE = Path(__file__).parent


def enrol(folder: Path, sites: tuple[str, ...] = SITES) -> Path:
    """A server ("hub") and sites, all with keys in folders of their names."""
    make_server(folder / "hub", "hub", ["localhost"])
    requests = [read_request(make_site(folder / name, name)[1]) for name in sites]
    for name, reply in approve(folder / "hub", requests).items():
        install(folder / name, read_reply(folder / name, reply))
    return folder


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def eventually(true: Callable[[], object], seconds: float = 20.0) -> None:
    """Wait until something holds; fail if it does not in time."""
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.02)


class Process:
    """A Python process with its output in a file; killed by id at the end."""

    def __init__(self, log: Path, *command: object) -> None:
        self.log, self.command = log, [sys.executable, *map(str, command)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                self.command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=environment
            )

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def send(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self.send(signal.SIGCONT)
            self.process.kill()
        self.process.wait(10)

    def ended(self, seconds: float = 60.0) -> int:
        """The exit code, once it has ended by itself."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running; it said:\n{self.said[-3000:]}") from None


@contextmanager
def processes() -> Iterator[Callable[..., Process]]:
    """Starts processes; none outlives the test."""
    started: list[Process] = []

    def start(*arguments: object) -> Process:
        log, *command = arguments
        assert isinstance(log, Path)
        started.append(Process(log, *command))
        return started[-1]

    try:
        yield start
    finally:
        for each in started:
            each.kill()


class Line:
    """A connection between a site and its server that a test can cut, mend and silence.

    ``rate``: bytes per second that it carries, each way.
    """

    def __init__(self, to: int, rate: float = float("inf")) -> None:
        self.to, self.port, self.rate = to, free_port(), rate
        self._up, self._silent, self._ended = threading.Event(), threading.Event(), False
        self._open: list[socket.socket] = []
        self.mend()
        threading.Thread(target=self._listen, daemon=True).start()

    def cut(self) -> None:
        """Every connection is broken off, and no other is taken."""
        self._up.clear()
        for each in self._open:
            _hang_up(each)
        self._open.clear()

    def mend(self) -> None:
        self._up.set()

    def silence(self) -> None:
        """Nothing more gets through on what is open, and neither end is told; others are taken."""
        self._silent.set()
        self._silent = threading.Event()

    def end(self) -> None:
        self._ended = True
        self.cut()

    def _listen(self) -> None:
        with socket.create_server(("127.0.0.1", self.port)) as server:
            server.settimeout(0.2)
            while not self._ended:
                with suppress(OSError):
                    self._take(server.accept()[0])

    def _take(self, near: socket.socket) -> None:
        far = socket.socket()
        if not self._up.is_set() or far.connect_ex(("127.0.0.1", self.to)):
            near.close()
            far.close()
            return
        near.settimeout(None)
        self._open += [near, far]
        for ends in ((near, far), (far, near)):
            carried = (*ends, self._silent, self.rate)
            threading.Thread(target=_carry, args=carried, daemon=True).start()


def _carry(one: socket.socket, other: socket.socket, silent: threading.Event, rate: float) -> None:
    with suppress(OSError):
        while data := one.recv(1 << 16):
            time.sleep(len(data) / rate)
            if not silent.is_set():
                other.sendall(data)
    if not silent.is_set():
        _hang_up(one)
        _hang_up(other)


def _hang_up(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)  # closing alone tells nobody while a thread reads from it
    end.close()
