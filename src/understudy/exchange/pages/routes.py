"""Pages: the pool, a release, one's own pushes and budget, the steward's queue, the members.

Every page is a template that is given view models (`exchange.views`) and nothing else. Forms are
plain ones; each has the visitor's CSRF value.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi import Path as InPath
from fastapi import Query as Asked
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from sqlalchemy.orm import Session

from understudy.exchange import members, pool, pushes
from understudy.exchange.access import COOKIE, Desk, Form, Seen, Visitor, address
from understudy.exchange.api import Number, ReleaseFile, pushes_of
from understudy.exchange.context import Exchange
from understudy.exchange.models import Member
from understudy.exchange.pages.compare import Unlike, unlike, usual
from understudy.exchange.pages.query import Query
from understudy.exchange.pages.words import templates
from understudy.exchange.refusal import Refused
from understudy.exchange.views import BudgetView, ReleaseView

__all__ = ["refused", "router"]

_HERE = Path(__file__).parent
_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
_SAID = {
    "approve": "Approved: it is in the pool now.",
    "reject": "Rejected: its member is told why.",
    "withdraw": "Withdrawn: it is no longer in the pool.",
}
_LINK = ("This link no longer works", "It was used already, or more than two minutes have passed.")
_OTHER = ("That did not work", "Nothing was changed.")
_REFUSED = {
    401: ("Please sign in", "These pages are for members of this exchange."),
    403: ("You may not do this", "Your role does not allow it, or the form was not from here."),
    404: ("Nothing is here", "It may have been withdrawn, or the address is mistyped."),
    409: ("This has changed meanwhile", "Somebody else was quicker, or it was done before."),
    429: ("Too many requests", "Wait a little, then load the page again."),
    503: ("The exchange cannot answer just now", "Nothing is lost. Load the page again soon."),
}
Review = tuple[ReleaseView, BudgetView, list[BudgetView], list[Unlike]]
router = APIRouter(include_in_schema=False)


def _page(request: Request, name: str, seen: Seen | None, **shown: Any) -> HTMLResponse:
    policy = request.app.state.exchange.policy
    html = templates.get_template(name).render(
        about=policy.about,
        asked=policy.requirements,
        visitor=seen.member if seen else None,
        pages=_pages(seen.member) if seen else (),
        csrf=seen.csrf if seen else "",
        path=request.url.path,
        now=time.time(),
        **shown,
    )
    return HTMLResponse(html)


def _pages(member: Member) -> tuple[tuple[str, str], ...]:
    own = (("/", "Pool"), ("/me", "My pushes"))
    return (
        own if member.role == "member" else (*own, ("/queue", "Approvals"), ("/members", "Members"))
    )


def refused(request: Request, refusal: Refused, headers: Mapping[str, str]) -> Response:
    """A refusal as a page."""
    link = request.url.path == "/enter" and refusal.status == 403
    heading, sentence = _LINK if link else _REFUSED.get(refusal.status, _OTHER)
    shown = dict(refusal=refusal, heading=heading, sentence=sentence)
    shown["entering"] = link or refusal.status == 401
    page = _page(request, "refused.html", getattr(request.state, "seen", None), **shown)
    page.status_code = refusal.status
    page.headers.update(headers)
    return page


@router.get("/")
def gallery(request: Request, desk: Desk, seen: Visitor) -> HTMLResponse:
    """The pool."""
    asked = Query.of(request.query_params)
    with desk.database.reading() as session:
        everything = pool.releases(session, pool.Asked(asked.sort))
        may = pool.may_pull(desk, session, seen.member)
    return _page(request, "gallery.html", seen, may_pull=may, **asked.shown(everything))


@router.get("/releases/{id}")
def release(request: Request, desk: Desk, seen: Visitor, id: Number) -> HTMLResponse:
    """A release's own page; for a steward, what waits can be decided there."""
    with desk.database.reading() as session:
        found = pool.detail(session, seen.member, id)
        may = pool.may_pull(desk, session, seen.member)
        others = pool.releases(session, pool.Asked())
        review = _review(desk, session, found.release, others)
    deciding = found.release.state == "pending" and seen.member.role != "member"
    shown = dict(detail=found, may_pull=may, deciding=deciding, review=review, usual=usual(others))
    return _page(request, "release.html", seen, **shown)


def _review(
    desk: Exchange, session: Session, found: ReleaseView, there: Sequence[ReleaseView]
) -> Review:
    """A release, what its member has spent on this data and on other data, and what is odd."""
    spent = pool.budgets(desk, session, found.member)
    own = next(each for each in spent if each.dataset == found.dataset)
    others = [each for each in spent if each is not own]
    return found, own, others, unlike(found, there)


@router.get("/releases/{id}/file")
def file(desk: Desk, seen: Visitor, id: Number) -> ReleaseFile:
    """The release itself."""
    return ReleaseFile.of(desk, seen.member, id)


@router.get("/me")
def own(request: Request, desk: Desk, seen: Visitor, said: str = "") -> HTMLResponse:
    """The visitor's pushes and budgets."""
    with desk.database.reading() as session:
        spent = pool.budgets(desk, session, seen.member.name)
    mine = pushes_of(desk, seen.member.name)
    shown = dict(pushes=mine, budgets=spent, said=_SAID.get(said, ""))
    busy = any(each.state in ("uploading", "checking") for each in mine)
    return _page(request, "me.html", seen, busy=busy, **shown)


@router.get("/queue")
def queue(request: Request, desk: Desk, seen: Visitor, said: str = "") -> HTMLResponse:
    """What waits for a steward, each with what its member has spent on all data."""
    with desk.database.reading() as session:
        waiting = pool.queue(session, seen.member)
        there = pool.releases(session, pool.Asked())
        reviews = [_review(desk, session, each, there) for each in waiting]
    shown = dict(waiting=reviews, usual=usual(there), said=_SAID.get(said, ""))
    return _page(request, "queue.html", seen, **shown)


@router.get("/members")
def people(request: Request, desk: Desk, seen: Visitor) -> HTMLResponse:
    """Everybody, and privacy spent over time."""
    with desk.database.reading() as session:
        found = pool.members(desk, session, seen.member)
    since = min(each.joined for each in found)
    return _page(request, "members.html", seen, members=found, since=since)


@router.post("/releases/{id}/decision")
def decide(desk: Desk, seen: Visitor, form: Form, id: Number) -> Response:
    """A steward's decision."""
    members.allow(seen.member, "steward")
    if (verdict := form.get("verdict")) not in ("approve", "reject"):
        raise Refused(422, "approve or reject", "neither", "use the buttons")
    pushes.decide(desk, seen.member, id, verdict == "approve", form.get("why", "")[:500])
    return RedirectResponse(f"/queue?said={verdict}", 303)


@router.post("/releases/{id}/withdraw")
def withdraw(desk: Desk, seen: Visitor, form: Form, id: Number) -> Response:
    """Out of the pool."""
    gone = pushes.withdraw(desk, seen.member, id)
    own = gone.member == seen.member.name
    return RedirectResponse("/me?said=withdraw" if own else "/queue?said=withdraw", 303)


@router.get("/enter")
def enter(
    request: Request, desk: Desk, code: Annotated[str, Asked(max_length=100)] = ""
) -> Response:
    """Sign in by the link that `understudy exchange open` printed."""
    desk.strangers.take(address(request))
    with desk.database.writing() as session:
        token, seconds = members.enter(session, code)
    answer = RedirectResponse("/", 303)
    secure = request.url.scheme == "https"
    answer.set_cookie(
        COOKIE, token, max_age=seconds, httponly=True, samesite="strict", secure=secure
    )
    return answer


@router.post("/leave")
def leave(request: Request, desk: Desk, seen: Visitor, form: Form) -> Response:
    """Sign out."""
    with desk.database.writing() as session:
        members.leave(session, request.cookies[COOKIE])
    answer = RedirectResponse("/bye", 303)
    answer.delete_cookie(COOKIE)
    return answer


@router.get("/bye")
def bye(request: Request) -> HTMLResponse:
    """After signing out."""
    return _page(request, "bye.html", None)


@router.get("/api")
def description(request: Request, desk: Desk) -> HTMLResponse:
    """The calls of the API, for people; /openapi.json is the same for machines."""
    desk.strangers.take(address(request))
    described = request.app.openapi()
    calls = [
        (verb.upper(), path, call.get("description", ""), call.get("parameters", []))
        for path, verbs in described["paths"].items()
        for verb, call in verbs.items()
    ]
    return _page(request, "api.html", None, calls=calls)


@router.get("/static/{name}")
def static(name: Annotated[str, InPath(pattern=r"^[a-z]+\.(css|js)$")]) -> FileResponse:
    """Style and script of the pages."""
    path = _HERE / "static" / name
    if not path.is_file():
        raise Refused(404, "a file of the pages", "none of this name", "see /")
    return FileResponse(path, media_type=_TYPES[path.suffix])
