"""The whole way in one process: rows in, a verified release out.

`run` simulates all sites here. While it runs, everything it must remember lies in a
private folder beside the output (``OUT.partial``): ledger, checkpoints, the sites' memory.
The output folder appears in one move at the end, complete, or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from understudy.data.records import Progress
from understudy.data.shards import Shards
from understudy.data.table import Records
from understudy.errors import StudyError
from understudy.federation.checkpoint import Checkpoint
from understudy.federation.engine import Engine
from understudy.federation.memory import SiteMemory
from understudy.federation.recipe import Recipe, State
from understudy.federation.site import Sites
from understudy.privacy.claim import claims
from understudy.privacy.ledger import Ledger, receipts_in
from understudy.recipes import build
from understudy.recipes.central import CentralVAE
from understudy.release.bundle import Release
from understudy.run.budgets import begin, note_release, own_noise, site_plans
from understudy.run.journal import Journal
from understudy.run.loading import load_sites
from understudy.run.workplace import workplace
from understudy.runtime.memory import InProcess
from understudy.study import Study

__all__ = ["run"]


def run(
    study: Study,
    sites: Sequence[Records] | None = None,
    *,
    out: str | Path | None = None,
    seed: int | None = None,
    resume: bool = False,
    wire: bool = False,
    rows: int = 1000,
    reading: Progress | None = None,
    progress: Progress | None = None,
) -> Release:
    """Train with every site in this process and return the release (saved to ``out`` if given).

    ``seed`` makes the run repeatable and marks its claims "simulation". ``wire`` sends every
    message through the byte format. ``rows`` is the size of the sample in the release (a
    classifier's has none). ``reading`` is told how many image files were read, of how many;
    ``progress`` how many rounds are done.
    """
    recipe = build(study)
    claims(recipe.plan, "os")  # a plan that no claim can be made for is refused here
    if rows < 0:
        raise StudyError("a sample of 0 rows or more", f"{rows}", "ask for 1000, say")
    with workplace(None if out is None else Path(out), resume) as folder:
        journal = Journal.open(folder, study, seed, resume)
        data = load_sites(study, sites, rng=journal.streams.child("data"), progress=reading)
        data = recipe.rows(data) if isinstance(recipe, CentralVAE) else data
        with ExitStack() as stack:
            ledger = stack.enter_context(Ledger(folder / "ledger.jsonl"))
            runtime = InProcess(_sites(study, recipe, data, journal, folder), study.hash, wire=wire)
            stack.callback(runtime.sites.memory.close)
            begin(study, recipe.plan, journal, ledger)
            engine = Engine(
                recipe,
                runtime,
                ledger,
                journal.streams,
                journal.source,
                Checkpoint(folder) if out is not None else None,
                progress or (lambda done, total: None),
            )
            state = engine.train()
            release = _release(study, recipe, state, journal, ledger, rows)
            note_release(study, journal.run, ledger.head)
        if out is not None:
            release.save(out)
    return release


def _sites(study: Study, recipe: Recipe, data: Shards, journal: Journal, folder: Path) -> Sites:
    whole = recipe.plan
    plans = [whole] * len(data)
    for index, own in enumerate(site_plans(study, whole)[: len(data)]):  # a baseline pools them
        plans[index] = own
    allowance = np.array([[p.participations for p in own.phases] for own in plans], np.int64).T
    noise = np.array([own.parts[0].noise for own in plans])
    return Sites(
        recipe,
        data,
        SiteMemory(recipe.memory(), len(data), folder),
        journal.streams,
        journal.source,
        allowance.copy(),
        noise if own_noise(whole) else None,
    )


def _release(
    study: Study, recipe: Recipe, state: State, journal: Journal, ledger: Ledger, rows: int
) -> Release:
    recipe.plan.settles(receipts_in(ledger.entries))
    model = recipe.finish(state, rng=journal.streams.child("finish"))
    return Release(
        name=study.name,
        recipe=study.recipe,
        study=study.hash,
        schema=study.schema,
        plan=recipe.plan,
        model=model,
        ledger=ledger.path.read_text(encoding="utf-8"),
        source=journal.source_name,
        rows=rows,
    )
