"""DP-Fed-WAE: a Wasserstein autoencoder under local privacy (jiang-thesis ch. 4).

Every site trains the whole WAE on its few rows for some epochs and sends, instead of the update,
a sign and the coordinates that SignDS chooses: nobody is trusted, and one update costs ε, pure.
Tables are one-hot (`data.onehot`), the label one more column; images go through convolutions
(or a dense net) with the label given to the decoder. A site, not a person, is protected: the
thesis deals 10⁵ rows of Adult out to clients with repetition, so one person may be at several.

Corrections to the thesis: none to the mechanism. Each update is charged, the schedule that calls
everyone once is public, and a site that was called often pays for all of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from understudy.data.onehot import OneHot
from understudy.data.schema import Schema
from understudy.data.shards import Shards
from understudy.errors import StudyError
from understudy.federation.recipe import RecipeInfo, State, Task
from understudy.federation.slots import Private
from understudy.nets.autoencoder import DECODER, Autoencoder
from understudy.privacy.plan import PrivacyPlan
from understudy.recipes import selection, vae, wae
from understudy.recipes.wae import Rows, WAEOptions
from understudy.release.generator import Generator
from understudy.rng import Streams
from understudy.study import Study, Training, options, setting
from understudy.training.server import ServerOptimiser

__all__ = ["DpFedWAE", "DpFedWAEOptions"]

_UNIFORM_ROWS = 10_000


@dataclass(frozen=True)
class DpFedWAEOptions(WAEOptions):
    """``[recipe]`` of a DP-Fed-WAE study."""

    top: float = setting(0.25, "ξ: share of all coordinates that make up the top set")
    global_rate: float = setting(3.0, "γ: how far the server goes where all votes agree")
    net: Literal["dense", "conv"] = setting("dense", "dense, or convolutions for images")
    widths: tuple[int, ...] = setting((64,), "hidden layers of the encoder; the decoder mirrors")
    bins: int = setting(10, "bins that a number of a table is cut into")
    drawn: bool = setting(True, "draw each value by its chance instead of taking the likeliest")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bins < 2 or not self.widths or min(self.widths) < 1:
            raise StudyError(
                "recipe.bins of at least 2 and widths of at least 1",
                f"{self.bins} and {list(self.widths)}",
                "correct it",
            )


@dataclass(frozen=True)
class DpFedWAE:
    """See the module's paragraph; the methods follow Algorithm 5."""

    schema: Schema
    plan: PrivacyPlan
    options: DpFedWAEOptions
    training: Training
    base: Path = Path()

    info: ClassVar[RecipeInfo] = RecipeInfo(
        name="dp_fed_wae",
        title="Wasserstein autoencoder; sites send a sign and a few coordinates",
        paper="Jiang 2023 (thesis), ch. 4, DP-Fed-WAE",
        summary="Many small sites, nobody trusted; each site answers once or a few times.",
        kinds=("table", "image"),
        supports=frozenset({("site", "local")}),
        default=("site", "local"),
        options=DpFedWAEOptions,
        rounds=500,
        corrections="A client's ε adds up over its updates; the unit is the site, not the person.",
    )

    @classmethod
    def build(cls, study: Study) -> DpFedWAE:
        """The recipe of a study; the whole autoencoder is one update."""
        own = options(DpFedWAEOptions, study.options)
        size = vae.size(_spec(study.schema, own))
        notes = vae.public_notes(study, own)
        plan = selection.selection_plan(study, cls.info, size, own, notes=notes)
        return cls(study.schema, plan, own, study.training, study.base)

    @cached_property
    def spec(self) -> Autoencoder:
        """Both nets."""
        return _spec(self.schema, self.options)

    @cached_property
    def layout(self) -> OneHot | None:
        """How a table's rows become yes-or-no features; None for images."""
        return _layout(self.schema, self.options)

    @property
    def server(self) -> ServerOptimiser:
        """θ ← θ + γ·mean vote."""
        return selection.server(self.options, self.plan)

    def init(self, *, rng: Streams) -> State:
        """A fresh autoencoder, pre-trained where auxiliary rows are asked for."""

        def public() -> Rows | None:
            rows = vae.public_rows(self.base, self.options, self.schema)
            return None if rows is None else self._seen(*rows)

        model = wae.pretrained(
            self.spec, self.options, lambda: self._uniform(rng), public, rng=rng.child("auxiliary")
        )
        return self.server.start(model)

    def memory(self) -> State:
        """Sites keep nothing."""
        return {}

    def task(self, state: State, round: int) -> Task:
        """The whole autoencoder is sent."""
        return Task({"model": state["model"]})

    def local(
        self, task: Task, memory: State, data: Shards, private: Private, *, rng: Streams
    ) -> tuple[dict[str, Tensor], State]:
        """Train on the site's rows; the engine chooses what is sent of the change."""
        own = selection.compact(data)
        x, y = self._seen(own.x, own.y)
        rows = Shards(x, y, own.starts, own.counts)
        model = task.arrays["model"]
        how = selection.one_step(self.training, self.plan)
        change = wae.local_update(self.spec, self.options, how, model, rows, rng=rng)
        return {"update": change}, {}

    def step(self, state: State, total: State, *, rng: Streams) -> State:
        """θ ← θ + γ·mean vote."""
        return self.server.step(state, total["update"][None])

    def finish(self, state: State, *, rng: Streams) -> Generator:
        """The decoder of the averaged last models."""
        params = vae.unpack(self.spec, self.server.released(state))
        decoder = vae.pack(self.spec, params, DECODER)
        config: dict[str, Any] = {"net": self.spec.to_config(), "width": self.schema.width}
        if self.layout is None:
            config |= {"sharpness": 1.0}
            return Generator("decoder", {"decoder": decoder}, config, vae.balance(self.schema))
        config |= {"layout": self.layout.to_config(), "drawn": self.options.drawn}
        return Generator("onehot", {"decoder": decoder}, config, vae.balance(self.schema))

    def _seen(self, x: Tensor, y: Tensor) -> Rows:
        """Rows as the net sees them."""
        return (x, y) if self.layout is None else (self.layout.encode(x, y), y)

    def _uniform(self, rng: Streams) -> Rows:
        """Rows anyone can draw who knows the schema."""
        source = rng.torch("uniform")
        if self.layout is not None:
            return self._seen(*self.layout.uniform(_UNIFORM_ROWS, rng=source))
        x = torch.rand(_UNIFORM_ROWS, self.schema.width, generator=source)
        return x, torch.randint(self.schema.n_classes, (_UNIFORM_ROWS,), generator=source)


def _layout(schema: Schema, own: DpFedWAEOptions) -> OneHot | None:
    return OneHot.of(schema, own.bins) if schema.kind == "table" else None


def _spec(schema: Schema, own: DpFedWAEOptions) -> Autoencoder:
    """Table 4.3's nets: relu, one latent layer, mirrored; images with squared error."""
    layout = _layout(schema, own)
    return Autoencoder(
        features=schema.width if layout is None else layout.width,
        latent=own.latent,
        labels=schema.n_classes if layout is None and schema.n_classes > 1 else 0,
        widths=own.widths,
        net=own.net,
        shape=schema.shape,
        variational=False,
        loss="mse" if layout is None else "bce",
    )
