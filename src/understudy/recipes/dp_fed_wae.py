"""DP-Fed-WAE: a Wasserstein autoencoder under local privacy (jiang-thesis ch. 4).

Every site trains the WAE on its few rows and sends, instead of the update, a sign and the
coordinates that SignDS chooses: nobody is trusted, and one update costs ε, pure. Tables are
one-hot (`data.onehot`); images go through convolutions (or a dense net) with the label given to
the decoder. A site, not a person, is protected: the thesis deals 10⁵ rows of Adult out to clients
with repetition, so one person may be at several.

In the thesis every answer is about the whole WAE, the label one more column (``teach =
"paper"``). Tens of thousands of answers are then few, and nearly none of them is about how often a
value occurs or what the label depends on. By default a round therefore teaches one part of the
model, by a public order: the *margins* (the output biases), the *head* (a linear classifier that
draws the label of a row), or the whole net (`parts`). Which part it is does not depend on data,
and an answer is ε-private whatever it is about, so the claim is the thesis's.

Corrections to the thesis: none to the mechanism. Each update is charged, the schedule that calls
everyone once is public, and a site that was called often pays for all of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
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
from understudy.nets import layers
from understudy.nets.autoencoder import DECODER, ENCODER, Autoencoder
from understudy.nets.stacked import ClassifierNet
from understudy.privacy.plan import PrivacyPlan
from understudy.recipes import parts, selection, vae, wae
from understudy.recipes.wae import Rows, WAEOptions
from understudy.release.generator import Generator
from understudy.rng import Draws, Streams
from understudy.study import Study, Training, options, setting
from understudy.training.server import ServerOptimiser

__all__ = ["DpFedWAE", "DpFedWAEOptions"]

_UNIFORM_ROWS = 10_000
_ENCODER = 0.2  # the encoder's share of the rounds that teach the net
_MOST_TOP = 0.4  # a part's changes must have room beside as many places of silence
_MOST_VOTES = 200  # a larger cohort makes the steps surer, not longer
_PACE = {"margins": 4.0, "head": 0.4}  # γ of these parts, in units of global_rate


@dataclass(frozen=True)
class DpFedWAEOptions(WAEOptions):
    """``[recipe]`` of a DP-Fed-WAE study."""

    top: float = setting(0.05, "ξ: share of all coordinates that make up the top set")
    global_rate: float = setting(
        1.0, "γ: how far the server goes where ten votes agree; not by parts, where all do"
    )
    average: float = setting(0.3, "share of the last rounds whose models are averaged")
    teach: Literal["parts", "paper"] = setting(
        "parts", "tables by parts (margins, label head, net), or the whole net at once as published"
    )
    margins: float = setting(0.1, "share of the rounds that teach how often each value occurs")
    head: float = setting(0.5, "share of the rounds that teach the label, given the rest")
    net: Literal["dense", "conv"] = setting("dense", "dense, or convolutions for images")
    widths: tuple[int, ...] | None = setting(
        None, "hidden layers of the encoder, mirrored; none by default by parts, else one of 64"
    )
    bins: int = setting(10, "bins that a number of a table is cut into")
    drawn: bool = setting(True, "draw each value by its chance instead of taking the likeliest")

    @property
    def hidden(self) -> tuple[int, ...]:
        """The hidden layers, chosen or by default."""
        if self.widths is not None:
            return self.widths
        return () if self.teach == "parts" else (64,)

    def shares(self, head: bool) -> dict[str, float]:
        """The share of each part among the rounds; `parts.turn` gives margins the first as well."""
        known = {"margins": self.margins / 2, "head": self.head if head else 0.0}
        rest = 1 - sum(known.values())
        return {**known, "encoder": _ENCODER * rest, "decoder": (1 - _ENCODER) * rest}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bins < 2 or min((1, *self.hidden)) < 1:
            raise StudyError(
                "recipe.bins of at least 2 and widths of at least 1",
                f"{self.bins} and {list(self.hidden)}",
                "correct it",
            )
        if self.teach == "parts" and self.top > _MOST_TOP:
            raise StudyError(
                f"recipe.top of at most {_MOST_TOP:g} where parts are taught in turn",
                f"{self.top:g}",
                'lower it, or set teach = "paper"',
            )
        if min(self.margins, self.head) < 0 or self.margins + self.head >= 1:
            raise StudyError(
                "recipe.margins and head of 0 or more, together below 1",
                f"{self.margins:g} and {self.head:g}",
                "leave some rounds for the net",
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
        """The recipe of a study; an update is about one part, or the whole net."""
        own = options(DpFedWAEOptions, study.options)
        _refuse_parts(study)
        if study.schema.kind != "table" or study.privacy.trust == "none":
            own = replace(own, teach="paper")
        size = _places(study.schema, own)
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

    @cached_property
    def label(self) -> ClassifierNet | None:
        """The head that draws a row's label; None where the label is part of the net."""
        return _label(self.schema, self.options)

    @cached_property
    def parts(self) -> dict[str, slice]:
        """What a round can teach, as places of the model [net, head]."""
        encoder, net = vae.size(self.spec, ENCODER), vae.size(self.spec)
        if self.options.teach == "paper":
            return {"net": slice(0, net)}
        margins = slice(net - self.spec.features, net)  # the output biases come last
        found = {"margins": margins, "encoder": slice(0, encoder), "decoder": slice(encoder, net)}
        if self.label is not None:
            found["head"] = slice(net, net + layers.size(self.label.net))
        return found

    @property
    def size(self) -> int:
        """How many numbers the model [net, head] has."""
        return max(place.stop for place in self.parts.values())

    def turn(self, round: int) -> str:
        """The part that a round teaches."""
        if self.options.teach == "paper":
            return "net"
        shares = self.options.shares(self.label is not None)
        return parts.turn(shares, round, self.plan.rounds)

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
        if self.label is not None:
            model = torch.cat((model, torch.zeros(1, layers.size(self.label.net))), dim=1)
        return self.server.start(model)

    def memory(self) -> State:
        """Sites keep nothing."""
        return {}

    def task(self, state: State, round: int) -> Task:
        """The whole model is sent, and what is asked about it."""
        return Task({"model": state["model"]}, {"part": self.turn(int(state["round"]))})

    def local(
        self, task: Task, memory: State, data: Shards, private: Private, *, rng: Draws
    ) -> tuple[dict[str, Tensor], State]:
        """What the site's rows change in the part; the engine chooses what is sent of it."""
        model, own = task.array("model", (1, self.size)), selection.compact(data)
        x, y = self._seen(own.x, own.y)
        rows = Shards(x, y, own.starts, own.counts)
        part, net = str(task.values["part"]), model[:, : vae.size(self.spec)]
        if part == "margins" and self.layout is not None:
            change = parts.margins(self.spec, self.layout, net, rows, rng=rng)
        elif part == "head" and self.label is not None:
            change = parts.head(self.label, model[:, self.parts[part]], rows, rng=rng)
        else:
            how = selection.one_step(self.training, self.plan)
            change = wae.local_update(self.spec, self.options, how, net, rows, rng=rng)
            change = change[:, self.parts[part]]
        if self.options.teach == "parts":
            places = _places(self.schema, self.options)
            change = selection.both_signs(change, places, self.options.top)
        return {"update": change}, {}

    def step(self, state: State, total: State, *, rng: Streams) -> State:
        """θ ← θ + γ·mean vote, for the part that the round was about."""
        if self.options.teach == "paper":
            return self.server.step(state, total["update"][None])
        part = self.turn(int(state["round"]))
        place = self.parts[part]
        pace = _PACE.get(part, 1.0) * min(self.plan.cohort, _MOST_VOTES) / 10
        votes = torch.zeros_like(state["model"])
        size = place.stop - place.start
        votes[0, place] = pace * selection.folded(total["update"], size, self.options.top)
        return self.server.step(state, votes)

    def finish(self, state: State, *, rng: Streams) -> Generator:
        """The decoder of the averaged last models, and the head beside it."""
        model = self.server.released(state)
        params = vae.unpack(self.spec, model[:, : vae.size(self.spec)])
        arrays = {"decoder": vae.pack(self.spec, params, DECODER)}
        config: dict[str, Any] = {"net": self.spec.to_config(), "width": self.schema.width}
        if self.layout is None:
            config |= {"sharpness": 1.0}
            return Generator("decoder", arrays, config, vae.balance(self.schema))
        config |= {"layout": self.layout.to_config(), "drawn": self.options.drawn}
        if self.label is not None:
            arrays["head"] = model[:, self.parts["head"]]
            config |= {"head": self.label.to_config()}
        return Generator("onehot", arrays, config, vae.balance(self.schema))

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


def _refuse_parts(study: Study) -> None:
    """Options of teaching by parts where nothing is: they would be ignored."""
    whole = study.schema.kind != "table" or study.options.get("teach") == "paper"
    given = sorted({"margins", "head"} & set(study.options))
    if study.schema.kind != "table" and study.options.get("teach") == "parts":
        given.append("teach")
    if whole and given:
        raise StudyError(
            "tables taught by parts, for recipe.margins, head and teach = 'parts'",
            f"{', '.join(given)} for {study.schema.kind}s taught as a whole",
            "leave them out",
        )


def _layout(schema: Schema, own: DpFedWAEOptions) -> OneHot | None:
    """How rows become yes-or-no features; the label is none of them where a head draws it."""
    if schema.kind != "table":
        return None
    layout = replace(OneHot.of(schema, own.bins), odds=own.teach == "parts")
    return replace(layout, classes=1) if _has_head(schema, own) else layout


def _has_head(schema: Schema, own: DpFedWAEOptions) -> bool:
    return own.teach == "parts" and own.head > 0 and schema.n_classes > 1


def _label(schema: Schema, own: DpFedWAEOptions) -> ClassifierNet | None:
    layout = _layout(schema, own)
    if layout is None or not _has_head(schema, own):
        return None
    return ClassifierNet(layout.width, schema.n_classes, "linear")


def _places(schema: Schema, own: DpFedWAEOptions) -> int:
    """Numbers that a site chooses from: the net, or room for the largest part."""
    spec, label = _spec(schema, own), _label(schema, own)
    if own.teach == "paper":
        return vae.size(spec)
    head = layers.size(label.net) if label is not None else 0
    return selection.room(max(vae.size(spec, ENCODER), vae.size(spec, DECODER), head), own.top)


def _spec(schema: Schema, own: DpFedWAEOptions) -> Autoencoder:
    """Table 4.3's nets: relu, one latent layer, mirrored; images with squared error."""
    layout = _layout(schema, own)
    return Autoencoder(
        features=schema.width if layout is None else layout.width,
        latent=own.latent,
        labels=schema.n_classes if layout is None and schema.n_classes > 1 else 0,
        widths=own.hidden,
        net=own.net,
        shape=schema.shape,
        variational=False,
        loss="mse" if layout is None else "bce",
    )
