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

import torch
from torch import Tensor

from understudy.errors import StudyError
from understudy.federation.phases import Then, then
from understudy.federation.planning import unit_and_trust
from understudy.federation.recipe import State, Task, Update
from understudy.federation.site import Site
from understudy.recipes import fedmoments
from understudy.recipes.imposed import Imposed
from understudy.recipes.margins import codes
from understudy.recipes.options import FedMarginalsOptions, FedMomentsOptions
from understudy.recipes.tables import cells, pick, size_up, whole_numbers
from understudy.recipes.two_sums import TwoSums, completed_sum, counts_plan, noise_of
from understudy.recipes.vertical_tables import vertical_tables
from understudy.release.generator import Generator
from understudy.rng import Streams
from understudy.study import Cohort, Study

__all__ = ["FedMarginals", "build"]


@dataclass(frozen=True)
class FedMarginals(Imposed):
    """The last phase; see the module's paragraph."""

    @property
    def form(self) -> str:
        what = "the label and two columns" if self.size.labelled else "two columns"
        return f"{self.size.pairs} tables of {what}, each column in up to {self.size.codes} codes"

    def begin(self, made: Generator, *, rng: Streams) -> State:
        """How to cut the columns, and which pairs of them to count."""
        pool, state = self.drawn(made, rng=rng)
        each = pool.pairs(state["cut"].numpy(), self.size)
        return {**state, "pairs": torch.from_numpy(pick(each, self.size.pairs, self._target))}

    def task(self, state: State, round: int) -> Task:
        """How to cut the columns, and which pairs of them to count."""
        return Task({name: state[name].float() for name in ("cut", "pairs")})

    def local(self, task: Task, site: Site) -> tuple[Update, State]:
        """How many of the site's records lie in each cell of each table."""
        cuts = whole_numbers(task, "cut", self._shapes["cut"], self.size.codes)
        pairs = whole_numbers(task, "pairs", self._shapes["pairs"], self.size.columns)

        def found(x: Tensor, y: Tensor) -> Tensor:
            coarse = torch.gather(cuts, 1, codes(self.columns, x, y).T).T
            return cells(coarse, y, pairs, self.size)

        sizes = [self.size.cells] * self.size.tables
        return {"tables": site.count("tables", found, sizes)}, {}

    def finish(self, state: State, *, rng: Streams) -> Generator:
        """Rows that agree with the tables, and with the earlier phases elsewhere."""
        counts = completed_sum(state, "tables") * math.sqrt(self.size.tables)
        return self.imposed(state, tables=counts.reshape(self.size.tables, self.size.cells))

    @property
    def std(self) -> float:
        """Of the noise in every count: in the sum a count is worth 1/√tables."""
        return noise_of(self.plan.own) * math.sqrt(self.size.tables)

    @property
    def _target(self) -> int | None:
        """The place of a label that is a number, among the columns."""
        names = [margin.name for margin in self.columns]
        return names.index(self.schema.label) if self.schema.label in names else None

    @cached_property
    def _shapes(self) -> dict[str, tuple[int, int]]:
        widest = max(margin.size for margin in self.columns)
        return {"cut": (len(self.columns), widest), "pairs": (self.size.pairs, 2)}


def build(study: Study, own: FedMarginalsOptions) -> Then:
    """fedmoments for its share of ε, then one sum of tables: of rows, or of columns held apart."""
    unit_and_trust(study, FedMarginals.info)
    if len(study.schema.features) < 2:
        raise StudyError("two columns besides the label", "one", "use fedmoments")
    if study.parties:
        return vertical_tables(study, own)
    first = _first(study, own)
    plan = counts_plan(study, FedMarginals.info, ("tables", 4), before=first.plan)
    units = study.n_sites if plan.unit == "site" else study.schema.records
    size = size_up(study.schema, units, noise_of(plan.own))
    part = ("tables", size.tables * size.cells)
    plan = counts_plan(study, FedMarginals.info, part, before=first.plan)
    return then(first, FedMarginals(study.schema, plan, size))


def _first(study: Study, own: FedMarginalsOptions) -> fedmoments.FedMoments | TwoSums:
    unit, trust = study.privacy.unit or "record", study.privacy.trust or "central"
    epsilon = study.privacy.epsilon and study.privacy.epsilon * (1 - own.tables)
    privacy = replace(study.privacy, unit=unit, trust=trust, epsilon=epsilon)
    plain = replace(study, privacy=privacy, cohort=Cohort(), rounds=None)
    return fedmoments.of_rows(plain, FedMomentsOptions())
