"""One exchange of toys per test, and releases that all tests share."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the extra 'exchange' is not installed")

from fastapi.testclient import TestClient

from exchange.parties import Party, opened, policy, release
from understudy.exchange.context import Exchange
from understudy.exchange.service import application

Join = Callable[..., Party]


@pytest.fixture(scope="session")
def pushed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Releases by name: three that fit (ε = 0.5 each), and one over the cap."""
    folder = tmp_path_factory.mktemp("releases")
    epsilons = {"one": 0.5, "two": 0.5, "three": 0.5, "dear": 3.0}
    return {
        name: release(folder / f"{name}.zip", epsilon, seed=i)
        for i, (name, epsilon) in enumerate(epsilons.items())
    }


@pytest.fixture
def files(pushed: dict[str, Path]) -> dict[str, bytes]:
    """Those of a release that is fit."""
    with zipfile.ZipFile(pushed["one"]) as found:
        return {name: found.read(name) for name in found.namelist()}


@pytest.fixture
def exchange(tmp_path: Path) -> Iterator[Exchange]:
    made = opened(policy(tmp_path, requirements={"epsilon": 0.8}))
    yield made
    made.close()


@pytest.fixture
def web(exchange: Exchange) -> Iterator[TestClient]:
    with TestClient(application(exchange), follow_redirects=False) as client:
        yield client


@pytest.fixture
def join(web: TestClient, exchange: Exchange) -> Join:
    """Invites somebody, who subscribes."""
    return lambda name, role="member": Party(web, exchange, name).join(role)
