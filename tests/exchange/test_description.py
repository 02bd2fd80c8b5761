"""Whatever the OpenAPI description allows, and what it does not: nothing is answered by a 5xx."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exchange.conftest import Join
from exchange.parties import Party, opened, policy, release
from understudy.exchange.service import application

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
MANY = {"requests": 1_000_000, "strangers": 1_000_000, "uploads": 1000}


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Party]:
    """Somebody who may do everything, at an exchange with one release in its pool."""
    from fastapi.testclient import TestClient

    folder = tmp_path_factory.mktemp("described")
    exchange = opened(policy(folder, limits=MANY))
    with TestClient(application(exchange), raise_server_exceptions=False) as web:
        chief = Party(web, exchange, "chief").join("admin")
        spare = Party(web, exchange, "spare").join("admin")  # so that one may be revoked
        push = chief.push(release(folder / "one.zip"))
        spare.send("POST", f"/pushes/{push['id']}/decision", {"approve": True})
        yield chief


def operations(admin: Party) -> list[Any]:
    schema = schemathesis.openapi.from_dict(admin.web.get("/openapi.json").json())
    return [found.ok() for found in schema.get_all_operations()]


def sent(admin: Party, case: Any) -> int:
    """The request as generated, signed or not."""
    made = case.as_transport_kwargs(base_url="http://testserver")
    request = admin.web.build_request(
        made["method"], made["url"], params=made.get("params"), json=made.get("json"),
        content=made.get("data") if isinstance(made.get("data"), bytes) else None,
        headers={k: str(v) for k, v in (made.get("headers") or {}).items()},
    )  # fmt: skip
    target = request.url.raw_path.decode("ascii", "replace")
    stamp = admin.stamp(request.method, target, request.content)
    request.headers["Authorization"] = stamp.header
    return int(admin.web.send(request).status_code)


def test_every_call_of_the_description_answers_without_a_5xx(admin: Party) -> None:
    seen: dict[int, int] = {}
    described = operations(admin)
    assert len(described) >= 20
    for operation in described:

        @settings(max_examples=15, suppress_health_check=list(HealthCheck), deadline=None)
        @given(case=operation.as_strategy())
        def call(case: Any) -> None:
            status = sent(admin, case)
            seen[status] = seen.get(status, 0) + 1
            assert status < 500, (case.method, case.path, status)

        call()
    assert {200, 404, 422} <= seen.keys()


@settings(max_examples=60, suppress_health_check=list(HealthCheck), deadline=None)
@given(
    method=st.sampled_from(["GET", "POST", "PUT", "DELETE", "PATCH"]),
    path=st.sampled_from(["/", "/enter", "/queue", "/static/x.css", "/api/v1/me", "/releases/x"]),
    query=st.dictionaries(st.text(max_size=10), st.text(max_size=40), max_size=3),
    body=st.binary(max_size=200),
    cookie=st.text(st.characters(codec="ascii", exclude_categories=["C"]), max_size=40),
)
def test_noise_is_answered_without_a_5xx(
    admin: Party, method: str, path: str, query: dict, body: bytes, cookie: str
) -> None:
    headers = {"Cookie": f"understudy={cookie}", "Authorization": f"Understudy {cookie}"}
    answer = admin.web.request(method, path, params=query, content=body, headers=headers)
    assert answer.status_code < 500


def test_the_description_loads_nothing_and_is_served(join: Join) -> None:
    web = join("north").web
    assert web.get("/openapi.json").json()["info"]["title"] == "Understudy exchange"
    loaded = re.findall(r'(?:src|href)="([^"]*)"', web.get("/api").text)
    assert loaded and not [address for address in loaded if "//" in address]
    assert web.get("/docs").status_code == 404
