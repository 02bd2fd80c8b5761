"""The console page over real sockets on loopback: who may look, and what is sent with it."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from understudy.cli.attending import show_page
from understudy.deployment import console
from understudy.deployment.console import address, open_console, start
from understudy.deployment.status import FILE, SiteStatus, Status
from understudy.errors import OutputError, UnderstudyError

TOKEN = "correct-horse_battery"
PATHS = ("/", "/console.css", "/console.js", "/status.json")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Status("heart", 5, (SiteStatus("north"),)).told("begun").write(tmp_path)
    return tmp_path


@pytest.fixture
def port(folder: Path) -> Iterator[int]:
    server = open_console(folder, 0, TOKEN)
    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()
    thread.join(5)


def ask(
    port: int, path: str, cookie: str | None = TOKEN, method: str = "GET"
) -> http.client.HTTPResponse:
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    link.request(method, path, headers={"Cookie": f"understudy-{port}={cookie}"} if cookie else {})
    reply = link.getresponse()
    reply.text = reply.read().decode()  # type: ignore[attr-defined]
    link.close()
    return reply


@pytest.mark.parametrize("path", (*PATHS, "/other", "/?token=", "/?token=correct"))
@pytest.mark.parametrize("cookie", (None, "", TOKEN[:-1], TOKEN + "x"))
def test_nobody_looks_without_the_token(port: int, path: str, cookie: str | None) -> None:
    reply = ask(port, path, cookie)
    assert reply.status == 403 and "heart" not in reply.text and TOKEN not in reply.text


def test_tokens_are_compared_in_constant_time(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By hmac alone: where it says no, the right token does not help."""
    monkeypatch.setattr(console.hmac, "compare_digest", lambda a, b: False)
    assert ask(port, "/").status == 403


def test_the_address_leaves_a_cookie_and_no_token_behind(port: int) -> None:
    reply = ask(port, f"/?token={TOKEN}", None)
    kept = reply.headers["Set-Cookie"]
    assert reply.status == 303 and reply.headers["Location"] == "/"
    assert kept.startswith(f"understudy-{port}={TOKEN}; ")
    assert "HttpOnly" in kept and "SameSite=Strict" in kept


@pytest.mark.parametrize("path", (*PATHS, "/other"))
def test_every_reply_has_strict_headers(port: int, path: str) -> None:
    reply = ask(port, path)
    assert reply.status == (404 if path == "/other" else 200)
    policy = reply.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ") and "unsafe" not in policy
    assert "http" not in policy and "*" not in policy
    assert reply.headers["Cache-Control"] == "no-store"
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    assert reply.headers["Referrer-Policy"] == "no-referrer"
    assert reply.headers["Server"] == "Understudy"


def test_the_page_names_nothing_outside_this_machine(port: int) -> None:
    for path in PATHS[:3]:
        assert not re.search(r"https?:|//[a-z]", ask(port, path).text.replace("/* ", ""))


@pytest.mark.parametrize("method", ("POST", "PUT", "DELETE", "OPTIONS"))
def test_the_page_only_reads(port: int, method: str) -> None:
    assert ask(port, "/status.json", method=method).status == 501


@pytest.mark.parametrize("path", ("/../status.json", "/..%2fkeys.json", "/page/index.html", "//x"))
def test_there_are_no_other_files(port: int, path: str) -> None:
    assert ask(port, path).status == 404


def test_the_status_is_told_with_rows_of_the_generator(port: int, folder: Path) -> None:
    (folder / "rows.csv").write_text("age,sick\n" + f"40,{'x' * 200}\n" * 20)
    Status("heart", 5, (SiteStatus("north"),), sample="rows.csv").write(folder)
    told = json.loads(ask(port, "/status.json").text)
    assert told["status"]["study"] == "heart" and told["now"] > 1e9
    assert told["sample"]["columns"] == ["age", "sick"]
    assert len(told["sample"]["rows"]) == 12 and told["sample"]["rows"][0][1] == "x" * 60


@pytest.mark.parametrize("name", ("", "../rows.csv", "/etc/passwd", "rows.png", "absent.csv"))
def test_no_other_file_is_taken_for_a_sample(folder: Path, port: int, name: str) -> None:
    (folder.parent / "rows.csv").write_text("a\n1\n")
    Status("heart", 5, (SiteStatus("north"),), sample=name).write(folder)
    assert json.loads(ask(port, "/status.json").text)["sample"] is None


def test_a_damaged_status_is_said_and_forgotten_when_it_is_mended(port: int, folder: Path) -> None:
    whole = (folder / FILE).read_text()
    (folder / FILE).write_text("{")
    assert ask(port, "/status.json").status == 503
    (folder / FILE).write_text(whole)
    assert ask(port, "/status.json").status == 200
    assert ask(port, "/", method="HEAD").text == ""


def test_a_port_in_use_and_a_weak_token_are_refused(port: int, folder: Path) -> None:
    with pytest.raises(OutputError, match=r"choose another --console PORT"):
        open_console(folder, port, TOKEN)
    with pytest.raises(OutputError, match="a free port"):
        open_console(folder, 70_000, TOKEN)
    for token in ("short", "with spaces in it, and signs", "line\r\nSet-Cookie: x"):
        with pytest.raises(UnderstudyError, match="a token of 16 or more"):
            open_console(folder, 0, token)


def test_a_console_makes_its_own_token_and_listens_here_alone(folder: Path) -> None:
    url = start(folder, 0)
    found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\?token=([\w-]{32})", url)
    assert found and ask(int(found[1]), "/", found[2]).status == 200
    assert start(folder, 0).split("=")[1] != found[2]


def test_an_address_of_six_is_in_brackets(folder: Path) -> None:
    try:
        server = open_console(folder, 0, TOKEN, "::1")
    except OutputError:
        pytest.skip("no IPv6 here")
    assert address(server, TOKEN).startswith("http://[::1]:")
    server.server_close()


def test_serve_prints_the_address_if_it_is_asked_for_a_page(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    show_page(folder, None)
    assert capsys.readouterr().out == ""
    show_page(folder, 0)
    found = re.search(r"http://127\.0\.0\.1:(\d+)/\?token=(\S+)", capsys.readouterr().out)
    assert found and ask(int(found[1]), "/status.json", found[2]).status == 200
