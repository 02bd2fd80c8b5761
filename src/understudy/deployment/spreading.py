"""A simulation spread over workers, with the same release as in one process: both ends of it.

``serve --simulate`` draws cohorts, adds up and trains what is shared; each ``join --simulate``
reads the study's rows, deals them out as one process would, and holds its share of the sites. All
must be given one seed. A run that is cut short is started again: the seed gives the same release.
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

import numpy as np

from understudy.data.shards import Shards
from understudy.deployment.keys import Keys
from understudy.deployment.preview import Preview
from understudy.deployment.reception import Reception, Report
from understudy.deployment.serving import Serving, check_port, waiting
from understudy.errors import StudyError, UnderstudyError, WireError
from understudy.federation.engine import Engine
from understudy.federation.gather import PlainSum
from understudy.federation.memory import SiteMemory
from understudy.federation.recipe import Recipe
from understudy.federation.sites import Sites
from understudy.privacy.ledger import Ledger
from understudy.release.bundle import Release
from understudy.release.manifest import MANIFEST
from understudy.rng import NoiseSource, Streams
from understudy.runtime.flare import FlareTransport, check_flare
from understudy.runtime.greeting import Farewell, Terms, kind_of, run_of
from understudy.runtime.networked import Networked
from understudy.runtime.wire import Agreement, answered
from understudy.runtime.workers import Spread, Worker, check_spread, rows_hash, worker_of
from understudy.simulation.budgets import begin
from understudy.simulation.journal import Journal
from understudy.simulation.loading import load_sites
from understudy.simulation.simulate import prepared, terms, trained
from understudy.simulation.workplace import workplace
from understudy.study import Study

__all__ = ["Holding", "hold", "spread", "worker_names"]

Tell = Callable[[str], None]


def worker_names(workers: int) -> list[str]:
    """As their keys have them, or ``--site``."""
    return [f"worker-{number}" for number in range(1, workers + 1)]


def spread(study: Study, how: Serving, workers: int) -> Release:
    """Wait for the workers, train, and make the release; ``how.seed`` is everyone's."""
    check_flare()
    recipe, names = _prepared(study, how.rows, workers), worker_names(workers)
    shared = _shared(study, recipe, how.keys, workers, how.seed)
    check_port(how)
    with workplace(how.out, False) as folder, ExitStack() as stack:
        how.opened(folder)
        journal = Journal.open(folder, study, how.seed, False)
        ledger = stack.enter_context(Ledger(folder / "ledger.jsonl"))
        report = Report(waiting(study, recipe.plan, journal, names), folder, how.tell)
        transport = stack.enter_context(FlareTransport(names, how.address, how.wait))
        report.say(f"listening on {how.host}:{how.port}")
        reception = Reception(transport, shared, journal.run, report, how.wait, how.again)
        reception.open()
        begin(study, recipe.plan, journal, ledger)
        networked = Networked(transport, names, shared.agreement, journal.run, how.deadline)
        over = Spread(recipe.plan, networked, PlainSum(recipe.plan, journal.source))
        over.open()

        def begin_round(round: int, rounds: int) -> None:
            if round < rounds:
                reception.enough(len(names))
                report.say(f"round {round + 1} of {rounds}", round=round)

        streams, source = journal.streams, journal.source
        engine = Engine(recipe, over, over, ledger, streams, source, None, begin_round)
        if how.preview:
            engine.watch = Preview(recipe, report, source.name)
        release = trained(study, engine, how.rows)
        said = Farewell(journal.run, ledger.head, release.model_hash, release.files()[MANIFEST])
        reception.close(said, min(how.deadline, 60.0))
        release.save(how.out)
        report.say("the release is complete", phase="done", round=recipe.plan.length, next="")
    return release


def _prepared(study: Study, rows: int, workers: int) -> Recipe:
    """The recipe of a study whose sites can be spread."""
    cut = study.simulation
    if cut is None:
        raise StudyError("a [simulation], which has the rows of all sites", "none", "add one")
    if cut.masks == "checked":
        raise StudyError(
            'simulation.masks = "off": workers send sums, without masks',
            '"checked"',
            "remove it, or use understudy run",
        )
    recipe = prepared(study, rows)
    check_spread(recipe.plan, workers)
    return recipe


def _shared(
    study: Study, recipe: Recipe, keys: Keys | None, workers: int, seed: int | None
) -> Terms:
    """What all ends must have in common; of the seed, a hash."""
    if seed is None:
        raise StudyError(
            "one seed at the server and all workers", "none", "add the same --seed to each"
        )
    digest = hashlib.sha256(Streams.from_seed(seed).root).hexdigest()[:8]
    agreed = {**study.agreement(), "workers": workers, "seed (its hash)": digest}
    roster = "" if keys is None else keys.seated(worker_names(workers))[0].hash.hex()
    return Terms(Agreement.of(study.hash, recipe), agreed, roster, "simulation")


@dataclass
class Holding:
    """A worker: its share of the rows, and what it answers. A new run begins afresh."""

    name: str
    recipe: Recipe
    terms: Terms
    seed: int
    ids: np.ndarray
    site_names: Sequence[str]
    data: Shards
    rows: bytes
    tell: Tell = lambda line: None
    over: Event = field(default_factory=Event)
    error: UnderstudyError | None = None
    _worker: Worker | None = None
    _kept: ExitStack = field(default_factory=ExitStack)

    def handle(self, data: bytes) -> bytes:
        """The reply, or a refusal that says why."""
        heard = time.time()
        return answered(lambda: self._answer(data, heard), self.terms.agreement, self.name)

    def _answer(self, data: bytes, heard: float) -> bytes:
        kind, run = kind_of(data), run_of(data)
        if kind == "hello":
            return self._welcome(data, run, heard)
        if self._worker is None or self._worker.run != run:
            raise WireError("a run that this worker was greeted for", "another", "start again")
        return self._farewell(data) if kind == "bye" else self._worker.handle(data)

    def _welcome(self, data: bytes, run: str, heard: float) -> bytes:
        theirs = Terms.decode(data, "hello", self.name)
        try:
            self.terms.check(theirs, "the server", heard)
            if self._worker is None or self._worker.run != run:
                self._worker = self._begun(run)
                self.tell(f"run {run[:8]}: {len(self.ids):,} sites")
        except WireError as error:
            self._end(error)  # and it is welcomed, so that the server can compare for itself
        return self.terms.encode("welcome", run, self.name)

    def _begun(self, run: str) -> Worker:
        """A worker for a run, whose sites remember nothing yet."""
        self._kept.close()
        place = self._kept.enter_context(tempfile.TemporaryDirectory())
        plan, names = self.recipe.plan, [self.site_names[i] for i in self.ids.tolist()]
        memory = SiteMemory(self.recipe.memory, names, Path(place))
        self._kept.callback(memory.close)
        streams = Streams.from_seed(self.seed)
        noise = NoiseSource.seeded(streams.child("noise", 0))
        allowance, _ = terms(plan, [plan], len(names))
        sites = Sites(self.recipe, names, self.ids, self.data, memory, streams, noise, allowance)
        return Worker(self.name, sites, self.terms.agreement, run, self.rows)

    def _farewell(self, data: bytes) -> bytes:
        said = Farewell.decode(data, self.name)
        self.tell("the run is over")
        self._end(None)
        return said.signed(self.name, b"")

    def _end(self, error: UnderstudyError | None) -> None:
        self._kept.close()
        self.error = error
        self.over.set()


def hold(study: Study, name: str, workers: int, seed: int | None, keys: Keys | None) -> Holding:
    """Read the study's rows, deal them out, and keep those of this worker's sites."""
    recipe, names = _prepared(study, 0, workers), worker_names(workers)
    if name not in names:
        raise StudyError(
            f"a worker's name, {names[0]} to {names[-1]}",
            repr(name),
            "its keys say it (--keys), or else --site",
        )
    shared = _shared(study, recipe, keys, workers, seed)
    assert seed is not None
    rng, capped = Streams.from_seed(seed).child("data"), recipe.plan.unit != "record"
    data = load_sites(study, None, rng=rng, capped=capped)
    everyone = np.arange(len(data))
    ids = everyone[worker_of(everyone, len(data), workers) == names.index(name)]
    return Holding(
        name, recipe, shared, seed, ids, study.site_names, _share(data, ids), rows_hash(data)
    )


def _share(data: Shards, ids: np.ndarray) -> Shards:
    """The rows of sites that follow each other, and no others."""
    own = data.take(ids)
    first, last = int(own.starts[0]), int(own.starts[-1] + own.counts[-1])
    x, y = (rows[first:last].clone() for rows in (data.x, data.y))
    return Shards(x, y, own.starts - first, own.counts)
