"""Three toy recipes, one per shape of privacy, and small studies to run any recipe on.

They are what the engine, the runtime and the release are tested with; the contract tests
run over these and over every recipe of the package, so that a new one is covered the day
it is added.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
import torch

from contracts.faults import Faults, Faulty
from understudy.data.columns import Columns
from understudy.data.encode import Encoded, encode
from understudy.data.records import Records
from understudy.data.schema import Column, Schema
from understudy.data.shards import Shards
from understudy.data.table import from_frame
from understudy.federation.engine import Engine
from understudy.federation.gather import PlainSum
from understudy.federation.info import RecipeInfo
from understudy.federation.masking import SecureSum
from understudy.federation.memory import Memories, SiteMemory
from understudy.federation.planning import Terms, noised_plan
from understudy.federation.recipe import Task
from understudy.federation.secure.party import Party
from understudy.federation.secure.roster import identities
from understudy.federation.site import Site
from understudy.federation.sites import Sites
from understudy.privacy.clip import Bounded, clip
from understudy.privacy.ledger import Ledger
from understudy.privacy.plan import PrivacyPlan
from understudy.recipes import RECIPES
from understudy.release.generator import Generator
from understudy.rng import NoiseSource, Streams
from understudy.runtime.in_process import InProcess
from understudy.runtime.networked import Networked
from understudy.runtime.participant import Participant
from understudy.runtime.store import Store
from understudy.runtime.wire import Agreement
from understudy.runtime.workers import Spread, Worker, worker_of
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
        "toy-mean",
        {("site", t) for t in ("central", "distributed", "local")},
        ("site", "central"),
        3,
    )

    @classmethod
    def build(cls, study: Study) -> ToyMean:
        return cls(study.schema, noised_plan(study, cls.info, {"mean": (WIDTH,)}, Terms(bound=0.5)))

    def init(self, *, rng: Streams) -> dict:
        return {"mean": torch.zeros(WIDTH)}

    def memory(self, site: str) -> dict:
        return {"rounds": torch.zeros(1), "last": torch.zeros(WIDTH)}

    def task(self, state: dict, round: int) -> Task:
        return Task({"mean": state["mean"]}, {"round": round})

    def local(self, task: Task, site: Site):
        data, memory = site.data, site.memory
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
        {(u, t) for u in ("record", "person", "site") for t in ("central", "distributed", "local")},
        ("record", "central"),
        2,
    )

    @classmethod
    def build(cls, study: Study) -> ToySum:
        shapes = {"sum": (2, WIDTH), "count": (2,)}
        terms = Terms(bound=1.0, combine="sum")
        return cls(study.schema, noised_plan(study, cls.info, shapes, terms))

    def init(self, *, rng: Streams) -> dict:
        return {"sum": torch.zeros(2, WIDTH), "count": torch.zeros(2)}

    def memory(self, site: str) -> dict:
        return {}

    def task(self, state: dict, round: int) -> Task:
        return Task()

    def local(self, task: Task, site: Site):
        def one_hot(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.one_hot(y, 2).float()

        sums = site.sum("sum", lambda x, y: 2 * x, lambda y: y)
        return {"sum": sums, "count": site.sum("count", one_hot)}, {}

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
        terms = Terms(bound=1.0, where="step", steps=3, batch_rate=0.5)
        return cls(study.schema, noised_plan(study, cls.info, {"step": (WIDTH,)}, terms))

    def init(self, *, rng: Streams) -> dict:
        return {"mean": torch.zeros(WIDTH)}

    def memory(self, site: str) -> dict:
        return {}

    def task(self, state: dict, round: int) -> Task:
        return Task({"mean": state["mean"]})

    def local(self, task: Task, site: Site):
        start = task.arrays["mean"].double()
        place = start.expand(len(site), -1)
        for _ in range(3):
            pulls = _pulls(site, place)
            place = place + 0.1 * site.step("step", Bounded(pulls, 1.0, "record"))
        return {"step": place - start}, {}

    def step(self, state: dict, total: dict, *, rng: Streams) -> dict:
        return {"mean": state["mean"] + total["step"]}

    def finish(self, state: dict, *, rng: Streams) -> Generator:
        return _generator(state["mean"])


def _pulls(site: Site, place: torch.Tensor) -> torch.Tensor:
    """Per site, the sum of clipped pulls of a secret batch of its rows."""
    member, row = site.sample("step").unbind(1)
    pulls = clip(site.data.x[row].double() - place[member], 1.0).value
    return torch.zeros(len(site), WIDTH, dtype=torch.float64).index_add_(0, member, pulls)


TOYS = {"toy-mean": ToyMean, "toy-sum": ToySum, "toy-step": ToyStep}


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make the toys known to `understudy.simulation` for one test."""
    for name, toy in TOYS.items():
        monkeypatch.setitem(RECIPES, name, toy)  # type: ignore[arg-type]
    yield


def engine(
    recipe: Any,
    folder: Path,
    *,
    data: Shards | Columns | None = None,
    seed: int | None = 0,
    **options: Any,
) -> tuple[Engine, Ledger]:
    """An engine around a recipe, in a folder; close the ledger when done."""
    streams = Streams.from_seed(seed)
    source = NoiseSource.system() if seed is None else NoiseSource.seeded(streams)
    data = shards(recipe.plan.sites) if data is None else data
    held = "party" if isinstance(data, Columns) else "site"
    names = [f"{held}-{i + 1}" for i in range(len(data))]
    each = [[phase.participations] * len(data) for phase in recipe.plan.phases]
    kind = Memories if isinstance(data, Columns) else SiteMemory
    memory = kind(recipe.memory, names, options.pop("memory", None))
    sites = Sites(
        recipe, names, np.arange(len(data)), data, memory, streams, source,
        np.array(each, np.int64), options.pop("noise", None),
    )  # fmt: skip
    runtime = InProcess(sites, options.pop("chunk", None), torch.get_num_threads())
    ledger = Ledger(folder / "ledger.jsonl")
    gather = PlainSum(recipe.plan, source)
    return Engine(recipe, runtime, gather, ledger, streams, source, **options), ledger


def networked(
    sites: Sites,
    folder: Path,
    faults: Faults | None = None,
    *,
    run: str = "run",
    parties: Sequence[Party] = (),
    **terms: Any,
) -> Networked:
    """The same sites, each on its own in a folder of its own, behind a transport with faults."""
    agreement = Agreement.of("study", sites.recipe)
    handlers = {}
    for client, name in enumerate(sites.names):
        place = folder / name
        place.mkdir(exist_ok=True)
        own = sites.alone(client, SiteMemory(sites.recipe.memory, [name]))
        party = parties[client] if parties else None
        handlers[name] = Participant(own, agreement, Store(place), party).handle
    return Networked(Faulty(handlers, faults or {}), sites.names, agreement, run, **terms)


def spread(made: Engine, workers: int, faults: Faults | None = None) -> dict[str, Worker]:
    """Put the engine's sites at workers, behind a transport with faults; the workers by name."""
    whole: Sites = made.runtime.sites  # type: ignore[attr-defined]
    agreement, everyone = Agreement.of("study", whole.recipe), np.arange(len(whole))
    holder = worker_of(everyone, len(whole), workers)
    found = {}
    for i in range(workers):
        ids = everyone[holder == i]
        names = [whole.names[site] for site in ids]
        sites = replace(
            whole,
            names=names,
            ids=ids,
            data=whole.data.take(ids),
            memory=SiteMemory(whole.recipe.memory, names),
            allowance=whole.allowance[:, ids].copy(),
        )
        found[f"worker-{i + 1}"] = Worker(f"worker-{i + 1}", sites, agreement, "run", b"rows")
    handlers = {name: worker.handle for name, worker in found.items()}
    networked = Networked(Faulty(handlers, faults or {}), list(found), agreement, "run")
    made.runtime = made.gather = Spread(whole.recipe.plan, networked, made.gather)  # type: ignore
    return found


def secured(made: Engine, folder: Path, faults: Faults | None = None, **terms: Any) -> SecureSum:
    """Put sites that are each on their own behind an engine, and a secure sum between them."""
    sites = made.runtime.sites  # type: ignore[attr-defined]
    roster, each = terms.pop("people", None) or identities(sites.names)
    parties = [Party(identity, roster) for identity in each]
    made.runtime = found = networked(sites, folder, faults, parties=parties, **terms)
    agreed = found.agreement.hash
    made.gather = SecureSum(sites.recipe.plan, made.source, found, roster, agreed, found.run)
    return made.gather
