"""The API: JSON over HTTP, every request but the first look signed.

Paths begin with ``/api/v1``. A refusal is ``{"error": {"expected", "found", "do"}}``.
"""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import select

from understudy import __version__
from understudy.exchange import members, pool, pushes
from understudy.exchange.access import _HEADER, Caller, Desk, address, signed_by
from understudy.exchange.auditlog import head
from understudy.exchange.context import Exchange
from understudy.exchange.models import Entry, Member, Push
from understudy.exchange.signing import NAME
from understudy.exchange.views import MemberView, PushView, ReleaseDetail, ReleaseView

__all__ = ["PIECE", "ReleaseFile", "router"]

PIECE = 1 << 20
"""The most bytes of one piece of an upload."""
_PAGE = 500  # entries of the audit log at a time


class Error(BaseModel):
    """Why a request was refused."""

    error: dict[str, str]


_STATUSES = (400, 401, 403, 404, 409, 413, 416, 422, 429)
_REFUSALS: dict[int | str, dict[str, Any]] = {status: {"model": Error} for status in _STATUSES}
router = APIRouter(prefix="/api/v1", responses=_REFUSALS)
Number = Annotated[str, Path(pattern="^[0-9a-f]{16}$", description="of a push or release")]
Named = Annotated[str, Path(pattern=f"^{NAME}$", description="of a member")]


class Asked(BaseModel):
    """Nothing but what is declared."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Subscription(Asked):
    """Signed with the key that it brings."""

    identity: str = Field(pattern="^[0-9a-f]{64}$", description="ed25519, public")
    code: str = Field(pattern="^[0-9a-f]{32}$", description="from an invitation")


class Announced(Asked):
    """A release that is about to be sent."""

    dataset: str = Field(max_length=40, description="names the rows it was trained on")
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    size: int = Field(gt=0, le=1 << 40)


class Decision(Asked):
    """A steward's."""

    approve: bool
    why: str = Field("", max_length=500)


class Role(Asked):
    """What somebody may do."""

    role: str = Field(max_length=10)


@router.get("/exchange")
def about(request: Request, desk: Desk) -> dict[str, Any]:
    """What anybody may know: which exchange this is, and its time."""
    desk.strangers.take(address(request))
    with desk.database.reading() as session:
        id = members.exchange_id(session)
    return {"id": id, "name": desk.policy.about.name, "time": time.time(), "version": __version__}


@router.post("/members", status_code=201)
async def subscribe(
    request: Request, desk: Desk, asked: Subscription, header: Annotated[Any, Depends(_HEADER)]
) -> dict[str, Any]:
    """Become a member, with the code of an invitation; the answer is the requirements."""
    return await run_in_threadpool(_subscribe, request, desk, asked, header, await request.body())


def _subscribe(
    request: Request, desk: Desk, asked: Subscription, header: str | None, body: bytes
) -> dict[str, Any]:
    stranger = signed_by(request, header, body, asked.identity)
    with desk.database.writing() as session:
        member = members.subscribe(session, stranger.name, asked.identity, asked.code)
    return {"role": member.role, "requirements": desk.policy.told()}


@router.get("/requirements")
def requirements(desk: Desk, caller: Caller) -> dict[str, Any]:
    """What a generator must be to be taken."""
    return desk.policy.told()


@router.get("/me")
def me(desk: Desk, caller: Caller) -> dict[str, Any]:
    """The caller's role, and what it has spent on which data."""
    with desk.database.reading() as session:
        spent = pool.budgets(desk, session, caller.name)
        may = pool.may_pull(desk, session, caller)
    return {"name": caller.name, "role": caller.role, "may_pull": may, "budgets": spent}


@router.post("/pushes", status_code=201)
def begin(desk: Desk, caller: Caller, asked: Announced) -> PushView:
    """Announce a release; one whose upload was cut short goes on."""
    push = pushes.begin(desk, caller, asked.dataset, asked.sha256, asked.size)
    return PushView.of(push, desk.blobs.received(push.id))


@router.get("/pushes")
def own_pushes(desk: Desk, caller: Caller) -> list[PushView]:
    """The caller's pushes, newest first."""
    return pushes_of(desk, caller.name)


def pushes_of(desk: Desk, name: str) -> list[PushView]:
    """A member's pushes, newest first."""
    with desk.database.reading() as session:
        asked = select(Push).where(Push.member == name).order_by(Push.begun.desc())
        return [PushView.of(each, desk.blobs.received(each.id)) for each in session.scalars(asked)]


@router.get("/pushes/{id}")
def one_push(desk: Desk, caller: Caller, id: Number) -> PushView:
    """What became of a push."""
    with desk.database.reading() as session:
        push = pushes.find(session, caller, id, others=True)
    return PushView.of(push, desk.blobs.received(id))


@router.put(
    "/pushes/{id}/bytes",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "application/octet-stream": {"schema": {"type": "string", "maxLength": PIECE}}
            },
        }
    },
)
async def receive(
    request: Request, desk: Desk, caller: Caller, id: Number, offset: Annotated[int, Query(ge=0)]
) -> dict[str, int]:
    """A piece of up to 1 MiB; the answer is how many bytes are here now."""
    body = await request.body()
    return {"received": await run_in_threadpool(pushes.receive, desk, caller, id, offset, body)}


@router.post("/pushes/{id}/finish", status_code=202)
def finish(desk: Desk, caller: Caller, id: Number) -> PushView:
    """All bytes are here: check it. The state tells when that is done."""
    return PushView.of(pushes.finish(desk, caller, id), desk.blobs.received(id))


@router.post("/pushes/{id}/decision")
def decide(desk: Desk, caller: Caller, id: Number, asked: Decision) -> PushView:
    """Stewards: take a push into the pool, or turn it down."""
    members.allow(caller, "steward")
    return PushView.of(pushes.decide(desk, caller, id, asked.approve, asked.why), 0)


@router.post("/pushes/{id}/withdraw")
def withdraw(desk: Desk, caller: Caller, id: Number) -> PushView:
    """Its owner, or a steward: take a release out of the pool. Its ε cannot be recovered."""
    return PushView.of(pushes.withdraw(desk, caller, id), 0)


@router.get("/queue")
def queue(desk: Desk, caller: Caller) -> list[ReleaseView]:
    """Stewards: what waits for a decision."""
    with desk.database.reading() as session:
        return pool.queue(session, caller)


@router.get("/releases")
def releases(
    desk: Desk,
    caller: Caller,
    sort: Annotated[str, Query(pattern=f"^({'|'.join(pool.SORTS)})$")] = "newest",
    recipe: str = "",
    member: str = "",
    epsilon: Annotated[float | None, Query(gt=0)] = None,
) -> list[ReleaseView]:
    """The pool; ``epsilon`` is the most of a release."""
    with desk.database.reading() as session:
        return pool.releases(session, pool.Asked(sort, recipe, member, epsilon))


@router.get("/releases/{id}")
def release(desk: Desk, caller: Caller, id: Number) -> ReleaseDetail:
    """Everything about a release."""
    with desk.database.reading() as session:
        return pool.detail(session, caller, id)


class ReleaseFile(FileResponse):
    """A release as a download, in pieces that do not keep the service busy with counting them."""

    chunk_size = 1 << 18

    @classmethod
    def of(cls, desk: Exchange, member: Member, id: str) -> ReleaseFile:
        """Of this release, if the member may have it."""
        path = pool.pull(desk, member, id)
        return cls(path, media_type="application/zip", filename=f"{id}.zip")


@router.get("/releases/{id}/file", response_class=ReleaseFile)
def file(desk: Desk, caller: Caller, id: Number) -> ReleaseFile:
    """The release itself; understands ``Range``."""
    return ReleaseFile.of(desk, caller, id)


@router.post("/sessions", status_code=201)
def session(desk: Desk, caller: Caller) -> dict[str, str]:
    """A path that opens the pages in a browser, once, within two minutes."""
    with desk.database.writing() as session:
        return {"path": f"/enter?code={members.issue_link(session, caller)}"}


@router.post("/invitations", status_code=201)
def invite(desk: Desk, caller: Caller, asked: Role) -> dict[str, Any]:
    """Admins: a code with which one person can subscribe."""
    members.allow(caller, "admin")
    with desk.database.writing() as session:
        code, expires = members.invite(session, caller.name, asked.role)
    return {"code": code, "role": asked.role, "expires": expires}


@router.get("/members")
def people(desk: Desk, caller: Caller) -> list[MemberView]:
    """Stewards: everybody, with what each has spent."""
    with desk.database.reading() as session:
        return pool.members(desk, session, caller)


@router.put("/members/{name}/role")
def change_role(desk: Desk, caller: Caller, name: Named, asked: Role) -> dict[str, str]:
    """Admins: give a member another role."""
    members.allow(caller, "admin")
    with desk.database.writing() as session:
        members.change_role(session, caller.name, name, asked.role)
    return {"name": name, "role": asked.role}


@router.post("/members/{name}/revoke")
def revoke(desk: Desk, caller: Caller, name: Named) -> dict[str, str]:
    """Admins: take nothing from this member any more."""
    members.allow(caller, "admin")
    with desk.database.writing() as session:
        members.revoke(session, caller.name, name)
    return {"name": name, "state": "revoked"}


@router.get("/audit")
def audit(
    desk: Desk, caller: Caller, after: Annotated[int, Query(ge=0, lt=1 << 31)] = 0
) -> dict[str, Any]:
    """Stewards: the audit log, 500 entries at a time, and its head."""
    members.allow(caller, "steward")
    with desk.database.reading() as session:
        asked = select(Entry).where(Entry.seq > after).order_by(Entry.seq).limit(_PAGE)
        columns = [column.name for column in Entry.__table__.columns]
        entries = [{c: getattr(e, c) for c in columns} for e in session.scalars(asked)]
        seq, hash = head(session)
    return {"entries": entries, "head": {"seq": seq, "hash": hash}}
