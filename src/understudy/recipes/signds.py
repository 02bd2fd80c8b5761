"""SignDS-FL: federated learning by sign-based dimension selection (jiang-thesis ch. 3).

A site trains the shared model on its rows and sends a sign and h coordinates of its update,
chosen by PS (h = 1) or EM-MDS; the server reads them as votes. It trains *classifiers*
(``model`` "logistic", "nn" or "lenet"), whose release predicts instead of sampling, and with
``model = "wae"`` the generator of DP-Fed-WAE.

Beyond the thesis, to make the most of votes that are fewer than a net's weights: nets see images at
one ``contrast``, and dense ones by a ``view`` with nothing to learn, as strokes (a convolution with
fixed kernels: "nn" is then a convolutional net) or as their lowest frequencies; LeNet's kernels are
found in made-up pictures instead of taught; what nets make of strokes or kernels is taught in
public ``directions``, found there, too; and votes for a small layer, which would run ahead, count
less (``balance``). ε is as before: the mechanism holds for any update of any net, and reading votes
comes after it.

Corrections to the thesis: its ε is per update while clients are called tens to hundreds of times.
Here the claim adds up a site's whole life, and a site refuses to be called beyond it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import ClassVar, Literal

import torch
from torch import Tensor

from understudy.data.schema import Schema
from understudy.data.shards import Shards
from understudy.errors import StudyError
from understudy.federation.recipe import RecipeInfo, State, Task
from understudy.federation.slots import Private
from understudy.nets import kernels, layers, stacked
from understudy.nets.directions import MOST_INPUTS, Directions
from understudy.nets.stacked import ClassifierNet
from understudy.privacy.plan import PrivacyPlan
from understudy.recipes import selection
from understudy.recipes.dp_fed_wae import DpFedWAE
from understudy.recipes.selection import SelectionOptions
from understudy.release.classifier import Classifier
from understudy.rng import Draws, Streams
from understudy.study import Study, Training, options, setting
from understudy.training.loop import Batch, train
from understudy.training.server import ServerOptimiser

__all__ = ["SignDS", "SignDSOptions"]

_NETS: dict[str, Literal["linear", "mlp", "lenet"]] = {
    "logistic": "linear",
    "nn": "mlp",
    "lenet": "lenet",
}
_COHORT = 20  # fewer votes at a time are rough steps: one moves a weight by γ over their number
_MANY = {"logistic": 0.4, "nn": 0.4, "lenet": 1.0}  # of the directions: what many votes can tell of
_FEW = {"logistic": 0.1, "nn": 0.1, "lenet": 0.4}  # what few votes can
_FAINT = {"logistic": 0.3, "nn": 0.3, "lenet": 0.1}  # of the directions' mean variance
_FEWEST = 40  # directions: fewer leave out too much, however few the votes
_LEAST = 4  # frequencies of a side: with fewer, tiny images lose what tells them apart
_MOST = 4.0  # of `balance`: a power that no float overflows at
_OFF = (None, False, 0, "pixels")  # an option that says so asks for nothing
_NEEDS = {
    "hidden": 'model = "nn" or "wae"',
    "latent": 'model = "wae"',
    "contrast": "a classifier of images",
    "view": "logistic or nn on images",
    "detail": 'view = "waves" of logistic or nn on images',
    "directions": 'lenet, or view = "strokes" of logistic or nn, on images, where votes are cast',
    "balance": "a classifier",
}


@dataclass(frozen=True)
class SignDSOptions(SelectionOptions):
    """``[recipe]`` of a SignDS-FL study."""

    model: Literal["logistic", "nn", "lenet", "wae"] = setting(
        "logistic", "a classifier: logistic, nn (one hidden layer) or lenet; or a generator: wae"
    )
    hidden: int = setting(96, "width of the hidden layer of nn and wae")
    latent: int = setting(16, "latent dimensions of wae")
    global_rate: float = setting(8.0, "γ: how far the server goes where all votes agree")
    contrast: bool = setting(True, "see every image without its brightness, at one contrast")
    view: Literal["strokes", "waves", "pixels"] = setting(
        "strokes", "what logistic and nn see of an image: strokes, waves (frequencies) or pixels"
    )
    detail: float = setting(0.5, "with waves: share of the frequencies of each side of an image")
    directions: float | None = setting(
        None,
        f"with strokes and lenet: share of public directions to teach in (at least {_FEWEST} of "
        "them); 0: weight by weight, kernels of lenet, too; by default "
        f"{_MANY['nn']:g} (lenet {_MANY['lenet']:g}) if all updates together outnumber the "
        f"weights, else {_FEW['nn']:g} (lenet {_FEW['lenet']:g})",
    )
    balance: float = setting(
        0.5, "power of a layer's share of the largest one by which its votes count; 0: all alike"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.balance <= _MOST:
            wanted = f"recipe.balance from 0 to {_MOST:g}"
            raise StudyError(wanted, f"{self.balance}", "correct it")
        if not 0 < self.detail <= 1:
            how = 'leave it out (pixels are view = "pixels")' if not self.detail else "correct it"
            raise StudyError("recipe.detail above 0 and at most 1", f"{self.detail:g}", how)
        if not 0 <= (self.directions or 0.0) <= 1:
            how = f"give a share such as {_FEW['nn']:g}, or leave it out"
            raise StudyError("recipe.directions from 0 to 1", f"{self.directions:g}", how)
        for name in ("hidden", "latent"):
            if getattr(self, name) < 1:
                found = f"{getattr(self, name)}"
                raise StudyError(f"recipe.{name} of at least 1", found, "correct it")


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
        cohort=_COHORT,
    )

    @classmethod
    def build(cls, study: Study) -> SignDS | DpFedWAE:
        """The recipe of a study; a generator is DP-Fed-WAE under these options."""
        own = options(SignDSOptions, study.options)
        _refuse_idle(study, own)
        if own.model == "wae" and study.schema.kind == "series":
            raise StudyError(
                'a table or images for model = "wae"',
                "series",
                'choose "logistic" or "nn"; for synthetic series the recipe fedstdg',
            )
        if own.model == "wae":
            return DpFedWAE.build(replace(study, options=_wae_options(own)))
        if study.schema.n_classes < 2:
            raise StudyError(
                "a schema with a label of two classes or more for a classifier",
                "one class",
                "name the label column of a table, or list the classes, in the schema; for a "
                'generator of tables or images set model = "wae"',
            )
        spec = _spec(study.schema, own)
        plan = selection.selection_plan(study, cls.info, layers.size(spec.net), own)
        own = _as_taught(own, plan, spec, study.schema)
        taught = _directions(study.schema, own)
        if taught:
            plan = selection.selection_plan(study, cls.info, taught.size, own)
        return cls(study.schema, plan, own, study.training)

    @cached_property
    def spec(self) -> ClassifierNet:
        """The net."""
        return _spec(self.schema, self.options)

    @cached_property
    def directions(self) -> Directions | None:
        """In which votes are cast, if not weight by weight."""
        return _directions(self.schema, self.options)

    @property
    def about(self) -> str:
        """What is trained, in words for `plan`."""
        plain = "pixels" if self.schema.kind == "image" else "encoded values"
        seen = self.options.view if self.spec.strokes or self.spec.cosines else plain
        net = f"{self.options.model} on {seen}, {layers.size(self.spec.net):,} weights"
        lenet = self.options.model == "lenet"
        if not self.directions:
            return f"{net}, kernels taught, too" if lenet else net
        found = ", kernels found in made-up pictures, the first dense layer" if lenet else ","
        kept, inputs = self.directions.kept, self.directions.inputs
        return f"{net}{found} taught in {kept} of {inputs} directions"

    @cached_property
    def worth(self) -> Tensor:
        """``[P]``: what a vote for each number counts."""
        power = self.options.balance
        shapes = self.directions.shapes if self.directions else layers.shapes(self.spec.net)
        sizes = [math.prod(shape) for shape in shapes.values()]
        return torch.cat([torch.full((size,), (size / max(sizes)) ** power) for size in sizes])

    @property
    def server(self) -> ServerOptimiser:
        """θ ← θ + γ·mean vote."""
        return selection.server(self.options, self.plan)

    def init(self, *, rng: Streams) -> State:
        """A fresh net, and the directions to teach it in."""
        params = layers.stack(stacked.init(self.spec, rng=rng.torch("net")), 1)
        drawn: State = {}
        if self.directions:
            shape = self.schema.shape
            params |= kernels.found(self.spec.net, shape, rng=rng.torch("kernels"))
            drawn = self.directions.draw(shape, params, rng=rng.torch("pictures"))
        return self.server.start(layers.flatten(self.spec.net, params)) | drawn

    def memory(self) -> State:
        """Sites keep nothing."""
        return {}

    def task(self, state: State, round: int) -> Task:
        """The whole model is sent, and the directions."""
        return Task({name: state[name] for name in ("model", "centre", "basis") if name in state})

    def local(
        self, task: Task, memory: State, data: Shards, private: Private, *, rng: Draws
    ) -> tuple[dict[str, Tensor], State]:
        """Train on the site's rows; the engine chooses what is sent of the change."""
        start = task.array("model", (1, layers.size(self.spec.net))).expand(len(data), -1)
        known = self.directions.drawn if self.directions else {}
        drawn = {name: task.array(name, shape) for name, shape in known.items()}
        training = selection.one_step(self.training, self.plan)
        plan, how = selection.local_batches(data, training, rng=rng), selection.optimiser(training)
        params = layers.unflatten(self.spec.net, start)
        only = self.directions.only if self.directions else ""
        trained, _ = train(params, self._loss, data.x, data.y, plan, how, only=only, rng=rng)
        update = layers.flatten(self.spec.net, trained) - start
        if self.directions:
            update = self.directions.taught(update, drawn)
        return {"update": update}, {}

    def step(self, state: State, total: State, *, rng: Streams) -> State:
        """θ ← θ + γ·mean vote, each by what it is worth."""
        votes = (self.worth * total["update"])[None]
        if self.directions:
            votes = self.directions.moved(votes, state)
        return state | self.server.step(state, votes)

    def finish(self, state: State, *, rng: Streams) -> Classifier:
        """The average of the last models."""
        return Classifier.of(self.spec, self.server.released(state)[0])

    def _loss(self, params: Mapping[str, Tensor], batch: Batch) -> Tensor:
        return stacked.cross_entropy_loss(self.spec, params, batch.x, batch.y, batch.weight)


def _refuse_idle(study: Study, own: SignDSOptions) -> None:
    """Options of another model, or of how classifiers see images: they would be ignored."""
    classifier, kind = own.model != "wae", study.schema.kind
    viewed = own.model in ("logistic", "nn") and kind == "image"
    heard = {
        "hidden": own.model in ("nn", "wae"),
        "latent": not classifier,
        "contrast": classifier and kind == "image",
        "view": viewed,
        "detail": viewed and own.view == "waves",
        "directions": _by_pictures(study.schema, own) and study.privacy.trust != "none",
        "balance": classifier,
    }
    idle = [n for n, used in heard.items() if study.options.get(n) not in _OFF and not used]
    if idle:
        seen = f', view = "{own.view}"' if viewed else ""
        bare = "directions" in idle and study.privacy.trust == "none"
        trust = ' and trust = "none"' if bare else ""
        raise StudyError(
            ", ".join(f"recipe.{name} with {_NEEDS[name]}" for name in idle),
            f'{", ".join(idle)} with model = "{own.model}"{seen}, kind = "{kind}"{trust}',
            "leave out what would be ignored",
        )


def _spec(schema: Schema, own: SignDSOptions) -> ClassifierNet:
    image = schema.kind == "image"
    view = own.view if image and own.model != "lenet" else "pixels"
    return ClassifierNet(
        schema.width,
        schema.n_classes,
        _NETS[own.model],
        widths=(own.hidden,),
        shape=schema.shape if view != "pixels" or own.model == "lenet" else (),
        contrast=image and own.contrast,
        cosines=_frequencies(schema.shape, own.detail) if view == "waves" else (),
        strokes=view == "strokes",
    )


def _by_pictures(schema: Schema, own: SignDSOptions) -> bool:
    """Whether made-up pictures tell of what a net sees: of strokes, and of LeNet's kernels."""
    strokes = own.model in ("logistic", "nn") and own.view == "strokes"
    return schema.kind == "image" and (own.model == "lenet" or strokes)


def _as_taught(
    own: SignDSOptions, plan: PrivacyPlan, spec: ClassifierNet, schema: Schema
) -> SignDSOptions:
    """Few votes are cast in the main directions alone; without privacy there are none to cast."""
    if plan.trust == "none":
        return replace(own, directions=0.0, balance=0.0)
    if own.directions is not None:
        return own
    if not _by_pictures(schema, own) or Directions(spec.net, 1).inputs > MOST_INPUTS:
        return replace(own, directions=0.0)
    updates = min(plan.rounds * plan.cohort, plan.participations * plan.sites)
    many = updates >= layers.size(spec.net)
    return replace(own, directions=(_MANY if many else _FEW)[own.model])


def _directions(schema: Schema, own: SignDSOptions) -> Directions | None:
    """Those of the layer behind strokes or kernels, as many as are asked for."""
    if not own.directions or not _by_pictures(schema, own):
        return None
    net = _spec(schema, own).net
    seen = Directions(net, 1).inputs
    if seen > MOST_INPUTS:
        raise StudyError(
            f"at most {MOST_INPUTS:,} inputs of the first dense layer for directions",
            f"{seen:,} for images of {'×'.join(map(str, schema.shape))}",
            "leave directions out, or make the images smaller",
        )
    kept = max(round(own.directions * seen), min(_FEWEST, seen))
    return Directions(net, kept, _FAINT[own.model])


def _frequencies(shape: tuple[int, ...], detail: float) -> tuple[int, ...]:
    """The lowest ones of height and width, a few at least, and all of the colours."""
    return tuple(max(round(detail * n), min(_LEAST, n)) for n in shape[:2]) + shape[2:]


def _wae_options(own: SignDSOptions) -> dict[str, object]:
    shared = {f.name: getattr(own, f.name) for f in fields(SelectionOptions)}
    return {**shared, "latent": own.latent, "widths": (own.hidden,), "teach": "paper"}
