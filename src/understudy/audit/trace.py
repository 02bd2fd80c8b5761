"""A run of the real engine with every mechanism's output frozen, and all that it was handed.

Grey-box auditing (Re:cord-play, arXiv 2602.17454): the mechanisms say the same whatever they are
given, so two runs on neighbouring data may differ in nothing but what was handed to them. The
classes of the mechanisms are patched while a run is traced: one at a time in a process.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from understudy.data.columns import Columns
from understudy.data.shards import Shards
from understudy.federation import engine
from understudy.federation.engine import Engine
from understudy.federation.gather import PlainSum
from understudy.federation.memory import Memories, SiteMemory
from understudy.federation.recipe import Recipe, State, Task
from understudy.federation.sites import Sites
from understudy.nets.stacked import one_thread
from understudy.privacy.clip import Bounded, Receipt, Sealed
from understudy.privacy.gaussian import Gaussian
from understudy.privacy.integer import Grid, IntegerGaussian
from understudy.privacy.ledger import Ledger
from understudy.privacy.mechanism import Use
from understudy.privacy.respond import Response
from understudy.privacy.select import Selection
from understudy.rng import Draws, NoiseSource, Streams
from understudy.runtime.in_process import InProcess

__all__ = ["Choice", "Trace", "Unwritten", "prepared", "traced"]

Choice = Selection | Response
SEED = 7


@dataclass
class Trace:
    """All that a run handed to its mechanisms, and all that came out at the end.

    ``overlong`` names parts that left a site longer than their bound.
    """

    queries: list[tuple[tuple, torch.Tensor, float]] = field(default_factory=list)
    rounded: list[tuple[torch.Tensor, float]] = field(default_factory=list)
    choices: list[tuple[tuple, torch.Tensor, Choice]] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)
    sealed: list[tuple] = field(default_factory=list)
    tasks: list[bytes] = field(default_factory=list)
    overlong: list[tuple[str, float, float]] = field(default_factory=list)
    ledger: str = ""
    state: dict[str, torch.Tensor] = field(default_factory=dict)


class Unwritten:
    """A ledger for runs that release nothing: what is charged is forgotten."""

    entries: tuple = ()

    def charge(self, receipts: tuple[Receipt, ...]) -> None:
        """Spend nothing."""


def prepared(
    recipe: Recipe,
    ledger: Ledger | Unwritten,
    data: Shards,
    streams: Streams,
    chunk: int | None = None,
) -> tuple[Engine, Sites]:
    """An engine around a recipe and its sites, all in this process."""
    source = NoiseSource.seeded(streams)
    columns = isinstance(data, Columns)
    names = [f"{'party' if columns else 'site'}-{i + 1}" for i in range(len(data))]
    memory = (Memories if columns else SiteMemory)(recipe.memory, names, None)
    each = [[phase.participations] * len(data) for phase in recipe.plan.phases]
    sites = Sites(
        recipe,
        names,
        np.arange(len(data)),
        data,
        memory,
        streams,
        source,
        np.array(each, np.int64),
    )
    gather = PlainSum(recipe.plan, source)
    kept: Any = ledger
    return Engine(recipe, InProcess(sites, chunk), gather, kept, streams, source), sites


def traced(
    recipe: Recipe,
    folder: Path,
    data: Shards,
    silent: tuple[int, ...] = (),
    chunk: int | None = 1,
    first: int = 0,
) -> Trace:
    """A whole run of the real engine, ``chunk`` sites at a time, with frozen mechanisms.

    With ``first``, only so many rounds, and everyone is in every cohort and every batch.
    """
    trace = Trace()
    folder.mkdir()
    ledger = Ledger(folder / "ledger.jsonl")
    made, sites = prepared(recipe, ledger, data, Streams.from_seed(SEED), chunk)
    sites.allowance[:, list(silent)] = 0
    with ledger, one_thread(), ExitStack() as stack:  # traces are compared in their order
        every = _everyone(len(data)) if first else []
        for target, name, value in (*_patches(trace, recipe, sites, first), *every):
            stack.enter_context(patch.object(target, name, value))
        with suppress(_Enough):
            trace.state = made.train()
    trace.ledger = (folder / "ledger.jsonl").read_text(encoding="utf-8")
    return trace


class _Enough(Exception):
    """As many rounds as are wanted."""


def _everyone(sites: int) -> list[tuple[Any, str, Callable]]:
    def cohort(*asked: Any, **more: Any) -> np.ndarray:
        return np.arange(sites)

    def coins(self: Draws, counts: Any, rate: float) -> np.ndarray:
        return np.ones(int(np.sum(counts)), bool)

    drawn: list[tuple[Any, str, Callable]] = [(Draws, "coins_each", coins)]
    return drawn + [(engine, name, cohort) for name in ("draw_cohort", "scheduled")]


def _patches(
    trace: Trace, recipe: Recipe, sites: Sites, first: int = 0
) -> list[tuple[Any, str, Callable]]:
    found: list[tuple[Any, str, Callable]] = [
        (sites, "answer", _watched(trace, recipe, sites.answer, first)),
        (IntegerGaussian, "_rounded", _noted_rounding(trace, IntegerGaussian._rounded)),
    ]
    for noised in (Gaussian, IntegerGaussian):
        found.append((noised, "add_noise", _frozen(trace, noised.add_noise)))
    for kind in (Selection, Response):
        found.append((kind, "seal", _frozen_choice(trace, kind.seal)))
    return found


def _watched(trace: Trace, recipe: Recipe, answer: Callable, first: int) -> Callable:
    """Note what leaves a stack of sites, and whether a server that is trusted sees too much."""

    def watched(task: Task, round: int, clients: np.ndarray) -> tuple[Sealed, State]:
        if first and round >= first:
            raise _Enough
        sealed, kept = answer(task, round, clients)
        trace.sealed.append((sealed.kind, sealed.round, sealed.receipts, sorted(sealed.parts)))
        if sealed.kind == "entrusted" and recipe.plan.unit == "site":
            for part in recipe.plan.at(round).parts:
                norm = float(sealed.parts[part.name].double().flatten(1).norm(dim=1).max())
                limit = part.mechanism.bound  # type: ignore[attr-defined]
                if not norm <= limit:
                    trace.overlong.append((part.name, norm, limit))
        blob = [(k, v.numpy().tobytes()) for k, v in sorted(task.arrays.items())]
        trace.tasks.append(repr((blob, sorted(task.values.items()))).encode())
        return sealed, kept

    return watched


def _key(use: Use, value: torch.Tensor) -> tuple:
    return (use.part.name, use.part.where, use.round, tuple(value.shape), use.unit)


def _frozen(trace: Trace, original: Callable) -> Callable:
    """A mechanism that notes its input and returns the same output whatever the input."""

    def add_noise(self: Gaussian | IntegerGaussian, bounded: Bounded, use: Use) -> Any:
        _, receipts = original(self, bounded, use)
        key = _key(use, bounded.value)
        place = sum(k == key for k, _, _ in trace.queries)
        trace.queries.append((key, bounded.value.double().clone(), bounded.sensitivity))
        trace.receipts += receipts
        seed = zlib.crc32(repr((key, place)).encode())
        drawn = torch.randn(bounded.value.shape, generator=torch.Generator().manual_seed(seed))
        noise = 0.1 * bounded.sensitivity * drawn.double()
        if isinstance(self, IntegerGaussian):
            noise = _reduced(noise, self, use)
        return noise, receipts

    return add_noise


def _reduced(value: torch.Tensor, mechanism: IntegerGaussian, use: Use) -> torch.Tensor:
    """A share that holds this value, near enough."""
    numbers = (value / mechanism.grid(use.part).spacing).round().long()
    return numbers & (2 ** mechanism.bits(use.part) - 1)


def _noted_rounding(trace: Trace, original: Callable) -> Callable:
    """Whole numbers are compared too: what is noised in shares are these."""

    def rounded(self: IntegerGaussian, value: torch.Tensor, grid: Grid, draws: Draws) -> Any:
        found = original(self, value, grid, draws)
        trace.rounded.append((found.double(), grid.limit))
        return found

    return rounded


def _frozen_choice(trace: Trace, original: Callable) -> Callable:
    """The same for a mechanism of pure ε: what it says comes from another update."""

    def chosen(self: Choice, value: torch.Tensor, use: Use) -> Any:
        key = _key(use, value)
        place = sum(k == key for k, _, _ in trace.choices)
        trace.choices.append((key, value.clone(), self))
        seed = Streams.from_seed(zlib.crc32(repr((key, place)).encode()))
        draws = seed.sites("frozen", use.round, range(len(value)))
        message, receipts = original(self, torch.zeros_like(value), replace(use, draws=draws))
        trace.receipts += receipts
        return message, receipts

    return chosen
