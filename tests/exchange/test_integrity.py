"""Store, database and audit log: what does not fit together is found, and the log is kept."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import event, text, update
from sqlalchemy.exc import DatabaseError

from exchange.conftest import Join
from exchange.test_service import actions
from understudy.errors import ExchangeError
from understudy.exchange import blobs, pushes
from understudy.exchange.auditlog import read_chain, record
from understudy.exchange.context import Exchange
from understudy.exchange.database import Database
from understudy.exchange.integrity import inspect
from understudy.exchange.models import Base, Member, Push

Spoil = Callable[[Exchange, str], None]


def run(exchange: Exchange, *statements: str) -> None:
    with exchange.database.writing() as session:
        for statement in statements:
            session.execute(text(statement))


def lost(exchange: Exchange, sha256: str) -> None:
    exchange.blobs.remove(sha256)


def changed(exchange: Exchange, sha256: str) -> None:
    path = exchange.blobs.path(sha256)
    path.write_bytes(b"x" * path.stat().st_size)


def stray(exchange: Exchange, sha256: str) -> None:
    folder = exchange.blobs.path("ff" * 32).parent
    folder.mkdir(exist_ok=True)
    exchange.blobs.path("ff" * 32).write_bytes(b"x")


def promoted(exchange: Exchange, sha256: str) -> None:
    with exchange.database.writing() as session:
        session.execute(update(Push).values(state="accepted"))


def rekeyed(exchange: Exchange, sha256: str) -> None:
    with exchange.database.writing() as session:
        session.execute(update(Member).values(identity="ab" * 32))


def rolled_back(exchange: Exchange, sha256: str) -> None:
    exchange.blobs.note_head(10_000, "ab" * 32)


@pytest.mark.parametrize(
    "spoil, told",
    [
        (lost, "is missing"),
        (changed, "is not what was pushed"),
        (stray, "no push names it"),
        (promoted, "the audit log says otherwise"),
        (rekeyed, "another key"),
        (rolled_back, "ends before"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_does_not_agree_is_found(
    exchange: Exchange, join: Join, pushed: dict[str, Path], spoil: Spoil, told: str
) -> None:
    push = join("north").push(pushed["one"])
    assert inspect(exchange.database, exchange.blobs).faults == ()
    spoil(exchange, push["sha256"])
    (fault,) = inspect(exchange.database, exchange.blobs).faults
    assert told in fault


def differences(database: Database) -> list[Any]:
    """Between the tables that migrations made and those that the code expects."""
    with database.engine.connect() as connection:
        found = compare_metadata(MigrationContext.configure(connection), Base.metadata)
    return [each for each in found if "alembic_version" not in str(each)]


def test_the_migrations_make_the_tables_that_the_code_expects(exchange: Exchange) -> None:
    assert differences(exchange.database) == []


@pytest.mark.parametrize("verb", ["UPDATE audit SET actor = 'nobody'", "DELETE FROM audit"])
def test_the_database_itself_keeps_the_log(exchange: Exchange, join: Join, verb: str) -> None:
    join("north")
    with pytest.raises(DatabaseError, match="append-only"):
        run(exchange, verb)


@pytest.mark.parametrize(
    "verb",
    [
        "UPDATE audit SET actor = 'nobody' WHERE seq = 2",
        "UPDATE audit SET details = '{}' WHERE seq = 2",
        "DELETE FROM audit WHERE seq = 2",
    ],
)
def test_a_log_that_was_changed_all_the_same_is_found(
    exchange: Exchange, join: Join, verb: str
) -> None:
    for name in ("north", "south"):
        join(name)
    run(exchange, "DROP TRIGGER audit_no_update", "DROP TRIGGER audit_no_delete", verb)
    with pytest.raises(ExchangeError, match="audit log"):
        inspect(exchange.database, exchange.blobs)


def test_an_entry_goes_with_what_it_tells_of(exchange: Exchange) -> None:
    with pytest.raises(RuntimeError), exchange.database.writing() as session:
        record(session, "north", "something")
        raise RuntimeError
    with exchange.database.reading() as session:
        assert list(read_chain(session)) == []


class Full:
    """A file on a disk that has room for half of what is written."""

    def __init__(self, path: Path, mode: str) -> None:
        self.file = open(path, mode)

    def __enter__(self) -> Full:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def write(self, data: bytes) -> None:
        self.file.write(data[: len(data) // 2])
        self.file.flush()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_refuses_a_piece_and_loses_nothing(
    exchange: Exchange, join: Join, pushed: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    north, data = join("north"), pushed["one"].read_bytes()
    told = {"dataset": "main", "sha256": "0" * 64, "size": len(data)}
    way = f"/pushes/{north.send('POST', '/pushes', told).json()['id']}/bytes"
    north.send("PUT", f"{way}?offset=0", data[:100])

    with monkeypatch.context() as patch:
        patch.setattr(blobs, "open", Full, raising=False)
        answer = north.send("PUT", f"{way}?offset=100", data[100:200])
    assert answer.status_code == 507 and "No space left" in answer.json()["error"]["found"]
    assert actions(exchange)[-1] == ("north", "refused")
    assert north.send("PUT", f"{way}?offset=100", data[100:200]).json() == {"received": 200}


def test_a_full_disk_under_the_database_is_called_that(exchange: Exchange, join: Join) -> None:
    """SQLite may not have another page: what it says then is what it says on a full disk."""
    north = join("north")

    def bounded(connection: Any, record: object) -> None:
        connection.execute("PRAGMA max_page_count=1")  # never below what there is

    event.listen(exchange.database.engine, "connect", bounded)
    exchange.database.engine.dispose()
    for _ in range(200):
        answer = north.send("POST", "/sessions")
        if answer.status_code != 201:
            break
    assert answer.status_code == 507 and "full" in answer.json()["error"]["found"]
    event.remove(exchange.database.engine, "connect", bounded)
    exchange.database.engine.dispose()
    assert north.send("POST", "/sessions").status_code == 201
    assert inspect(exchange.database, exchange.blobs).faults == ()


def test_a_disk_that_is_full_when_a_push_is_admitted_refuses_it(
    exchange: Exchange, join: Join, pushed: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: Path, target: Path) -> None:
        target.write_bytes(source.read_bytes()[:100])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    north = join("north")
    with monkeypatch.context() as patch:
        patch.setattr(blobs, "_copy", full)
        push = north.push(pushed["one"])
    assert push["state"] == "refused" and "No space left" in push["reason"]["found"]
    assert list(exchange.blobs.kept()) == list(exchange.blobs.uploads()) == []
    assert inspect(exchange.database, exchange.blobs).faults == ()
    assert north.push(pushed["one"])["state"] == "pending"


def test_a_push_that_was_being_checked_is_checked_again(
    exchange: Exchange, join: Join, pushed: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    north, data = join("north"), pushed["one"].read_bytes()
    with monkeypatch.context() as patch:  # the service stops here
        patch.setattr(pushes, "check", lambda *_: None)
        patch.setattr("exchange.parties.Party.settled", lambda self, id: {"id": id})
        id = north.push(pushed["one"])["id"]
        assert north.push(pushed["one"])["id"] == id  # a member that left comes back, and waits on
    assert north.send("GET", f"/pushes/{id}").json()["state"] == "checking"
    exchange.blobs.keep(id, north.send("GET", f"/pushes/{id}").json()["sha256"])  # or here
    (exchange.blobs.upload(id).parent / "left.1234.new").write_bytes(data[:50])
    assert inspect(exchange.database, exchange.blobs).faults == ()
    assert pushes.recover(exchange) == 1
    assert north.settled(id)["state"] == "pending"
    assert list(exchange.blobs.uploads()) == []
    assert inspect(exchange.database, exchange.blobs).faults == ()


def test_an_upload_that_goes_while_it_is_looked_at_has_no_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A push is refused, and its bytes dropped, while its member asks how many have arrived."""
    store = blobs.Blobs(tmp_path)
    store.append("push", 0, b"bytes")
    assert store.received("push") == 5
    store.drop_upload("push")
    monkeypatch.setattr(Path, "exists", lambda path, **how: True)  # it was there a moment ago
    assert store.received("push") == 0
