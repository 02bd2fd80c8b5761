"""The server's end of a run over a network: from the first greeting to the signed release.

The same engine, ledger, journal and checkpoints as `understudy run`, with sites that are reached
through `FlareTransport`. A server that was killed goes on with ``resume``: rounds that it had
charged and not completed stay charged, and are not run again.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from understudy.deployment.joining import check_marked, terms_of
from understudy.deployment.keys import Keys, check_encrypted
from understudy.deployment.preview import Preview
from understudy.deployment.reception import Reception, Report
from understudy.deployment.signing import sign
from understudy.deployment.status import Promised, SiteStatus, Status
from understudy.errors import StudyError, WireError
from understudy.federation.checkpoint import Checkpoint
from understudy.federation.engine import Engine
from understudy.federation.recipe import Recipe
from understudy.privacy.claim import claims
from understudy.privacy.ledger import Ledger
from understudy.privacy.plan import PrivacyPlan
from understudy.release.bundle import Release
from understudy.release.manifest import MANIFEST
from understudy.runtime.flare import MOST_SITES, Address, FlareTransport, Tls, check_flare
from understudy.runtime.greeting import Farewell
from understudy.runtime.networked import Networked
from understudy.runtime.transport import LATE
from understudy.simulation.budgets import begin
from understudy.simulation.journal import Journal
from understudy.simulation.simulate import prepared, summed, trained
from understudy.simulation.workplace import charged, private_folder, workplace
from understudy.study import Study

__all__ = ["Serving", "check_port", "serve", "waiting"]

_HEADER = 4 << 20  # bytes of a message beside the numbers of an update
_NUMBER = 16  # bytes of a number on its way, at most


@dataclass(frozen=True)
class Serving:
    """What `serve` is asked for. ``keys`` None: without TLS, signatures or secure sums.

    ``resume`` goes on with a run that was interrupted, if there is one. ``wait`` is how long to
    wait for sites that are missing, ``deadline`` for an answer; ``again`` is the command that goes
    on after a pause. ``seed`` is for tests and marks the claims; ``preview``: the status also has
    what is spent so far, and rows of the generator as it is.
    """

    out: Path
    keys: Keys | None
    host: str = "localhost"
    port: int = 8702
    resume: bool = False
    wait: float = 600.0
    deadline: float = 600.0
    rows: int = 1000
    again: str = ""
    seed: int | None = None
    preview: bool = False
    tell: Callable[[Status], None] = lambda status: None
    opened: Callable[[Path], None] = lambda folder: None

    @property
    def address(self) -> Address:
        keys = self.keys
        tls = None if keys is None else Tls(keys.ca, keys.cert, keys.key, keys.name)
        return Address(self.host, self.port, tls)


def serve(study: Study, how: Serving) -> Release:
    """Wait for the sites, train, and make the release that they sign."""
    check_flare()
    study, recipe = _checked(study, how)
    check_port(how)
    resume = how.resume and private_folder(how.out).exists()
    with workplace(how.out, resume) as folder, ExitStack() as stack:
        how.opened(folder)
        journal = Journal.open(folder, study, how.seed, resume)
        ledger = stack.enter_context(Ledger(folder / "ledger.jsonl"))
        report = Report(waiting(study, recipe.plan, journal, study.site_names), folder, how.tell)
        transport = FlareTransport(
            list(study.site_names), how.address, how.wait, _largest(recipe.plan)
        )
        stack.enter_context(transport)
        report.say(f"listening on {how.host}:{how.port}")
        terms = terms_of(study, recipe, how.keys, journal.source)
        reception = Reception(transport, terms, journal.run, report, how.wait, how.again)
        reception.open(_least(recipe.plan) if charged(folder) else None)
        begin(study, recipe.plan, journal, ledger)
        release = _trained(study, recipe, journal, ledger, reception, how)
        release = _closed(release, reception, journal, ledger, how)
        release.save(how.out)
        report.say("the release is complete", phase="done", next="")
    return release


def _checked(study: Study, how: Serving) -> tuple[Study, Recipe]:
    """The study as the server knows it: no site's rows, cap or ledger; and its recipe."""
    names = list(study.site_names)
    if not study.owners or len(names) > MOST_SITES or study.simulation is not None:
        raise StudyError(
            f"1 to {MOST_SITES} [[site]] or [[party]] entries, and no [simulation]",
            f"{len(study.owners)}" if study.simulation is None else "[simulation]",
            "name every site: [[site]] name = …; simulate with understudy run, or --simulate",
        )
    check_marked(study)
    if how.keys is not None:
        how.keys.seated(names)
        how.keys.check_role("server")
    recipe = prepared(study, how.rows)
    check_encrypted(recipe.plan, how.keys)
    return study.known_to(), recipe


def check_port(how: Serving) -> None:
    """Refuse an address that cannot be listened on: FLARE would not say so."""
    try:
        with socket.create_server((how.host, how.port)):
            pass
    except OSError as error:
        raise WireError(
            f"to listen on {how.host}:{how.port}",
            str(error.strerror or error),
            "end what is using the port, or choose another --port; --host must be this machine's",
        ) from error


def _largest(plan: PrivacyPlan) -> int:
    """Bytes of the largest message that a site may send."""
    parts = [part for phase in plan.phases for part in phase.parts]
    numbers = (sum(int(np.prod(part.shape)) for part in phase.parts) for phase in plan.phases)
    rows = max(part.mechanism.bytes(part) for part in parts)  # of products: masked rows, too
    return _HEADER + max(_NUMBER * max(numbers), rows) + 4096 * plan.sites


def waiting(study: Study, plan: PrivacyPlan, journal: Journal, names: Sequence[str]) -> Status:
    """The first status of a run with these sites."""
    sites = tuple(SiteStatus(name) for name in names)
    promised = Promised.of(claims(plan, journal.source.name))
    return Status(study.name, plan.length, sites, promised)


def _trained(
    study: Study,
    recipe: Recipe,
    journal: Journal,
    ledger: Ledger,
    reception: Reception,
    how: Serving,
) -> Release:
    plan, names = recipe.plan, list(study.site_names)
    networked = Networked(
        reception.transport, names, reception.terms.agreement, journal.run, how.deadline
    )
    roster = None if how.keys is None else how.keys.seated(names)[0]
    gather = summed(networked, plan, journal.source, roster)

    def begin_round(round: int, rounds: int) -> None:
        _tell_failures(networked, plan, reception.report)
        if round < rounds:
            reception.enough(_least(plan))
            reception.report.say(f"round {round + 1} of {rounds}", round=round)

    engine = Engine(
        recipe,
        networked,
        gather,
        ledger,
        journal.streams,
        journal.source,
        Checkpoint(ledger.path.parent),
        begin_round,
    )
    if how.preview:
        engine.watch = Preview(recipe, reception.report, journal.source.name)
    release = trained(study, engine, how.rows)
    reception.report.say("all rounds are done", phase="finishing", round=plan.length)
    return release


def _tell_failures(networked: Networked, plan: PrivacyPlan, report: Report) -> None:
    """Why sites were left out of the last exchange; without names where cohorts are secret."""
    if any(phase.rate is not None for phase in plan.phases):
        said = [f"{len(networked.failures)} site(s) left out"] if networked.failures else []
    else:
        late = f"{LATE} of {networked.deadline:g} s (--deadline)"
        why = {name: said.replace(LATE, late) for name, said in networked.failures.items()}
        said = [f"{name} was left out: {found}"[:300] for name, found in why.items()]
    if said:
        report.say(*said)


def _least(plan: PrivacyPlan) -> int:
    """Sites without which no round is begun: the plan's survivors, more than half, or all parties.

    Of parties that hold columns none can be missing: a round without one is void, and charged.
    """
    if plan.held == "columns":
        return plan.sites
    survivors = max(phase.survivors for phase in plan.phases)
    return max(survivors if plan.trust == "distributed" else 0, plan.sites // 2 + 1)


def _closed(
    release: Release, reception: Reception, journal: Journal, ledger: Ledger, how: Serving
) -> Release:
    """The release, signed by the server and by the sites that answered."""
    manifest = release.files()[MANIFEST]
    farewell = Farewell(journal.run, ledger.head, release.model_hash, manifest)
    signatures = reception.close(farewell, min(how.deadline, 60.0))
    if how.keys is None:
        return release
    return sign(release, how.keys, list(reception.names), journal.run, signatures)
