"""What the console page shows while a run goes on: what is spent, and rows of the generator.

Both follow from what was charged and noised, so they tell nothing more; what they draw at random
is their own, so the release is the same with and without them. They are made again when the last
time was long enough ago to cost the run little.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cached_property

from understudy.data.encode import decode
from understudy.data.stream import write
from understudy.deployment.reception import Report
from understudy.deployment.status import Promised
from understudy.federation.recipe import Recipe, State
from understudy.privacy.claim import claims
from understudy.release.generator import Generator
from understudy.release.lawful import lawful_rows
from understudy.rng import Streams

__all__ = ["Preview"]

FILE = "preview.csv"
_ROWS = 12
_PAUSE = 20  # times what the last one took


@dataclass
class Preview:
    """Called after a round, with how many are done and what they led to."""

    recipe: Recipe
    report: Report
    source: str
    _next: float = 0.0

    def __call__(self, rounds: int, state: State) -> None:
        """Write down what there is to see, if it is time."""
        begun = time.monotonic()
        if begun < self._next and rounds < self.recipe.plan.length:
            return
        spent, sample = self._spent(rounds), self._sample(rounds, state)
        self.report.say(claims=spent, sample=sample, looked=rounds)
        self._next = time.monotonic() + _PAUSE * (time.monotonic() - begun)

    def _spent(self, rounds: int) -> tuple[Promised, ...]:
        """Every claim with its ε of the rounds so far; None where these claim something else."""
        so_far = claims(self.recipe.plan.prefix(rounds), self.source)
        spent = {(claim.adversary, claim.relation): claim.epsilon for claim in so_far}
        each = zip(self.report.status.claims, self._against, strict=True)
        return tuple(replace(claim, spent=spent.get(who)) for claim, who in each)

    @cached_property
    def _against(self) -> list[tuple[str, str]]:
        """Adversary and relation of every claim of the whole run."""
        whole = claims(self.recipe.plan, self.source)
        return [(claim.adversary, claim.relation) for claim in whole]

    def _sample(self, rounds: int, state: State) -> str:
        """The name of a file of rows; none of images, classifiers, or before a warm start ends."""
        plan, schema = self.recipe.plan, self.recipe.schema
        if schema.kind == "image" or plan.at(rounds - 1) is not plan.own:
            return ""
        rng = Streams.from_seed(None)
        made = self.recipe.finish(state, rng=rng.child("finish"))
        if not isinstance(made, Generator):
            return ""
        x, y = lawful_rows(made, schema, _ROWS, None, rng=rng)
        write(decode(schema, x.numpy(), y.numpy()), self.report.folder / FILE, schema)
        return FILE
