"""An exchange under load: pushes and pulls of 4 MB releases by many members at once.

    python bench/exchange.py [--quick] [--json FILE] [--database URL]

The service is a process of its own, as `understudy exchange serve` starts it, with SQLite or the
database that is named; members are threads of this process, on the same cores. Each pushes one
release of its own (most of it is the sample of 38,000 rows), all at the same time. Then every
member pulls two releases of others, all at the same time. Seconds are those that a member waits:
``sent`` until all bytes are there, ``checked`` until the checks are over, ``pulled`` until the file
is there and its hash was compared. At the end every release is in the pool, and store and database
agree, or the bench fails.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from common import arguments, provenance, save

from understudy import Study, run
from understudy.data.bundled import bundled
from understudy.deployment.enrolment import make_site
from understudy.exchange.client import Client, Site
from understudy.exchange.database import Database
from understudy.exchange.members import OPERATOR, invite
from understudy.exchange.policy import Policy
from understudy.exchange.transfer import download, upload, wait_for_checks

SETTINGS = """[exchange]
name = "bench"
schema = "schema.toml"
database = "{database}"

[limits]
strangers = 100000
requests = 100000
sample_rows = 50000
"""


def main() -> None:
    """Make releases, then measure."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--database", default="", help="postgresql://…; by default SQLite")
    options = parser.parse_args()
    members, rows, pulls = (4, 500, 8) if options.quick else (50, 38_000, 100)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        releases = [made(folder / f"member-{i}.zip", rows, i) for i in range(members)]
        schema = bundled("breast_cancer")[0]
        (folder / "schema.toml").write_text(schema.to_toml(), encoding="utf-8")
        settings = folder / "exchange.toml"
        settings.write_text(SETTINGS.format(database=options.database), encoding="utf-8")
        service, url = served(settings)
        try:
            found = measured(settings, url, folder, releases, pulls)
        finally:
            service.terminate()
            service.wait()
        subprocess.run(
            [sys.executable, "-m", "understudy", "exchange", "check", str(settings)], check=True
        )
    sizes = {"members": members, "megabytes": round(np.mean(found.pop("bytes")) / 1e6, 2)}
    database = "PostgreSQL" if options.database else "SQLite"
    report = {**provenance("exchange", 1), "database": database, **sizes, **found}
    save(report, options.json)
    print(f"{database}, {members} members, {sizes['megabytes']} MB each")
    for key in ("sent", "checked", "pulled"):
        print(f"  {key:8} {report[key]}")


def made(path: Path, rows: int, seed: int) -> Path:
    """A member's release, made from a tenth of the rows."""
    schema, records = bundled("breast_cancer")
    own = np.random.default_rng(seed).permutation(len(records))[: len(records) // 10]
    tables = {
        "study": {"name": path.stem, "recipe": "fedmoments"},
        "privacy": {"trust": "local", "unit": "record", "epsilon": 1.0},
        "simulation": {"data": "-", "sites": 1},
    }
    run(Study.parse(tables, schema=schema), [records.take(own)], out=path, rows=rows)
    return path


def served(settings: Path) -> tuple[subprocess.Popen[bytes], str]:
    """The service, and its address once it answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = ["exchange", "serve", str(settings), "--port", str(port)]
    process = subprocess.Popen([sys.executable, "-m", "understudy", *words])
    while True:
        if process.poll() is not None:
            sys.exit("the service did not start")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return process, f"http://localhost:{port}"
        time.sleep(0.1)


def measured(
    settings: Path, url: str, folder: Path, releases: list[Path], pulls: int
) -> dict[str, Any]:
    """Seconds of pushes and pulls; a lost or altered release, or any error, ends the bench."""
    clients = [member(settings, url, folder / path.stem) for path in releases]
    steward = member(settings, url, folder / "steward", "steward")
    sent: list[float] = []

    def push(pair: tuple[Client, Path]) -> float:
        begun = time.perf_counter()
        push = upload(pair[0].link, pair[1], "main")
        sent.append(time.perf_counter() - begun)
        found = wait_for_checks(pair[0].link, push, 600)
        if found["state"] != "pending":
            raise SystemExit(f"a push was {found['state']}: {found['reason']}")
        return time.perf_counter() - begun

    checked, pushing = at_once(push, list(zip(clients, releases, strict=True)))
    for waiting in steward.queue():
        steward.decide(waiting["id"], True)
    pool = steward.releases()
    assert len(pool) == len(releases)

    def pull(turn: int) -> float:
        client, told = clients[turn % len(clients)], pool[(turn * 7 + 1) % len(pool)]
        target = folder / f"pulled-{turn}.zip"
        begun = time.perf_counter()
        download(client.link, told["id"], told["sha256"], told["bytes"], target)
        return time.perf_counter() - begun

    pulled, pulling = at_once(pull, list(range(pulls)))
    weight = sum(each["bytes"] for each in pool) / len(pool) * pulls
    return {
        "sent": seconds(sent),
        "checked": {**seconds(checked), "all": round(pushing, 1)},
        "pulled": {
            **seconds(pulled),
            "all": round(pulling, 1),
            "MB/s": round(weight / pulling / 1e6, 1),
        },
        "errors": 0,
        "bytes": [each["bytes"] for each in pool],
    }


def member(settings: Path, url: str, keys: Path, role: str = "member") -> Client:
    """Somebody who has subscribed."""
    make_site(keys, keys.name)
    database = Database(Policy.load(settings).database)
    with database.writing() as session:
        code, _ = invite(session, OPERATOR, role)
    database.close()
    return Client.subscribe(Site(url), keys, code)[0]


def at_once(work: Callable[[Any], float], items: list[Any]) -> tuple[list[float], float]:
    """One thread each; the first error is raised."""
    begun = time.perf_counter()
    with ThreadPoolExecutor(len(items)) as threads:
        return list(threads.map(work, items)), time.perf_counter() - begun


def seconds(values: list[float]) -> dict[str, Any]:
    """What a member waits for."""
    middle, late = np.quantile(values, [0.5, 0.99])
    return {"n": len(values), "median": round(float(middle), 2), "p99": round(float(late), 2)}


if __name__ == "__main__":
    main()
