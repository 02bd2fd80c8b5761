"""A recipe of your own: naive Bayes from one noisy sum, run and verified.

Every class has a mean and a spread for each column, learned from noisy sums of x and x²; rows are
drawn column by column. docs/recipes.md walks through it. Run it anywhere: the rows come with
scikit-learn, and it writes a folder ``naive-bayes``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from understudy import Schema, Study, run, verify
from understudy.data.bundled import bundled
from understudy.federation.info import RecipeInfo
from understudy.federation.planning import Terms, noised_plan
from understudy.federation.recipe import State, Stateless, Task, Update
from understudy.federation.site import Site
from understudy.privacy.plan import PrivacyPlan
from understudy.recipes import RECIPES
from understudy.release.generator import Generator
from understudy.rng import Streams


@dataclass(frozen=True)
class NaiveBayes(Stateless):
    """One part, "sums": for each class a count, and the sums of x and x²."""

    schema: Schema
    plan: PrivacyPlan

    info: ClassVar[RecipeInfo] = RecipeInfo(
        name="naive_bayes",
        title="Each column on its own, given the class",
        paper="an example",
        summary="One round; each site sends one bounded sum.",
        kinds=("table",),
        supports=frozenset({("record", "central"), ("record", "local"), ("site", "central")}),
        default=("record", "central"),
    )

    @classmethod
    def build(cls, study: Study) -> NaiveBayes:
        shape = (study.schema.n_classes, 1 + 2 * study.schema.width)
        terms = Terms(bound=1.0, combine="sum")  # no row adds more than 1 to the sum, in L2 norm
        return cls(study.schema, noised_plan(study, cls.info, {"sums": shape}, terms))

    def init(self, *, rng: Streams) -> State:
        return {"sums": torch.zeros(self.plan.own.parts[0].shape)}

    def task(self, state: State, round: int) -> Task:
        return Task()

    def local(self, task: Task, site: Site) -> tuple[Update, State]:
        return {"sums": site.sum("sums", self.features, lambda y: y)}, {}

    def features(self, x: Tensor, y: Tensor) -> Tensor:
        """(1, x, x²) of each row; encoded columns lie in [0, 1], so the norm is at most 1."""
        whole = torch.cat((torch.ones(len(x), 1), x, x * x), dim=1)
        return whole / whole.shape[1] ** 0.5

    def step(self, state: State, total: State, *, rng: Streams) -> State:
        return {"sums": state["sums"] + total["sums"]}

    def finish(self, state: State, *, rng: Streams) -> Generator:
        sums, width = state["sums"], self.schema.width
        count = sums[:, :1].clamp(min=1.0 / (1 + 2 * width) ** 0.5)
        mean, square = (sums[:, 1:] / count).split(width, dim=1)
        spread = (square - mean.square()).clamp(1e-4, 0.25).sqrt()
        arrays = {"mean": mean.clamp(0, 1), "factor": torch.diag_embed(spread)}
        arrays |= {"basis": torch.eye(width), "origin": torch.zeros(width)}
        share = count[:, 0] / count.sum()
        return Generator("gaussian", arrays, {"width": width}, tuple(share.tolist()))


def main() -> None:
    """Register the recipe, run a study with it and look at the result."""
    RECIPES["naive_bayes"] = NaiveBayes  # from here on a study may name it
    schema, _ = bundled("breast_cancer")
    tables = {
        "study": {"name": "naive Bayes", "recipe": "naive_bayes"},
        "privacy": {"unit": "record", "trust": "central", "epsilon": 1.0},
        "simulation": {"data": "bundled:breast_cancer", "sites": 5},
    }
    release = run(Study.parse(tables, schema=schema), out="naive-bayes")
    print(release.claims[0].words)
    print(verify("naive-bayes").checks[-1])
    print(release.sample(3, seed=0).frame)


if __name__ == "__main__":
    main()
