"""What the recipes that send choices have in common: plan, local training, and vote count.

A site sends a sign and h coordinates of its update (SignDS-FL, Jiang 2023 ch. 3); the server
reads them as votes, θ ← θ + γ·mean of the votes. What one update costs is ε, pure; a site makes
as many updates as the public schedule calls it to, and refuses more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from understudy.data.shards import Shards
from understudy.federation.info import RecipeInfo
from understudy.federation.planning import pure_plan
from understudy.federation.recipe import State, Task
from understudy.privacy.plan import Part, PrivacyPlan
from understudy.privacy.respond import Response
from understudy.privacy.select import Selection, optimal_output
from understudy.recipes.fedavg import Local, Trained
from understudy.recipes.options import LEAST_TOP, SelectionOptions
from understudy.rng import Streams
from understudy.study import Study
from understudy.training.server import ServerOptimiser

__all__ = ["VotedModel", "both_signs", "compact", "folded", "room", "selection", "selection_plan"]

Options = TypeVar("Options", bound=SelectionOptions)
_PLAIN_EPOCHS = 10  # without privacy
_HARDLY = 1e-30  # above no change, and below any


def selection(size: int, own: SelectionOptions, epsilon: float) -> Selection:
    """The rule for an update of ``size`` numbers at ε per update."""
    top = max(round(own.top * size), min(LEAST_TOP, size // 3), 1)
    subset = max(top + 1, round(own.subset * size)) if own.subset < 1 else None
    outputs = own.outputs or optimal_output(subset or size, top, epsilon, own.share)
    return Selection(size, top, outputs, epsilon, subset)


def selection_plan(
    study: Study,
    info: RecipeInfo,
    size: int,
    own: SelectionOptions,
    *,
    notes: tuple[str, ...] = (),
    bit: float = 0.0,
) -> PrivacyPlan:
    """Plan of a recipe whose sites send choices from one update; without privacy, the update.

    ``bit`` is the share of ε of one randomised bit beside it, ``small``; 0: there is none.
    """

    def parts(epsilon: float) -> tuple[Part, ...]:
        rule = selection(size, own, (1 - bit) * epsilon)
        update = Part("update", (size,), "mean", "client", rule)
        if not bit:
            return (update,)
        return update, Part("small", (), "mean", "client", Response(bit * epsilon))

    return pure_plan(study, info, parts, notes=notes)


@dataclass(frozen=True)
class VotedModel(Trained[Options]):
    """A model ``[1, P]`` that the sites' votes move; sites keep nothing."""

    @property
    def server(self) -> ServerOptimiser:
        """θ ← θ + γ·mean vote; without privacy, the mean update as it is."""
        own, rounds = self.options, self.plan.own.rounds
        if not self.plan.private:
            return ServerOptimiser("model", rounds, "sgd", 1.0, 0.0, 0.0, "none")
        terms = (own.global_rate, 0.0, own.average, own.decay)
        return ServerOptimiser("model", rounds, "sgd", *terms)

    @property
    def how(self) -> Local:
        """One pass of plain SGD unless the study says otherwise: only an update's order is sent.

        Adam makes coordinates about equally large, so their order says little. Without privacy
        the update itself is sent, and more epochs serve it.
        """
        told = self.training
        if not self.plan.private:
            return Local(replace(told, epochs=told.epochs or _PLAIN_EPOCHS))
        return Local(replace(told, epochs=told.epochs or 1, optimiser=told.optimiser or "sgd"))

    def task(self, state: State, round: int) -> Task:
        return Task({"model": state["model"]})

    def step(self, state: State, total: State, *, rng: Streams) -> State:
        return self.server.step(state, total["update"][None])


def both_signs(update: Tensor, places: int, top: float) -> Tensor:
    """An update ``[C, d]`` and its negative, repeated until they fill so many places.

    SignDS tosses a coin for the sign: where a site has only "less" to say, half of its answers are
    "more" of something at random. Beside its negative every change is among the largest, whatever
    the coin says. Repeating lets parts of a model, small and large, be taught under one rule:
    what the top set is worth depends on its share ``top`` of the places alone. Of changes that are
    zero a site should say nothing: as many places as the top set has stand for that.
    """
    quiet = update.new_full((len(update), _quiet(update.shape[1], top)), _HARDLY)
    pair = torch.cat((update, quiet, -update, -quiet), dim=1)
    return pair[:, torch.arange(places) % pair.shape[1]]


def room(size: int, top: float) -> int:
    """The places that `both_signs` fills with an update of ``size`` numbers once."""
    return 2 * (size + _quiet(size, top))


def folded(votes: Tensor, size: int, top: float) -> Tensor:
    """The votes ``[places]`` of `both_signs` as votes for the update's ``size`` numbers."""
    half = room(size, top) // 2
    place = torch.arange(len(votes)) % (2 * half)
    more, less = votes.new_zeros(2 * half).index_add_(0, place, votes).split(half)
    return more[:size] - less[:size]


def _quiet(size: int, top: float) -> int:
    """Places of one sign that a top set fits into: their share of all is ``top``."""
    return math.ceil(2 * top * size / (1 - 2 * top))


def compact(data: Shards) -> Shards:
    """The same sites with no rows but their own in store."""
    _, rows = data.members()
    return Shards(data.x[rows], data.y[rows], data.counts.cumsum(0) - data.counts, data.counts)
