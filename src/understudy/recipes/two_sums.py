"""fedmoments on tables: a noisy sum of histograms, then one of class moments of normal scores.

The first sum holds the histograms of all columns. Cleaned, they say how each column is
distributed, and are public from then on: numbers become normal scores by them, and the second sum
holds the class moments of scores, categories and flags, as for images. What is released draws
class Gaussians and gives every column its own margin. Both sums are on the claim; how fine the
histograms are, and whether a table is large enough for them, follows from public numbers alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from understudy.data.encode import blocks
from understudy.data.schema import Schema
from understudy.errors import unfinished
from understudy.federation.info import RecipeInfo
from understudy.federation.planning import Terms, noised_plan
from understudy.federation.recipe import State, Summed, Task, Update
from understudy.federation.site import Site
from understudy.privacy.gaussian import Gaussian
from understudy.privacy.integer import IntegerGaussian
from understudy.privacy.plan import Phase, PrivacyPlan
from understudy.recipes.behind import Behind, behind, pieces
from understudy.recipes.catalogue import CATALOGUE
from understudy.recipes.features import BOUND, COUNT, MEAN, Weights, norm, phi_width, within
from understudy.recipes.margins import Margin, cleaned, codes, margins, most, orders, spans, used
from understudy.recipes.moments import Moments, denoise, taken_apart
from understudy.recipes.standing import Standing, standing
from understudy.release.generator import Generator
from understudy.rng import Streams
from understudy.study import Cohort, Study

__all__ = [
    "TwoSums",
    "bins_for",
    "completed_sum",
    "copula",
    "counts_plan",
    "hardened",
    "moments_plan",
    "noise_of",
    "two_sums",
]

_SHARE = 0.3  # of the budget, as μ², for the histograms
_LOOK = 0.1  # of the budget for a first look at the bounds, where one is asked for
_BINS = ((0.0005, 256), (0.001, 128), (0.004, 64), (0.01, 32), (math.inf, 24))
"""Bins of a number, by the noise of a single count as a share of all rows: the first above it."""
_FAINT = 0.05  # noise of a single count, as a share of all rows, above which one sum does better


@dataclass(frozen=True)
class Known:
    """The histograms: cells, their cleaned ``shares`` and noisy ``counts``, and the noise."""

    margins: tuple[Margin, ...]
    shares: np.ndarray
    counts: np.ndarray
    std: float


@dataclass(frozen=True)
class TwoSums(Summed):
    """See the module's paragraph."""

    bins: int

    info = CATALOGUE["fedmoments"]

    @property
    def form(self) -> str:
        first = "bounds, then " if self._finds_bounds else ""
        return f"{first}histograms (numbers in up to {self.bins} bins), then class moments"

    @property
    def _finds_bounds(self) -> bool:
        return any(phase.parts[0].name == "bounds" for phase in self.plan.phases)

    @cached_property
    def _orders(self) -> tuple[Margin, ...]:
        return orders(self.schema)

    def task(self, state: State, round: int) -> Task:
        """What the sums before have shown: ranges, if they are looked for; shares of cells."""
        part, known = self.plan.at(round).parts[0].name, {}
        if part != "bounds" and self._finds_bounds:
            known["ranges"] = self._ranges(state)
        if part == "moments":
            known["shares"] = self.known(state).shares
        return Task({name: torch.from_numpy(value).float() for name, value in known.items()})

    def local(self, task: Task, site: Site) -> tuple[Update, State]:
        """The site's histograms, or its sum of φ by class."""
        part = site.phase.parts[0].name
        found = self._orders if part == "bounds" else self._margins(task)
        if part != "moments":
            sizes = [margin.size for margin in found]
            return {part: site.count(part, lambda x, y: codes(found, x, y), sizes)}, {}
        place = self._standing(found, task.array("shares", (self._size,)))
        return {
            part: site.moments(part, lambda x, y: within(place.features(x)), _own, (COUNT, MEAN))
        }, {}

    def finish(self, state: State, *, rng: Streams) -> Generator:
        """Class Gaussians, denoised, behind columns with their own margins."""
        known = self.known(state)
        place = self._standing(known.margins, torch.from_numpy(known.shares).float())
        noisy = self._moments(state, known, place)
        found = denoise(noisy)
        made = behind(found, noisy, place, rng=rng.numpy("margins"))
        return copula(self.schema, place, made, found.balance)

    @property
    def _size(self) -> int:
        """Of the vector of all histograms."""
        return self._histograms.parts[0].shape[0]

    @property
    def _histograms(self) -> Phase:
        return next(p for p in self.plan.phases if p.parts[0].name == "histograms")

    def _margins(self, task: Task) -> tuple[Margin, ...]:
        """The cells of every column: public, or within ranges that a noisy sum has shown."""
        if not self._finds_bounds:
            return margins(self.schema, self.bins)
        found = task.array("ranges", (len(self._orders), 2)).double().nan_to_num(0).clamp(0, 1)
        wide = found[:, 1] > found[:, 0]
        found = torch.where(wide[:, None], found, torch.tensor([0.0, 1.0]).double())
        return margins(self.schema, self.bins, found.numpy())

    def _standing(self, found: tuple[Margin, ...], shares: Tensor) -> Standing:
        """Where the columns stand, by the shares of their cells as a task has them."""
        return standing(found, shares.numpy(), self.schema.width)

    def _ranges(self, state: State) -> np.ndarray:
        """The part of its bounds that each number uses ``[numbers, 2]``."""
        weight = math.sqrt(len(self._orders))
        counts = completed_sum(state, "bounds") * weight
        std = noise_of(self.plan.phases[0]) * weight
        pairs = zip(self._orders, spans(self._orders), strict=True)
        return np.array([used(margin, counts[span], std) for margin, span in pairs])

    def known(self, state: State) -> Known:
        """What the histograms say of every column."""
        found = self._margins(self.task(state, self.plan.length - 2))
        weight = math.sqrt(len(found))
        counts = completed_sum(state, "histograms") * weight
        std = noise_of(self._histograms) * weight
        shares = np.zeros(len(counts))  # longer than the histograms where ranges were looked for
        known = np.concatenate(cleaned(found, counts, std))
        shares[: len(known)] = known
        return Known(found, shares, counts, std)

    def _moments(self, state: State, known: Known, place: Standing) -> Moments:
        """The second sum, its counts by class weighed against those of the first."""
        sums = completed_sum(state, "moments")
        noisy = taken_apart(sums, noise_of(self.plan.own), place.expected)
        if self.schema.n_classes == 1 or self.plan.unit == "site":  # clipped apart, counting unlike
            return noisy
        return noisy.counted(known.counts[spans(known.margins)[-1]], known.std)


def completed_sum(state: State, part: str) -> np.ndarray:
    """A noisy sum in double; refused where its round was void."""
    if part not in state:
        raise unfinished(f"a sum of {part} that was completed")
    return state[part].double().numpy()


def _own(y: Tensor) -> Tensor:
    return y


def two_sums(study: Study, whole: PrivacyPlan, bounds: bool = False) -> TwoSums | None:
    """The recipe with the budget of ``whole``, a plan of one sum; None where one sum serves better.

    By the noise of a count against all rows: public numbers, never the rows themselves.
    """
    schema, before, left = study.schema, None, 1.0
    bounds = bounds and bool(orders(schema))
    if bounds:
        size, left = sum(margin.size for margin in orders(schema)), 1 - _LOOK
        before = _noised(study, whole, ("bounds", (size,)), _LOOK, None)
    columns = len(schema.features) + (schema.n_classes > 1)
    share = _SHARE * left
    bins = bins_for(noise_of(whole.own) / BOUND * math.sqrt(columns / share), study, whole)
    if not bins:
        return None
    size = most(schema, bins) if bounds else sum(m.size for m in margins(schema, bins))
    before = _noised(study, whole, ("histograms", (size,)), share, before)
    last = ("moments", whole.own.parts[0].shape)
    return TwoSums(schema, _noised(study, whole, last, left - share, before), bins)


def bins_for(std: float, study: Study, plan: PrivacyPlan) -> int:
    """How finely to cut numbers, by the noise of a count: 0 where histograms would drown."""
    whole_sites = study.n_sites * (study.privacy.clip or 1.0)
    noise = std / (whole_sites if plan.unit == "site" else study.schema.records)
    if noise > _FAINT:
        return 0
    return next(bins for above, bins in _BINS if noise < above)


def _noised(
    study: Study,
    whole: PrivacyPlan,
    part: tuple[str, tuple[int, ...]],
    share: float,
    before: PrivacyPlan | None,
) -> PrivacyPlan:
    """A phase with its share of the budget; the last of all is solved for what is left."""
    last, mechanism, privacy = part[0] == "moments", whole.own.parts[0].mechanism, study.privacy
    if not last and whole.unit != "site":
        privacy = replace(privacy, clip=None)  # a row's histograms have a norm of their own
    solved = last and privacy.epsilon
    if isinstance(mechanism, (Gaussian, IntegerGaussian)) and not solved:
        privacy = replace(privacy, epsilon=None, noise=mechanism.noise / math.sqrt(share))
    terms = Terms(bound=BOUND if last else 1.0, combine="sum")
    asked = replace(study, privacy=privacy)
    return noised_plan(asked, TwoSums.info, dict([part]), terms, rounds=1, before=before)


def moments_plan(study: Study, features: int, weights: Weights = (COUNT, MEAN)) -> PrivacyPlan:
    """One sum of φ by class that takes the whole budget."""
    shape = (study.schema.n_classes, phi_width(features))
    terms = Terms(bound=norm(weights), combine="sum")
    return noised_plan(study, TwoSums.info, {"moments": shape}, terms, rounds=1)


def counts_plan(
    study: Study,
    info: RecipeInfo,
    part: tuple[str, int],
    share: float = 1.0,
    *,
    before: PrivacyPlan | None = None,
    notes: tuple[str, ...] = (),
) -> PrivacyPlan:
    """One sum of tables, the part's name and size, with the noise that keeps to a share of ε.

    A row's counts have norm 1 whatever the study's clip; a whole site's are clipped to it.
    """
    privacy, (name, size) = study.privacy, part
    epsilon = privacy.epsilon and privacy.epsilon * share
    clip = privacy.clip if privacy.unit == "site" else None
    plain = replace(study, cohort=Cohort(), privacy=replace(privacy, epsilon=epsilon, clip=clip))
    shapes, terms = {name: (size,)}, Terms(bound=1.0, combine="sum")
    return noised_plan(plain, info, shapes, terms, rounds=1, before=before, notes=notes)


def noise_of(phase: Phase) -> float:
    """Deviation in every coordinate of a phase's sum; where sites add noise, each adds its own."""
    part = phase.parts[0]
    return part.mechanism.std_of_sum(part, phase)


def copula(schema: Schema, place: Standing, made: Behind, balance: np.ndarray) -> Generator:
    """The release: these Gaussians behind columns with their own margins."""
    arrays = {"mean": made.mean, "factor": made.factor, **pieces(place, made.numbers)}
    tensors = {name: torch.from_numpy(value).float() for name, value in arrays.items()}
    config = {"width": schema.width, **hardened(schema), "numbers": [*made.numbers]}
    return Generator("copula", tensors, config, tuple(balance.tolist()))


def hardened(schema: Schema) -> dict[str, Any]:
    """Which features a drawn row must hold as zero or one."""
    found = blocks(schema)
    return {
        "blocks": [[b.start, b.stop] for b in found if b.kind == "categorical"],
        "flags": [b.start for b in found if b.kind in ("boolean", "missing")],
    }
