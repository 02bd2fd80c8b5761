"""A toy recipe that releases a classifier, for any kind of data: the nearest mean of a class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from contracts.toys import ToyOptions
from understudy.data.records import Records
from understudy.data.schema import Schema
from understudy.federation.info import RecipeInfo
from understudy.federation.planning import Terms, noised_plan
from understudy.federation.recipe import Task
from understudy.federation.site import Site
from understudy.nets.classifier import ClassifierNet
from understudy.privacy.plan import PrivacyPlan
from understudy.release.classifier import Classifier
from understudy.rng import Streams
from understudy.study import Study

NAME = "toy-classes"
SQUARES = Schema("image", "squares", 100, classes=("dark", "light"), shape=(4, 4))


def squares(n: int, seed: int = 0, labelled: bool = True) -> Records:
    """Images of two classes that anyone can tell apart."""
    rng, y = np.random.default_rng(seed), np.arange(n) % 2
    images = rng.integers(0, 120, (n, 4, 4)) + 130 * y[:, None, None]
    names = np.array(SQUARES.classes)[y] if labelled else None
    return Records(images=images.astype(np.uint8), labels=names)


@dataclass(frozen=True)
class ToyClasses:
    """Site level: the mean of each class; a row belongs to the nearest."""

    schema: Schema
    plan: PrivacyPlan

    info: ClassVar[RecipeInfo] = RecipeInfo(
        name=NAME,
        title=NAME,
        paper="none",
        summary="a toy",
        kinds=("table", "image", "series"),
        supports=frozenset({("site", "central"), ("site", "local")}),
        default=("site", "central"),
        options=ToyOptions,
        rounds=2,
    )

    @classmethod
    def build(cls, study: Study) -> ToyClasses:
        shapes = {"mean": (study.schema.n_classes, study.schema.width)}
        return cls(study.schema, noised_plan(study, cls.info, shapes, Terms(bound=20.0)))

    def init(self, *, rng: Streams) -> dict:
        return {"mean": torch.zeros(self.schema.n_classes, self.schema.width)}

    def memory(self, site: str) -> dict:
        return {}

    def task(self, state: dict, round: int) -> Task:
        return Task({"mean": state["mean"]})

    def local(self, task: Task, site: Site):
        found = torch.stack([self._means(*site.data.rows(c)) for c in range(len(site))])
        return {"mean": found - task.arrays["mean"]}, site.memory

    def _means(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        chosen = torch.nn.functional.one_hot(y, self.schema.n_classes).float()
        return chosen.T @ x / chosen.sum(0).clamp(min=1)[:, None]

    def step(self, state: dict, total: dict, *, rng: Streams) -> dict:
        return {"mean": state["mean"] + total["mean"]}

    def finish(self, state: dict, *, rng: Streams) -> Classifier:
        mean = state["mean"].float()
        flat = torch.cat(((2 * mean.T).flatten(), -(mean**2).sum(1)))
        return Classifier.of(ClassifierNet(self.schema.width, self.schema.n_classes), flat)
