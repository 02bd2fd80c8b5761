"""Pages: the pool, a release, one's own pushes and budget, the steward's queue, the members.

Every page is a template that is given view models (`exchange.views`) and nothing else. Forms are
plain ones; each has the visitor's CSRF value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi import Path as InPath
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from understudy.exchange import members, pool, pushes
from understudy.exchange.access import COOKIE, Desk, Form, Seen, Visitor, address
from understudy.exchange.api import pushes_of
from understudy.exchange.refusal import Refused
from understudy.privacy.account import round_up

__all__ = ["refused", "router"]

_HERE = Path(__file__).parent
_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
router = APIRouter(include_in_schema=False)
_templates = Environment(
    loader=FileSystemLoader(_HERE / "templates"), autoescape=True, undefined=StrictUndefined
)
Number = Annotated[str, InPath(pattern="^[0-9a-f]{16}$")]


def _day(when: float | None) -> str:
    if when is None:
        return "–"
    return datetime.fromtimestamp(when, timezone.utc).strftime("%-d %b %Y, %H:%M UTC")


def _weight(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 100_000 else f"{count / 1e3:.1f} kB"


_templates.filters.update(day=_day, weight=_weight, eps=round_up)


def _page(request: Request, name: str, seen: Seen | None, **shown: Any) -> HTMLResponse:
    exchange = request.app.state.exchange
    html = _templates.get_template(name).render(
        exchange=exchange.policy.about.name,
        asked=exchange.policy.requirements,
        visitor=seen.member if seen else None,
        csrf=seen.csrf if seen else "",
        path=request.url.path,
        **shown,
    )
    return HTMLResponse(html)


def refused(request: Request, refusal: Refused, headers: Mapping[str, str]) -> Response:
    """A refusal as a page."""
    page = _page(request, "refused.html", None, refusal=refusal)
    page.status_code = refusal.status
    page.headers.update(headers)
    return page


@router.get("/")
def gallery(
    request: Request,
    desk: Desk,
    seen: Visitor,
    sort: str = "newest",
    recipe: str = "",
    member: str = "",
) -> HTMLResponse:
    """The pool."""
    asked = pool.Asked(sort if sort in pool.SORTS else "newest")
    with desk.database.reading() as session:
        everything = pool.releases(session, asked)
        may = pool.may_pull(desk, session, seen.member)
    shown = list(filter(replace(asked, recipe=recipe, member=member), everything))
    choices = {
        "sort": (asked.sort, sorted(pool.SORTS)),
        "recipe": (recipe, sorted({each.recipe for each in everything})),
        "member": (member, sorted({each.member for each in everything})),
    }
    given = dict(releases=shown, total=len(everything), choices=choices, may_pull=may)
    return _page(request, "gallery.html", seen, **given)


@router.get("/releases/{id}")
def release(request: Request, desk: Desk, seen: Visitor, id: Number) -> HTMLResponse:
    """A release's own page; for a steward, what waits can be decided there."""
    with desk.database.reading() as session:
        found = pool.detail(session, seen.member, id)
        may = pool.may_pull(desk, session, seen.member)
        spent = pool.budgets(desk, session, found.release.member)
    budget = next(each for each in spent if each.dataset == found.release.dataset)
    return _page(request, "release.html", seen, detail=found, may_pull=may, budget=budget)


@router.get("/releases/{id}/file")
def file(desk: Desk, seen: Visitor, id: Number) -> FileResponse:
    """The release itself."""
    path = pool.pull(desk, seen.member, id)
    return FileResponse(path, media_type="application/zip", filename=f"{id}.zip")


@router.get("/me")
def own(request: Request, desk: Desk, seen: Visitor) -> HTMLResponse:
    """The visitor's pushes and budgets."""
    with desk.database.reading() as session:
        spent = pool.budgets(desk, session, seen.member.name)
    mine = pushes_of(desk, seen.member.name)
    return _page(request, "me.html", seen, pushes=mine, budgets=spent)


@router.get("/queue")
def queue(request: Request, desk: Desk, seen: Visitor) -> HTMLResponse:
    """What waits for a steward, each with what its member has spent on all data."""
    with desk.database.reading() as session:
        waiting = pool.queue(session, seen.member)
        spent = {each.member: pool.budgets(desk, session, each.member) for each in waiting}
    return _page(request, "queue.html", seen, waiting=waiting, spent=spent)


@router.get("/members")
def people(request: Request, desk: Desk, seen: Visitor) -> HTMLResponse:
    """Everybody, and privacy spent over time."""
    with desk.database.reading() as session:
        found = pool.members(desk, session, seen.member)
    return _page(request, "members.html", seen, members=found)


@router.post("/releases/{id}/decision")
def decide(desk: Desk, seen: Visitor, form: Form, id: Number) -> Response:
    """A steward's decision."""
    members.allow(seen.member, "steward")
    if (verdict := form.get("verdict")) not in ("approve", "reject"):
        raise Refused(422, "approve or reject", "neither", "use the buttons")
    pushes.decide(desk, seen.member, id, verdict == "approve", form.get("why", "")[:500])
    return RedirectResponse("/queue", 303)


@router.post("/releases/{id}/withdraw")
def withdraw(desk: Desk, seen: Visitor, form: Form, id: Number) -> Response:
    """Out of the pool."""
    pushes.withdraw(desk, seen.member, id)
    return RedirectResponse("/me", 303)


@router.get("/enter")
def enter(
    request: Request, desk: Desk, code: Annotated[str, Query(max_length=100)] = ""
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
