"""fedmoments: one noisy sum of class moments, then Gaussian samples (systems §10).

Each record x (low-frequency cosine coefficients of an image, or centred columns of a table,
‖x‖ ≤ R) contributes φ = (a, b·x, c·svec(xxᵀ)) to its class's block. One sum, one Gaussian
mechanism with sensitivity √(a² + b²R² + c²R⁴); counts, means and covariances are all noised.
What the server does with the noisy sum is post-processing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.fft
import torch
from torch import Tensor

from understudy.data.schema import Schema
from understudy.data.shards import Shards
from understudy.federation.recipe import RecipeInfo, State, Task, Update, make_plan
from understudy.federation.slots import Private
from understudy.privacy.plan import PrivacyPlan
from understudy.release.generator import Generator
from understudy.rng import Streams
from understudy.study import Study, options, setting

__all__ = ["FedMoments", "FedMomentsOptions"]


@dataclass(frozen=True)
class FedMomentsOptions:
    """``[recipe]`` of a fedmoments study."""

    coefficients: int = setting(100, "cosine coefficients kept of an image")
    radius: float = setting(1.0, "R: norm to which a record's (scaled) features are clipped")
    count_weight: float = setting(0.3, "a: weight of the count")
    mean_weight: float = setting(1.0, "b: weight of the means")
    square_weight: float = setting(1.0, "c: weight of the second moments")


@dataclass(frozen=True)
class FedMoments:
    """See the module's paragraph."""

    schema: Schema
    plan: PrivacyPlan
    options: FedMomentsOptions

    info: ClassVar[RecipeInfo] = RecipeInfo(
        name="fedmoments",
        title="One noisy sum of class moments",
        paper="our own, after DP-MERF and the moment methods",
        summary="One round; each site sends one bounded sum; best at small budgets.",
        kinds=("table", "image", "series"),
        supports=frozenset(
            (u, t) for u in ("record", "person", "site") for t in ("central", "local")
        ),
        default=("record", "central"),
        options=FedMomentsOptions,
        rounds=1,
    )

    @classmethod
    def build(cls, study: Study) -> FedMoments:
        """One round, whatever the study says about rounds."""
        own = options(FedMomentsOptions, study.options)
        d = len(basis(study.schema, own))
        shape = (study.schema.n_classes, 1 + d + d * (d + 1) // 2)
        a, b, c, r = own.count_weight, own.mean_weight, own.square_weight, own.radius
        bound = math.sqrt(a**2 + b**2 * r**2 + c**2 * r**4)
        plan = make_plan(study, cls.info, {"moments": shape}, bound=bound, combine="sum", rounds=1)
        return cls(study.schema, plan, own)

    def init(self, *, rng: Streams) -> State:
        """Nothing is shared before the sum."""
        return {}

    def memory(self) -> State:
        """Sites keep nothing."""
        return {}

    def task(self, state: State, round: int) -> Task:
        """The question is in the study file."""
        return Task()

    def local(
        self, task: Task, memory: State, data: Shards, private: Private, *, rng: Streams
    ) -> tuple[Update, State]:
        """The site's sum of φ over its records, by class."""
        return {"moments": private.sum("moments", data, self._features, lambda y: y)}, memory

    def step(self, state: State, total: State, *, rng: Streams) -> State:
        """Keep the noisy sum."""
        return {"moments": total["moments"]}

    def finish(self, state: State, *, rng: Streams) -> Generator:
        """Counts, means and covariances, denoised."""
        own, matrix = self.options, basis(self.schema, self.options)
        d = len(matrix)
        sums = state["moments"].double().numpy()
        count = np.maximum(sums[:, 0] / own.count_weight, 1.0)
        mean = sums[:, 1 : 1 + d] / own.mean_weight / count[:, None]
        std = self.plan.parts[0].noise * self.plan.parts[0].bound / own.square_weight
        factors = []
        for k, n in enumerate(count):
            second = unsvec(sums[k, 1 + d :], d) / own.square_weight / n
            values, vectors = np.linalg.eigh(second - np.outer(mean[k], mean[k]))
            edge = std * math.sqrt(2 * d) / n
            factors.append(vectors * np.sqrt(np.where(values > edge, values - edge / 2, 0.0)))
        arrays = {
            "mean": torch.from_numpy(mean).float(),
            "factor": torch.from_numpy(np.stack(factors)).float(),
            "basis": torch.from_numpy(matrix).float(),
            "origin": torch.full((self.schema.width,), 0.5 if self.schema.kind == "table" else 0.0),
        }
        return Generator(
            "gaussian", arrays, {"width": self.schema.width}, tuple(count / count.sum())
        )

    def _features(self, x: Tensor, y: Tensor) -> Tensor:
        matrix = torch.from_numpy(basis(self.schema, self.options)).float()
        origin = 0.5 if self.schema.kind == "table" else 0.0
        z = (x - origin) @ torch.linalg.pinv(matrix)
        z = z * (self.options.radius / z.norm(dim=1, keepdim=True).clamp(min=self.options.radius))
        own = self.options
        ones = torch.full((len(z), 1), own.count_weight)
        return torch.cat((ones, own.mean_weight * z, own.square_weight * svec(z)), dim=1)


def svec(z: Tensor) -> Tensor:
    """Upper triangle of zzᵀ, off-diagonals times √2, so that norms are kept."""
    rows, columns = torch.triu_indices(z.shape[1], z.shape[1])
    scale = torch.where(rows == columns, 1.0, math.sqrt(2))
    return z[:, rows] * z[:, columns] * scale


def unsvec(v: np.ndarray, d: int) -> np.ndarray:
    """The symmetric matrix of a vector made by `svec`."""
    rows, columns = np.triu_indices(d)
    matrix = np.zeros((d, d))
    matrix[rows, columns] = v / np.where(rows == columns, 1.0, math.sqrt(2))
    return matrix + np.triu(matrix, 1).T


def basis(schema: Schema, own: FedMomentsOptions) -> np.ndarray:
    """Rows that span the public feature space, scaled so that records have norm about 1."""
    if schema.kind == "table":
        return np.eye(schema.width) * math.sqrt(schema.width) / 2
    height, width = schema.shape[0], schema.width // schema.shape[0]
    vertical, horizontal = (scipy.fft.dct(np.eye(n), norm="ortho").T for n in (height, width))
    order = sorted((i + j, i, j) for i in range(height) for j in range(width))
    chosen = order[: min(own.coefficients, len(order))]
    rows = [np.outer(vertical[i], horizontal[j]).ravel() for _, i, j in chosen]
    return np.stack(rows) * math.sqrt(schema.width) / 3
