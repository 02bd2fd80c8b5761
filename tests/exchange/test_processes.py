"""A service as a process, members as commands: SQLite, PostgreSQL, TLS, and services that die."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pandas as pd
import pytest

from exchange.parties import policy, release
from exchange.processes import Cluster, Service, command, free_port, postgres, served
from understudy.errors import ExchangeError
from understudy.exchange.client import Client, Site
from understudy.exchange.policy import DATABASE_VARIABLE
from understudy.exchange.serving import Address

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SETTINGS = """[exchange]
name = "toys"
schema = "schema.toml"

[requirements]
epsilon = 1.0
"""


def settings(folder: Path) -> Path:
    policy(folder)  # its schema
    (folder / "exchange.toml").write_text(SETTINGS, "utf-8")
    return folder / "exchange.toml"


@pytest.fixture(params=["sqlite", "postgresql"])
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    if request.param == "sqlite":
        with served(Service(settings(tmp_path / "hub"))) as found:
            yield found
        return
    with postgres(tmp_path / "pg") as cluster:
        env = {DATABASE_VARIABLE: cluster.url}
        with served(Service(settings(tmp_path / "hub"), env)) as found:
            yield found


def exchange(*words: Any) -> Any:
    return command("exchange", *map(str, words))


def test_three_members_subscribe_push_and_pull(service: Service, tmp_path: Path) -> None:
    names = ("north", "south", "west")
    members = {name: service.join(name) for name in names}
    mara = service.join("mara", "steward")
    for i, (name, keys) in enumerate(members.items()):
        path = release(tmp_path / f"{name}.zip", seed=i)
        push = exchange("push", path, "--keys", keys, "--data", "ward")["push"]
        assert push["state"] == "pending"
        assert not exchange("pull", "--keys", keys, "-o", tmp_path / "no.csv")["ok"]
    for waiting in exchange("queue", "--keys", mara)["releases"]:
        assert exchange("approve", waiting["id"], "--keys", mara)["push"]["state"] == "accepted"
    for name, keys in members.items():
        assert len(exchange("list", "--keys", keys, "--sort", "epsilon")["releases"]) == 3
        out, folder = tmp_path / f"{name}.csv", tmp_path / f"{name}-pulled"
        made = exchange("pull", "--keys", keys, "-n", 400, "-o", out, "--folder", folder)
        assert len(made["from"]) == 2 and made["rows"] == 400
        rows = pd.read_csv(out)
        assert len(rows) == 400 and rows["ill"].value_counts().to_list() == [200, 200]
    shown = exchange("show", waiting["id"], "--keys", mara)
    assert len(shown["pulled_by"]) == 2
    again = exchange("push", tmp_path / "north.zip", "--keys", members["north"])
    assert not again["ok"] and "not here yet" in again["error"]["expected"]
    own = exchange("list", "--own", "--keys", members["north"])
    assert own["me"]["budgets"][0]["dataset"] == "ward" and len(own["pushes"]) == 1
    found = service.check()
    assert found["releases"] == 3 and found["entries"] > 15


def test_a_service_killed_during_pushes_keeps_no_half_of_any(
    service: Service, tmp_path: Path
) -> None:
    keys = service.join("north")
    client = Client.load(keys)
    paths = [release(tmp_path / f"r{i}.zip", 0.2, seed=i) for i in range(4)]
    results: list[Any] = []

    def push(path: Path, dataset: str) -> None:
        results.append(client.push(path, dataset))

    pushing = [Thread(target=push, args=(p, f"d{i}")) for i, p in enumerate(paths)]
    for each in pushing:
        each.start()
    for pause in (0.4, 1.2, 2.5):  # while bytes come in, and while they are checked
        time.sleep(pause)
        service.kill()
        assert service.check()["ok"]
        service.start()
    for each in pushing:
        each.join(240)
    assert [result["state"] for result in results] == ["pending"] * 4
    assert service.check()["releases"] == 4
    assert list((service.settings.parent / "store" / "uploads").iterdir()) == []


def test_a_database_that_is_gone_for_a_while_is_waited_for(tmp_path: Path) -> None:
    with postgres(tmp_path / "pg") as cluster:
        env = {DATABASE_VARIABLE: cluster.url}
        with served(Service(settings(tmp_path / "hub"), env)) as service:
            keys = service.join("north")
            path = release(tmp_path / "one.zip")
            _gone(cluster, service, keys)
            back = Thread(target=lambda: (time.sleep(6), cluster.start()))
            back.start()
            assert Client.load(keys).push(path)["state"] == "pending"  # it asks again until then
            back.join()
            assert service.check()["releases"] == 1


def _gone(cluster: Cluster, service: Service, keys: Path) -> None:
    cluster.stop()
    link = Client.load(keys).link
    answer = link._once("GET", "/api/v1/releases", b"", {}, True)
    assert answer.status == 503 and answer.wait == 5
    assert "cannot be reached" in answer.json["error"]["found"]
    assert service.process is not None and service.process.poll() is None


def test_members_reach_it_over_tls_and_trust_its_authority_alone(tmp_path: Path) -> None:
    command("keys", "init", str(tmp_path / "hub-keys"), "--name", "hub", "--host", "localhost")
    folder = tmp_path / "hub-keys"
    words = ("--cert", str(folder / "tls.pem"), "--key", str(folder / "tls.key"))
    with served(Service(settings(tmp_path / "hub"), words=words)) as service:
        keys = service.join("north", "member", "--ca", str(folder / "ca.pem"))
        assert Client.load(keys).me()["role"] == "member"
        with pytest.raises(ExchangeError, match="certificate"):
            Client.subscribe(Site(service.url), keys, "0" * 32)


def test_it_listens_in_the_clear_to_this_machine_alone(tmp_path: Path) -> None:
    Address("127.0.0.1", 0).check()
    Address("0.0.0.0", 0, insecure=True).check()
    with pytest.raises(ExchangeError, match="clear"):
        Address("0.0.0.0", 0).check()
    with pytest.raises(ExchangeError, match="clear"):
        Site("http://hub.example:8703")
    words = ["exchange", "serve", str(settings(tmp_path)), "--host", "0.0.0.0", "--port", "0"]
    done = subprocess.run(
        [sys.executable, "-m", "understudy", *words], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 12 and "--insecure" in done.stderr


def test_an_exchange_that_is_not_there_is_named(tmp_path: Path) -> None:
    keys = tmp_path / "north"
    command("keys", "request", str(keys), "--name", "north")
    with pytest.raises(ExchangeError, match="subscribe"):
        Client.load(keys)
    told = {"server": f"http://localhost:{free_port()}", "ca": "", "insecure": False}
    (keys / "exchange.json").write_text(json.dumps({**told, "exchange": "0" * 32}))
    with pytest.raises(ExchangeError, match="an exchange at"):
        Client.load(keys).me()
