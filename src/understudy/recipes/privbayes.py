"""Federated PrivBayes (Zhang et al. 2014), the baseline of Margaritis 2021, §4.5.4.

A Bayesian network draws the label first, and every column given one or two that are already drawn.
It takes up to three noisy sums: histograms, by which columns are cut into a few codes; tables of
all pairs, by which the network is grown; and the network's own tables. A network that the study
gives, as public knowledge, needs no tables of pairs.

The paper picks parents by the exponential mechanism on mutual information, which is not a sum over
sites: here noisy tables say which columns depend on each other (`network`). All but the sums is
post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from understudy.errors import StudyError
from understudy.federation.planning import unit_and_trust
from understudy.federation.recipe import State, Summed, Task, Update
from understudy.federation.site import Site
from understudy.privacy.plan import PrivacyPlan
from understudy.recipes.catalogue import CATALOGUE
from understudy.recipes.imposed import emission
from understudy.recipes.margins import Margin, cleaned, codes, margins
from understudy.recipes.network import Network, conditional, dependence, given, grow
from understudy.recipes.options import PrivBayesOptions
from understudy.recipes.tables import cut, whole_numbers
from understudy.recipes.two_sums import completed_sum, counts_plan, noise_of
from understudy.release.generator import Generator
from understudy.rng import Streams
from understudy.study import Study

__all__ = ["PrivBayes", "build"]

_BINS = 64  # of a number's range
_SHARES = {"histograms": 0.2, "pairs": 0.5, "tables": 1.0}  # of ε, when each sum is known
_CODES = (16, 12, 8, 6, 4)
_USEFUL = 4.0  # deviations of the noise that an average cell is to hold: the paper's θ
_MOST = 2**25  # cells of one sum
_GIVEN = "the network is one that the study declares public: what it tells of rows is not protected"


@dataclass(frozen=True)
class Sums:
    """What is counted, by public numbers: columns (label last), codes of each, parents of each."""

    columns: tuple[Margin, ...]
    features: int
    codes: int
    degree: int

    @property
    def base(self) -> int:
        """Codes of any column, the label too."""
        return max(self.codes, self.columns[-1].size if self.labelled else 1)

    @property
    def labelled(self) -> bool:
        """Whether the last column is the label."""
        return len(self.columns) > self.features

    @cached_property
    def pairs(self) -> Tensor:
        """All pairs of columns ``[2, pairs]``."""
        return torch.tril_indices(len(self.columns), len(self.columns), -1)

    @property
    def sizes(self) -> dict[str, list[int]]:
        """Of every table of every sum."""
        return {
            "histograms": [margin.size for margin in self.columns],
            "pairs": [self.base**2] * self.pairs.shape[1],
            "tables": [self.base ** (self.degree + 1)] * self.features,
        }


@dataclass(frozen=True)
class PrivBayes(Summed):
    """See the module's paragraph. ``given`` is a network of public knowledge."""

    sums: Sums
    given: Network | None

    info = CATALOGUE["privbayes"]

    @property
    def form(self) -> str:
        how = "given by the study" if self.given else "grown by noisy tables of all pairs"
        return f"a network of degree {self.sums.degree}, {how}; up to {self.sums.codes} codes each"

    def task(self, state: State, round: int) -> Task:
        """How to cut the columns, and whose tables to count, as far as it is known."""
        part, known = self.plan.at(round).parts[0].name, {}
        if part != "histograms":
            known["cut"] = self._cuts(state)
        if part == "tables":
            known["parents"] = self._parents(state)
        return Task({name: torch.from_numpy(value).float() for name, value in known.items()})

    def local(self, task: Task, site: Site) -> tuple[Update, State]:
        """The site's counts: of each column's cells, of all pairs, or of the network's tables."""
        part = site.phase.parts[0].name
        asked = {"histograms": lambda: self._fine, "pairs": lambda: self._in_pairs(task)}
        found = asked.get(part, lambda: self._in_tables(task))()
        return {part: site.count(part, found, self.sums.sizes[part])}, {}

    def finish(self, state: State, *, rng: Streams) -> Generator:
        """The network with its chances, and the values of every code."""
        cuts, shares, network = self._cuts(state), self._shares(state), self._network(state)
        sizes = cuts.max(1) + 1
        tables = self._counts(state, "tables")
        chances = [
            self._chances(tables[j], [sizes[p] for p in (j, *parents)], _coarse(shares[j], cuts[j]))
            for j, parents in network.items()
        ]
        features = self.sums.columns[: self.sums.features]
        within = [_within(shares[j], cuts[j]) for j in range(len(features))]
        arrays, columns = emission(features, cuts, sizes, within)
        tensors = {name: torch.from_numpy(a).float() for name, a in arrays.items()}
        tensors["chance"] = torch.from_numpy(np.concatenate(chances)).float()
        config: dict = {"width": self.schema.width, "classes": self.schema.n_classes}
        config["columns"] = [c.to_config() for c in columns]
        config["network"] = [[j, *parents] for j, parents in network.items()]
        balance = shares[-1] if self.sums.labelled else np.ones(1)
        return Generator("network", tensors, config, tuple((balance / balance.sum()).tolist()))

    # What a site counts.

    def _fine(self, x: Tensor, y: Tensor) -> Tensor:
        return codes(self.sums.columns, x, y)

    def _coarse(self, task: Task) -> Callable[[Tensor, Tensor], Tensor]:
        """Rows as codes ``[n, columns]`` under the cuts of a task."""
        cuts = whole_numbers(task, "cut", (len(self.sums.columns), self._widest), self.sums.base)
        return lambda x, y: torch.gather(cuts, 1, self._fine(x, y).T).T

    def _in_pairs(self, task: Task) -> Callable[[Tensor, Tensor], Tensor]:
        """The cell of each pair of columns."""
        coarse, (first, second) = self._coarse(task), self.sums.pairs
        return lambda x, y: (c := coarse(x, y))[:, first] * self.sums.base + c[:, second]

    def _in_tables(self, task: Task) -> Callable[[Tensor, Tensor], Tensor]:
        """The cell of each column's table: its code, then those of its parents."""
        coarse, shape = self._coarse(task), (self.sums.features, self.sums.degree)
        parents = whole_numbers(task, "parents", shape, len(self.sums.columns) + 1)

        def cell(x: Tensor, y: Tensor) -> Tensor:
            held = torch.nn.functional.pad(coarse(x, y), (0, 1))  # the last stands for no parent
            place = held[:, : self.sums.features]
            for which in parents.T:
                place = place * self.sums.base + held[:, which]
            return place

        return cell

    # What the noisy sums say.

    @property
    def _widest(self) -> int:
        return max(self.sums.sizes["histograms"])

    def _std(self, part: str) -> float:
        """Of the noise in every count of a sum."""
        phase = next(p for p in self.plan.phases if p.parts[0].name == part)
        return noise_of(phase) * math.sqrt(len(self.sums.sizes[part]))

    def _counts(self, state: State, part: str) -> np.ndarray:
        """A sum as counts, table by table: in the sum a count is worth 1/√tables."""
        sizes = self.sums.sizes[part]
        counts = completed_sum(state, part) * math.sqrt(len(sizes))
        return counts if part == "histograms" else counts.reshape(len(sizes), -1)

    def _shares(self, state: State) -> list[np.ndarray]:
        """The cleaned histogram of every column."""
        counts = self._counts(state, "histograms")
        return cleaned(self.sums.columns, counts, self._std("histograms"))

    def _cuts(self, state: State) -> np.ndarray:
        """The code ``[columns, cells]`` of each cell of each column."""
        cuts = np.zeros((len(self.sums.columns), self._widest), np.int64)
        least = 2 * self._std("histograms") / max(self.schema.records, 1)
        for code, margin, share in zip(cuts, self.sums.columns, self._shares(state), strict=True):
            code[: margin.size] = cut(margin, share, self.sums.codes, least)
        return cuts

    def _network(self, state: State) -> Network:
        if self.given:
            return self.given
        many, k, std = len(self.sums.columns), self.sums.base, self._std("pairs")
        columns = zip(self._shares(state), self._cuts(state), strict=True)
        margin = [np.append(c := _coarse(*column), np.zeros(k - len(c))) for column in columns]
        apart = np.zeros((many, many))
        for table, i, j in zip(
            self._counts(state, "pairs"), *self.sums.pairs.tolist(), strict=True
        ):
            apart[i, j] = dependence(table.reshape(k, k), margin[i], margin[j], std)
        root = self.sums.features if self.sums.labelled else None
        return grow(apart + apart.T, self.sums.degree, root)

    def _parents(self, state: State) -> np.ndarray:
        """Of every column ``[features, degree]``; one past the last column stands for none."""
        found = np.full((self.sums.features, self.sums.degree), len(self.sums.columns))
        for j, parents in self._network(state).items():
            found[j, : len(parents)] = parents
        return found

    def _chances(self, table: np.ndarray, sizes: list[int], margin: np.ndarray) -> np.ndarray:
        """A column's chances, case by case of its parents, one after the other."""
        ends = sizes + [1] * (self.sums.degree + 1 - len(sizes))
        held = table.reshape((self.sums.base,) * len(ends))[tuple(map(slice, ends))]
        cases = held.reshape(sizes[0], -1).T
        return conditional(cases, margin, self._std("tables")).ravel()


def _coarse(share: np.ndarray, code: np.ndarray) -> np.ndarray:
    """The share of every code."""
    return np.bincount(code[: len(share)], share)


def _within(share: np.ndarray, code: np.ndarray) -> np.ndarray:
    """The share ``[1, cells]`` of each cell within its code."""
    share, code = share + 1e-9, code[: len(share)]
    found: np.ndarray = (share / np.bincount(code, share)[code])[None]
    return found


def build(study: Study, own: PrivBayesOptions) -> PrivBayes:
    """Histograms, then pairs unless the network is given, then the network's tables."""
    unit, _ = unit_and_trust(study, PrivBayes.info)
    schema, columns = study.schema, margins(study.schema, _BINS)
    if len(columns) < 2:
        raise StudyError("two columns, or one and a label", "one", "use fedmoments")
    features, names = len(schema.features), [margin.name for margin in columns]
    known = given(own.network, names, features, own.degree) if own.network else None
    parts = [part for part in _SHARES if part != "pairs" or known is None]
    fewest = Sums(columns, features, _CODES[-1], own.degree)
    noise = noise_of(_plan(study, fewest, parts).own) * math.sqrt(features)
    units = study.n_sites if unit == "site" else schema.records
    tried = [replace(fewest, codes=k) for k in _CODES]
    useful = (s for s in tried if units / s.sizes["tables"][0] >= _USEFUL * noise)
    sums = next(useful, fewest)
    _check_size(sums, parts)
    return PrivBayes(schema, _plan(study, sums, parts), sums, known)


def _check_size(sums: Sums, parts: list[str]) -> None:
    cells = max(sum(sums.sizes[part]) for part in parts)
    if cells > _MOST:
        raise StudyError(
            f"tables of {_MOST:,} cells in all",
            f"{cells:,}",
            "give the network (recipe.network), lower recipe.degree, or leave out columns",
        )


def _plan(study: Study, sums: Sums, parts: list[str]) -> PrivacyPlan:
    """One sum after the other, each with its share of ε; a row's counts have norm 1 in each."""
    plan, notes = None, () if "pairs" in parts else (_GIVEN,)
    for part in parts:
        table = (part, sum(sums.sizes[part]))
        plan = counts_plan(study, PrivBayes.info, table, _SHARES[part], before=plan, notes=notes)
    assert plan is not None
    return plan
