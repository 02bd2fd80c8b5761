"""What a sum that no server can see through costs: time and bytes per site and at the server.

    python bench/secure_sum.py [--quick] [--json FILE] [--flower PYTHON]

* ``cells``: one round of n sites × d numbers of 24 bits, with the default minimum of survivors
  and colluders (80 % and 10 %). A few sites do their whole work and are timed, in every leg; the
  server's work is timed for each of them (signatures, sum, one secret recovered, one mask taken
  off) and for one site that drops out. What the other sites contribute to these few is made as
  they would make it, but the rest of their work is not done: the figures are per site, and a round
  of all sites is their product. Bytes are what a site sends and is sent, without envelope and task.
* ``rounds``: whole rounds with every party in this process, with a drop-out; the sum must be
  equal to the plain one.
* ``plain``: the same numbers as 32-bit floats, added up as they are.
* ``flower``: the work of one client of Flower's SecAgg+ (``--flower``: an interpreter that has
  it), its own functions called one after the other; complete graph, as for n ≤ 100 here.

Seconds are of processor time, medians over the sites that were timed.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from common import arguments, provenance, save

from understudy.federation.secure import shamir
from understudy.federation.secure.graph import Graph
from understudy.federation.secure.keys import Announced, Primitives, Remembered
from understudy.federation.secure.masks import Layout, add_mask
from understudy.federation.secure.party import Party, agreed_on, own_mask, pair_mask
from understudy.federation.secure.roster import Place, identities, pack
from understudy.federation.secure.server import Collector
from understudy.federation.secure.session import Session
from understudy.federation.secure.shamir import recover
from understudy.privacy.clip import Sealed

BITS, TASK = 24, b"t" * 32
SITES, NUMBERS = (3, 20, 100, 1000, 10_000), (10_000, 100_000, 1_000_000)
ROUNDS = ((3, 100_000), (20, 100_000), (100, 10_000), (1000, 10_000))
Made = TypeVar("Made")


def terms(sites: int) -> tuple[int, int]:
    """(t, c) as a study has them by default."""
    colluders = max(1, sites // 10)
    return max(-(-4 * sites // 5), (sites + colluders) // 2 + 1, colluders + 2), colluders


def timed(into: dict[str, float], leg: str, work: Callable[[], Made]) -> Made:
    """Run and note the processor's seconds."""
    begun = time.process_time()
    made = work()
    into[leg] = into.get(leg, 0.0) + time.process_time() - begun
    return made


class Federation:
    """All sites with their keys of one round, announced to everyone."""

    def __init__(self, sites: int) -> None:
        self.roster, each = identities([f"site-{i}" for i in range(sites)])
        self.parties = [Party(identity, self.roster) for identity in each]
        self.place = Place(self.roster.hash, b"study", "run", 0, *terms(sites))
        made = [party.keys(self.place, TASK) for party in self.parties]
        self.sessions = dict(enumerate(session for session, _ in made))
        self.announced = [announced for _, announced in made]
        self.everyone = pack(np.ones(sites, bool))
        self.graph = Graph.among(np.ones(sites, bool), self.place)

    def keys_for(self, client: int) -> bytes:
        """What a site is sent in the second leg."""
        peers = self.graph.peers(client).tolist()
        return self.everyone + b"".join(self.announced[peer] for peer in peers)

    def shared(self, client: int) -> tuple[Session, bytes]:
        """What a site keeps and sends in the second leg."""
        return self.parties[client].shares(self.place, self.sessions[client], self.keys_for(client))


class OneSite:
    """The whole work of one site in one round, with what its peers send it."""

    def __init__(self, federation: Federation, client: int) -> None:
        self.of, self.client, self.party = federation, client, federation.parties[client]
        self.base: dict[str, float] = {}
        place, graph = federation.place, federation.graph
        timed(self.base, "keys", lambda: self.party.keys(place, TASK))
        self.session, self.sent = timed(self.base, "shares", lambda: federation.shared(client))
        peers = graph.peers(client).tolist()
        self.peers = {peer: federation.shared(peer) for peer in peers}
        pieces = [self._piece(peer, sent) for peer, (_, sent) in self.peers.items()]
        self.told = federation.everyone + b"".join(pieces)

    def _piece(self, peer: int, sent: bytes) -> bytes:
        rank = int(np.searchsorted(self.of.graph.peers(peer), self.client))
        return sent[80 * rank : 80 * rank + 80]

    def round(self, numbers: int) -> dict[str, Any]:
        """Seconds by leg, at the site and at the server, and bytes both ways."""
        of, cost = self.of, dict(self.base)
        layout = Layout((("a", (numbers,), BITS),))
        share = torch.randint(0, 1 << BITS, (1, numbers))
        sealed = Sealed("share", 0, {"a": share}, ())
        session = timed(
            cost, "masked", lambda: self.party.receive(of.place, self.session, self.told)
        )
        masked = timed(cost, "masked", lambda: self.party.mask(of.place, session, sealed, layout))
        session, _ = timed(
            cost, "survivors", lambda: self.party.survivors(of.place, session, of.everyone)
        )
        signed = self._signatures(session)
        _, told = timed(cost, "unmask", lambda: self.party.unmask(of.place, session, signed))
        up = len(of.announced[0]) + len(self.sent) + numbers * BITS // 8 + 64 + len(told)
        down = len(TASK) + len(of.keys_for(self.client)) + len(self.told)
        down += len(of.everyone) + len(signed)
        server = _server(of, self, session, masked, layout)
        return {"site": cost, "server": server, "bytes": {"up": up, "down": down}}

    def _signatures(self, session: Session) -> bytes:
        statement = agreed_on(self.of.place, session)
        each = [self.of.parties[peer].identity.sign(statement) for peer in self.peers]
        return self.of.everyone + b"".join(each)


def _server(
    of: Federation, one: OneSite, session: Session, masked: Sealed, layout: Layout
) -> dict[str, float]:
    """What one site costs the server, if it survives and if it drops out."""
    cost: dict[str, float] = {}
    place, graph, client = of.place, of.graph, one.client
    announced = Announced.read(of.announced[client])
    total = np.zeros(layout.size, layout.word)

    def survivor() -> None:
        nonlocal total
        statement = announced.statement(place, client, TASK)
        assert of.roster.verify(client, statement, announced.signature)
        of.roster.verify(client, agreed_on(place, session), bytes(64))
        total += layout.row(masked.parts)
        ranks = list(range(graph.threshold))
        shamir._weights.cache_clear()  # with drop-outs, sites have different holders left
        recover(ranks, [bytes(32)] * graph.threshold)
        add_mask(total, own_mask(place, of.sessions[client].own, client), -1)

    def dropped() -> None:
        peers = list(one.peers)
        keys = [Announced.read(of.announced[peer]).mask for peer in peers]
        agreed = Primitives().agree(of.sessions[client].mask, announced.mask, keys)
        for peer, each in zip(peers, agreed, strict=True):
            add_mask(total, pair_mask(place, each, client, peer))

    timed(cost, "survivor", survivor)
    timed(cost, "dropped", dropped)
    return cost


def cell(sites: list[OneSite], numbers: int) -> dict[str, Any]:
    """Medians over the sites that are timed."""
    found = [one.round(numbers) for one in sites]
    legs = {leg: _median(each["site"][leg] for each in found) for leg in found[0]["site"]}
    server = {what: _median(each["server"][what] for each in found) for what in found[0]["server"]}
    graph = sites[0].of.graph
    return {
        "sites": len(sites[0].of.parties),
        "numbers": numbers,
        "peers": graph.degree,
        "threshold": graph.threshold,
        "seconds per site": {**legs, "all": round(sum(legs.values()), 5)},
        "server's seconds per site": server,
        "bytes per site": found[0]["bytes"],
        "plain": _plain(numbers),
        "timed": len(sites),
    }


def _median(values: Iterator[float]) -> float:
    return round(statistics.median(values), 5)


def _plain(numbers: int) -> dict[str, Any]:
    """The same numbers as floats, added as they are."""
    cost: dict[str, float] = {}
    total, value = torch.zeros(numbers, dtype=torch.float64), torch.rand(numbers)
    timed(cost, "add", lambda: total.add_(value))
    return {"server's seconds per site": round(cost["add"], 5), "bytes per site": 4 * numbers}


class Together:
    """Every party in this process, as in a simulation with ``masks = "checked"``."""

    def __init__(self, sites: int, numbers: int) -> None:
        self.roster, each = identities([f"site-{i}" for i in range(sites)])
        self.shared = Remembered()
        self.parties = [Party(identity, self.roster, self.shared) for identity in each]
        self.place = Place(self.roster.hash, b"study", "run", 0, *terms(sites))
        self.layout = Layout((("a", (numbers,), BITS),))
        self.sessions: dict[int, Session] = {}

    def leg(self, leg: str, round: int, messages: Any) -> dict[int, bytes]:
        """Every site's answer."""
        return {client: self._answer(leg, client, m) for client, m in messages.items()}

    def _answer(self, leg: str, client: int, message: bytes) -> bytes:
        party = self.parties[client]
        if leg == "keys":
            self.sessions[client], reply = party.keys(self.place, message)
            return reply
        step = getattr(party, leg)
        self.sessions[client], reply = step(self.place, self.sessions[client], message)
        return reply

    def masked(self, messages: dict[int, bytes], values: torch.Tensor) -> Iterator[Any]:
        """Masked numbers of all but the last site, which drops out."""
        for client, message in list(messages.items())[: len(messages) - (len(messages) > 3)]:
            party = self.parties[client]
            session = party.receive(self.place, self.sessions[client], message)
            self.sessions[client] = session
            sealed = Sealed("share", 0, {"a": values[client][None]}, ())
            yield client, party.mask(self.place, session, sealed, self.layout)

    def round(self) -> dict[str, Any]:
        """Seconds of a whole round, and that its sum is right."""
        sites, numbers = len(self.parties), self.layout.size
        values = torch.randint(0, 1 << BITS, (sites, numbers))
        begun = time.process_time()
        collector = Collector(self.place, self.roster, self, self.layout, TASK, self.shared)
        messages = collector.open(range(sites))
        total = collector.add_up(self.masked(messages, values), lambda sealed: True)
        found = collector.close(total)["a"][0]
        taken = time.process_time() - begun
        plain = values[sorted(collector.surviving)].sum(0) & ((1 << BITS) - 1)
        assert torch.equal(found, plain), "the masked sum is not the plain one"
        return {
            "sites": sites,
            "numbers": numbers,
            "dropped": sites - len(collector.surviving),
            "seconds": round(taken, 3),
            "equal": True,
        }


def flower(python: str | None, quick: bool) -> list[dict[str, Any]] | str:
    """One client of Flower's SecAgg+, in its own interpreter."""
    if python is None:
        return "not run: --flower names no interpreter that has it"
    sites, numbers = ((3,), (10_000,)) if quick else ((3, 20, 100), NUMBERS)
    grid = json.dumps([[n, d] for n in sites for d in numbers])
    script = str(Path(__file__).parent / "flower_sum.py")
    done = subprocess.run([python, script, grid], capture_output=True, text=True, check=False)
    if done.returncode:
        return f"not run: {done.stderr.strip().splitlines()[-1]}"
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Run what was asked for, print it, write it."""
    assert __doc__
    parser = arguments(__doc__)
    parser.add_argument("--flower", help="a Python interpreter that has flwr")
    args = parser.parse_args()
    report = {**provenance("secure_sum", args.threads), "bits": BITS, "cells": [], "rounds": []}
    begun = time.perf_counter()
    for sites in SITES[:3] if args.quick else SITES:
        federation = Federation(sites)
        chosen = [OneSite(federation, client) for client in range(1 if args.quick else 3)]
        for numbers in NUMBERS[:1] if args.quick else NUMBERS:
            report["cells"].append(cell(chosen, numbers))
            print(json.dumps(report["cells"][-1]), flush=True)
            save(report, args.json)
    for sites, numbers in ROUNDS[:1] if args.quick else ROUNDS:
        report["rounds"].append(Together(sites, numbers).round())
        print(json.dumps(report["rounds"][-1]), flush=True)
    report["flower"] = flower(args.flower, args.quick)
    report["minutes"] = round((time.perf_counter() - begun) / 60, 2)
    print(json.dumps(report["flower"]))
    save(report, args.json)


if __name__ == "__main__":
    main()
