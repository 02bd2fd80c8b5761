"""A site's end of a run over a network: its rows, its ledger, its state, and what it agrees to.

Everything is read and checked before a connection is made. The site keeps its state in a folder
of its own, with one folder per run it has joined; it may be stopped and started again at any time.
It joins one run of a study at a time: another server, or the same one starting over, is refused.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from understudy.data.align import Alignment
from understudy.data.encode import Encoded, encode
from understudy.data.shards import Shards
from understudy.data.table import read
from understudy.deployment.keys import Keys, check_encrypted
from understudy.errors import DataError, OutputError, ReleaseError, StudyError, unwritable
from understudy.federation.budget import Budget, Standing
from understudy.federation.checkpoint import write_atomic
from understudy.federation.memory import SiteMemory
from understudy.federation.product_party import ProductParty
from understudy.federation.recipe import Recipe
from understudy.federation.secure.party import Party
from understudy.federation.sites import Sites
from understudy.privacy.ledger import Ledger
from understudy.rng import NoiseSource, Streams
from understudy.runtime.greeting import Terms
from understudy.runtime.participant import Participant
from understudy.runtime.store import Kept, Store, read_kept
from understudy.runtime.wire import Agreement
from understudy.simulation.loading import check_within
from understudy.simulation.simulate import prepared, terms
from understudy.study import Study

__all__ = ["Joining", "check_marked", "prepare", "terms_of"]

_DONE = "finished"  # in the folder of a run that is over


def terms_of(study: Study, recipe: Recipe, keys: Keys | None, source: NoiseSource) -> Terms:
    """What an end of a run takes for granted, with the keys of all sites of the study."""
    roster = "" if keys is None else keys.seated(study.site_names)[0].hash.hex()
    return Terms(Agreement.of(study.hash, recipe), study.agreement(), roster, source.name)


@dataclass(frozen=True)
class Joining:
    """A site that is ready to join: checked, and nothing spent. ``keys`` None: without TLS."""

    study: Study
    recipe: Recipe
    sites: Sites
    budget: Budget
    state: Path
    keys: Keys | None
    alignment: Alignment | None = None

    @property
    def name(self) -> str:
        return self.sites.names[0]

    @property
    def agreement(self) -> Agreement:
        return Agreement.of(self.study.hash, self.recipe)

    @property
    def terms(self) -> Terms:
        """What this end takes for granted."""
        return terms_of(self.study, self.recipe, self.keys, self.sites.source)

    @property
    def run(self) -> str:
        """The run that this site has joined and not finished, or empty."""
        begun = [kept.run for place, kept in self._kept() if not (place / _DONE).exists()]
        return begun[-1] if begun else ""

    def _kept(self) -> list[tuple[Path, Kept]]:
        """What the site has kept of the runs of this study, oldest first."""
        places = sorted(self.state.glob(f"{self._prefix}*"), key=lambda each: each.stat().st_mtime)
        found = [(place, read_kept(place)) for place in places]
        return [(place, kept) for place, kept in found if kept is not None and kept.run]

    @property
    def _prefix(self) -> str:
        return f"{self.study.hash[:16]}-"

    def spent(self) -> Standing:
        """What the run costs by the site's own ledger; refuses what its cap does not allow."""
        with self._book() as book:
            self._check_book(book)
            return self.budget.standing(book, self.run, self.recipe.plan)

    def _book(self) -> Ledger:
        assert self.budget.ledger is not None  # `prepare` sees to that
        return Ledger(self.budget.ledger)

    def _check_book(self, book: Ledger) -> None:
        """Refuse an older copy of the ledger: it must hold all that this site has paid."""
        for place in sorted(self.state.iterdir()):
            kept = read_kept(place) if place.is_dir() else None
            if kept is not None and kept.paid is not None and not book.holds(*kept.paid):
                raise ReleaseError(
                    f"{book.path.name} with every entry it had when this site last paid",
                    f"fewer, or others (it has {len(book.entries)})",
                    "restore its newest copy; a ledger must never go back",
                )

    def participant(self, run: str) -> Participant:
        """The site in one run, as it was left, or new to it."""
        if (joined := self.run) not in ("", run):
            raise StudyError(
                "the run of this study that this site has joined and paid for",
                "another one",
                f"go on with the first (serve --resume); or move {self._place(joined).name} out of "
                "the state folder, and pay again",
            )
        place = self._place(run)
        place.mkdir(mode=0o700, exist_ok=True)
        store = Store(place)
        self._check_paid(store.kept, run)
        return Participant(self._sites_in(run), self.agreement, store, self._party())

    def _sites_in(self, run: str) -> Sites:
        """The site in one run: parties draw the batches of each run from a secret of its own."""
        if self.alignment is None or self.sites.source.is_simulation:
            return self.sites
        agreed = self.alignment.agreed(self.study.hash, run)
        return replace(self.sites, source=NoiseSource.system(agreed))

    def _place(self, run: str) -> Path:
        return self.state / f"{self._prefix}{hashlib.sha256(run.encode()).hexdigest()[:16]}"

    def _check_paid(self, kept: Kept, run: str) -> None:
        """A run that was paid for goes on from what was kept of it, or not at all."""
        with self._book() as book:
            lost = book.reserved(run) and not kept.run
            if lost or book.released(run) is not None or kept.round < book.joined(run):
                raise ReleaseError(
                    "the newest state of a run that this site has paid for",
                    "none, an older one, or one that is over",
                    "restore the newest copy of the state folder, or leave this run for good",
                )

    def _party(self) -> Party | ProductParty | None:
        if not (self.study.parties or self.recipe.plan.trust == "distributed"):
            return None
        assert self.keys is not None
        roster, identity = self.keys.seated(self.study.site_names)
        return (ProductParty if self.study.parties else Party)(identity, roster)

    def check_last(self, run: str, manifest: bytes) -> None:
        """A run has one release: a second one is not signed."""
        done = self._place(run) / _DONE
        if done.exists() and done.read_text() != hashlib.sha256(manifest).hexdigest():
            raise ReleaseError(
                "the release of this run that was signed before", "another", "do not publish it"
            )

    def finish(self, run: str, head: str, model: str, manifest: bytes) -> None:
        """Note in the ledger what came of the run; its folder is not used again."""
        write_atomic(self._place(run) / _DONE, hashlib.sha256(manifest).hexdigest().encode())
        with self._book() as book:
            book.release(run, head, model)


def prepare(
    study: Study,
    data: Path,
    budget: Budget,
    state: Path,
    keys: Keys | None,
    seed: int | None = None,
    alignment: Alignment | None = None,
) -> Joining:
    """Read and encode a site's rows, build the plan, open its state; nothing is spent.

    ``alignment`` is what a party that holds columns has in common with the others. ``seed`` is for
    tests: whoever knows it can repeat the noise, and the claims say so.
    """
    number, study = _with_rows(study, budget.name, data)
    check_aligned(study, alignment)
    recipe = prepared(study, 0)
    check_encrypted(recipe.plan, keys)
    if keys is not None:
        keys.seated(study.site_names)
    state, budget = _opened(state, replace(budget, study=study.name))
    rows = _rows(study, number, data, capped=recipe.plan.unit != "record")
    if alignment is not None:
        _check_counted(rows, study, alignment)
    streams = Streams.from_seed(seed)
    seeded = NoiseSource.seeded(streams.child("noise", 0))
    allowance, noise = terms(recipe.plan, [budget.plan(recipe.plan)], 1)
    sites = Sites(
        recipe,
        [budget.name],
        np.array([number]),
        Shards.pack(rows, [np.arange(len(rows))]),
        SiteMemory(recipe.memory, [budget.name]),
        streams,
        NoiseSource.system() if seed is None else seeded,
        allowance,
        noise,
        [budget],
    )
    return Joining(study, recipe, sites, budget, state, keys, alignment)


def check_aligned(study: Study, alignment: Alignment | None) -> None:
    """Refuse rows of parties that do not come from the alignment that the study names."""
    if not study.parties:
        if alignment is not None:
            raise StudyError("no alignment where sites hold rows", "one", "leave it out")
        return
    check_marked(study)
    if alignment is None or alignment.mark != study.alignment:
        raise StudyError(
            "the alignment file that study.alignment names",
            "none" if alignment is None else "that of another alignment",
            "name the one that understudy align wrote beside the rows: --alignment FILE",
        )


def check_marked(study: Study) -> None:
    """Over a network the study of parties says which alignment their files come from."""
    if study.parties and study.alignment is None:
        raise StudyError(
            "study.alignment: which alignment the parties' files come from",
            "it is missing",
            "add the line that understudy align join, match or agree printed, at every end",
        )


def _check_counted(rows: Encoded, study: Study, alignment: Alignment) -> None:
    if len(rows) != alignment.rows:
        raise DataError(
            f"{alignment.rows:,} rows, as the alignment has them",
            f"{len(rows):,}",
            "use the aligned file as it was written",
        )
    check_within(study, len(rows))


def _rows(study: Study, number: int, data: Path, *, capped: bool) -> Encoded:
    """A site's rows, or a party's, by its part of the schema."""
    held = study.held
    schema = study.schema if held is None else held.schema_of(number)
    return encode(schema, read(data, schema), capped=capped)


def _with_rows(study: Study, name: str, data: Path) -> tuple[int, Study]:
    """This site's number, and the study with its own rows, as far as this site knows it."""
    names = [entry.name for entry in study.owners]
    if name not in names:
        kind = "party" if study.parties else "site"
        raise StudyError(
            f"a [[{kind}]] entry for {name}",
            ", ".join(names) or "none",
            "use the study file that all agreed on; --site names this one",
        )
    return names.index(name), study.known_to(name, str(data.resolve()))


def _opened(state: Path, budget: Budget) -> tuple[Path, Budget]:
    """The state folder, and the budget with a ledger in it if no other is named."""
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(state.name, error) from error
    if not state.is_dir():
        raise OutputError("a folder for this site's state", "a file", "name another --state")
    ledger = budget.ledger or state / "ledger.jsonl"
    return state, replace(budget, ledger=ledger)
