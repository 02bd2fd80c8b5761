"""Who a request is from: a member's signature for the API, a browser's cookie for the pages.

What does not hold is refused, and noted in the audit log, as long as the address it came from has
not been refused too often: then it is turned away at once, and nothing is written.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import parse_qs

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.security import APIKeyHeader

from understudy.exchange.auditlog import record
from understudy.exchange.context import Exchange
from understudy.exchange.members import authenticate, visitor
from understudy.exchange.models import Member
from understudy.exchange.refusal import Refused
from understudy.exchange.signing import Stamp

__all__ = [
    "COOKIE",
    "Caller",
    "Desk",
    "Form",
    "Visitor",
    "address",
    "csrf",
    "exchange_of",
    "note_refusal",
    "signed_by",
]

COOKIE = "understudy"
_HEADER = APIKeyHeader(
    name="Authorization",
    scheme_name="signed",
    auto_error=False,
    description="Understudy member=NAME, time=SECONDS, nonce=32 hex digits, signature=128",
)


def exchange_of(request: Request) -> Exchange:
    """The exchange that this application serves."""
    exchange: Exchange = request.app.state.exchange
    return exchange


Desk = Annotated[Exchange, Depends(exchange_of)]


def address(request: Request) -> str:
    """Where a request came from."""
    return request.client.host if request.client else "unknown"


def _target(request: Request) -> str:
    """Path and query as they were sent."""
    raw, query = request.scope.get("raw_path") or request.url.path.encode(), request.url.query
    path = raw.split(b"?")[0].decode("ascii", "replace")
    return f"{path}?{query}" if query else path


def signed_by(request: Request, header: str | None, body: bytes, identity: str = "") -> Member:
    """The member whose signature the request has; with ``identity``, whoever holds that key."""
    exchange, named = exchange_of(request), "a stranger"
    if identity:  # anybody can sign with a key of its own, in any name
        exchange.strangers.take(address(request))
    try:
        stamp = Stamp.parse(header or "")
        named = stamp.member
        with exchange.database.writing() as session:
            asked = (request.method, _target(request), body, identity)
            member = authenticate(session, stamp, *asked)
    except Refused as refusal:
        exchange.strangers.take(address(request))
        note_refusal(request, named, refusal)
        raise
    if member is None:
        request.state.member = "a stranger"
        return Member(name=named, identity=identity, role="member")
    exchange.members.take(named)
    request.state.member = named  # what is refused from here on is known to be this member's
    return member


def note_refusal(request: Request, named: str, refusal: Refused) -> None:
    """A line of the audit log."""
    said = dict(found=refusal.found, path=request.url.path[:200], address=address(request))
    with exchange_of(request).database.writing() as session:
        record(session, named, "refused", **said)


async def _caller(request: Request, header: Annotated[str | None, Depends(_HEADER)]) -> Member:
    return await run_in_threadpool(signed_by, request, header, await request.body())


Caller = Annotated[Member, Depends(_caller)]


@dataclass(frozen=True)
class Seen:
    """A member in a browser; ``csrf`` has to be in every form it sends."""

    member: Member
    csrf: str


def csrf(token: str) -> str:
    """A value that only pages of ours can know, for the browser that has this cookie."""
    return hmac.new(token.encode(errors="surrogatepass"), b"csrf", hashlib.sha256).hexdigest()


def _visitor(request: Request) -> Seen:
    exchange, token = exchange_of(request), request.cookies.get(COOKIE, "")
    with exchange.database.reading() as session:
        member = visitor(session, token) if token else None
    if member is None:
        exchange.strangers.take(address(request))
        raise Refused(401, "somebody who has signed in", "nobody", "run: understudy exchange open")
    request.state.member = member.name
    exchange.members.take(member.name)
    request.state.seen = Seen(member, csrf(token))  # for the page of a refusal, if it comes to one
    return request.state.seen


Visitor = Annotated[Seen, Depends(_visitor)]


async def _form(request: Request, seen: Visitor) -> dict[str, str]:
    """The fields of a form that one of our own pages has sent."""
    body = (await request.body()).decode("utf-8", "replace")
    fields = {name: values[0] for name, values in parse_qs(body, max_num_fields=20).items()}
    own = hmac.compare_digest(fields.get("csrf", "").encode(), seen.csrf.encode())
    if not own or request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
        raise Refused(403, "a form of this site's own pages", "another", "reload the page")
    return fields


Form = Annotated[dict[str, str], Depends(_form)]
