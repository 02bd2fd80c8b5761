"""Three toy recipes, one per shape of privacy, and small studies to run any recipe on.

They are what the engine, the runtime and the release are tested with; the contract tests
run over these and over every recipe of the package, so that a new one is covered the day
it is added.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
import torch

from understudy.data.encode import Encoded, encode
from understudy.data.records import Records
from understudy.data.schema import Column, Schema
from understudy.data.shards import Shards
from understudy.data.table import from_frame
from understudy.federation.engine import Engine
from understudy.federation.memory import SiteMemory
from understudy.federation.recipe import RecipeInfo, Task, make_plan
from understudy.federation.site import Sites
from understudy.privacy.clip import Bounded, clip
from understudy.privacy.ledger import Ledger
from understudy.privacy.plan import Part, PrivacyPlan
from understudy.recipes import RECIPES
from understudy.release.generator import Generator
from understudy.rng import Draws, NoiseSource, Streams
from understudy.runtime.memory import InProcess
from understudy.study import Study

WIDTH = 3
COLUMNS = (
    Column("height", "numeric", 0.0, 2.0),
    Column("smoker", "boolean"),
    Column("age", "integer", 0, 100),
    Column("ill", "categorical", categories=("no", "yes")),
)


def schema(**changes: Any) -> Schema:
    """A table of three features and two classes, with persons of up to two rows."""
    terms = dict(records=400, columns=COLUMNS, label="ill", person="id", rows_per_person=2)
    return Schema("table", "toy", **{**terms, **changes})


def records(n: int, seed: int = 0, kind: Schema | None = None) -> Records:
    """``n`` random rows of `schema`."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "height": rng.uniform(0, 2, n),
            "smoker": rng.random(n) < 0.5,
            "age": rng.integers(0, 101, n),
            "ill": rng.choice(["no", "yes"], n),
            "id": np.arange(n) // 2 + 1000 * seed,
        }
    )
    kind = kind or schema()
    return from_frame(frame if kind.person else frame.drop(columns="id"), kind)


STEPS, CHANNELS = 4, 2


def series_schema() -> Schema:
    """Series of four steps and two channels, in two classes."""
    channels = tuple(Column(name, "numeric", 0.0, 1.0) for name in ("pulse", "flow"))
    terms = dict(records=400, columns=channels, shape=(STEPS, CHANNELS), classes=("no", "yes"))
    return Schema("series", "toy", **terms)


def series_records(n: int, seed: int = 0) -> Records:
    """``n`` random series of `series_schema`."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(["no", "yes"], n)
    return Records(series=rng.random((n, STEPS, CHANNELS), np.float32), labels=labels)


SIDES = (16, 17)


def image_schema() -> Schema:
    """Grey images, the smallest that every net takes, in two classes."""
    return Schema("image", "toy", records=400, shape=SIDES, classes=("no", "yes"))


def image_records(n: int, seed: int = 0) -> Records:
    """``n`` random images of `image_schema`."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(["no", "yes"], n)
    return Records(images=rng.integers(0, 256, (n, *SIDES), np.uint8), labels=labels)


MAKERS = {
    "table": (schema, records),
    "series": (series_schema, series_records),
    "image": (image_schema, image_records),
}


def study(recipe: str = "toy-mean", sites: int = 6, /, **tables: Any) -> Study:
    """A study of a toy or real recipe; ``tables`` are those of a study file."""
    head = {"name": "toy", "recipe": recipe, **tables.pop("study", {})}
    base, public = tables.pop("base", Path()), tables.pop("schema", schema())
    data = {"study": head, "simulation": {"data": "-", "sites": sites}, **tables}
    return Study.parse(data, schema=public, base=base)


def plain() -> Schema:
    """The same table without persons."""
    return schema(person=None, rows_per_person=None)


def rows(sites: int, each: int = 4, kind: str = "table") -> list[Records]:
    """One small table, or a few series or images, per site."""
    _, make = MAKERS[kind]
    return [make(each, seed=i + 1) for i in range(sites)]


def shards(sites: int, each: int = 4) -> Shards:
    """As many sites, encoded and stacked."""
    found = encode(plain(), records(sites * each, kind=plain()))
    parts = [np.arange(i * each, (i + 1) * each) for i in range(sites)]
    return Shards.pack(Encoded(found.x, found.y, None), parts)


@dataclass(frozen=True)
class ToyOptions:
    """No options."""


def _info(name: str, supports: set, default: tuple, rounds: int) -> RecipeInfo:
    return RecipeInfo(
        name=name,
        title=name,
        paper="none",
        summary="a toy",
        kinds=("table",),
        supports=frozenset(supports),
        default=default,
        options=ToyOptions,
        rounds=rounds,
    )


def _generator(mean: torch.Tensor) -> Generator:
    """A Gaussian around one mean for both classes."""
    arrays = {
        "mean": mean.float().clamp(0, 1).expand(2, -1).contiguous(),
        "factor": 0.1 * torch.eye(WIDTH).expand(2, -1, -1).contiguous(),
        "basis": torch.eye(WIDTH),
        "origin": torch.zeros(WIDTH),
    }
    return Generator("gaussian", arrays, {"width": WIDTH}, (0.5, 0.5))


@dataclass(frozen=True)
class ToyMean:
    """Site level: the mean of the columns, with a counter of rounds kept at each site."""

    schema: Schema
    plan: PrivacyPlan

    info: ClassVar[RecipeInfo] = _info(
        "toy-mean", {("site", "central"), ("site", "local")}, ("site", "central"), 3
    )

    @classmethod
    def build(cls, study: Study) -> ToyMean:
        return cls(study.schema, make_plan(study, cls.info, {"mean": (WIDTH,)}, bound=0.5))

    def init(self, *, rng: Streams) -> dict:
        return {"mean": torch.zeros(WIDTH)}

    def memory(self) -> dict:
        return {"rounds": torch.zeros(1), "last": torch.zeros(WIDTH)}

    def task(self, state: dict, round: int) -> Task:
        return Task({"mean": state["mean"]}, {"round": round})

    def local(self, task: Task, memory: dict, data: Shards, private, *, rng: Draws):
        means = torch.stack([_mean(data.rows(c)[0], task.arrays["mean"]) for c in range(len(data))])
        update = means - task.arrays["mean"] + 0.01 * memory["rounds"]
        return {"mean": update}, {"rounds": memory["rounds"] + 1, "last": means}

    def step(self, state: dict, total: dict, *, rng: Streams) -> dict:
        return {"mean": state["mean"] + total["mean"]}

    def finish(self, state: dict, *, rng: Streams) -> Generator:
        return _generator(state["mean"])


def _mean(x: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
    return x.mean(0) if len(x) else start - 1  # careless: the engine must silence empty sites


@dataclass(frozen=True)
class ToySum:
    """Record level: one clipped sum of features by class."""

    schema: Schema
    plan: PrivacyPlan

    info: ClassVar[RecipeInfo] = _info(
        "toy-sum",
        {(u, t) for u in ("record", "person", "site") for t in ("central", "local")},
        ("record", "central"),
        2,
    )

    @classmethod
    def build(cls, study: Study) -> ToySum:
        shapes = {"sum": (2, WIDTH), "count": (2,)}
        return cls(study.schema, make_plan(study, cls.info, shapes, bound=1.0, combine="sum"))

    def init(self, *, rng: Streams) -> dict:
        return {"sum": torch.zeros(2, WIDTH), "count": torch.zeros(2)}

    def memory(self) -> dict:
        return {}

    def task(self, state: dict, round: int) -> Task:
        return Task()

    def local(self, task: Task, memory: dict, data: Shards, private, *, rng: Draws):
        def one_hot(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.one_hot(y, 2).float()

        sums = private.sum("sum", data, lambda x, y: 2 * x, lambda y: y)
        return {"sum": sums, "count": private.sum("count", data, one_hot, None)}, memory

    def step(self, state: dict, total: dict, *, rng: Streams) -> dict:
        return {name: state[name] + total[name] for name in state}

    def finish(self, state: dict, *, rng: Streams) -> Generator:
        return _generator(state["sum"].sum(0) / state["count"].sum().clamp(min=1) / 2)


@dataclass(frozen=True)
class ToyStep:
    """Record level at the site: every step noises a clipped sum over a secret batch."""

    schema: Schema
    plan: PrivacyPlan

    info: ClassVar[RecipeInfo] = _info("toy-step", {("record", "local")}, ("record", "local"), 2)

    @classmethod
    def build(cls, study: Study) -> ToyStep:
        base = make_plan(study, cls.info, {"step": (WIDTH,)}, bound=1.0)
        part = Part("step", (WIDTH,), "step", 1.0, base.parts[0].noise, steps=3, rate=0.5)
        terms = {**base.__dict__, "parts": (part,)}
        return cls(study.schema, PrivacyPlan(**terms))

    def init(self, *, rng: Streams) -> dict:
        return {"mean": torch.zeros(WIDTH)}

    def memory(self) -> dict:
        return {}

    def task(self, state: dict, round: int) -> Task:
        return Task({"mean": state["mean"]})

    def local(self, task: Task, memory: dict, data: Shards, private, *, rng: Draws):
        start = task.arrays["mean"].double()
        place = start.expand(len(data), -1)
        for step in range(3):
            drawn = rng.child("batch", step)
            sums = torch.stack(
                [_batch(data, c, place[c], drawn.take([c])) for c in range(len(data))]
            )
            noised = private.step("step", Bounded(sums, 1.0, "record"))
            place = place + 0.1 * noised
        return {"step": place - start}, memory

    def step(self, state: dict, total: dict, *, rng: Streams) -> dict:
        return {"mean": state["mean"] + total["step"]}

    def finish(self, state: dict, *, rng: Streams) -> Generator:
        return _generator(state["mean"])


def _batch(data: Shards, site: int, place: torch.Tensor, rng: Draws) -> torch.Tensor:
    """The sum of clipped pulls of a Poisson batch of one site's rows."""
    x = data.rows(site)[0]
    chosen = x[torch.from_numpy(rng.coins(len(x), 0.5)[0])].double()
    return clip(chosen - place, 1.0).value.sum(0)


TOYS = {"toy-mean": ToyMean, "toy-sum": ToySum, "toy-step": ToyStep}


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make the toys known to `understudy.run` for one test."""
    for name, toy in TOYS.items():
        monkeypatch.setitem(RECIPES, name, toy)  # type: ignore[arg-type]
    yield


def engine(
    recipe: Any,
    folder: Path,
    *,
    data: Shards | None = None,
    seed: int | None = 0,
    **options: Any,
) -> tuple[Engine, Ledger]:
    """An engine around a recipe, in a folder; close the ledger when done."""
    streams = Streams.from_seed(seed)
    source = NoiseSource.system() if seed is None else NoiseSource.seeded(streams)
    data = shards(recipe.plan.sites) if data is None else data
    each = [[phase.participations] * len(data) for phase in recipe.plan.phases]
    allowance = np.array(each, np.int64)
    memory = SiteMemory(recipe.memory(), len(data), options.pop("memory", None))
    sites = Sites(recipe, data, memory, streams, source, allowance, options.pop("noise", None))
    runtime = InProcess(
        sites, "study", **{k: options.pop(k) for k in ("wire", "chunk") if k in options}
    )
    ledger = Ledger(folder / "ledger.jsonl")
    return Engine(recipe, runtime, ledger, streams, source, **options), ledger
