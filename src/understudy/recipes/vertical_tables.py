"""fedmarginals where parties hold columns of the same people: all tables of pairs in one product.

fedmoments for parties comes first (`vertical`), and draws of its generator say how columns are cut
into few codes. A row is then v, one-hot codes of all columns and of the label side by side, and the
last sum is Σ vvᵀ (`federation.products`): its blocks are the tables of all pairs, of one party's
columns or of two parties', and of the label and each column. Tables of the label and two columns
would be products of three, so there are none. A record is in one cell of every column: ‖v‖² is the
number of columns, which the parties' bounds add up to. What follows is fedmarginals' (`imposed`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from understudy.federation.phases import Then, then
from understudy.federation.planning import parties_plan
from understudy.federation.recipe import State, Task, Update
from understudy.federation.site import Site
from understudy.parties import Parties
from understudy.privacy.plan import Part, PrivacyPlan
from understudy.privacy.products import Products
from understudy.recipes.imposed import Imposed
from understudy.recipes.margins import Margin, codes
from understudy.recipes.options import FedMarginalsOptions
from understudy.recipes.tables import BINS, size_of_all, unlabelled, whole_numbers
from understudy.recipes.two_sums import completed_sum, noise_of
from understudy.recipes.vertical import OfParties, vertical, views
from understudy.release.generator import Generator
from understudy.rng import Streams
from understudy.study import Study

__all__ = ["VerticalTables", "vertical_tables"]


@dataclass(frozen=True)
class VerticalTables(Imposed, OfParties):
    """The last phase; see the module's paragraph."""

    @property
    def form(self) -> str:
        return (
            f"fedmoments, then {self.size.pairs} tables of two columns, in up to "
            f"{self.size.codes} codes, as products of the columns of {len(self.held)} parties"
        )

    def begin(self, made: Generator, *, rng: Streams) -> State:
        return self.drawn(made, rng=rng)[1]

    def task(self, state: State, round: int) -> Task:
        return Task({"cut": state["cut"].float()})

    def local(self, task: Task, site: Site) -> tuple[Update, State]:
        """The party's part of v."""
        shape = (len(self.columns), max(margin.size for margin in self.columns))
        cuts, own = whole_numbers(task, "cut", shape, self.size.codes), self.views[site.ids[0]]
        names = [margin.name for margin in self.columns]
        mine = [names.index(margin.name) for margin in unlabelled(own.margins)]

        def found(x: Tensor, y: Tensor) -> Tensor:
            held = unlabelled(own.margins)
            parts = [_onehot(y, own.classes)] if own.classes else []
            if held:
                coarse = torch.gather(cuts[mine], 1, codes(held, x, y).T)
                widths = _widths(held, self.size.codes)
                parts += [_onehot(c, w) for c, w in zip(coarse, widths, strict=True)]
            return torch.cat(parts, dim=1)

        return {"tables": site.columns("tables", found)}, {}

    def finish(self, state: State, *, rng: Streams) -> Generator:
        """Rows that agree with the tables, and with fedmoments elsewhere."""
        return self.imposed(state, **self._tables(completed_sum(state, "tables")))

    def _tables(self, product: np.ndarray) -> dict[str, np.ndarray]:
        """The blocks of all pairs, then of the label and each column, as `imposed` reads them."""
        places, label = self._places()
        pairs = np.stack(np.tril_indices(self.size.columns, -1), 1)
        tables = np.zeros((self.size.tables, self.size.cells))
        k, classes = self.size.codes, self.size.classes
        for table, (i, j) in zip(tables, pairs, strict=False):
            block = product[places[i], places[j]]
            table[: k * k].reshape(k, k)[: len(block), : block.shape[1]] = block
        for table, place in zip(tables[len(pairs) :], places, strict=False):
            block = product[label, place]
            table[: classes * k].reshape(classes, k)[:, : block.shape[1]] = block
        return {"pairs": pairs, "tables": tables}

    def _places(self) -> tuple[list[slice], slice]:
        """Where every column of the schema, and the label, stand in v."""
        found: dict[str, slice] = {}
        at, label = 0, slice(0, 0)
        for own in self.views:
            if own.classes:
                label, at = slice(at, at + own.classes), at + own.classes
            held = unlabelled(own.margins)
            ends = at + np.cumsum([0, *_widths(held, self.size.codes)])
            spans = (slice(a, b) for a, b in pairwise(ends.tolist()))
            found |= {margin.name: span for margin, span in zip(held, spans, strict=True)}
            at = int(ends[-1])
        return [found[margin.name] for margin in self.columns], label


def _onehot(code: Tensor, width: int) -> Tensor:
    return functional.one_hot(code.clamp(0, width - 1), width).double()


def _widths(found: tuple[Margin, ...], most: int) -> list[int]:
    """How many codes columns can have: a public number."""
    return [min(margin.size, most) for margin in found]


def vertical_tables(study: Study, own: FedMarginalsOptions) -> Then:
    """fedmoments for its share of ε, then one product of all parties' columns."""
    held, privacy = study.held, study.privacy
    assert held is not None
    epsilon = privacy.epsilon and privacy.epsilon * (1 - own.tables)
    first = vertical(replace(study, privacy=replace(privacy, epsilon=epsilon), rounds=None))
    plan = _plan(study, held, 4, first.plan)
    size = size_of_all(study.schema, noise_of(plan.own))
    plan = _plan(study, held, size.codes, first.plan)
    return then(first, VerticalTables(study.schema, plan, held, BINS, size))


def _plan(study: Study, held: Parties, most: int, before: PrivacyPlan) -> PrivacyPlan:
    """One product sum; every column of a record has norm 1."""
    each = [unlabelled(own.margins) for own in views(held, BINS)]
    labels = [own.classes for own in views(held, BINS)]
    widths = tuple(sum(_widths(c, most)) + n for c, n in zip(each, labels, strict=True))
    norms = tuple(float(len(c) + (n > 0)) for c, n in zip(each, labels, strict=True))
    mechanism = Products(widths, norms, study.schema.records, study.privacy.noise or 1.0)
    part = Part("tables", (sum(widths),) * 2, "sum", "client", mechanism)
    return parties_plan(study, VerticalTables.info, (part,), rounds=1, before=before)
