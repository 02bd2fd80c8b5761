"""The console page as a browser shows it; needs Chromium on the machine."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from understudy.deployment.console import address, open_console
from understudy.deployment.status import Promised, SiteStatus, Status

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = os.environ.get("UNDERSTUDY_CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium here: the console was not looked at in a browser"
)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
TOKEN = "correct-horse_battery"
NASTY = "<img src=x onerror=alert(1)>"


def example() -> Status:
    """A run with everything that the page can show."""
    now = time.time()
    sites = (
        SiteStatus("north", "joined", now - 2),
        SiteStatus("south", "lost", now - 95, "no answer for 60 s: it is left out of this round"),
        SiteStatus("east", "refused", now - 300, f"another study file {NASTY}"),
    )
    words = "Against {}, whether any one record took part is protected with ε = {} at δ = 1e-05."
    claims = (
        Promised("anyone who sees the release", "record", 1.9991, 1e-5, words.format("…", 2)),
        Promised("the server and one site", "record", 2.4312, 1e-5, words.format("…", 2.44)),
        Promised("two sites and the server", "record", None, 1e-5, "No protection is claimed."),
    )
    log = tuple(f"17:0{i}:00  round {i}: 3 of 3 sites answered" for i in range(8))
    return Status(
        "breast cancer",
        20,
        sites,
        claims,
        "paused",
        7,
        log,
        "understudy serve study.toml --out release --keys hub-keys --resume",
        "rows.csv",
        looked=7,
        started=now - 125,
        updated=now,
    )


@pytest.fixture
def console(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    example().write(tmp_path)
    columns = ["mean radius", "mean texture", "mean perimeter", "mean area", "diagnosis"]
    lines = [",".join(columns), *(f"{10 + i}.5,{20 + i}.25,88,600.1,benign" for i in range(8))]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    server = open_console(tmp_path, 0, TOKEN)
    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield tmp_path, address(server, TOKEN)
    server.shutdown()
    server.server_close()
    thread.join(5)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield found
        found.close()


def shown(browser: Any, url: str, width: int, scheme: str) -> tuple[Any, list[str], list[str]]:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(url)
    page.wait_for_selector("#site-rows tr")
    if kept := os.environ.get("UNDERSTUDY_SCREENSHOTS"):
        page.screenshot(path=f"{kept}/console-{width}-{scheme}.png", full_page=True)
    return page, said, asked


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_the_page_is_quiet_complete_and_fits(browser, console, scheme: str, width: int) -> None:
    _, url = console
    page, said, asked = shown(browser, url, width, scheme)
    assert said == []
    assert {each.split("/")[2] for each in asked if not each.startswith("data:")} == {
        url.split("/")[2]
    }
    assert TOKEN not in page.url and page.title() == "breast cancer · paused · Understudy"
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("#site-rows tr").count() == 3
    assert page.locator("#claims .price").all_inner_texts()[0].startswith("ε = 2")
    assert page.locator("#bar").get_attribute("aria-valuenow") == "7"
    assert page.locator("#sample-rows tr").count() == 8
    assert page.inner_text("#drawn").endswith("after round 7")
    assert page.locator("img").count() == 0 and NASTY in page.inner_text("#site-rows")
    light = page.evaluate(
        "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]"
    )
    assert light > 200 if scheme == "light" else light < 60
    page.close()


@pytest.mark.slow
def test_the_page_follows_the_run_and_says_when_nobody_answers(browser, console) -> None:
    folder, url = console
    page, _, _ = shown(browser, url, 800, "light")
    page.route("**/status.json", lambda route: route.abort())
    page.wait_for_selector("#banner:visible", timeout=9000)
    assert "does not answer" in page.inner_text("#banner")
    done = example().with_site("south", "done").told("released", phase="done", round=20, next="")
    done.write(folder)
    page.unroute("**/status.json")
    page.wait_for_selector("#phase.done", timeout=9000)
    assert page.inner_text("#round") == "20" and not page.is_visible("#next-box")
    assert not page.is_visible("#banner")
    page.close()
