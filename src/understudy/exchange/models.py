"""The tables of an exchange.

Times are seconds since 1970. Whatever a release says of itself is in `Push.facts`, as the checks
found it; its bytes lie in the store of blobs, under their SHA-256.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, BigInteger, ForeignKey, Index, String, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

__all__ = [
    "HELD",
    "SPENT",
    "Base",
    "Entry",
    "Invitation",
    "Member",
    "Meta",
    "Nonce",
    "Pass",
    "Pull",
    "Push",
]

HELD = ("pending", "accepted")
"""States of a push whose bytes are in the store."""
SPENT = ("pending", "accepted", "rejected", "withdrawn")
"""States of a push that people have been shown: it counts towards its member's budget for good."""


class Base(DeclarativeBase):
    """All tables."""


class Meta(Base):
    """What identifies this exchange."""

    __tablename__ = "meta"
    key: Mapped[str] = mapped_column(String(40), primary_key=True)
    value: Mapped[str] = mapped_column(Text)


class Member(Base):
    """Someone with a key. ``role`` is member, steward or admin; a revoked one keeps its rows."""

    __tablename__ = "members"
    name: Mapped[str] = mapped_column(String(40), primary_key=True)
    identity: Mapped[str] = mapped_column(String(64), unique=True)
    role: Mapped[str] = mapped_column(String(10))
    joined: Mapped[float]
    revoked: Mapped[float | None]


class Invitation(Base):
    """A code that lets one person subscribe; only its hash is kept."""

    __tablename__ = "invitations"
    code: Mapped[str] = mapped_column(String(64), primary_key=True)
    role: Mapped[str] = mapped_column(String(10))
    by: Mapped[str] = mapped_column(String(40))
    expires: Mapped[float]
    used: Mapped[str | None] = mapped_column(String(40))


class Nonce(Base):
    """A signed request that has been seen; kept for as long as the clock would let it pass."""

    __tablename__ = "nonces"
    member: Mapped[str] = mapped_column(String(40), primary_key=True)
    nonce: Mapped[str] = mapped_column(String(32), primary_key=True)
    expires: Mapped[float] = mapped_column(index=True)


class Pass(Base):
    """A way into the pages: a link that works once ("link"), or a browser's cookie ("browser")."""

    __tablename__ = "passes"
    token: Mapped[str] = mapped_column(String(64), primary_key=True)
    kind: Mapped[str] = mapped_column(String(8))
    member: Mapped[str] = mapped_column(ForeignKey("members.name"))
    expires: Mapped[float] = mapped_column(index=True)


class Push(Base):
    """A release that a member sends, from its first byte on.

    ``state``: uploading, checking, refused (by the checks), pending (a steward has to look),
    accepted, rejected (by a steward), withdrawn.
    """

    __tablename__ = "pushes"
    id: Mapped[str] = mapped_column(String(16), primary_key=True)
    member: Mapped[str] = mapped_column(ForeignKey("members.name"), index=True)
    dataset: Mapped[str] = mapped_column(String(40))
    sha256: Mapped[str] = mapped_column(String(64), index=True)
    size: Mapped[int] = mapped_column(BigInteger)
    state: Mapped[str] = mapped_column(String(10), index=True)
    begun: Mapped[float]
    decided: Mapped[float | None]
    by: Mapped[str | None] = mapped_column(String(40))
    reason: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    facts: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    preview: Mapped[dict[str, Any] | None] = mapped_column(JSON)


class Pull(Base):
    """Who took which release, and when first."""

    __tablename__ = "pulls"
    push: Mapped[str] = mapped_column(ForeignKey("pushes.id"), primary_key=True)
    member: Mapped[str] = mapped_column(ForeignKey("members.name"), primary_key=True)
    when: Mapped[float]


class Entry(Base):
    """A line of the audit log; each has the hash of the one before."""

    __tablename__ = "audit"
    seq: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    when: Mapped[float]
    actor: Mapped[str] = mapped_column(String(64))
    action: Mapped[str] = mapped_column(String(32))
    subject: Mapped[str] = mapped_column(String(64))
    details: Mapped[str] = mapped_column(Text)
    previous: Mapped[str] = mapped_column(String(64))
    hash: Mapped[str] = mapped_column(String(64))


Index("pushes_of_data", Push.member, Push.dataset)
