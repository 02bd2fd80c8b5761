"""FedSTDG: synthetic time series under local privacy (jiang-thesis ch. 5).

The model is a recurrent Wasserstein autoencoder. A site sends a sign and as many coordinates as
keep the wanted share of the top set, chosen within a random subset (SubMDS), and one randomised
bit that says whether its update was small against the global rate (MagRR); when the bits say so,
the server halves the rate. Both are pure: one update costs ε = ε_coordinates + ε_bit.

Corrections to the thesis: its ε is per update, the claim adds up all updates of a site. The rule
"a majority of bits for 50 rounds in a row" almost never fires at small ε, so by default the
debiased bits of 50 rounds are pooled; ``adaptive = "paper"`` is the rule as published.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal

import torch
from torch import Tensor

from understudy.data.schema import Schema
from understudy.data.shards import Shards
from understudy.errors import StudyError
from understudy.federation.recipe import RecipeInfo, State, Task, make_pure_plan
from understudy.federation.slots import Private
from understudy.nets.autoencoder import DECODER, Autoencoder
from understudy.privacy.plan import Part, PrivacyPlan
from understudy.privacy.respond import Response, debiased, is_small
from understudy.recipes import selection, vae, wae
from understudy.recipes.wae import Rows, WAEOptions
from understudy.release.generator import Generator
from understudy.rng import Streams
from understudy.study import Study, Training, options, setting
from understudy.training.server import ServerOptimiser

__all__ = ["FedSTDG", "FedSTDGOptions"]

_UNIFORM_ROWS = 5_000


@dataclass(frozen=True)
class FedSTDGOptions(WAEOptions):
    """``[recipe]`` of a FedSTDG study."""

    top: float = setting(0.05, "share of all coordinates that make up the top set")
    outputs: int = setting(0, "coordinates that a site sends; 0: as many as keep `share`")
    subset: float = setting(0.1, "ϱ: share of coordinates a site draws to choose among")
    global_rate: float = setting(5.0, "γ: how far the server goes where all votes agree")
    hidden: int = setting(32, "units of the LSTM layers")
    adaptive: Literal["pooled", "paper", "none"] = setting(
        "pooled", "how the randomised bits lower γ: pooled and debiased, as published, or not"
    )
    bit: float = setting(0.1, "share of ε that the bit costs")
    fall: float = setting(0.5, "r: factor by which γ falls")
    patience: int = setting(50, "rounds of bits that a fall of γ takes")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (0 < self.bit < 1 and 0 < self.fall < 1 and self.patience >= 1 <= self.hidden):
            raise StudyError(
                "recipe.bit and fall between 0 and 1, patience and hidden of at least 1",
                f"{self.bit}, {self.fall}, {self.patience}, {self.hidden}",
                "correct it",
            )


@dataclass(frozen=True)
class FedSTDG:
    """See the module's paragraph; the methods follow Algorithms 6–8."""

    schema: Schema
    plan: PrivacyPlan
    options: FedSTDGOptions
    training: Training
    base: Path = Path()

    info: ClassVar[RecipeInfo] = RecipeInfo(
        name="fedstdg",
        title="Recurrent Wasserstein autoencoder for series; SubMDS and an adaptive rate",
        paper="Jiang 2023 (thesis), ch. 5, FedSTDG",
        summary="Multivariate time series of many sites, nobody trusted.",
        kinds=("series",),
        supports=frozenset({("site", "local")}),
        default=("site", "local"),
        options=FedSTDGOptions,
        rounds=1000,
        corrections="The thesis's ε is per update; the claim adds up all updates of a site. Bits "
        "are debiased and pooled by default, since the published rule hardly fires at small ε.",
    )

    @classmethod
    def build(cls, study: Study) -> FedSTDG:
        """The recipe of a study: coordinates and, where γ adapts, one bit."""
        own = options(FedSTDGOptions, study.options)
        notes = wae.auxiliary_notes(study, own)
        plan = _plan(study, own, vae.size(_spec(study.schema, own)), notes)
        return cls(study.schema, plan, own, study.training, study.base)

    @cached_property
    def spec(self) -> Autoencoder:
        """Both nets."""
        return _spec(self.schema, self.options)

    @property
    def adapts(self) -> bool:
        """Whether sites send the bit."""
        return len(self.plan.parts) > 1

    @property
    def server(self) -> ServerOptimiser:
        """θ ← θ + mean vote; γ is in the state where it adapts."""
        made = selection.server(self.options, self.plan)
        return replace(made, rate=1.0, decay="none") if self.adapts else made

    def init(self, *, rng: Streams) -> State:
        """A fresh autoencoder, pre-trained where auxiliary rows are asked for."""
        model = wae.pretrained(
            self.spec,
            self.options,
            lambda: self._uniform(rng),
            lambda: wae.public_rows(self.base, self.options, self.schema),
            rng=rng.child("auxiliary"),
        )
        rate = torch.tensor([self.options.global_rate])
        return {**self.server.start(model), "rate": rate, "bits": torch.zeros(2)}

    def memory(self) -> State:
        """Sites keep nothing."""
        return {}

    def task(self, state: State, round: int) -> Task:
        """The whole autoencoder and the size below which an update counts as small."""
        return Task({"model": state["model"]}, {"level": self.options.fall * float(state["rate"])})

    def local(
        self, task: Task, memory: State, data: Shards, private: Private, *, rng: Streams
    ) -> tuple[dict[str, Tensor], State]:
        """Train on the site's series; the engine chooses coordinates and answers by the bit."""
        model, rows = task.arrays["model"], selection.compact(data)
        change = wae.local_update(self.spec, self.options, self.training, model, rows, rng=rng)
        if not self.adapts:
            return {"update": change}, {}
        return {"update": change, "small": is_small(change, float(task.values["level"]))}, {}

    def step(self, state: State, total: State, *, rng: Streams) -> State:
        """Lower γ if the bits ask for it, then θ ← θ + γ·mean vote."""
        if not self.adapts:
            return {**state, **self.server.step(state, total["update"][None])}
        rate, bits = self._adapted(state, total["small"])
        moved = self.server.step(state, rate * total["update"][None])
        return {**state, **moved, "rate": rate, "bits": bits}

    def _adapted(self, state: State, mean: Tensor) -> tuple[Tensor, Tensor]:
        """γ and what is remembered of the bits: rounds counted, and their sum."""
        own, rule = self.options, self.plan.part("small").rule
        assert isinstance(rule, Response)
        if own.adaptive == "paper":
            count = float(state["bits"][0] + 1) if float(mean) >= 0.5 else 0.0
            falls, bits = count >= own.patience, torch.tensor([count, 0.0])
        else:
            bits = state["bits"] + torch.stack((torch.ones(()), debiased(mean, rule)))
            full = float(bits[0]) >= own.patience
            falls, bits = full and float(bits[1] / bits[0]) >= 0.5, bits * (not full)
        if not falls:
            return state["rate"], bits
        return own.fall * state["rate"], torch.zeros(2)

    def finish(self, state: State, *, rng: Streams) -> Generator:
        """The decoder of the averaged last models."""
        params = vae.unpack(self.spec, self.server.released(state))
        decoder = vae.pack(self.spec, params, DECODER)
        config = {"net": self.spec.to_config(), "width": self.schema.width, "sharpness": 1.0}
        return Generator("decoder", {"decoder": decoder}, config, vae.balance(self.schema))

    def _uniform(self, rng: Streams) -> Rows:
        """Series anyone can draw who knows the bounds: channels that start anywhere and drift."""
        steps, channels = self.schema.shape
        source = rng.torch("uniform")
        start = torch.rand(_UNIFORM_ROWS, 1, channels, generator=source)
        end = torch.rand(_UNIFORM_ROWS, 1, channels, generator=source)
        along = torch.linspace(0, 1, steps)[None, :, None]
        x = (start + along * (end - start)).flatten(1)
        return x, torch.randint(self.schema.n_classes, (_UNIFORM_ROWS,), generator=source)


def _plan(study: Study, own: FedSTDGOptions, size: int, notes: tuple[str, ...]) -> PrivacyPlan:
    if own.adaptive == "none" or study.privacy.trust == "none":
        return selection.selection_plan(study, FedSTDG.info, size, own, notes=notes)

    def parts(epsilon: float) -> tuple[Part, ...]:
        rule = selection.selection(size, own, (1 - own.bit) * epsilon)
        bit = Response(own.bit * epsilon)
        return (
            Part("update", (size,), "client", rule=rule),
            Part("small", (), "client", rule=bit),
        )

    return make_pure_plan(study, FedSTDG.info, parts, notes=notes)


def _spec(schema: Schema, own: FedSTDGOptions) -> Autoencoder:
    """Figure 5.2: LSTM over the steps, a dense latent, and the mirror of both."""
    return Autoencoder(
        features=schema.width,
        latent=own.latent,
        labels=schema.n_classes if schema.n_classes > 1 else 0,
        widths=(own.hidden,),
        net="recurrent",
        shape=schema.shape,
        variational=False,
        loss="mse",
    )
