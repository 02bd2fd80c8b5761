"""fedmoments: a noisy sum of class moments, then Gaussian samples.

Each record x (low-frequency cosine coefficients of an image or series, or centred columns of a
table, ‖x‖ ≤ 1 enforced) adds φ = (a, b·x, svec(xxᵀ)) to its class's block. One sum, one
Gaussian mechanism with sensitivity √(a² + b² + 1); counts, means and second moments are all
noised. What the server does with the noisy sum is post-processing: `moments` removes noise,
`copula` gives the columns of a table their own margins. A table that is large enough for its noise
has a sum of histograms first: `two_sums`; one so small that noise hides its second moments gives
a and b, counts and means, more of the norm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from understudy.data.encode import blocks
from understudy.data.schema import Schema
from understudy.errors import StudyError
from understudy.federation.recipe import State, Summed, Task, Update
from understudy.federation.site import Site
from understudy.recipes.catalogue import CATALOGUE
from understudy.recipes.copula import latents
from understudy.recipes.features import COUNT, FEW, MEAN, Space, Weights, space, within
from understudy.recipes.moments import Gaussians, Moments, denoise, taken_apart
from understudy.recipes.options import FedMomentsOptions
from understudy.recipes.two_sums import (
    TwoSums,
    completed_sum,
    hardened,
    moments_plan,
    noise_of,
    two_sums,
)
from understudy.recipes.vertical import Vertical, vertical
from understudy.release.generator import Generator
from understudy.rng import Streams
from understudy.study import Study

__all__ = ["FedMoments", "build", "of_rows"]

_WIDEST = 600  # features: their second moments are 180,300 numbers per class


@dataclass(frozen=True)
class FedMoments(Summed):
    """See the module's paragraph."""

    options: FedMomentsOptions
    weights: Weights = (COUNT, MEAN)

    info = CATALOGUE["fedmoments"]

    @property
    def form(self) -> str | None:
        """What `plan` says of a table, which could have two sums."""
        if self.schema.kind != "table":
            return None
        what = "moments" if self.weights != FEW else "means and counts, above all"
        return f"one sum of class {what}: too few rows for more under this much noise"

    @property
    def hidden(self) -> bool:
        """Whether noise hides the second moments of a table, by public numbers alone.

        Even a covariance that had all of the expected variance in one direction would not stand
        out of the noise on its eigenvalues.
        """
        if self.schema.kind != "table" or self.plan.unit == "site":
            return False
        of_all = noise_of(self.plan.own) * math.sqrt(self.schema.n_classes)
        expected = self._space.expected
        edge = of_all / self.schema.records * math.sqrt(2 * len(expected))
        return bool(edge > expected.sum())

    @cached_property
    def _space(self) -> Space:
        """The public feature space."""
        return space(self.schema, self.options.coefficients)

    def local(self, task: Task, site: Site) -> tuple[Update, State]:
        """The site's sum of φ over its records, by class."""
        return {"moments": site.moments("moments", self._features, lambda y: y, self.weights)}, {}

    def finish(self, state: State, *, rng: Streams) -> Generator:
        """Class Gaussians, denoised, and for tables made to fit the columns."""
        noisy = self._moments(completed_sum(state, "moments"))
        found = denoise(noisy)
        config: dict = {"width": self.schema.width}
        if self.schema.kind == "table":
            arrays = self._table(found, noisy.blur, rng)
            config |= hardened(self.schema)
        else:
            values, vectors = np.linalg.eigh(found.covariance * self._spread)
            factor = vectors * np.sqrt(np.maximum(values, 0))[:, None, :]
            arrays = {"mean": found.mean, "factor": factor, "basis": self._space.back}
            arrays["origin"] = self._space.origin
            if self.schema.kind == "image" and self.options.contrast:
                config["contrast"] = self.options.contrast
        tensors = {name: torch.from_numpy(np.ascontiguousarray(v)) for name, v in arrays.items()}
        balance = tuple(found.balance.tolist())
        return Generator("gaussian", {k: v.float() for k, v in tensors.items()}, config, balance)

    def _features(self, x: Tensor, y: Tensor) -> Tensor:
        """Features z of each row, of norm at most 1: so φ has norm at most √(a² + b² + 1)."""
        place = self._space
        return within((x.double() - torch.from_numpy(place.origin)) @ torch.from_numpy(place.into))

    def _moments(self, sums: np.ndarray) -> Moments:
        """The noisy sum taken apart, with the noise each piece carries."""
        return taken_apart(sums, noise_of(self.plan.own), self._space.expected, self.weights)

    @property
    def _spread(self) -> float:
        return self.options.spread if self.schema.kind == "image" else 1.0

    def _table(self, found: Gaussians, blur: np.ndarray, rng: Streams) -> dict[str, np.ndarray]:
        """Latent Gaussians of encoded columns; the basis is the identity."""
        place, per_class = self._space, []
        scale = np.diag(place.back)
        for k, (mean, covariance) in enumerate(zip(found.mean, found.covariance, strict=True)):
            columns = place.origin + mean * scale, covariance * np.outer(scale, scale)
            draw, noise = rng.numpy("margins", k), blur[k] * scale
            per_class.append(latents(*columns, blocks(self.schema), blur=noise, rng=draw))
        means, factors = (np.stack(arrays) for arrays in zip(*per_class, strict=True))
        width = self.schema.width
        return {"mean": means, "factor": factors, "basis": np.eye(width), "origin": np.zeros(width)}


def build(study: Study, own: FedMomentsOptions) -> FedMoments | TwoSums | Vertical:
    """For sites that hold rows, or for parties that hold columns."""
    return vertical(study) if study.parties else of_rows(study, own)


def of_rows(study: Study, own: FedMomentsOptions) -> FedMoments | TwoSums:
    """One sum, or for a table that is large enough two; whatever the study says of rounds."""
    d = _features_of(study.schema, own)
    plan = moments_plan(study, d)
    sums = two_sums(study, plan, own.bounds) if study.schema.kind == "table" else None
    if own.bounds and sums is None:
        raise StudyError(
            "recipe.bounds only for tables with enough rows for their noise",
            "another study",
            "remove it; narrow the bounds of the schema instead, from public knowledge",
        )
    if sums is not None:
        return sums
    made = FedMoments(study.schema, plan, own)
    return replace(made, plan=moments_plan(study, d, FEW), weights=FEW) if made.hidden else made


def _features_of(schema: Schema, own: FedMomentsOptions) -> int:
    d = schema.width if schema.kind == "table" else min(own.coefficients, schema.width)
    if d > _WIDEST:
        raise StudyError(
            f"at most {_WIDEST} encoded features, since second moments grow with their square",
            f"{d}",
            "merge rare categories or drop columns; for images lower recipe.coefficients",
        )
    return d
