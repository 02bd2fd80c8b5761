"""A service as a process, members as commands: SQLite, PostgreSQL, TLS, and services that die."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from exchange.parties import policy, release
from exchange.processes import Service, free_port, postgres, served
from exchange.test_integrity import differences
from understudy.deployment.enrolment import make_server, make_site
from understudy.errors import ExchangeError
from understudy.exchange.auditlog import record
from understudy.exchange.client import Client, Site
from understudy.exchange.connection import Connection
from understudy.exchange.database import Database
from understudy.exchange.dataset import balanced
from understudy.exchange.policy import DATABASE_VARIABLE
from understudy.exchange.serving import Address
from understudy.rng import Streams
from understudy.simulation.verification import verify

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
    with postgres() as cluster:
        env = {DATABASE_VARIABLE: cluster.url}
        with served(Service(settings(tmp_path / "hub"), env)) as found:
            yield found


def test_three_members_subscribe_push_and_pull(service: Service, tmp_path: Path) -> None:
    members = {name: service.join(name) for name in ("north", "south", "west")}
    mara = service.join("mara", "steward")
    for i, (name, client) in enumerate(members.items()):
        assert client.push(release(tmp_path / f"{name}.zip", seed=i), "ward")["state"] == "pending"
    (first, *_) = waiting = [each["id"] for each in mara.queue()]
    mara.decide(first, True)
    with pytest.raises(ExchangeError, match="push a generator first"):
        members["west"].pull([first], tmp_path / "none", verify)
    for id in waiting[1:]:
        assert mara.decide(id, True)["state"] == "accepted"
    for name, client in members.items():
        pool = client.releases(sort="epsilon")
        assert len(pool) == 3
        others = [each["id"] for each in pool if each["member"] != name]
        pulled = client.pull(others, tmp_path / name, verify)
        made = balanced(pulled, 400, rng=Streams.from_seed(0)).records.frame
        assert made is not None and made["ill"].value_counts().to_list() == [200, 200]
        client.pull(others, tmp_path / name, verify)  # they are there already
    assert len(mara.show(first)["pulled_by"]) == 2
    with pytest.raises(ExchangeError, match="not here yet"):
        members["north"].push(tmp_path / "north.zip")
    assert members["north"].me()["budgets"][0]["dataset"] == "ward"
    log = list(mara.audit())
    assert [each["action"] for each in log].count("pull") == 6
    assert (service.check().releases, service.check().entries) == (3, len(log))


def test_postgresql_has_the_same_tables_and_keeps_the_log() -> None:
    with postgres() as cluster:
        database = Database(cluster.url)
        database.migrate()
        assert differences(database) == []
        with database.writing() as session:
            record(session, "north", "something")
        for verb in ("UPDATE audit SET actor = 'nobody'", "DELETE FROM audit", "TRUNCATE audit"):
            with pytest.raises(DBAPIError, match="append-only"), database.writing() as session:
                session.execute(text(verb))
        database.close()


def test_a_service_killed_during_pushes_keeps_no_half_of_any(
    service: Service, tmp_path: Path
) -> None:
    client, results = service.join("north"), []
    paths = [release(tmp_path / f"r{i}.zip", 0.2, seed=i) for i in range(4)]

    def push(path: Path, dataset: str) -> None:
        results.append(client.push(path, dataset))

    pushing = [Thread(target=push, args=(p, f"d{i}")) for i, p in enumerate(paths)]
    for each in pushing:
        each.start()
    for pause in (0.4, 1.2, 2.5):  # while bytes come in, and while they are checked
        time.sleep(pause)
        service.kill()
        service.check()
        service.start()
    for each in pushing:
        each.join(240)
    assert [result["state"] for result in results] == ["pending"] * 4
    assert service.check().releases == 4
    assert list((service.settings.parent / "store" / "uploads").iterdir()) == []


def test_a_database_that_is_gone_for_a_while_is_waited_for(tmp_path: Path) -> None:
    with postgres() as cluster:
        env = {DATABASE_VARIABLE: cluster.url}
        with served(Service(settings(tmp_path / "hub"), env)) as service:
            client, path = service.join("north"), release(tmp_path / "one.zip")
            cluster.stop()
            answer = client.link._once("GET", "/api/v1/releases", b"", {})
            assert answer.status == 503 and answer.wait == 5
            assert "cannot be reached" in answer.json["error"]["found"]
            back = Thread(target=lambda: (time.sleep(6), cluster.start()))
            back.start()
            assert client.push(path)["state"] == "pending"  # it asks again until then
            back.join()
            assert service.check().releases == 1


def test_members_reach_it_over_tls_and_trust_its_authority_alone(tmp_path: Path) -> None:
    folder = tmp_path / "hub-keys"
    make_server(folder, "hub", ["localhost"])
    words = ("--cert", str(folder / "tls.pem"), "--key", str(folder / "tls.key"))
    with served(Service(settings(tmp_path / "hub"), words=words)) as service:
        client = service.join("north", ca=str(folder / "ca.pem"))
        assert Client.load(client.link.folder).me()["role"] == "member"
        with pytest.raises(ExchangeError, match="certificate"):
            Client.subscribe(Site(service.url), client.link.folder, "0" * 32)


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
    make_site(keys, "north")
    with pytest.raises(ExchangeError, match="subscribe"):
        Client.load(keys)
    told = {"server": f"http://localhost:{free_port()}", "ca": "", "insecure": False}
    (keys / "exchange.json").write_text(json.dumps({**told, "exchange": "0" * 32}))
    with pytest.raises(ExchangeError, match="an exchange at"):
        Client(replace(Connection.known(keys), patience=0.1)).me()
