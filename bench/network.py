"""What a round over a network costs: seconds, bytes and memory, with real processes on loopback.

    python bench/network.py [--only TEXT] [--quick] [--json FILE]

Every site is a process of its own, connected through NVIDIA FLARE under mutual TLS; the server is
this process. A site does no training: it noises and seals an update of as many numbers as the
server sends it, so that what is measured is the protocol. ``plain``: each site noises its own
update, and a round has one exchange. ``secure``: sums under masks, five exchanges a round, with
noise in shares. An update's size is that of its numbers as 32-bit floats. Seconds are of a whole
round at the server, medians over the rounds after the first; bytes are what one site sends and is
sent in a round; memory is the most that a site's process has held. ``--only plain-20`` runs the
cells of that name alone, and keeps the others that FILE has.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from common import arguments, provenance, save

from understudy.data.encode import Encoded
from understudy.data.schema import Schema
from understudy.data.shards import Shards
from understudy.deployment.enrolment import (
    approve,
    install,
    make_server,
    make_site,
    read_reply,
    read_request,
)
from understudy.deployment.keys import load_keys
from understudy.federation.gather import Gather, PlainSum
from understudy.federation.info import RecipeInfo
from understudy.federation.masking import SecureSum
from understudy.federation.memory import SiteMemory
from understudy.federation.planning import Terms, noised_plan
from understudy.federation.recipe import Task
from understudy.federation.secure.party import Party
from understudy.federation.site import Site
from understudy.federation.sites import Sites
from understudy.privacy.plan import PrivacyPlan
from understudy.rng import NoiseSource, Streams
from understudy.runtime.flare import Address, FlareSite, FlareTransport, Tls
from understudy.runtime.networked import Networked
from understudy.runtime.participant import Participant
from understudy.runtime.store import Store
from understudy.runtime.wire import Agreement
from understudy.study import Study

SITES, MEGABYTES, ROUNDS = (3, 20), (0.1, 1.0, 10.0), 3
SCHEMA = """
kind = "table"
name = "numbers"
records = 100
[columns.a]
kind = "numeric"
low = 0
high = 1
"""
TRUST = {"plain": "local", "secure": "distributed"}


@dataclass(frozen=True)
class NoOptions:
    """None."""


@dataclass(frozen=True)
class Vector:
    """A recipe that sends numbers out and asks for as many back."""

    schema: Schema
    plan: PrivacyPlan
    numbers: int

    info: ClassVar[RecipeInfo] = RecipeInfo(
        name="vector",
        title="numbers to and fro",
        paper="none",
        summary="measures the network",
        kinds=("table",),
        supports=frozenset({("site", "local"), ("site", "distributed")}),
        default=("site", "local"),
        options=NoOptions,
        rounds=ROUNDS,
    )

    def memory(self, site: str) -> dict[str, torch.Tensor]:
        """Nothing is kept."""
        return {}

    def local(self, task: Task, site: Site) -> Any:
        """As many numbers as were sent."""
        return {"update": 0.01 * task.arrays["numbers"][None]}, {}


def vector(kind: str, sites: int, numbers: int) -> tuple[Vector, str]:
    """The recipe, and the hash of its study: the same at both ends."""
    schema = Schema.parse(SCHEMA)
    head = {"name": f"{kind} {numbers}", "recipe": "vector"}
    entries = [{"name": name} for name in names(sites)]
    tables = {"study": head, "privacy": {"trust": TRUST[kind], "unit": "site", "noise": 4.0}}
    study = Study.parse({**tables, "site": entries}, schema=schema)
    plan = noised_plan(study, Vector.info, {"update": (numbers,)}, Terms(bound=1.0))
    return Vector(schema, plan, numbers), study.hash


def names(sites: int) -> list[str]:
    """Of as many sites."""
    return [f"site-{i}" for i in range(1, sites + 1)]


def enrolled(folder: Path, sites: int) -> None:
    """Keys for a server and its sites."""
    make_server(folder / "hub", "hub", ["localhost"])
    requests = [read_request(make_site(folder / name, name)[1]) for name in names(sites)]
    for name, reply in approve(folder / "hub", requests).items():
        install(folder / name, read_reply(folder / name, reply))


def address(folder: Path, name: str, port: int) -> Address:
    """Of the server, with the keys of this party."""
    keys = load_keys(folder / name)
    return Address("localhost", port, Tls(keys.ca, keys.cert, keys.key, keys.server))


def be_a_site(folder: Path, port: int, kind: str, sites: int, numbers: int, name: str) -> None:
    """One site, until it is killed."""
    torch.set_num_threads(1)
    recipe, study = vector(kind, sites, numbers)
    roster, identity = load_keys(folder / name).seated(names(sites))
    empty = Encoded(np.zeros((1, 1), np.float32), np.zeros(1, np.int64), None)
    own = Sites(
        recipe,  # type: ignore[arg-type]
        [name],
        np.array([names(sites).index(name)]),
        Shards.pack(empty, [np.arange(1)]),
        SiteMemory(recipe.memory, [name]),
        Streams.from_seed(0),
        NoiseSource.system(),
        np.full((1, 1), ROUNDS),
    )
    party = Party(identity, roster) if kind == "secure" else None
    agreement = Agreement.of(study, recipe)  # type: ignore[arg-type]
    participant = Participant(own, agreement, Store(folder / name), party)
    with FlareSite(name, address(folder, name, port), participant.handle):
        time.sleep(3600)


class Counted:
    """A transport that counts bytes: what is sent to each site and comes back, in one round."""

    def __init__(self, transport: FlareTransport) -> None:
        self.transport, self.sent, self.received, self.failed = transport, 0, 0, 0
        self.ran = transport.ran

    def sites(self) -> Sequence[str]:
        return self.transport.sites()

    def exchange(
        self, messages: Mapping[str, bytes], deadline: float
    ) -> tuple[dict[str, bytes], dict[str, str]]:
        found, failed = self.transport.exchange(messages, deadline)
        self.sent += sum(map(len, messages.values()))
        self.received += sum(map(len, found.values()))
        self.failed += len(failed)
        return found, failed


def cell(kind: str, sites: int, megabytes: float, rounds: int) -> dict[str, Any]:
    """A few rounds of one federation."""
    numbers = int(megabytes * 250_000)
    with tempfile.TemporaryDirectory() as temporary:
        folder, port = Path(temporary), _port()
        enrolled(folder, sites)
        command = [sys.executable, __file__, "--site", str(folder), str(port), kind]
        command += [str(sites), str(numbers)]
        started = [subprocess.Popen([*command, name]) for name in names(sites)]
        try:
            with FlareTransport(names(sites), address(folder, "hub", port)) as transport:
                figures = _rounds(Counted(transport), folder, kind, numbers, rounds)
            figures["MB of memory per site"] = max(_memory(each.pid) for each in started)
        finally:
            for each in started:
                each.kill()
                each.wait()
    return {"sum": kind, "sites": sites, "MB": megabytes, **figures}


def _rounds(counted: Counted, folder: Path, kind: str, numbers: int, rounds: int) -> dict[str, Any]:
    everyone = list(counted.transport._names)
    recipe, study = vector(kind, len(everyone), numbers)
    agreement = Agreement.of(study, recipe)  # type: ignore[arg-type]
    networked = Networked(counted, everyone, agreement, "ab12", deadline=600.0)
    source = NoiseSource.system()
    gather: Gather = PlainSum(recipe.plan, source)
    if kind == "secure":
        roster, _ = load_keys(folder / "hub").seated(everyone)
        gather = SecureSum(recipe.plan, source, networked, roster, agreement.hash, "ab12")
    until = time.monotonic() + 120
    while len(counted.sites()) < len(everyone):
        assert time.monotonic() < until, "not all sites have come"
        time.sleep(0.1)
    seconds, task = [], Task({"numbers": torch.linspace(-1, 1, numbers)}, {})
    for round in range(rounds):
        counted.sent = counted.received = 0
        begun = time.perf_counter()
        total = gather.total(networked.exchange, task, round, np.arange(len(everyone)))
        seconds.append(time.perf_counter() - begun)
        assert total is not None and not counted.failed, networked.failures
    return {
        "seconds per round": round_to(statistics.median(seconds[1:] or seconds)),
        "rounds": [round_to(each) for each in seconds],
        "bytes to a site": counted.sent // len(everyone),
        "bytes from a site": counted.received // len(everyone),
    }


def round_to(value: float) -> float:
    """To three digits."""
    return float(f"{value:.3g}")


def _memory(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    peak = next(line for line in text.splitlines() if line.startswith("VmHWM"))
    return round_to(int(peak.split()[1]) / 1e3)


def _port() -> int:
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def main() -> None:
    """One site, or all cells."""
    if sys.argv[1:2] == ["--site"]:
        folder, port, kind, sites, numbers, name = sys.argv[2:]
        be_a_site(Path(folder), int(port), kind, int(sites), int(numbers), name)
        return
    parser = arguments(__doc__ or "")
    parser.add_argument("--only", default="", help="cells whose name has this, as plain-20-0.1")
    options = parser.parse_args()
    grid = [(k, n, s) for k in TRUST for n in SITES for s in MEGABYTES]
    if options.quick:
        grid = [("plain", 3, 0.1), ("secure", 3, 0.1)]
    grid = [each for each in grid if options.only in "-".join(map(str, each))]
    report: dict[str, Any] = {**provenance("network", options.threads), "cells": []}
    if options.json and options.json.exists():
        kept = json.loads(options.json.read_text())["cells"]
        report["cells"] = [c for c in kept if (c["sum"], c["sites"], c["MB"]) not in grid]
    for kind, sites, size in grid:
        begun = time.perf_counter()
        made = cell(kind, sites, size, 2 if options.quick else ROUNDS)
        made["minutes"] = round_to((time.perf_counter() - begun) / 60)
        print(made, flush=True)
        report["cells"].append(made)
        report["cells"].sort(key=lambda c: (c["sum"], c["sites"], c["MB"]))
        save(report, options.json)


if __name__ == "__main__":
    main()
