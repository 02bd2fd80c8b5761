"""fedmarginals: noisy tables of columns, imposed on rows; MST and AIM's family as noisy sums.

The earlier sums are fedmoments' (margins and class moments). Draws of its generator say how columns
are best cut into a few codes and which pairs of them matter; the last sum counts these pairs, with
the label where rows suffice: a record is in one cell of each table, norm √tables. `projection`
then moves rows until their tables agree with what was measured, and where nothing was, with
fedmoments. All but the sums is post-processing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from understudy.data.schema import Schema
from understudy.errors import StudyError, WireError
from understudy.federation.info import RecipeInfo
from understudy.federation.phases import Then, then
from understudy.federation.planning import Terms, noised_plan
from understudy.federation.recipe import State, Task, Update
from understudy.federation.site import Site
from understudy.privacy.gaussian import Gaussian
from understudy.privacy.plan import PrivacyPlan
from understudy.recipes import fedmoments
from understudy.recipes.catalogue import CATALOGUE
from understudy.recipes.imposed import Pool, generator, sketch
from understudy.recipes.margins import Margin, codes, margins
from understudy.recipes.options import FedMarginalsOptions, FedMomentsOptions
from understudy.recipes.tables import Size, cells, choose, cut, size_up
from understudy.release.generator import Generator
from understudy.rng import Streams
from understudy.study import Cohort, Study

__all__ = ["FedMarginals", "build"]

_BINS = 256  # of a number's range


@dataclass(frozen=True)
class FedMarginals:
    """The last phase; see the module's paragraph."""

    schema: Schema
    plan: PrivacyPlan
    size: Size

    info: ClassVar[RecipeInfo] = CATALOGUE["fedmarginals"]

    @cached_property
    def _margins(self) -> tuple[Margin, ...]:
        """The public cells of every column but the label."""
        return tuple(m for m in margins(self.schema, _BINS) if m.start is not None)

    def begin(self, made: Generator, *, rng: Streams) -> State:
        """Draws of the earlier phases' generator; from them, the cuts and the pairs to count."""
        pool = sketch(made, self._margins, rng=rng)
        least = 2 * self._std / max(self.schema.records, 1)
        cuts = np.zeros(self._shapes["cut"])
        for j, margin in enumerate(self._margins):
            share = np.bincount(pool.codes[:, j], minlength=margin.size) / len(pool.codes)
            cuts[j, : margin.size] = cut(margin, share, self.size.codes, least)
        pairs = choose(pool.pairs(cuts, self.size), self.size.pairs, self._target)
        arrays = {"cut": cuts, "pairs": pairs, "codes": pool.codes, "y": pool.y}
        state = {name: torch.from_numpy(np.ascontiguousarray(a)) for name, a in arrays.items()}
        return {**state, "balance": torch.tensor(made.balance, dtype=torch.float64)}

    def memory(self, site: str) -> State:
        """Sites keep nothing."""
        return {}

    def task(self, state: State, round: int) -> Task:
        """How to cut the columns, and which pairs of them to count."""
        return Task({name: state[name].float() for name in ("cut", "pairs")})

    def local(self, task: Task, site: Site) -> tuple[Update, State]:
        """How many of the site's records lie in each cell of each table."""
        cuts = self._whole(task, "cut", self.size.codes)
        pairs = self._whole(task, "pairs", self.size.columns)

        def found(x: Tensor, y: Tensor) -> Tensor:
            coarse = torch.gather(cuts, 1, codes(self._margins, x, y).T).T
            return cells(coarse, y, pairs, self.size)

        return {"tables": site.count("tables", found)}, {}

    def step(self, state: State, total: State, *, rng: Streams) -> State:
        """Keep the noisy tables."""
        return {**state, "tables": total["tables"]}

    def finish(self, state: State, *, rng: Streams) -> Generator:
        """Rows that agree with the tables, and with the earlier phases where nothing was counted."""
        held = {name: value.numpy() for name, value in state.items()}
        pool = Pool(held["codes"], held["y"], held["balance"])
        return generator(pool, self._margins, self.size, held, self._std)

    @property
    def _std(self) -> float:
        """Of the noise in every cell; where sites add it, each adds its own."""
        part, phase = self.plan.own.parts[0], self.plan.own
        if not isinstance(part.mechanism, Gaussian):
            return 0.0
        return part.mechanism.std * math.sqrt(phase.cohort if part.where == "client" else 1.0)

    @property
    def _target(self) -> int | None:
        """The place of a label that is a number, among the columns."""
        names = [margin.name for margin in self._margins]
        return names.index(self.schema.label) if self.schema.label in names else None

    @cached_property
    def _shapes(self) -> dict[str, tuple[int, int]]:
        widest = max(margin.size for margin in self._margins)
        return {"cut": (len(self._margins), widest), "pairs": (self.size.pairs, 2)}

    def _whole(self, task: Task, name: str, below: int) -> Tensor:
        """An array of a task as whole numbers; others are refused before rows are seen."""
        value = task.array(name, self._shapes[name])
        if not bool(((value >= 0) & (value < below) & (value == value.floor())).all()):
            expected = f"a task's {name}: whole numbers from 0 to {below - 1}"
            raise WireError(expected, "others", "ask whoever runs the server; nothing was sent")
        return value.long()


def build(study: Study, own: FedMarginalsOptions) -> Then:
    """fedmoments for its share of ε, then one sum of tables."""
    if study.privacy.clip is not None:
        raise StudyError(
            "no privacy.clip for fedmarginals: a row counts once in each table", "one", "remove it"
        )
    if len(study.schema.features) < 2:
        raise StudyError("two columns besides the label", "one", "use fedmoments")
    first = _first(study, own)
    plan = _plan(study, Size(2, 1, 1, 2, False), first.plan)
    size = _size(study, plan)
    return then(first, FedMarginals(study.schema, _plan(study, size, first.plan), size))


def _first(study: Study, own: FedMarginalsOptions) -> fedmoments.FedMoments:
    privacy = study.privacy
    unit, trust = (privacy.unit or "record", privacy.trust or "central")
    epsilon = privacy.epsilon and privacy.epsilon * (1 - own.tables)
    privacy = replace(privacy, unit=unit, trust=trust, epsilon=epsilon)
    plain = replace(study, privacy=privacy, cohort=Cohort(), rounds=None)
    return fedmoments.build(plain, FedMomentsOptions())


def _plan(study: Study, size: Size, before: PrivacyPlan) -> PrivacyPlan:
    terms = Terms(bound=size.bound, combine="sum")
    shapes = {"tables": size.shape}
    plain = replace(study, cohort=Cohort())
    return noised_plan(plain, FedMarginals.info, shapes, terms, rounds=1, before=before)


def _size(study: Study, plan: PrivacyPlan) -> Size:
    """For the noise that one count of one table would have."""
    part, phase = plan.own.parts[0], plan.own
    noise = part.mechanism.std if isinstance(part.mechanism, Gaussian) else 0.0
    noise *= math.sqrt(phase.cohort if part.where == "client" else 1.0)
    units = study.n_sites if plan.unit == "site" else study.schema.records
    return size_up(study.schema, units, noise)
