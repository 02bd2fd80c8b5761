"""Services as processes, the databases they need, and commands as members type them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

POSTGRES = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
"""PostgreSQL as Debian installs it; its server refuses to run as root."""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@dataclass
class Cluster:
    """A PostgreSQL of our own, in a folder, on a free port."""

    folder: Path
    port: int = field(default_factory=free_port)

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def make(self) -> None:
        self.folder.mkdir()
        if os.geteuid() == 0:
            shutil.chown(self.folder, "postgres")
            for parent in self.folder.parents[:3]:  # pytest's folders are private
                parent.chmod(parent.stat().st_mode | 0o011)
        self._run("initdb", "-D", str(self.folder / "data"), "-A", "trust", "-U", "postgres")

    def start(self) -> None:
        how = f"-p {self.port} -h 127.0.0.1 -k {self.folder}"
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-o", how, "-w", "-s", "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-m", "immediate", "-s", "stop")

    def _run(self, name: str, *words: str) -> None:
        command = [str(POSTGRES[-1].with_name(name)), *words]
        if os.geteuid() == 0:
            command = ["runuser", "-u", "postgres", "--", *command]
        log = self.folder / "log"
        with log.open("ab") as file:
            done = subprocess.run(command, cwd="/", stdout=file, stderr=file, timeout=60)
        assert done.returncode == 0, log.read_text()


@contextmanager
def postgres(folder: Path) -> Iterator[Cluster]:
    if not POSTGRES:
        pytest.skip("PostgreSQL is not installed: the exchange was not tried with it")
    cluster = Cluster(folder)
    cluster.make()
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.stop()


def command(*words: str, env: Mapping[str, str] | None = None) -> Any:
    """What a command prints as JSON; also if it was refused."""
    done = subprocess.run(
        [sys.executable, "-m", "understudy", *words, "--json"],
        capture_output=True, text=True, timeout=240, env={**os.environ, **(env or {})},
    )  # fmt: skip
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert (done.returncode == 0) == bool(found["ok"]), done.stderr
    return found


@dataclass
class Service:
    """`understudy exchange serve`, started and stopped as people do."""

    settings: Path
    env: Mapping[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"{'https' if '--cert' in self.words else 'http'}://localhost:{self.port}"

    def start(self) -> None:
        words = ["exchange", "serve", str(self.settings), "--port", str(self.port), *self.words]
        log = (self.settings.parent / "service.log").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "understudy", *words],
            stdout=log, stderr=log, env={**os.environ, **self.env}, start_new_session=True,
        )  # fmt: skip
        for _ in range(600):
            assert self.process.poll() is None, self.said
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.1)
        raise AssertionError(self.said)

    @property
    def said(self) -> str:
        return (self.settings.parent / "service.log").read_text()

    def kill(self) -> None:
        """As a power cut would: the service, and what it has started."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()

    def invite(self, role: str) -> str:
        words = ("exchange", "invite", str(self.settings), "--role", role)
        return str(command(*words, env=self.env)["code"])

    def join(self, name: str, role: str = "member", *words: str) -> Path:
        """A key folder that has subscribed."""
        keys = self.settings.parent / name
        command("keys", "request", str(keys), "--name", name)
        code = self.invite(role)
        command("exchange", "subscribe", self.url, "--keys", str(keys), "--code", code, *words)
        return keys

    def check(self) -> Any:
        return command("exchange", "check", str(self.settings), env=self.env)


@contextmanager
def served(service: Service) -> Iterator[Service]:
    service.start()
    try:
        yield service
    finally:
        service.stop()
