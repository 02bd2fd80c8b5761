"""Members that sign requests to an application in this process, and small releases to push."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fastapi.testclient import TestClient

from contracts.toys import plain, records
from understudy import Records, Study, run
from understudy.exchange.context import Exchange
from understudy.exchange.members import OPERATOR, exchange_id, invite
from understudy.exchange.policy import Policy
from understudy.exchange.signing import Stamp, sign
from understudy.exchange.worker import Job, Worker, _checked
from understudy.simulation.verification import verify

PIECE = 30_000
ABOUT = {"name": "toys", "schema": "schema.toml", "licence": "for tests"}


def policy(folder: Path, **tables: Mapping[str, Any]) -> Policy:
    """An exchange of the toys' table."""
    folder.mkdir(exist_ok=True, parents=True)
    (folder / "schema.toml").write_text(plain().to_toml(), "utf-8")
    about = {**ABOUT, **tables.pop("exchange", {})}
    return Policy.parse({"exchange": about, **tables}, folder)


def ward(n: int, seed: int) -> Records:
    """Toys whose tall ones are ill: what generators learn of them, a student can be asked about."""
    found = records(n, seed, plain())
    assert found.frame is not None
    ill = np.where(found.frame["height"] > 1, "yes", "no")
    return replace(found, frame=found.frame.assign(ill=ill))


class Here(Worker):
    """The same checks, in this process: `test_worker` has those of the process around them."""

    def check(self, job: Job) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(json.dumps(_checked(job, self)))
        return found

    def warm(self) -> None:
        pass


def opened(asked: Policy) -> Exchange:
    """Its store, tables and queue."""
    return Exchange.open(asked, Here(verify, 60, 2.0))


def release(
    path: Path, epsilon: float = 0.5, rows: int = 20, seed: int = 0, **changes: Any
) -> Path:
    """A generator of the toys' table, made by one site for itself."""
    privacy = {"trust": "local", "unit": "record", "epsilon": epsilon, **changes}
    tables = {
        "study": {"name": path.stem, "recipe": "fedmoments"},
        "privacy": privacy,
        "simulation": {"data": "-", "sites": 1},
    }
    run(Study.parse(tables, schema=plain()), [ward(500, seed)], out=path, rows=rows)
    return path


@dataclass
class Party:
    """A member with its key, in front of an application."""

    web: TestClient
    exchange: Exchange
    name: str
    key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)

    @property
    def identity(self) -> str:
        return self.key.public_key().public_bytes_raw().hex()

    @property
    def id(self) -> str:
        with self.exchange.database.reading() as session:
            return exchange_id(session)

    def stamp(self, method: str, path: str, body: bytes = b"") -> Stamp:
        return sign(self.key, self.name, self.id, method, path, body)

    def send(self, method: str, path: str, body: Any = None, stamp: Stamp | None = None) -> Any:
        """A signed request; ``body`` is bytes, or becomes JSON."""
        path = f"/api/v1{path}"
        data = (
            body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        )
        headers = {"Authorization": (stamp or self.stamp(method, path, data)).header}
        if data and not isinstance(body, bytes):
            headers["Content-Type"] = "application/json"
        return self.web.request(method, path, content=data, headers=headers)

    def join(self, role: str = "member") -> Party:
        with self.exchange.database.writing() as session:
            code, _ = invite(session, OPERATOR, role)
        answer = self.send("POST", "/members", {"identity": self.identity, "code": code})
        assert answer.status_code == 201, answer.text
        return self

    def push(self, path: Path, dataset: str = "main") -> dict[str, Any]:
        """All the way to the end of the checks; the push as the service tells of it."""
        data = path.read_bytes()
        told = {"dataset": dataset, "sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
        answer = self.send("POST", "/pushes", told)
        if answer.status_code != 201:
            return {"state": "refused", "reason": answer.json()["error"]}
        push = answer.json()
        for offset in range(push["received"], len(data), PIECE):
            piece = data[offset : offset + PIECE]
            taken = self.send("PUT", f"/pushes/{push['id']}/bytes?offset={offset}", piece)
            assert taken.status_code == 200, taken.text
        self.send("POST", f"/pushes/{push['id']}/finish")
        return self.settled(push["id"])

    def settled(self, id: str) -> dict[str, Any]:
        for _ in range(600):
            push: dict[str, Any] = self.send("GET", f"/pushes/{id}").json()
            if push["state"] not in ("uploading", "checking"):
                return push
            time.sleep(0.1)
        raise AssertionError(f"push {id} is still {push['state']}")
