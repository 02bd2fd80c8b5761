"""fedmoments where parties hold columns of the same people: histograms, then a matrix of products.

As `two_sums`: the first sum holds the histograms of all columns, each from the party that has it,
and gives numbers their normal scores. A row is then v = (a·class, x), with x the scores, categories
and flags of all parties, and the second sum is Σ vvᵀ: class counts, class means, and the second
moments of all pairs of columns, within a party and across two (`federation.products`). Second
moments are pooled: those of a class would be products of three columns. The label is a column like
any other, at whichever party holds it.

Each party bounds its own part of v, so that the parts' bounds add up to the bound of the whole.
A column that several parties hold counts at the first of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from understudy.errors import StudyError
from understudy.federation.planning import parties_plan
from understudy.federation.recipe import State, Summed, Task, Update
from understudy.federation.site import Site
from understudy.parties import Parties
from understudy.privacy.integer import IntegerGaussian
from understudy.privacy.plan import Part, PrivacyPlan
from understudy.privacy.products import Products
from understudy.recipes.behind import behind
from understudy.recipes.catalogue import CATALOGUE
from understudy.recipes.margins import Margin, cleaned, codes, margins, spans, stretches, total
from understudy.recipes.moments import Gaussians, Moments, clean_pooled, shrink_means
from understudy.recipes.standing import Standing, standing
from understudy.recipes.two_sums import bins_for, completed_sum, copula
from understudy.release.generator import Generator
from understudy.rng import Streams
from understudy.study import Study

__all__ = ["OfParties", "Vertical", "vertical", "views"]

_SHARE = 0.3  # of the budget, as μ², for the histograms
_CLASS = math.sqrt(0.2)  # a: weight of the class in v
_WIDEST = 600  # features of all parties


@dataclass(frozen=True)
class OfParties(Summed):
    """What recipes of sums have in common where parties hold columns: how each sees its own."""

    held: Parties
    bins: int

    @cached_property
    def views(self) -> tuple[View, ...]:
        return views(self.held, self.bins)


class Vertical(OfParties):
    """See the module's paragraph."""

    info = CATALOGUE["fedmoments"]

    @property
    def form(self) -> str:
        return (
            f"histograms (numbers in up to {self.bins} bins), then products of the columns of "
            f"{len(self.held)} parties"
        )

    def task(self, state: State, round: int) -> Task:
        """Nothing, then what the histograms have shown: shares of all cells, party by party."""
        if round == 0:
            return Task()
        each = [self._shares(state, party) for party in range(len(self.held))]
        return Task({"shares": torch.from_numpy(np.concatenate(each)).float()})

    def local(self, task: Task, site: Site) -> tuple[Update, State]:
        """The party's histograms, or its part of v."""
        own = self.views[site.ids[0]]
        if site.round == 0:
            sizes, name = [m.size for m in own.margins], site.parts[0].name
            return {name: site.count(name, lambda x, y: codes(own.margins, x, y), sizes)}, {}
        shares = task.array("shares", (sum(each.cells for each in self.views),)).numpy()
        place = own.standing(shares[self._cells[site.ids[0]]])
        return {"moments": site.columns("moments", lambda x, y: own.features(place, x, y))}, {}

    def finish(self, state: State, *, rng: Streams) -> Generator:
        """Class Gaussians of one covariance, denoised, behind columns with their own margins."""
        place, noisy = self._place(state), self._moments(state)
        found, noisy = pooled(noisy, place.expected)
        made = behind(found, noisy, place, rng=rng.numpy("margins"))
        return copula(self.schema, place, made, found.balance)

    @cached_property
    def _cells(self) -> list[slice]:
        """Where each party's cells lie among all."""
        return stretches([each.cells for each in self.views])

    def _counts(self, state: State, party: int) -> tuple[np.ndarray, float]:
        """A party's noisy histograms and the noise of a count."""
        part = self.plan.phases[0].parts[party]
        weight = math.sqrt(sum(len(each.margins) for each in self.views))
        std = part.mechanism.std_of_sum(part, self.plan.phases[0])
        return completed_sum(state, part.name) * weight, std * weight

    def _shares(self, state: State, party: int) -> np.ndarray:
        """The cleaned shares of a party's cells; how many rows there are is judged by all."""
        found = self.views[party].margins
        return np.concatenate(cleaned(found, *self._counts(state, party), self._rows(state)))

    def _rows(self, state: State) -> float:
        """How many rows there are, by all histograms."""
        each = []
        for party, own in enumerate(self.views):
            counts, _ = self._counts(state, party)
            each += [counts[span] for span in spans(own.margins)]
        return total(each)

    def _place(self, state: State) -> Standing:
        """Where all columns stand, in the order of the schema, as the parties have scaled them."""
        whole = margins(self.schema, self.bins)
        shares: dict[str, np.ndarray] = {}
        origin, scale, expected = (np.zeros(self.schema.width) for _ in range(3))
        for party, own in enumerate(self.views):
            found = self._shares(state, party)
            place = own.standing(found.astype(np.float32).astype(np.float64))
            shares |= {
                m.name: found[s] for m, s in zip(own.margins, spans(own.margins), strict=True)
            }
            for values, held in ((origin, place.origin), (scale, place.scale)):
                values[own.there] = held[own.here]
            expected[own.there] = place.expected[own.here]
        ordered = np.concatenate([shares[margin.name] for margin in whole]).astype(np.float32)
        place = standing(whole, ordered, self.schema.width)
        return replace(place, origin=origin, scale=scale, expected=expected)

    def _moments(self, state: State) -> Moments:
        """The matrix taken apart: counts, class sums, and one matrix of second moments."""
        whole, part = completed_sum(state, "moments"), self.plan.own.parts[0]
        std, classes = part.mechanism.std_of_sum(part, self.plan.own), self.schema.n_classes
        at, order, labels = 0, np.zeros(self.schema.width, np.int64), slice(0, 0)
        for own in self.views:
            if own.classes:
                labels = slice(at, at + own.classes)
            order[own.there] = at + own.classes + np.arange(len(own.there))
            at += own.classes + len(own.there)
        counts = np.diagonal(whole)[labels] / _CLASS**2
        found = Moments(
            counts=counts,
            sums=whole[labels][:, order] / _CLASS,
            squares=whole[np.ix_(order, order)][None],
            count_std=std / _CLASS**2,
            sum_std=std / _CLASS,
            square_std=std,
            expected=np.zeros(self.schema.width),
        )
        return found if classes == 1 else self._counted(state, found)

    def _counted(self, state: State, found: Moments) -> Moments:
        """Counts by class weighed against those of the label's histogram."""
        party = self.held.labelled
        assert party is not None
        counts, std = self._counts(state, party)
        label = counts[spans(self.views[party].margins)[-1]]
        return found.counted(label, std)


@dataclass(frozen=True)
class View:
    """One party's own columns: its margins, and its features ``here`` and ``there``, in the whole.

    ``classes`` is the width of the class in its part of v (0: another party has it), ``norm`` the
    squared norm of its features.
    """

    margins: tuple[Margin, ...]
    width: int
    here: np.ndarray
    there: np.ndarray
    classes: int
    norm: float

    @property
    def cells(self) -> int:
        """Of all its histograms."""
        return sum(margin.size for margin in self.margins)

    def standing(self, shares: np.ndarray) -> Standing:
        """Features of a typical row have a squared norm just below the party's bound."""
        if not len(self.here):  # a party with the label alone
            return Standing((), (), (), *(np.zeros(self.width) for _ in range(3)))
        place = standing(self.margins, shares, self.width)
        narrow = math.sqrt(self.norm)
        return replace(place, scale=place.scale * narrow, expected=place.expected * self.norm)

    def features(self, place: Standing, x: Tensor, y: Tensor) -> Tensor:
        """The party's part of v; the features alone are bounded, the class has its own place."""
        found = place.features(x)[:, torch.from_numpy(self.here)].nan_to_num(0)
        longest = math.sqrt(self.norm) * (1 - 1e-9)
        found = found * (longest / found.norm(dim=1, keepdim=True).clamp(min=1e-12)).clamp(max=1)
        if not self.classes:
            return found
        chosen = y.clamp(0, self.classes - 1)
        return torch.cat([_CLASS * torch.eye(self.classes).double()[chosen], found], dim=1)


def views(held: Parties, bins: int) -> tuple[View, ...]:
    """Every party's view of the table."""
    return tuple(_view(held, party, bins) for party in range(len(held)))


def _view(held: Parties, party: int, bins: int) -> View:
    schema, whole, own = held.schema_of(party), held.schema, set(held.own(party))
    found = tuple(m for m in margins(schema, bins) if m.name in own)
    here: list[int] = []
    there: list[int] = []
    for margin in found:
        if margin.start is not None:
            start = whole.place(margin.name)[0]
            here += range(margin.start, margin.start + margin.width)
            there += range(start, start + margin.width)
    classes = whole.n_classes if (held.labelled or 0) == party else 0
    if not found:
        raise StudyError(
            f"a column that no party before {held.names[party]} holds",
            "none",
            "leave the party out: what it shares is known already",
        )
    share = sum(m.start is not None for m in found) / len(whole.features)
    norm = share if there else 0.0
    return View(found, schema.width, np.array(here, int), np.array(there, int), classes, norm)


def pooled(noisy: Moments, expected: np.ndarray) -> tuple[Gaussians, Moments]:
    """Class Gaussians with one covariance, and the moments that these would have.

    The variance of a class is unknown, so its noise is said to be endless: `behind` then lets
    classes differ by a shift alone.
    """
    counts = np.maximum(noisy.counts, max(noisy.count_std, 1e-9))
    balance, rows = counts / counts.sum(), float(counts.sum())
    mean = shrink_means(noisy.sums / counts[:, None], balance, noisy.sum_std / counts)
    between = np.einsum("c,ci,cj->ij", balance, mean, mean)
    spread = clean_pooled(noisy.squares[0] / rows - between, noisy.square_std / rows, expected)
    each = np.repeat(spread[None], len(counts), axis=0)
    squares = counts[:, None, None] * (each + mean[:, :, None] * mean[:, None, :])
    found = Gaussians(balance, mean, each)
    return found, replace(noisy, squares=squares, square_std=1e9, expected=expected)


def vertical(study: Study) -> Vertical:
    """The recipe a study of parties asks for: two sums, by public numbers alone."""
    held, schema = study.held, study.schema
    assert held is not None
    if schema.width > _WIDEST:
        raise StudyError(
            f"at most {_WIDEST} encoded features, since products grow with their square",
            f"{schema.width}",
            "merge rare categories or drop columns",
        )
    seen = views(held, 2)
    whole = parties_plan(study, Vertical.info, (_products(study, seen),), rounds=1)
    noise, columns = _noise(whole), sum(len(each.margins) for each in seen)
    bins = bins_for(noise * math.sqrt(columns / _SHARE), study, whole)
    if not bins:
        raise StudyError(
            "enough rows for histograms under this much noise",
            f"{schema.records:,} records at z = {noise:.3g}",
            "ask for a larger ε, or bring more rows",
        )
    seen = views(held, bins)
    solved = replace(study, privacy=replace(study.privacy, epsilon=None, noise=noise))
    counts = tuple(_histogram(study, each, i, noise, columns) for i, each in enumerate(seen))
    before = parties_plan(solved, Vertical.info, counts, rounds=1)
    part = _products(study, seen, noise / math.sqrt(1 - _SHARE))  # both together: noise again
    plan = parties_plan(solved, Vertical.info, (part,), rounds=1, before=before)
    return Vertical(schema, plan, held, bins)


def _noise(plan: PrivacyPlan) -> float:
    mechanism = plan.own.parts[0].mechanism
    assert isinstance(mechanism, Products)
    return mechanism.noise


def _histogram(study: Study, own: View, party: int, noise: float, columns: int) -> Part:
    """A party's histograms: all columns of a row together have norm 1, its own their part of it."""
    bound = math.sqrt(len(own.margins) / columns)
    z = noise / math.sqrt(_SHARE) / bound
    mechanism = IntegerGaussian(bound, noise=z, most=study.schema.records)
    name = f"histograms {party + 1}"
    return Part(name, (own.cells,), "sum", "client", mechanism, party)


def _products(study: Study, seen: tuple[View, ...], noise: float | None = None) -> Part:
    widths = tuple(len(each.there) + each.classes for each in seen)
    norms = tuple(each.norm + (_CLASS**2 if each.classes else 0.0) for each in seen)
    z = noise or study.privacy.noise or 1.0
    mechanism = Products(widths, tuple(n * (1 + 1e-3) for n in norms), study.schema.records, z)
    return Part("moments", (sum(widths),) * 2, "sum", "client", mechanism)
