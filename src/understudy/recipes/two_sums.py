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
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from understudy.data.encode import blocks
from understudy.data.schema import Schema
from understudy.errors import ReleaseError
from understudy.federation.info import RecipeInfo
from understudy.federation.planning import Terms, noised_plan
from understudy.federation.recipe import State, Task, Update
from understudy.federation.site import Site
from understudy.privacy.gaussian import Gaussian
from understudy.privacy.integer import IntegerGaussian
from understudy.privacy.plan import Phase, PrivacyPlan
from understudy.recipes.behind import behind, pieces
from understudy.recipes.catalogue import CATALOGUE
from understudy.recipes.features import BOUND, phi, phi_width
from understudy.recipes.margins import Margin, clean, codes, margins, spans, total
from understudy.recipes.moments import Moments, denoise, taken_apart
from understudy.recipes.standing import Standing, standing
from understudy.release.generator import Generator
from understudy.rng import Streams
from understudy.study import Study

__all__ = ["TwoSums", "hardened", "moments_plan", "noise_of", "two_sums"]

_SHARE = 0.3  # of the budget, as μ², for the histograms
_FINEST, _COARSEST = 256, 16  # bins of a number
_CLEAR = 0.02  # bins are as fine as keeps the noise of half a range below this share of all rows
_FAINT = 0.05  # noise of a single count, as a share of all rows, above which one sum does better


@dataclass(frozen=True)
class TwoSums:
    """See the module's paragraph."""

    schema: Schema
    plan: PrivacyPlan
    bins: int

    info: ClassVar[RecipeInfo] = CATALOGUE["fedmoments"]

    @property
    def form(self) -> str:
        """What `plan` says."""
        return f"two sums: histograms (numbers in up to {self.bins} bins), then class moments"

    @cached_property
    def margins(self) -> tuple[Margin, ...]:
        """The public cells of every column."""
        return margins(self.schema, self.bins)

    def init(self, *, rng: Streams) -> State:
        """Nothing is shared before the first sum."""
        return {}

    def memory(self, site: str) -> State:
        """Sites keep nothing."""
        return {}

    def task(self, state: State, round: int) -> Task:
        """First nothing, then the cleaned shares of every column's cells."""
        if round < self.plan.length - 1:
            return Task()
        return Task({"shares": torch.from_numpy(self.shares(state)[0]).float()})

    def local(self, task: Task, site: Site) -> tuple[Update, State]:
        """The site's histograms, or its sum of φ by class."""
        sizes = [margin.size for margin in self.margins]
        if site.phase.parts[0].name == "histograms":
            coded = site.count("histograms", lambda x, y: codes(self.margins, x, y), sizes)
            return {"histograms": coded}, {}
        place = self.standing(task.array("shares", (sum(sizes),)))
        return {"moments": site.sum("moments", lambda x, y: phi(place.features(x)), _own)}, {}

    def step(self, state: State, total: State, *, rng: Streams) -> State:
        """Keep the noisy sums."""
        return {**state, **total}

    def finish(self, state: State, *, rng: Streams) -> Generator:
        """Class Gaussians, denoised, behind columns with their own margins."""
        shares, counts = self.shares(state)
        place = self.standing(torch.from_numpy(shares).float())
        noisy = self._moments(state, counts, place)
        found = denoise(noisy)
        made = behind(found, noisy, place, rng=rng.numpy("margins"))
        arrays = {"mean": made.mean, "factor": made.factor, **pieces(place, made.numbers)}
        tensors = {name: torch.from_numpy(value).float() for name, value in arrays.items()}
        config = {"width": self.schema.width, **hardened(self.schema), "numbers": [*made.numbers]}
        return Generator("copula", tensors, config, tuple(found.balance.tolist()))

    def standing(self, shares: Tensor) -> Standing:
        """Where the columns stand, by the shares of their cells as a task has them."""
        return standing(self.margins, shares.numpy(), self.schema.width)

    def shares(self, state: State) -> tuple[np.ndarray, np.ndarray]:
        """Cleaned shares of all codes, end to end, and the noisy counts they come from."""
        if "histograms" not in state:
            raise ReleaseError(
                "a sum of histograms that was completed",
                "one that was charged and cut short",
                "start a new run in another folder; the budget that this run charged cannot be "
                "recovered",
            )
        weight = math.sqrt(len(self.margins))
        counts = state["histograms"].double().numpy() * weight
        each = [counts[span] for span in spans(self.margins)]
        rows, std = total(each), noise_of(self.plan.phases[-2]) * weight
        pairs = zip(self.margins, each, strict=True)
        return np.concatenate([clean(m, h, rows, std) for m, h in pairs]), counts

    def _moments(self, state: State, counts: np.ndarray, place: Standing) -> Moments:
        """The second sum, its counts by class weighed against those of the first."""
        noisy = taken_apart(
            state["moments"].double().numpy(), noise_of(self.plan.own), place.expected
        )
        classes = self.schema.n_classes
        if classes == 1 or self.plan.unit == "site":  # sums that were clipped apart count unlike
            return noisy
        std = noise_of(self.plan.phases[-2]) * math.sqrt(len(self.margins))
        share = noisy.count_std**2 / max(noisy.count_std**2 + std**2, 1e-12)
        return replace(
            noisy,
            counts=(1 - share) * noisy.counts + share * counts[-classes:],
            count_std=math.hypot((1 - share) * noisy.count_std, share * std),
        )


def _own(y: Tensor) -> Tensor:
    return y


def two_sums(study: Study, whole: PrivacyPlan) -> TwoSums | None:
    """The recipe with the budget of ``whole``, a plan of one sum; None where one sum serves better.

    By the noise of a count against all rows: public numbers, never the rows themselves.
    """
    columns = len(study.schema.features) + (study.schema.n_classes > 1)
    bins = _bins(noise_of(whole.own) / BOUND * math.sqrt(columns / _SHARE), study, whole)
    if not bins:
        return None
    size = sum(margin.size for margin in margins(study.schema, bins))
    first = _noised(study, whole, "histograms", (size,), _SHARE, None)
    shape = whole.own.parts[0].shape
    return TwoSums(study.schema, _noised(study, whole, "moments", shape, 1 - _SHARE, first), bins)


def _bins(std: float, study: Study, plan: PrivacyPlan) -> int:
    """How finely to cut numbers, by the noise of a count: 0 where histograms would drown."""
    whole_sites = study.n_sites * (study.privacy.clip or 1.0)
    noise = std / (whole_sites if plan.unit == "site" else study.schema.records)
    if noise > _FAINT:
        return 0
    wanted = (_CLEAR / max(noise, 1e-6)) ** 2
    return int(np.clip(2 ** round(math.log2(max(wanted, 1))), _COARSEST, _FINEST))


def _noised(
    study: Study,
    whole: PrivacyPlan,
    part: str,
    shape: tuple[int, ...],
    share: float,
    before: PrivacyPlan | None,
) -> PrivacyPlan:
    """A phase with its share of the budget; the last of all is solved for what is left."""
    mechanism = whole.own.parts[0].mechanism
    privacy = study.privacy
    if before is None and whole.unit != "site":
        privacy = replace(privacy, clip=None)  # a row's histograms have a norm of their own
    given = before is None or privacy.epsilon is None
    if given and isinstance(mechanism, (Gaussian, IntegerGaussian)):
        noise = mechanism.noise / math.sqrt(share)
        privacy = replace(privacy, epsilon=None, noise=noise)
    terms = Terms(bound=1.0 if before is None else BOUND, combine="sum")
    asked = replace(study, privacy=privacy)
    return noised_plan(asked, TwoSums.info, {part: shape}, terms, rounds=1, before=before)


def moments_plan(study: Study, features: int) -> PrivacyPlan:
    """One sum of φ by class that takes the whole budget."""
    shape = (study.schema.n_classes, phi_width(features))
    terms = Terms(bound=BOUND, combine="sum")
    return noised_plan(study, TwoSums.info, {"moments": shape}, terms, rounds=1)


def noise_of(phase: Phase) -> float:
    """Deviation in every coordinate of a phase's sum; where sites add noise, each adds its own."""
    part = phase.parts[0]
    return part.mechanism.std_of_sum(part, phase)


def hardened(schema: Schema) -> dict[str, Any]:
    """Which features a drawn row must hold as zero or one."""
    found = blocks(schema)
    return {
        "blocks": [[b.start, b.stop] for b in found if b.kind == "categorical"],
        "flags": [b.start for b in found if b.kind in ("boolean", "missing")],
    }
