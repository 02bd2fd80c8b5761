"""Services as processes, and the databases they need."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from understudy.deployment.enrolment import make_site
from understudy.exchange.blobs import Blobs
from understudy.exchange.client import Client, Site
from understudy.exchange.database import Database
from understudy.exchange.integrity import Findings, inspect
from understudy.exchange.members import OPERATOR, invite
from understudy.exchange.policy import DATABASE_VARIABLE, Policy

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
        if os.geteuid() == 0:
            shutil.chown(self.folder, "postgres")
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
def postgres() -> Iterator[Cluster]:
    """Not in pytest's own folders, which nobody but its user may enter."""
    if not POSTGRES:
        pytest.skip("PostgreSQL is not installed: the exchange was not tried with it")
    with tempfile.TemporaryDirectory(prefix="understudy-pg-") as folder:
        cluster = Cluster(Path(folder))
        cluster.make()
        cluster.start()
        try:
            yield cluster
        finally:
            cluster.stop()


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
        with (self.settings.parent / "service.log").open("ab") as log:
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

    @property
    def database(self) -> str:
        return self.env.get(DATABASE_VARIABLE) or Policy.load(self.settings).database

    def join(self, name: str, role: str = "member", ca: str = "") -> Client:
        """Somebody with a key folder that has subscribed."""
        keys = self.settings.parent / name
        make_site(keys, name)
        database = Database(self.database)
        with database.writing() as session:
            code, _ = invite(session, OPERATOR, role)
        database.close()
        return Client.subscribe(Site(self.url, ca), keys, code)[0]

    def check(self) -> Findings:
        """As `understudy exchange check` does."""
        database = Database(self.database)
        found = inspect(database, Blobs(self.settings.parent / "store"))
        database.close()
        assert found.faults == ()
        return found


@contextmanager
def served(service: Service) -> Iterator[Service]:
    service.start()
    try:
        yield service
    finally:
        service.stop()
