"""What people type, against a service on a port of this machine."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import uvicorn
from typer.testing import CliRunner

from contracts.toys import plain
from exchange.parties import opened, policy, ward
from understudy.cli import app
from understudy.data.table import write
from understudy.errors import ExchangeError
from understudy.exchange.connection import Site, seconds
from understudy.exchange.service import application

pytestmark = pytest.mark.usefixtures("wide")
SETTINGS = '[exchange]\nname = "toys"\nschema = "schema.toml"\n'


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables with room for all their columns."""
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[str]:
    """The address of a service whose file is ``exchange.toml`` in the test's folder."""
    exchange = opened(policy(tmp_path))
    (tmp_path / "exchange.toml").write_text(SETTINGS, "utf-8")
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(application(exchange), log_level="error"))
    thread = Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://localhost:{listening.getsockname()[1]}"
    server.should_exit = True
    thread.join()
    listening.close()


def run(*words: Any, code: int = 0) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == code, done.output
    return done.output


def told(*words: Any, code: int = 0) -> Any:
    return json.loads(run("exchange", *words, "--json", code=code))


def joined(folder: Path, url: str, name: str, role: str = "member") -> Path:
    run("keys", "request", folder / name, "--name", name)
    code = told("invite", folder / "exchange.toml", "--role", role)["code"]
    said = run("exchange", "subscribe", url, "--keys", folder / name, "--code", code)
    assert "is a member of toys" in said and "ε ≤ 1.5" in said
    return folder / name


def test_members_give_and_take_by_commands(
    hub: str, tmp_path: Path, pushed: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    north, south = joined(tmp_path, hub, "north"), joined(tmp_path, hub, "south")
    chief = joined(tmp_path, hub, "chief", "admin")
    run("exchange", "requirements", "--keys", north, "--schema", "asked.toml")
    assert Path("asked.toml").read_text("utf-8") == plain().to_toml()
    assert "ε = 0.5 is spent on ward" in run(
        "exchange", "push", pushed["one"], "--keys", north, "--data", "ward", "-q"
    )
    second = told("push", pushed["two"], "--keys", south)["push"]["id"]
    dear = told("push", pushed["dear"], "--keys", south, code=12)
    assert "ε = 3" in dear["error"]["found"]
    for waiting in told("queue", "--keys", chief)["releases"]:
        assert waiting["id"] in run("exchange", "queue", "--keys", chief)
        run("exchange", "approve", waiting["id"], "--keys", chief)
    assert second in run("exchange", "list", "--keys", north, "--sort", "epsilon")
    assert "refused" in run("exchange", "list", "--own", "--keys", south)
    assert "recomputed" in run("exchange", "show", second, "--keys", north)
    write(ward(80, 3), tmp_path / "own.csv")
    run(
        "exchange", "pull", "--keys", north, "-n", 90, "-o", "rows.csv", "--screen", "own.csv",
        "--seed", 0, "-q",
    )  # fmt: skip
    assert pd.read_csv("rows.csv")["ill"].value_counts().to_list() == [45, 45]
    sources = json.loads(Path("rows.csv.sources.json").read_text("utf-8"))
    assert list(sources["from"]) == [second] and len(sources["screened"]) == 1
    assert "expected a new file" in run(
        "exchange", "pull", "--keys", north, "-o", "rows.csv", code=9
    )
    assert "2 releases" in run("exchange", "check", "exchange.toml")


def test_a_pull_goes_on_where_it_was_cut(
    hub: str, tmp_path: Path, pushed: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    north, chief = joined(tmp_path, hub, "north"), joined(tmp_path, hub, "chief", "admin")
    id = told("push", pushed["one"], "--keys", north)["push"]["id"]
    run("exchange", "approve", id, "--keys", chief)
    data, part = pushed["one"].read_bytes(), Path("pulled", f".{id}.zip.part")
    words = ("exchange", "pull", id, "--keys", chief, "-n", 10, "-o", "rows.csv", "-q")
    part.parent.mkdir()
    part.write_bytes(bytes(1000))  # what is there is kept, so another beginning is found out
    assert "other bytes" in run(*words, code=12) and not part.exists()
    part.write_bytes(data[:1000])
    assert "an existing folder" in run(*words[:-2], "none/rows.csv", "-q", code=9)
    assert part.exists()  # nothing was fetched for it
    run(*words)
    assert Path("pulled", f"{id}.zip").read_bytes() == data and not part.exists()


def test_admins_and_stewards_have_their_commands(
    hub: str, tmp_path: Path, pushed: dict[str, Path]
) -> None:
    north, chief = joined(tmp_path, hub, "north"), joined(tmp_path, hub, "chief", "admin")
    assert len(told("invite", "--keys", chief, "--role", "steward")["code"]) == 32
    assert "the role of admin" in run("exchange", "invite", "--keys", north, code=12)
    id = told("push", pushed["one"], "--keys", north)["push"]["id"]
    run("exchange", "reject", id, "--keys", chief, "--why", "labels look odd")
    assert "labels look odd" in run("exchange", "list", "--own", "--keys", north)
    run("exchange", "role", "north", "steward", "--keys", chief)
    assert "main ε = 0.5" in " ".join(run("exchange", "members", "--keys", north).split())
    url = told("open", "--keys", north, "--no-browser")["url"]
    assert url.startswith(f"{hub}/enter?code=")
    run("exchange", "revoke", "north", "--keys", chief)
    assert "revoked" in run("exchange", "list", "--keys", north, code=12)
    assert "no such file" in run("exchange", "push", tmp_path / "none.zip", "--keys", chief, code=9)


@pytest.mark.parametrize(
    "url", ["https://hub:port", "https://hub:99999", "https://[::1", "ftp://x"]
)
def test_an_address_that_cannot_be_one_is_refused(url: str) -> None:
    with pytest.raises(ExchangeError, match="an exchange's address"):
        Site(url)


def test_a_damaged_note_of_the_exchange_is_named(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text('{"name": "north"}', "utf-8")
    (tmp_path / "exchange.json").write_text('{"server": "https://hub"}', "utf-8")
    assert "as subscribe writes it" in run("exchange", "list", "--keys", tmp_path, code=12)


@pytest.mark.parametrize(("asked", "wait"), [("7", 7), ("Wed, 21 Oct 2026 07:28:00 GMT", 1)])
def test_a_service_asks_to_wait_in_seconds_or_not_at_all(asked: str, wait: float) -> None:
    assert seconds(SimpleNamespace(headers={"Retry-After": asked})) == wait


def test_an_operator_is_told_what_is_wrong_with_database_store_and_certificate(
    tmp_path: Path,
) -> None:
    policy(tmp_path)
    settings, junk = tmp_path / "exchange.toml", tmp_path / "junk.pem"
    settings.write_text(SETTINGS, "utf-8")
    junk.write_text("no certificate", "utf-8")
    assert "no such table" in run("exchange", "check", settings, code=12)  # never served
    words = ("--port", 0, "--cert", junk, "--key", junk)
    assert "both PEM" in run("exchange", "serve", settings, *words, code=12)
    settings.write_text(f'{SETTINGS}database = "sqlite:////none/exchange.db"\n', "utf-8")
    for command in ("check", "invite", "serve"):
        assert "unable to open" in run("exchange", command, settings, code=12)
    settings.write_text(f'{SETTINGS}store = "/dev/null/store"\n', "utf-8")
    assert "to write" in run("exchange", "invite", settings, code=9)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("understudy.cli.exchange.find_spec", lambda name: None)
    for words in (("serve", tmp_path), ("check", tmp_path), ("invite", tmp_path)):
        assert "'.[exchange]'" in run("exchange", *words, code=12)
