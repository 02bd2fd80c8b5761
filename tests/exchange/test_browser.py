"""The pages of an exchange as a browser shows them; needs Chromium on the machine."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra 'exchange' is not installed")

import httpx2
import uvicorn

from exchange.parties import Party, opened, policy
from understudy.exchange.context import Exchange
from understudy.exchange.service import application

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = os.environ.get("UNDERSTUDY_CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: no page was looked at"),
]
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]

FLAWS = """() => {
  const flaws = [], all = (what) => [...document.querySelectorAll(what)];
  const named = (e) => e.getAttribute('aria-label') || e.getAttribute('aria-labelledby');
  if (document.documentElement.lang !== 'en') flaws.push('no language');
  for (const one of ['h1', 'main', 'footer', 'header.site', 'a.skip'])
    if (all(one).length !== 1) flaws.push(`${all(one).length} of ${one}`);
  let last = 0;
  for (const e of all('h1, h2, h3, h4, h5, h6')) {
    const level = Number(e.tagName[1]);
    if (level > last + 1) flaws.push(`${e.tagName} after h${last}`);
    last = level;
  }
  for (const e of all('input:not([type=hidden]), select'))
    if (!e.labels.length) flaws.push(`no label: ${e.name}`);
  for (const e of all('img')) if (!e.alt) flaws.push('an image without words');
  for (const e of all('svg'))
    if (e.getAttribute('aria-hidden') !== 'true' && !named(e)) flaws.push('a plot without words');
  for (const e of all('table'))
    if (!e.querySelector('thead th[scope=col]')) flaws.push('a table without headers');
  for (const e of all('[role=region], nav')) if (!named(e)) flaws.push('a region without a name');
  for (const e of all('[aria-labelledby]'))
    if (!document.getElementById(e.getAttribute('aria-labelledby'))) flaws.push('a broken name');
  const ids = all('[id]').map((e) => e.id);
  if (new Set(ids).size !== ids.length) flaws.push('an id twice');
  for (const e of all('[style], style, script:not([src])')) flaws.push(`inline ${e.tagName}`);
  return flaws;
}"""


@dataclass(frozen=True)
class Site:
    """A served exchange of toys: north has a release in the pool, south one that waits."""

    url: str
    exchange: Exchange
    parties: dict[str, Party]
    pushes: dict[str, str]


@contextmanager
def served(exchange: Exchange) -> Iterator[str]:
    config = uvicorn.Config(application(exchange), port=0, log_level="error")
    server = uvicorn.Server(config)
    thread = Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(10)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, pushed: dict[str, Path]) -> Iterator[Site]:
    exchange = opened(policy(tmp_path_factory.mktemp("hub"), requirements={"epsilon": 0.8}))
    with served(exchange) as url, httpx2.Client(base_url=url, timeout=30) as web:
        roles = {"north": "member", "south": "member", "east": "member", "mara": "steward"}
        parties = {name: Party(web, exchange, name).join(role) for name, role in roles.items()}
        pushes = {
            "north": parties["north"].push(pushed["one"], "ward-a")["id"],
            "south": parties["south"].push(pushed["two"], "ward-b")["id"],
            "dear": parties["south"].push(pushed["dear"], "ward-c")["id"],
        }
        decided = {"approve": True}
        parties["mara"].send("POST", f"/pushes/{pushes['north']}/decision", decided)
        yield Site(url, exchange, parties, pushes)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield found
        found.close()


@pytest.fixture
def browse(chromium: Any, site: Site) -> Iterator[Any]:
    """Opens a browser for a member, signed in by a link, or for a stranger."""
    contexts: list[Any] = []

    def opening(name: str = "", width: int = 1280, scheme: str = "light", **more: Any) -> Any:
        size = {"width": width, "height": 900}
        context = chromium.new_context(
            viewport=size, color_scheme=scheme, base_url=site.url, **more
        )
        contexts.append(context)
        page = context.new_page()
        if name:
            page.goto(site.parties[name].send("POST", "/sessions").json()["path"])
        return page

    yield opening
    for context in contexts:
        context.close()


def look(page: Any, path: str, kept: str) -> None:
    """Open a page and find nothing wrong with it that holds for all pages."""
    said: list[str] = []
    asked: list[str] = []
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("console", lambda message: said.append(message.text))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path)
    host = page.url.split("/")[2]
    assert {url.split("/")[2] for url in asked if not url.startswith("data:")} == {host}
    assert [line for line in said if "the server responded with a status of 4" not in line] == []
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= page.viewport_size["width"], path
    assert page.evaluate(FLAWS) == [], path
    if folder := os.environ.get("UNDERSTUDY_SCREENSHOTS"):
        page.screenshot(path=f"{folder}/exchange-{kept}.png", full_page=True)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_every_page_fits_is_labelled_and_asks_nobody_else(
    browse: Any, site: Site, width: int, scheme: str
) -> None:
    release = f"/releases/{site.pushes['north']}"
    paths = {
        "": ["/", "/enter?code=old", "/bye", "/api"],
        "north": ["/", release, "/me", "/?epsilon=0.001", "/?epsilon=x", "/queue"],
        "east": ["/", "/me"],
        "mara": ["/queue", f"/releases/{site.pushes['south']}", "/members"],
    }
    for name, theirs in paths.items():
        page = browse(name, width, scheme)
        for i, path in enumerate(theirs):
            look(page, path, f"{name or 'nobody'}-{i}-{width}-{scheme}")
            red = page.evaluate(
                "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]"
            )
            assert red > 200 if scheme == "light" else red < 60


def test_a_link_signs_in_once_and_signing_out_ends_it(browse: Any, site: Site) -> None:
    link = site.parties["north"].send("POST", "/sessions").json()["path"]
    page, other = browse(), browse()
    page.goto("/")
    assert page.inner_text("h1") == "Please sign in"
    assert "understudy exchange open" in page.inner_text("main")
    page.goto(link)
    assert page.inner_text(".who span") == "north, member"
    other.goto(link)
    assert other.inner_text("h1") == "This link no longer works"
    page.click("text=Sign out")
    assert page.inner_text("h1") == "Signed out"
    page.goto("/me")
    assert page.inner_text("h1") == "Please sign in"


def test_the_keyboard_reaches_the_content_first(browse: Any) -> None:
    page = browse("north")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.locator(".skip").bounding_box()["x"] >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.closest('.tile') !== null"):
            break
    page.keyboard.press("Enter")
    page.wait_for_url("**/releases/*")


def test_the_gallery_is_filtered_and_sorted_without_scripts(browse: Any, site: Site) -> None:
    page = browse("east", java_script_enabled=False)
    tile = page.locator(".tile")
    assert tile.count() == 1 and tile.locator("svg.bars").count() == 4
    words = tile.inner_text().replace("\u00a0", " ")
    assert "ε = 0.5" in words and "for each record" in words and "2 of 2 classes" in words
    assert "is right at most 62.3 % of the time" in words
    assert "once a push of your own was accepted" in page.inner_text(".banner")
    page.select_option("[name=sort]", "epsilon")
    page.fill("[name=epsilon]", "0.1")
    page.click("text=Show")
    assert "sort=epsilon" in page.url and tile.count() == 0
    assert "0 of 1 shown" in page.inner_text("main")
    page.click(".filters >> text=Show all")
    assert tile.count() == 1


def test_a_member_sees_what_it_spent_and_why_a_push_failed(browse: Any) -> None:
    page = browse("south")
    page.goto("/me")
    budget = page.inner_text(".budgets").replace("\u00a0", " ")
    assert "ward-b" in budget and "ε = 0.5 of 0.8" in budget and "at least 0.3 left" in budget
    said = page.get_attribute(".budgets .plot", "aria-label")
    assert "ε spent on ward-b of south: 0.5 from" in said and "the cap is 0.8" in said
    assert page.locator(".state").all_inner_texts() == ["refused", "waits for approval"]
    assert "Expected ε of at most 0.8" in page.inner_text("table")


def test_a_steward_looks_and_approves_and_the_pool_has_it(browse: Any, site: Site) -> None:
    page = browse("mara")
    page.click("nav >> text=Approvals")
    words = page.inner_text(".review").replace("\u00a0", " ")
    assert "It is the first push of ward-b: ε = 0.5 of 0.8." in words
    assert "Furthest from what others have in the pool" in words
    page.fill("[name=why]", "known to us")
    page.click("text=Approve >> nth=-1")
    assert page.inner_text("[role=status]") == "Approved: it is in the pool now."
    assert page.inner_text(".lead") == "Nothing waits for approval."
    page.click("nav >> text=Pool")
    assert page.locator(".tile").count() == 2
    page.click("nav >> text=Members")
    assert page.locator(".history .plot").count() == 2

    member = browse("south")
    member.goto(f"/releases/{site.pushes['north']}")
    with member.expect_download() as download:
        member.click("text=Download the release")
    assert download.value.suggested_filename == f"{site.pushes['north']}.zip"
    member.reload()
    assert "south, first on" in member.inner_text("main")
