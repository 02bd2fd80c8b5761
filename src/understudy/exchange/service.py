"""The application: API and pages, limits on what comes in, and refusals as JSON or as a page."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from understudy import __version__
from understudy.exchange import api
from understudy.exchange.access import address, exchange_of, note_refusal
from understudy.exchange.context import Exchange
from understudy.exchange.database import GONE, disk_full
from understudy.exchange.pages import routes
from understudy.exchange.pushes import recover
from understudy.exchange.refusal import Refused

__all__ = ["application"]

_log = logging.getLogger(__name__)
_SMALL = 64 << 10  # bytes of any body but a piece of an upload
_NOTED = (403, 413, 507)  # of members: what they may not do, too much, no room
_HEADERS = {
    b"content-security-policy": b"default-src 'none'; script-src 'self'; style-src 'self'; "
    b"img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    b"frame-ancestors 'none'",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"permissions-policy": b"camera=(), geolocation=(), microphone=()",
    b"referrer-policy": b"no-referrer",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"cache-control": b"no-store",
}


def application(exchange: Exchange) -> FastAPI:
    """Serves one exchange; its checks go on in the background until it is shut down."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await run_in_threadpool(recover, exchange)
        exchange.queue.submit(exchange.worker.warm)
        yield
        await run_in_threadpool(exchange.close)

    app = FastAPI(
        title="Understudy exchange",
        summary="Generators of private data, with claims that anyone can recompute.",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,  # the usual page is fetched from a CDN; ours is /api
        redoc_url=None,
    )
    app.state.exchange = exchange
    app.include_router(api.router)
    app.include_router(routes.router)
    for kind in (Refused, RequestValidationError, HTTPException, OSError, *GONE):
        app.add_exception_handler(kind, _answer)
    app.add_middleware(Guard)
    return app


async def _answer(request: Request, error: Exception) -> Response:
    """A refusal in the form that the caller reads."""
    refusal = _as_refusal(error)
    if refusal.status in _NOTED:
        refusal = await run_in_threadpool(_noted, request, refusal)
    headers = {"Retry-After": str(refusal.wait)} if refusal.wait else {}
    if request.url.path.startswith("/api/") or request.url.path == "/openapi.json":
        return JSONResponse(refusal.body, refusal.status, headers)
    return routes.refused(request, refusal, headers)


def _noted(request: Request, refusal: Refused) -> Refused:
    """Write it to the audit log; a stranger that sends too much too often is told to wait."""
    named = getattr(request.state, "member", "")
    if not named and refusal.status != 413:
        return refusal  # who a request is from was refused: `access` has noted that
    try:
        if not named:
            exchange_of(request).strangers.take(address(request))
        note_refusal(request, named or "a stranger", refusal)
    except Refused as wait:
        return wait
    except SQLAlchemyError as error:
        _log.error("a refusal is not in the audit log: %s", type(error).__name__)
    return refusal


def _as_refusal(error: Exception) -> Refused:
    cause = error.__cause__  # FastAPI puts an error of its own around one while a body is read
    for each in (error, cause):
        if isinstance(each, Refused):
            return each
    if isinstance(error, RequestValidationError):
        where = ", ".join(sorted({".".join(map(str, e["loc"])) for e in error.errors()}))
        return Refused(422, "a request as the description says", where[:200], "see /openapi.json")
    if isinstance(error, HTTPException):
        return Refused(error.status_code, "a page or call of this exchange", error.detail, "see /")
    if isinstance(error, OSError):
        _log.error("the store: %s", error)
        return Refused(507, "room in the store", str(error.strerror or error), "try later", 60)
    if disk_full(error):
        _log.error("the database has no room: %s", type(error).__name__)
        return Refused(507, "room for the database", "its disk is full", "try later", 60)
    _log.warning("the database cannot be reached: %s", type(error).__name__)
    return Refused(503, "the exchange's database", "it cannot be reached", "try again soon", 5)


class Guard:
    """In front of everything: bodies of bounded size, and headers that keep browsers strict."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        most = api.PIECE if scope["path"].endswith("/bytes") else _SMALL
        taken = 0

        async def bounded() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > most:
                raise Refused(413, f"a body of at most {most:,} bytes", "more", "send less")
            return message

        async def dressed(message: Message) -> None:
            if message["type"] == "http.response.start":
                named = {name.lower() for name, _ in message["headers"]}
                more = [pair for pair in _HEADERS.items() if pair[0] not in named]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        return await self.app(scope, bounded, dressed)
