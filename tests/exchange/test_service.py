"""The way of a generator through the exchange, and everything that is turned away."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from fastapi.testclient import TestClient

from exchange.conftest import Join
from exchange.parties import Here, Party, opened, policy
from understudy.exchange.auditlog import read_chain
from understudy.exchange.context import Exchange
from understudy.exchange.integrity import inspect
from understudy.exchange.rates import Rates
from understudy.exchange.refusal import Refused
from understudy.exchange.service import application
from understudy.exchange.signing import WINDOW, sign
from understudy.release.archive import save
from understudy.release.bundle import Release
from understudy.release.manifest import seal_manifest


def actions(exchange: Exchange) -> list[tuple[str, str]]:
    with exchange.database.reading() as session:
        return [(entry.actor, entry.action) for entry in read_chain(session)]


def sound(exchange: Exchange) -> bool:
    return inspect(exchange.database, exchange.blobs).faults == ()


def test_a_generator_is_pushed_approved_and_pulled(
    exchange: Exchange, join: Join, pushed: dict[str, Path], tmp_path: Path
) -> None:
    north, south, mara = join("north"), join("south"), join("mara", "steward")
    push = north.push(pushed["one"])
    assert push["state"] == "pending" and push["epsilon"] < 0.5
    assert south.send("GET", "/releases").json() == []
    assert [each["id"] for each in mara.send("GET", "/queue").json()] == [push["id"]]
    assert (
        south.send("POST", f"/pushes/{push['id']}/decision", {"approve": True}).status_code == 403
    )
    assert mara.send("POST", f"/pushes/{push['id']}/decision", {"approve": True}).status_code == 200

    (listed,) = south.send("GET", "/releases?sort=epsilon").json()
    assert (listed["member"], listed["unit"], listed["recipe"]) == ("north", "record", "fedmoments")
    assert listed["preview"]["kind"] == "table" and len(listed["preview"]["rows"]) == 6
    refused = south.send("GET", f"/releases/{push['id']}/file")
    assert refused.status_code == 403 and "push" in refused.json()["error"]["do"]
    assert actions(exchange)[-1] == ("south", "refused")

    second = south.push(pushed["two"])
    mara.send("POST", f"/pushes/{second['id']}/decision", {"approve": True})
    whole = south.send("GET", f"/releases/{push['id']}/file")
    assert whole.content == pushed["one"].read_bytes()
    part = south.web.get(
        f"/api/v1/releases/{push['id']}/file",
        headers={
            "Authorization": south.stamp("GET", f"/api/v1/releases/{push['id']}/file").header,
            "Range": "bytes=100-",
        },
    )
    assert part.status_code == 206 and part.content == whole.content[100:]
    (tmp_path / "got.zip").write_bytes(whole.content)
    assert len(Release.load(tmp_path / "got.zip").sample(10)) == 10

    detail = south.send("GET", f"/releases/{push['id']}").json()
    assert [each["member"] for each in detail["pulled_by"]] == ["south"]
    assert "ε" in detail["claims"][0] and detail["card"].startswith("#")
    assert actions(exchange)[-1] == ("south", "pull")
    assert sound(exchange)


def test_the_cap_holds_for_all_pushes_of_the_same_data(
    exchange: Exchange, join: Join, pushed: dict[str, Path]
) -> None:
    north, mara = join("north"), join("mara", "steward")
    assert north.push(pushed["dear"])["reason"]["found"].startswith("ε = 3")
    first = north.push(pushed["one"], "ward-a")
    mara.send("POST", f"/pushes/{first['id']}/decision", {"approve": False, "why": "odd"})
    second = north.push(pushed["two"], "ward-a")  # what was rejected was seen: it counts
    assert second["state"] == "pending"
    assert first["epsilon"] < second["together"] < 2 * first["epsilon"]  # composed, not added
    third = north.push(pushed["three"], "ward-a")
    assert third["state"] == "refused" and "2 earlier push" in third["reason"]["found"]
    assert north.push(pushed["three"], "ward-b")["state"] == "pending"
    (ward_a, _) = north.send("GET", "/me").json()["budgets"]
    assert ward_a["epsilon"] == second["together"] and len(ward_a["steps"]) == 2
    assert sound(exchange)


def test_a_dataset_under_another_case_is_the_same_data(join: Join, pushed: dict[str, Path]) -> None:
    north = join("north")
    first = north.push(pushed["one"], "Ward-A")
    second = north.push(pushed["two"], "ward-a")
    assert first["dataset"] == second["dataset"] == "ward-a"
    assert second["together"] > first["together"]
    assert north.push(pushed["three"], "WARD-A")["state"] == "refused"


def test_nobody_approves_a_push_of_its_own(join: Join, pushed: dict[str, Path]) -> None:
    mara, omar, chief = join("mara", "steward"), join("omar", "steward"), join("chief", "admin")
    for party, name in ((mara, "one"), (chief, "two")):
        way = f"/pushes/{party.push(pushed[name])['id']}"
        refused = party.send("POST", f"{way}/decision", {"approve": True})
        assert refused.status_code == 403 and "another" in refused.json()["error"]["expected"]
        assert party.send("GET", way).json()["state"] == "pending"
        assert omar.send("POST", f"{way}/decision", {"approve": True}).status_code == 200
    third = mara.push(pushed["three"], "other")["id"]  # taking it back harms nobody
    assert mara.send("POST", f"/pushes/{third}/decision", {"approve": False}).status_code == 200


def test_the_page_offers_stewards_no_button_for_their_own(
    join: Join, web: TestClient, pushed: dict[str, Path]
) -> None:
    mara, omar = join("mara", "steward"), join("omar", "steward")
    id = mara.push(pushed["one"])["id"]
    for party, buttons in ((mara, 0), (omar, 1)):
        web.get(party.send("POST", "/sessions").json()["path"])
        for path in ("/queue", f"/releases/{id}"):
            page = web.get(path).text
            assert page.count('value="approve"') == buttons
            assert ("Another steward decides" in page) == (not buttons)


def test_a_sample_that_nobody_can_draw_again_is_refused(
    join: Join, pushed: dict[str, Path], tmp_path: Path
) -> None:
    """It could be anybody's rows: a release may say that other versions made it."""
    made = Release.load(pushed["one"])
    files = dict(replace(made, versions={**made.versions, "numpy": "0.0"}).files())
    frame = made.sample(20, seed=99).frame
    frame.to_parquet(tmp_path / "others.parquet", index=False)
    files["sample.parquet"] = (tmp_path / "others.parquet").read_bytes()
    manifest = json.loads(files["release.json"])
    digest = hashlib.sha256(files["sample.parquet"]).hexdigest()
    manifest["files"]["sample.parquet"] = digest
    save({**files, "release.json": seal_manifest(manifest)}, tmp_path / "forged.zip")
    push = join("north").push(tmp_path / "forged.zip")
    assert push["state"] == "refused" and "cannot be compared" in push["reason"]["found"]


def test_an_upload_goes_on_where_it_was_cut(join: Join, pushed: dict[str, Path]) -> None:
    north, data = join("north"), pushed["one"].read_bytes()
    told = {"dataset": "main", "sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    push = north.send("POST", "/pushes", told).json()
    way = f"/pushes/{push['id']}"
    assert north.send("PUT", f"{way}/bytes?offset=0", data[:999]).json() == {"received": 999}
    again = north.send("PUT", f"{way}/bytes?offset=0", data[:999])
    assert again.status_code == 409 and "999" in again.json()["error"]["expected"]
    assert north.send("POST", f"{way}/finish").status_code == 409
    assert north.send("POST", "/pushes", told).json()["received"] == 999
    assert north.push(pushed["one"])["state"] == "pending"


def test_oversized_truncated_and_altered_uploads_are_refused(
    exchange: Exchange, join: Join, pushed: dict[str, Path], tmp_path: Path
) -> None:
    north, data = join("north"), pushed["one"].read_bytes()
    big = {"dataset": "main", "sha256": "0" * 64, "size": exchange.policy.most_bytes + 1}
    assert north.send("POST", "/pushes", big).status_code == 413
    told = {"dataset": "main", "sha256": "1" * 64, "size": len(data)}
    push = north.send("POST", "/pushes", told).json()
    assert north.send("PUT", f"/pushes/{push['id']}/bytes?offset=0", data + b"x").status_code == 413
    assert (
        north.send("PUT", f"/pushes/{push['id']}/bytes?offset=0", b"x" * (2 << 20)).status_code
        == 413
    )
    north.send("PUT", f"/pushes/{push['id']}/bytes?offset=0", data)
    done = north.send("POST", f"/pushes/{push['id']}/finish").json()
    assert done["state"] == "refused" and done["reason"]["found"] == "others"
    (tmp_path / "cut.zip").write_bytes(data[:-50])
    assert north.push(tmp_path / "cut.zip")["state"] == "refused"
    assert list(exchange.blobs.uploads()) == [] and list(exchange.blobs.kept()) == []
    assert actions(exchange).count(("north", "push refused")) == 2
    assert actions(exchange).count(("north", "refused")) == 2
    assert sound(exchange)


def test_a_body_larger_than_a_piece_is_refused_and_logged(exchange: Exchange, join: Join) -> None:
    north = join("north")
    told = {"dataset": "main", "sha256": "1" * 64, "size": 4 << 20}
    push = north.send("POST", "/pushes", told).json()
    way = f"/pushes/{push['id']}/bytes?offset=0"
    answer = north.send("PUT", way, b"x" * (2 << 20))
    assert answer.status_code == 413 and "1,048,576 bytes" in answer.json()["error"]["expected"]
    assert actions(exchange)[-1] == ("a stranger", "refused")  # no signature was looked at
    answer = north.send("POST", "/pushes", {**told, "dataset": "x" * (1 << 17)})
    assert answer.status_code == 413 and "65,536 bytes" in answer.json()["error"]["expected"]
    assert exchange.blobs.received(push["id"]) == 0 and sound(exchange)


def test_two_pushes_that_are_checked_at_once_do_not_both_spend_what_is_left(
    exchange: Exchange, join: Join, pushed: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    north, met, meeting = join("north"), [0, 0], Barrier(2)
    assert north.push(pushed["one"])["state"] == "pending"
    check = Here.check

    def at_once(self: Here, job: Any) -> dict[str, Any]:
        found = check(self, job)
        met[0] += 1
        if met[0] <= 2:  # each has seen one earlier push; the slower one has to look again
            meeting.wait(30)
        return found

    monkeypatch.setattr(Here, "check", at_once)
    with monkeypatch.context() as patch:
        patch.setattr(Party, "settled", lambda self, id: {"id": id})
        ids = [north.push(pushed[name])["id"] for name in ("two", "three")]
    states = sorted(north.settled(id)["state"] for id in ids)
    assert states == ["pending", "refused"] and sound(exchange)
    assert north.send("GET", "/me").json()["budgets"][0]["epsilon"] <= 0.8


def unsigned(north: Party) -> Any:
    return north.web.get("/api/v1/releases")


def replayed(north: Party) -> Any:
    stamp = north.stamp("GET", "/api/v1/releases")
    assert north.send("GET", "/releases", stamp=stamp).status_code == 200
    return north.send("GET", "/releases", stamp=stamp)


def late(north: Party) -> Any:
    stamp = replace(north.stamp("GET", "/api/v1/releases"), time=int(time.time()) - WINDOW - 5)
    statement = stamp.statement(north.id, "GET", "/api/v1/releases", b"")
    return north.send(
        "GET", "/releases", stamp=replace(stamp, signature=north.key.sign(statement).hex())
    )


def other_path(north: Party) -> Any:
    return north.send("GET", "/me", stamp=north.stamp("GET", "/api/v1/releases"))


def other_body(north: Party) -> Any:
    stamp = north.stamp("POST", "/api/v1/invitations", b'{"role": "member"}')
    return north.send("POST", "/invitations", {"role": "admin"}, stamp=stamp)


def other_exchange(north: Party) -> Any:
    stamp = sign(north.key, north.name, "0" * 32, "GET", "/api/v1/releases")
    return north.send("GET", "/releases", stamp=stamp)


def unknown(north: Party) -> Any:
    return Party(north.web, north.exchange, "nobody").send("GET", "/releases")


def borrowed_name(north: Party) -> Any:
    return Party(north.web, north.exchange, "north").send("GET", "/releases")


@pytest.mark.parametrize(
    "ask",
    [unsigned, replayed, late, other_path, other_body, other_exchange, unknown, borrowed_name],
    ids=lambda ask: ask.__name__,
)
def test_what_is_not_signed_for_this_request_is_refused_and_logged(
    exchange: Exchange, join: Join, ask: Any
) -> None:
    answer = ask(join("north"))
    assert answer.status_code == 401
    assert answer.json()["error"].keys() == {"expected", "found", "do"}
    assert actions(exchange)[-1][1] == "refused"


def test_a_revoked_member_is_turned_away(exchange: Exchange, join: Join) -> None:
    north, chief = join("north"), join("chief", "admin")
    assert north.send("POST", "/members/north/revoke").status_code == 403
    assert chief.send("POST", "/members/north/revoke").status_code == 200
    assert north.send("GET", "/releases").status_code == 403
    last = chief.send("POST", "/members/chief/revoke")
    assert last.status_code == 409 and "last" in last.json()["error"]["found"]


def test_a_code_is_good_for_one_person(web: TestClient, exchange: Exchange, join: Join) -> None:
    chief = join("chief", "admin")
    code = chief.send("POST", "/invitations", {"role": "member"}).json()["code"]
    north, south = Party(web, exchange, "north"), Party(web, exchange, "south")
    for party, status in ((north, 201), (south, 403)):
        asked = {"identity": party.identity, "code": code}
        assert party.send("POST", "/members", asked).status_code == status
    assert chief.send("POST", "/invitations", {"role": "king"}).status_code == 422
    code = chief.send("POST", "/invitations", {"role": "member"}).json()["code"]
    twin = Party(web, exchange, "North")  # who reads the pool could not tell them apart
    asked = {"identity": twin.identity, "code": code}
    assert twin.send("POST", "/members", asked).status_code == 409
    stolen = {"identity": north.identity, "code": code}  # somebody else's key
    assert south.send("POST", "/members", stolen).status_code == 401


def test_too_many_requests_are_told_to_wait(tmp_path: Path) -> None:
    exchange = opened(policy(tmp_path, limits={"strangers": 12}))  # three, then one in 5 s
    with TestClient(application(exchange)) as web:
        answers = [web.get("/api/v1/releases") for _ in range(30)]
        assert [answer.status_code for answer in answers[:3]] == [401] * 3
        waits = [a.headers["Retry-After"] for a in answers if a.status_code == 429]
        assert len(waits) > 10 and set(map(int, waits)) <= set(range(1, 6))
        told = len(actions(exchange))
        assert told == len(answers) - len(waits)  # a flood does not fill the log


def test_a_rate_is_for_each_name_and_comes_back_with_time() -> None:
    rates = Rates(minute=60)
    for _ in range(15):
        rates.take("north", now=0.0)
    with pytest.raises(Refused) as refusal:
        rates.take("north", now=0.0)
    assert refusal.value.wait == 1
    rates.take("south", now=0.0)
    rates.take("north", now=1.0)


def test_a_stranger_uses_up_no_requests_of_the_member_it_names(
    exchange: Exchange, web: TestClient, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    join("north")
    counted: list[str] = []
    monkeypatch.setattr(exchange.members, "take", counted.append)
    stranger = Party(web, exchange, "north")  # with a key of its own
    asked = {"identity": stranger.identity, "code": "0" * 32}
    assert stranger.send("POST", "/members", asked).status_code == 403
    assert counted == [] and actions(exchange)[-1] == ("a stranger", "refused")


def test_pages_need_a_link_that_works_once(join: Join, web: TestClient) -> None:
    north = join("north")
    assert web.get("/").status_code == 401
    path = north.send("POST", "/sessions").json()["path"]
    entered = web.get(path)
    cookie = entered.headers["set-cookie"]
    assert (
        entered.status_code == 303 and "HttpOnly" in cookie and "samesite=strict" in cookie.lower()
    )
    page = web.get("/")
    assert page.status_code == 200 and "north, member" in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert web.get("/queue").status_code == 403
    web.cookies.clear()
    assert web.get(path).status_code == 403


def test_a_steward_decides_on_the_page_and_forms_of_others_do_not(
    join: Join, web: TestClient, exchange: Exchange, pushed: dict[str, Path]
) -> None:
    north, mara = join("north"), join("mara", "steward")
    push = north.push(pushed["one"])
    web.get(mara.send("POST", "/sessions").json()["path"])
    page = web.get("/queue").text
    assert "Before you approve" in page and f"/releases/{push['id']}/decision" in page
    way = f"/releases/{push['id']}/decision"
    assert web.post(way, data={"verdict": "approve"}).status_code == 403
    csrf = page.split('name="csrf" value="')[1].split('"')[0]
    crossed = web.post(
        way, data={"verdict": "approve", "csrf": csrf}, headers={"sec-fetch-site": "cross-site"}
    )
    assert crossed.status_code == 403
    assert web.post(way, data={"verdict": "approve", "csrf": csrf}).status_code == 303
    for path in ("/", f"/releases/{push['id']}", "/me", "/members", "/api", "/static/exchange.css"):
        answer = web.get(path)
        assert answer.status_code == 200 and "https://" not in answer.text.replace("https://…", "")
    assert web.post("/leave", data={"csrf": csrf}).status_code == 303
    assert actions(exchange)[-1] == ("mara", "sign out")
    assert web.get("/").status_code == 401


def test_an_owner_withdraws_and_nothing_stays_behind(
    exchange: Exchange, join: Join, pushed: dict[str, Path]
) -> None:
    north, south = join("north"), join("south")
    push = north.push(pushed["one"])
    assert south.send("POST", f"/pushes/{push['id']}/withdraw").status_code == 404
    assert north.send("POST", f"/pushes/{push['id']}/withdraw").json()["state"] == "withdrawn"
    assert list(exchange.blobs.kept()) == []
    assert north.send("GET", "/me").json()["budgets"][0]["epsilon"] > 0.4  # it stays spent
    assert sound(exchange)
