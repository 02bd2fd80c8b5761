"""The whole way in one process: rows in, a verified release out.

`run` simulates all sites here. While it runs, everything it must remember lies in a
private folder beside the output (``OUT.partial``): ledger, checkpoints, the sites' memory.
The output folder appears in one move at the end, complete, or not at all.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from understudy.data.bundled import bundled
from understudy.data.encode import Encoded, encode
from understudy.data.records import Progress
from understudy.data.shards import Shards
from understudy.data.split import split
from understudy.data.table import Records, read
from understudy.errors import (
    BudgetError,
    DataError,
    OutputError,
    ReleaseError,
    StudyError,
    unwritable,
)
from understudy.federation.checkpoint import Checkpoint, write_atomic
from understudy.federation.engine import Engine
from understudy.federation.memory import SiteMemory
from understudy.federation.recipe import Recipe, State
from understudy.federation.site import Sites
from understudy.privacy.account import Event
from understudy.privacy.claim import claims, headline
from understudy.privacy.ledger import Ledger, receipts_in
from understudy.privacy.plan import PrivacyPlan, allowed_joins, claim_terms, slots, solve
from understudy.recipes import build
from understudy.release.bundle import Release, refuse_existing
from understudy.rng import NoiseSource, Streams
from understudy.runtime.memory import InProcess
from understudy.study import SiteEntry, Study

__all__ = ["load_sites", "run", "site_plans"]

_RESERVED = "reserved"  # in the private folder: the sites' own ledgers have been charged


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
    with _workplace(None if out is None else Path(out), resume) as folder:
        journal = _Journal.open(folder, study, seed, resume)
        data = load_sites(study, sites, rng=journal.streams.child("data"), progress=reading)
        with ExitStack() as stack:
            ledger = stack.enter_context(Ledger(folder / "ledger.jsonl"))
            runtime = InProcess(_sites(study, recipe, data, journal, folder), study.hash, wire=wire)
            stack.callback(runtime.sites.memory.close)
            _open(ledger, study, recipe)
            _reserve(study, recipe.plan, journal.run, folder)
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
        if out is not None:
            release.save(out)
    return release


def load_sites(
    study: Study,
    sites: Sequence[Records] | None,
    *,
    rng: Streams,
    progress: Progress | None = None,
) -> Shards:
    """Encode every site's rows and check them, before anything is spent."""
    if sites is not None:
        if len(sites) != study.n_sites:
            raise StudyError(f"{study.n_sites} sites", f"{len(sites)}", "match the study")
        return _pack([encode(study.schema, records) for records in sites])
    if study.sites:
        return _pack([_encode_site(study, entry, progress) for entry in study.sites])
    if study.simulation is None:
        raise StudyError("[simulation] or [[site]] entries", "neither", "say where the rows are")
    return _split(study, progress, rng=rng)


def _encode_site(study: Study, entry: SiteEntry, progress: Progress | None) -> Encoded:
    try:
        held = read(study.base / entry.data, study.schema, progress=progress)
        return encode(study.schema, held)
    except DataError as error:
        raise DataError(f"{error.expected} (site {entry.name})", error.found, error.do) from error


def _split(study: Study, progress: Progress | None, *, rng: Streams) -> Shards:
    assert study.simulation is not None
    plan, source = study.simulation, study.simulation.data
    if source.startswith("bundled:"):
        records = bundled(source.removeprefix("bundled:"))[1]
    else:
        records = read(study.base / source, study.schema, progress=progress)
    rows = encode(study.schema, records)
    if not len(rows):
        raise DataError("rows to deal out to sites", f"none in {source}", "is the file complete?")
    given: dict[str, Any] = {"rng": rng.numpy("split"), "records": records}
    for name in given.keys() & plan.options.keys():
        raise StudyError("options of the split", f"simulation.{name}", "remove it")
    parts = split(study.schema, rows, plan.split, plan.sites or 1, **plan.options, **given)
    return Shards.pack(rows, parts[plan.kept])


def _pack(sites: Sequence[Encoded]) -> Shards:
    ends = np.cumsum([len(site) for site in sites])
    parts = [np.arange(end - len(site), end) for site, end in zip(sites, ends, strict=True)]
    x, y = (np.concatenate([getattr(site, name) for site in sites]) for name in ("x", "y"))
    return Shards.pack(Encoded(x, y, None), parts)


@dataclass(frozen=True)
class _Journal:
    """What identifies a run across restarts. It stays in the private folder."""

    run: str
    streams: Streams
    source: NoiseSource

    @classmethod
    def open(cls, folder: Path, study: Study, seed: int | None, resume: bool) -> _Journal:
        """Start a run, or take up the one in ``folder``; noise is never taken up."""
        path = folder / "run.json"
        starts = 0
        if resume and path.exists():
            run, root, seed, starts = _resumed(path, study, seed)
        else:
            run, root = os.urandom(16).hex(), Streams.from_seed(seed).root.hex()
        names = {"study": study.hash, "inputs": study.inputs}
        kept = {"run": run, "root": root, "seed": seed, "starts": starts, **names}
        write_atomic(path, json.dumps(kept).encode())
        streams = Streams(bytes.fromhex(root))
        seeded = NoiseSource.seeded(streams.child("noise", starts))
        return cls(run, streams, NoiseSource.system() if seed is None else seeded)

    @property
    def source_name(self) -> str:
        return "simulation" if self.source.is_simulation else "os"


def _resumed(path: Path, study: Study, seed: int | None) -> tuple[str, str, int | None, int]:
    """Run id, root, seed and number of earlier starts of the run in a private folder."""
    try:
        saved = json.loads(path.read_text())
        found = saved["run"], saved["root"], saved["seed"], saved["starts"] + 1
        same = (saved["study"], saved["inputs"]) == (study.hash, study.inputs)
    except (ValueError, KeyError, TypeError) as error:
        raise ReleaseError(
            "a readable run.json", "a damaged one", "remove the folder; what it spent stays spent"
        ) from error
    if not same:
        raise StudyError(
            "the study that was interrupted", "another", "restore the study file, or start anew"
        )
    if seed not in (None, saved["seed"]):
        raise StudyError("the seed that the run began with", "another", "leave --seed out")
    return found


@contextmanager
def _workplace(out: Path | None, resume: bool) -> Iterator[Path]:
    """The private folder of a run: kept if the run is cut short, gone when it is done."""
    if out is None:
        with tempfile.TemporaryDirectory() as temporary:
            yield Path(temporary)
        return
    folder = _partial_folder(out, resume)
    try:
        yield folder
    except BaseException:
        if not resume and not _charged(folder):  # a folder that was there before stays
            shutil.rmtree(folder)
        raise
    shutil.rmtree(folder)


def _partial_folder(out: Path, resume: bool) -> Path:
    refuse_existing(out)
    folder = out.with_name(out.name + ".partial")
    if folder.exists() and not resume:
        raise OutputError(
            f"no interrupted run at {folder.name}", "one", "add --resume, or remove that folder"
        )
    if resume and not folder.exists():
        raise OutputError(f"an interrupted run at {folder.name}", "none", "leave out --resume")
    try:
        folder.mkdir(mode=0o700, exist_ok=resume)
    except OSError as error:
        raise unwritable(folder.name, error) from error
    return folder


def _charged(folder: Path) -> bool:
    """Whether anything was spent or trained: then the folder must stay."""
    return any((folder / name).exists() for name in ("cohort.json", _RESERVED))


def _open(ledger: Ledger, study: Study, recipe: Recipe) -> None:
    """The first entry binds the ledger to the study and its plan; a resumed run must match it."""
    body = {"study": study.hash, "schema": study.schema.hash, "plan": recipe.plan.to_dict()}
    if not ledger.entries:
        if _charged(ledger.path.parent):
            raise ReleaseError(
                "the ledger of the interrupted run", "none", "restore it; what it held stays spent"
            )
        ledger.append("open", body)
    elif ledger.entries[0]["body"] != json.loads(json.dumps(body)):
        raise ReleaseError(
            "the plan this run was begun with",
            "another (was Understudy updated in between?)",
            "resume with the version that began it, or start anew elsewhere",
        )


def _sites(study: Study, recipe: Recipe, data: Shards, journal: _Journal, folder: Path) -> Sites:
    whole = recipe.plan
    plans = site_plans(study, whole) or [whole] * len(data)
    allowance = np.array([[p.participations for p in own.phases] for own in plans], np.int64).T
    noise = np.array([own.parts[0].noise for own in plans])
    return Sites(
        recipe,
        data,
        SiteMemory(recipe.memory(), len(data), folder),
        journal.streams,
        journal.source,
        allowance.copy(),
        noise if _own_noise(whole) else None,
    )


def site_plans(study: Study, plan: PrivacyPlan) -> list[PrivacyPlan]:
    """The plan as each named site follows it: its cap may ask for more noise or fewer rounds."""
    return [_site_plan(study, plan, entry) for entry in study.sites]


def _site_plan(study: Study, plan: PrivacyPlan, entry: SiteEntry) -> PrivacyPlan:
    if entry.epsilon is None:
        return plan
    epsilon = headline(claims(plan, "os"))
    if epsilon <= entry.epsilon:
        return plan
    if _own_noise(plan) and study.privacy.epsilon is not None:
        return solve(plan, entry.epsilon)
    joins = allowed_joins(plan, entry.epsilon) if plan.trust == "local" else 0
    if not joins:
        raise BudgetError(
            f"a study within site {entry.name}'s cap ε={entry.epsilon:g}",
            f"ε={epsilon:.3g}",
            "lower privacy.epsilon, or leave the site out",
        )
    return replace(plan, joins=joins)


def _own_noise(plan: PrivacyPlan) -> bool:
    """Whether a site may add more noise than the plan's: in one phase, to its whole update."""
    noised = not any(part.rule for part in plan.parts)
    return plan.trust == "local" and not plan.before and noised and slots(plan.parts) == {"client"}


def _reserve(study: Study, plan: PrivacyPlan, run: str, folder: Path) -> None:
    """Charge each site's own ledger with the whole promise, all or none, before round one."""
    factor, amplified = claim_terms(plan)
    with ExitStack() as stack:
        todo = []
        for entry, own in zip(study.sites, site_plans(study, plan), strict=True):
            if entry.ledger:
                ledger = stack.enter_context(Ledger(study.base / entry.ledger))
                events = own.promise(factor=factor, amplified=amplified)
                _check_cap(ledger, entry, run, events, plan)
                todo.append((ledger, events))
        if todo:
            write_atomic(folder / _RESERVED, b"")  # from here on the run can be resumed
        for ledger, events in todo:
            ledger.reserve(run, events, plan.delta, _protected(plan))


def _protected(plan: PrivacyPlan) -> str:
    """Unit and relation: a site's ledger adds up only what is protected alike."""
    relations = [claim.relation for claim in claims(plan, "os") if claim.private]
    return f"{plan.unit}, {relations[0] if relations else 'none'}"


def _check_cap(
    ledger: Ledger, entry: SiteEntry, run: str, events: tuple[Event, ...], plan: PrivacyPlan
) -> None:
    cap = float("inf") if entry.epsilon is None else entry.epsilon
    try:
        ledger.check(run, events, plan.delta, cap, _protected(plan))
    except BudgetError as error:
        raise BudgetError(f"{error.expected} (site {entry.name})", error.found, error.do) from error


def _release(
    study: Study, recipe: Recipe, state: State, journal: _Journal, ledger: Ledger, rows: int
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
