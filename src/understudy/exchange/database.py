"""The database: SQLite in a file, or PostgreSQL by URL.

Transactions that write take turns, in SQLite by its own lock, in PostgreSQL by an advisory one: so
the audit log is one chain, and a budget cannot be spent twice by two pushes at once. What is
written is on the disk before anybody is told of it.
"""

from __future__ import annotations

import secrets
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session

from understudy.errors import ExchangeError
from understudy.exchange.models import Meta

__all__ = ["GONE", "Database", "disk_full", "reached"]

GONE = (OperationalError, InterfaceError, PoolTimeout)
"""What a database that cannot be reached raises."""
_TURN = 7_317_205  # the advisory lock of those who write


class Database:
    """Sessions that read, and sessions that write."""

    def __init__(self, url: str) -> None:
        self.engine = _engine(url)
        self._writer = self.engine.execution_options(writes=True)
        lite = self.engine.dialect.name == "sqlite"  # whose own lock is waited for by looking again
        self._turn: AbstractContextManager[Any] = threading.Lock() if lite else nullcontext()

    def migrate(self) -> None:
        """Bring the tables up to this version, and give the exchange its identity."""
        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
        with reached(), self._writer.begin() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
        with self.writing() as session:
            if session.get(Meta, "exchange") is None:
                session.add(Meta(key="exchange", value=secrets.token_hex(16)))

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A session whose changes, if any, are dropped."""
        with Session(self.engine, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """A session that is alone in writing; all of it is kept, or nothing."""
        with self._turn, Session(self._writer, expire_on_commit=False) as session, session.begin():
            if self.engine.dialect.name == "postgresql":
                session.execute(text(f"SELECT pg_advisory_xact_lock({_TURN})"))
            yield session

    def close(self) -> None:
        """Let go of all connections."""
        self.engine.dispose()


@contextmanager
def reached() -> Iterator[None]:
    """For an operator's command: say in plain words that the database cannot be used."""
    try:
        yield
    except GONE as error:
        found = str(getattr(error, "orig", None) or error).splitlines()[0]
        do = "check exchange.database, and that it runs; serve makes the tables"
        raise ExchangeError("the exchange's database", found, do) from error


def disk_full(error: Exception) -> bool:
    """Whether this is what a database raises that is there, and has no room."""
    cause = getattr(error, "orig", None)
    lite = getattr(cause, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
    return lite or getattr(cause, "sqlstate", None) == "53100"


def _engine(url: str) -> Engine:
    try:
        parsed = make_url(url)
        if parsed.drivername in ("postgresql", "postgres"):
            parsed = parsed.set(drivername="postgresql+psycopg")
        lite = parsed.get_backend_name() == "sqlite"
        wait: dict[str, Any] = {"timeout": 30} if lite else {"connect_timeout": 5}
        engine = create_engine(
            parsed,
            connect_args=wait,
            pool_pre_ping=True,
            pool_size=10,
            max_overflow=30,
            pool_timeout=20,
        )
    except (SQLAlchemyError, ImportError) as error:
        raise ExchangeError(
            "a database as postgresql://USER:PASSWORD@HOST/NAME, or none for SQLite",
            type(error).__name__,
            "correct exchange.database",
        ) from error
    if lite:
        event.listen(engine, "connect", _open_lite)
        event.listen(engine, "begin", _begin_lite)
    return engine


def _open_lite(connection: Any, record: object) -> None:
    connection.isolation_level = None  # the driver begins no transactions: _begin_lite does
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_lite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
