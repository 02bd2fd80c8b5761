"""The report as a browser shows it; needs Chromium on the machine."""

import os
import shutil
from collections.abc import Iterator

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = os.environ.get("UNDERSTUDY_CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium here: the report was not looked at in a browser"
)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield found
        found.close()


def listen(page) -> tuple[list[str], list[str]]:
    """What the page says on the console, and what it asks the network for."""
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    return said, asked


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_report_is_quiet_complete_and_fits(browser, reports, scheme, width) -> None:
    for report in reports:
        size = {"width": width, "height": 900}
        page = browser.new_page(viewport=size, color_scheme=scheme, offline=True)
        said, asked = listen(page)
        page.goto(report.as_uri())
        assert said == []
        assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate("[...document.images].every(i => i.complete && i.naturalWidth > 0)")
        assert page.evaluate("document.querySelectorAll('svg').length") >= 5
        ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
        assert len(ids) == len(set(ids))
        page.close()


def test_dark_page_is_dark_and_its_text_is_not(browser, reports) -> None:
    page = browser.new_page(color_scheme="dark")
    page.goto(reports[0].as_uri())
    brightness = """(what) => {
        const rgb = getComputedStyle(document.body)[what].match(/[0-9.]+/g).slice(0, 3);
        return rgb.map(Number).reduce((a, b) => a + b) / 765;
    }"""
    assert page.evaluate(brightness, "backgroundColor") < 0.2
    assert page.evaluate(brightness, "color") > 0.8
    page.close()
