"""SignDS-FL: federated learning by sign-based dimension selection (jiang-thesis ch. 3).

A site trains the shared model on its rows and sends a sign and h coordinates of its update,
chosen by PS (h = 1) or EM-MDS; the server reads them as votes. It trains *classifiers*
(``model`` "logistic", "nn" or "lenet"), whose release predicts instead of sampling, and with
``model = "wae"`` the generator of DP-Fed-WAE.

Beyond the thesis: a public `lens` makes the most of few votes (``smooth`` and ``balance``; 0 is as
published). It costs no privacy: it changes what the mechanism is given and how votes are read.

Corrections to the thesis: its ε is per update while clients are called tens to hundreds of times.
Here the claim adds up a site's whole life, and a site refuses to be called beyond it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import ClassVar, Literal

from torch import Tensor

from understudy.data.schema import Schema
from understudy.data.shards import Shards
from understudy.errors import StudyError
from understudy.federation.recipe import RecipeInfo, State, Task
from understudy.federation.slots import Private
from understudy.nets import layers, stacked
from understudy.nets.stacked import ClassifierNet
from understudy.privacy.plan import PrivacyPlan
from understudy.recipes import selection
from understudy.recipes.dp_fed_wae import DpFedWAE
from understudy.recipes.lens import Lens
from understudy.recipes.selection import SelectionOptions
from understudy.release.classifier import Classifier
from understudy.rng import Streams
from understudy.study import Study, Training, options, setting
from understudy.training.loop import Batch, train
from understudy.training.server import ServerOptimiser

__all__ = ["SignDS", "SignDSOptions"]

_NETS: dict[str, Literal["linear", "mlp", "lenet"]] = {
    "logistic": "linear",
    "nn": "mlp",
    "lenet": "lenet",
}
_MOST = {"smooth": 100.0, "balance": 4.0}  # pixels, and a power that no float overflows at


@dataclass(frozen=True)
class SignDSOptions(SelectionOptions):
    """``[recipe]`` of a SignDS-FL study."""

    model: Literal["logistic", "nn", "lenet", "wae"] = setting(
        "logistic", "a classifier: logistic, nn (one hidden layer) or lenet; or a generator: wae"
    )
    hidden: int = setting(96, "width of the hidden layer of nn and wae")
    latent: int = setting(16, "latent dimensions of wae")
    global_rate: float = setting(8.0, "γ: how far the server goes where all votes agree")
    smooth: float = setting(
        1.0, "σ in pixels by which votes for a dense first layer on images are spread; 0: not"
    )
    balance: float = setting(
        0.33, "power of a layer's smallness by which it is asked more and counts less; 0: not"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, most in _MOST.items():
            if not 0 <= getattr(self, name) <= most:
                found = f"{getattr(self, name)}"
                raise StudyError(f"recipe.{name} from 0 to {most:g}", found, "correct it")
        if min(self.hidden, self.latent) < 1:
            raise StudyError("recipe.hidden and latent of at least 1", "less", "correct it")


@dataclass(frozen=True)
class SignDS:
    """See the module's paragraph; the methods follow Algorithm 1."""

    schema: Schema
    plan: PrivacyPlan
    options: SignDSOptions
    training: Training

    info: ClassVar[RecipeInfo] = RecipeInfo(
        name="signds",
        title="Federated classifiers (or a WAE); sites send a sign and a few coordinates",
        paper="Jiang 2023 (thesis), ch. 3, SignDS-FL",
        summary="Learns a classifier under local privacy; its release answers `predict`.",
        kinds=("table", "image", "series"),
        supports=frozenset({("site", "local")}),
        default=("site", "local"),
        options=SignDSOptions,
        rounds=500,
        corrections="The thesis's ε is per update; the claim adds up all updates of a site.",
    )

    @classmethod
    def build(cls, study: Study) -> SignDS | DpFedWAE:
        """The recipe of a study; a generator is DP-Fed-WAE under these options."""
        own = options(SignDSOptions, study.options)
        if own.model == "wae":
            return DpFedWAE.build(replace(study, options=_wae_options(own)))
        if study.schema.n_classes < 2:
            raise StudyError(
                "a schema with a label of two classes or more for a classifier",
                "one class",
                'name the label column in the schema, or set model = "wae"',
            )
        size = layers.size(_spec(study.schema, own).net)
        plan = selection.selection_plan(study, cls.info, size, own)
        return cls(study.schema, plan, own, study.training)

    @cached_property
    def spec(self) -> ClassifierNet:
        """The net."""
        return _spec(self.schema, self.options)

    @cached_property
    def lens(self) -> Lens:
        """How sites rank and how the server reads votes; without privacy nothing is changed."""
        if self.plan.trust == "none":
            return Lens(self.spec.net)
        pixels = self.schema.kind == "image" and self.options.model != "lenet"
        image = self.schema.shape if pixels else ()
        return Lens(self.spec.net, image, self.options.smooth, self.options.balance)

    @property
    def server(self) -> ServerOptimiser:
        """θ ← θ + γ·mean vote."""
        return selection.server(self.options, self.plan)

    def init(self, *, rng: Streams) -> State:
        """A fresh net."""
        params = layers.stack(stacked.init(self.spec, rng=rng.torch("net")), 1)
        return self.server.start(layers.flatten(self.spec.net, params))

    def memory(self) -> State:
        """Sites keep nothing."""
        return {}

    def task(self, state: State, round: int) -> Task:
        """The whole model is sent."""
        return Task({"model": state["model"]})

    def local(
        self, task: Task, memory: State, data: Shards, private: Private, *, rng: Streams
    ) -> tuple[dict[str, Tensor], State]:
        """Train on the site's rows; the engine chooses what is sent of the change."""
        start = task.arrays["model"].expand(len(data), -1)
        training = selection.one_step(self.training, self.plan)
        plan, how = selection.local_batches(data, training, rng=rng), selection.optimiser(training)
        params = layers.unflatten(self.spec.net, start)
        trained, _ = train(params, self._loss, data.x, data.y, plan, how, rng=rng)
        update = layers.flatten(self.spec.net, trained) - start
        return {"update": self.lens.ranked(update)}, {}

    def step(self, state: State, total: State, *, rng: Streams) -> State:
        """θ ← θ + γ·mean vote, seen through the lens."""
        return self.server.step(state, self.lens.read(total["update"][None]))

    def finish(self, state: State, *, rng: Streams) -> Classifier:
        """The average of the last models."""
        return Classifier.of(self.spec, self.server.released(state)[0])

    def _loss(self, params: Mapping[str, Tensor], batch: Batch) -> Tensor:
        return stacked.cross_entropy_loss(self.spec, params, batch.x, batch.y, batch.weight)


def _spec(schema: Schema, own: SignDSOptions) -> ClassifierNet:
    shape = schema.shape if own.model == "lenet" else ()
    return ClassifierNet(
        schema.width, schema.n_classes, _NETS[own.model], widths=(own.hidden,), shape=shape
    )


def _wae_options(own: SignDSOptions) -> dict[str, object]:
    shared = {f.name: getattr(own, f.name) for f in fields(SelectionOptions)}
    return {**shared, "latent": own.latent, "widths": (own.hidden,), "teach": "paper"}
