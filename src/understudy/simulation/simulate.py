"""The whole way in one process: rows in, a verified release out.

`run` simulates all sites here. While it runs, everything it must remember lies in a
private folder beside the output (``OUT.partial``): ledger, checkpoints, the sites' memory.
The output folder appears in one move at the end, complete, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from understudy.data.columns import Columns
from understudy.data.shards import Shards
from understudy.data.table import Records
from understudy.errors import StudyError
from understudy.federation.budget import own_noise
from understudy.federation.checkpoint import Checkpoint
from understudy.federation.engine import Engine, Runtime
from understudy.federation.gather import Gather, PlainSum
from understudy.federation.masking import SecureSum, checked_sum
from understudy.federation.memory import Memories, SiteMemory
from understudy.federation.product_party import ProductParty
from understudy.federation.products import ProductSum, product_sum
from understudy.federation.recipe import Recipe
from understudy.federation.secure.party import Party
from understudy.federation.secure.roster import Identity, Roster, identities
from understudy.federation.sites import Sites
from understudy.privacy.claim import UNMASKED, claims
from understudy.privacy.gaussian import Gaussian
from understudy.privacy.hints import on_disk
from understudy.privacy.ledger import Ledger, receipts_in
from understudy.privacy.plan import PrivacyPlan
from understudy.recipes import build
from understudy.release.bundle import MOST_ROWS, Release
from understudy.release.rebuild import agreed
from understudy.rng import NoiseSource
from understudy.runtime.forks import cores
from understudy.runtime.in_process import InProcess
from understudy.runtime.loopback import Loopback
from understudy.runtime.networked import Networked
from understudy.runtime.participant import Participant
from understudy.runtime.store import Store
from understudy.runtime.wire import Agreement
from understudy.simulation.budgets import begin, note_release, site_budgets, site_plans
from understudy.simulation.journal import Journal
from understudy.simulation.loading import load_parties, load_sites
from understudy.simulation.workplace import workplace
from understudy.study import Study

__all__ = ["Doing", "prepared", "run", "run_apart", "summed", "terms", "trained"]

Doing = Literal["reading", "training"]
Progress = Callable[[Doing, int, int], None]  # what, how many files or rounds are done, of how many


@dataclass(frozen=True)
class _How:
    """What `run` was asked for."""

    out: str | Path | None = None
    seed: int | None = None
    resume: bool = False
    rows: int = 1000
    progress: Progress | None = None
    apart: bool = False

    def tell(self, doing: Doing, done: int, total: int) -> None:
        """Report progress to whoever is watching."""
        if self.progress is not None:
            self.progress(doing, done, total)


def run(
    study: Study,
    sites: Sequence[Records] | None = None,
    *,
    out: str | Path | None = None,
    seed: int | None = None,
    resume: bool = False,
    rows: int = 1000,
    progress: Progress | None = None,
) -> Release:
    """Train with every site in this process and return the release (saved to ``out`` if given).

    ``seed`` makes the run repeatable and marks its claims "simulation". ``rows`` is the size of
    the sample in the release (a classifier's has none). As many cores are used as torch has
    threads (``torch.set_num_threads``); the result does not depend on it.
    """
    return _run(study, sites, _How(out, seed, resume, rows, progress))


def run_apart(study: Study, sites: Sequence[Records] | None = None, **options: Any) -> Release:
    """The same, but each site is on its own, in a thread, and all exchange bytes as on a network.

    The options are those of `run`. With one seed the model is the same as that of `run`.
    """
    return _run(study, sites, _How(**options, apart=True))


def prepared(study: Study, rows: int) -> Recipe:
    """The recipe of a study that can be run and verified, for a sample of so many rows."""
    recipe = build(study)
    claims(recipe.plan, "os")  # a plan that no claim can be made for is refused here
    agreed(study.agreement(), study.schema)  # and an agreement that `verify` could not read
    if not 0 <= rows <= MOST_ROWS:
        sample = f"a sample of 0 to {MOST_ROWS:,} rows"
        raise StudyError(sample, f"{rows}", "ask for 1000; draw more from the release")
    return recipe


def _run(study: Study, sites: Sequence[Records] | None, how: _How) -> Release:
    with on_disk():
        recipe = prepared(study, how.rows)
    out = None if how.out is None else Path(how.out)
    with workplace(out, how.resume) as folder:
        journal = Journal.open(folder, study, how.seed, how.resume)
        rng = journal.streams.child("data")
        told, capped = partial(how.tell, "reading"), recipe.plan.unit != "record"
        data: Shards | Columns
        if study.parties:
            data = load_parties(study, sites, progress=told)
        else:
            data = load_sites(study, sites, rng=rng, progress=told, capped=capped)
        with ExitStack() as stack:
            ledger = stack.enter_context(Ledger(folder / "ledger.jsonl"))
            held = _sites(study, recipe, data, journal, folder)
            stack.callback(held.memory.close)
            begin(study, recipe.plan, journal, ledger)
            runtime, gather = _reached(study, held, journal, folder, how.apart)
            if isinstance(runtime, InProcess):
                stack.callback(runtime.close)
            engine = Engine(
                recipe,
                runtime,
                gather,
                ledger,
                journal.streams,
                journal.source,
                Checkpoint(folder) if out is not None else None,
                partial(how.tell, "training"),
            )
            release = trained(study, engine, how.rows)
            note_release(study, journal.run, ledger.head, release.model_hash)
        if out is not None:
            release.save(out)
    return release


def _sites(
    study: Study, recipe: Recipe, data: Shards | Columns, journal: Journal, folder: Path
) -> Sites:
    whole = recipe.plan
    allowance, noise = terms(whole, site_plans(study, whole) or [whole], len(data))
    names = study.site_names
    return Sites(
        recipe,
        names,
        np.arange(len(data)),
        data,
        (Memories if study.parties else SiteMemory)(recipe.memory, names, folder),
        journal.streams,
        journal.source,
        allowance,
        noise,
        site_budgets(study),
    )


def terms(
    whole: PrivacyPlan, plans: Sequence[PrivacyPlan], sites: int
) -> tuple[np.ndarray, np.ndarray | None]:
    """Rounds that each site joins ``[phases, N]``, and the noise of its own.

    ``plans`` are the sites' own, or one that all of them follow.
    """
    joins = np.array([[phase.participations for phase in own.phases] for own in plans], np.int32).T
    noise = np.array([_noise(own) for own in plans]) if own_noise(whole) else None
    return (
        np.broadcast_to(joins, (len(joins), sites)).copy(),
        None if noise is None else np.broadcast_to(noise, sites).copy(),
    )


def _noise(plan: PrivacyPlan) -> float:
    """The multiplier that a site with this plan uses."""
    mechanism = plan.own.parts[0].mechanism
    assert isinstance(mechanism, Gaussian)
    return mechanism.noise


def _reached(
    study: Study, held: Sites, journal: Journal, folder: Path, apart: bool
) -> tuple[Runtime, Gather]:
    """How the sites are reached, and how what they send becomes a total."""
    plan, source = held.recipe.plan, journal.source
    if apart:
        roster, each = identities(held.names)
        parties = [_half(plan, identity, roster) for identity in each]
        networked = _apart(study, held, journal.run, folder, parties)
        return networked, summed(networked, plan, source, roster)
    if study.parties:  # asked one by one
        return InProcess(held, chunk=1), product_sum(plan, source, held, journal.run)
    checked = study.simulation is None or study.simulation.masks == "checked"
    masked = checked and plan.trust == "distributed"  # named sites are few: always
    gather = checked_sum(plan, source, held) if masked else PlainSum(plan, source)
    return InProcess(held, workers=cores()), gather


def _half(plan: PrivacyPlan, identity: Identity, roster: Roster) -> Party | ProductParty | None:
    """A site's half of the plan's sums, where these take several legs."""
    if plan.held == "columns":
        return ProductParty(identity, roster)
    return Party(identity, roster) if plan.trust == "distributed" else None


def summed(
    networked: Networked, plan: PrivacyPlan, source: NoiseSource, roster: Roster | None
) -> Gather:
    """The server's half; only sums in several legs need a ``roster``."""
    if plan.held == "rows" and plan.trust != "distributed":
        return PlainSum(plan, source)
    assert roster is not None
    agreed, total = networked.agreement.hash, ProductSum if plan.held == "columns" else SecureSum
    return total(plan, source, networked, roster, agreed, networked.run)


def _apart(
    study: Study,
    held: Sites,
    run: str,
    folder: Path,
    parties: Sequence[Party | ProductParty | None],
) -> Networked:
    """Every site as a process of its own would hold it, and a server that can only send bytes."""
    agreement = Agreement.of(study.hash, held.recipe)
    handlers = {}
    for client, name in enumerate(held.names):
        place = folder / f"site-{client}"
        place.mkdir(exist_ok=True)
        alone = held.alone(client, SiteMemory(held.recipe.memory, [name]))
        alone.budgets = ()  # `begin` has charged every site's ledger
        handlers[name] = Participant(alone, agreement, Store(place), parties[client]).handle
    return Networked(Loopback(handlers), held.names, agreement, run)


def trained(study: Study, engine: Engine, rows: int) -> Release:
    """Train to the end, and make the release."""
    recipe, ledger = engine.recipe, engine.ledger
    model = recipe.finish(engine.train(), rng=engine.streams.child("finish"))
    recipe.plan.settles(receipts_in(ledger.entries))
    return Release(
        agreement=study.agreement(),
        schema=study.schema,
        plan=recipe.plan,
        model=model,
        ledger=ledger.path.read_text(encoding="utf-8"),
        source=engine.source.name,
        ran=_ran(engine),
        rows=rows,
    )


def _ran(engine: Engine) -> str:
    """What ran where; shares that were added up as they are had no masks."""
    bare = not isinstance(engine.gather, SecureSum) and engine.recipe.plan.kind == "masked"
    return engine.runtime.ran + UNMASKED * bare
