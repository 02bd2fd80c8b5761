"""The one round loop.

Order within a round, and why: draw the cohort in secret; note it; **charge**; gather the total
from the sites; step; checkpoint. A round without a total is void: it stays charged and the model
does not move. Everything a recipe could get wrong about privacy happens here and not there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from understudy.errors import OutputError, ReleaseError, unfinished
from understudy.federation.checkpoint import Checkpoint, Saved
from understudy.federation.cohort import draw_cohort, scheduled
from understudy.federation.gather import Gather, Reply
from understudy.federation.recipe import Recipe, State, Task
from understudy.privacy.ledger import Ledger, receipts_in
from understudy.rng import NoiseSource, Streams

__all__ = ["Engine", "Runtime"]

Progress = Callable[[int, int], None]
Watch = Callable[[int, State], None]  # how many rounds are done, and what they led to
_COMPLETE = "a round that was completed"
_PAUSE = 1.0  # seconds between checkpoints where cohorts follow a schedule
_RUNTIME = "runtime/"  # prefix of what the runtime keeps, beside the recipe's own state
_COMPLETED = "engine/completed"  # rounds that had a total


class Runtime(Protocol):
    """How a cohort is reached: in this process, or over a network."""

    @property
    def ran(self) -> str:
        """What ran where, as claims say it: a key of `privacy.claim.RAN`."""

    def exchange(self, task: Task, round: int, cohort: np.ndarray) -> Iterator[Reply]:
        """Send the task, yield stacks of sealed replies by site; the silent are simply absent."""

    def count_void(self, cohort: np.ndarray, round: int) -> None:
        """A round was charged but never finished: its cohort has spent a participation."""

    def save(self) -> State:
        """What the runtime must remember across a restart."""

    def restore(self, saved: State) -> None:
        """Inverse of `save`."""


@dataclass
class Engine:
    """Runs a recipe to its final state. ``checkpoint`` is None where nothing is kept."""

    recipe: Recipe
    runtime: Runtime
    gather: Gather
    ledger: Ledger
    streams: Streams
    source: NoiseSource
    checkpoint: Checkpoint | None = None
    progress: Progress = lambda done, total: None
    watch: Watch = lambda done, state: None
    _saved: float = 0.0
    _completed: int = 0

    def train(self) -> State:
        """All rounds from the last checkpoint on."""
        plan = self.recipe.plan
        start, state = self._resume()
        for round in range(start, plan.length):
            with self._kept(round, state):
                self.progress(round, plan.length)
                state = self._round(state, round)
            if self._due(round):
                self._save(round + 1, state)
            if self._completed:
                self.watch(round + 1, state)
        if not self._completed:
            raise unfinished(_COMPLETE, "none: no site answered, or every round was cut short")
        self.progress(plan.length, plan.length)
        return state

    def _due(self, round: int) -> bool:
        """Whether to write down what this round did: always, but where cohorts follow a schedule.

        There the rounds are many and short, so it is done once in a while: what a killed run
        loses is a moment's rounds, which stay charged.
        """
        last = round + 1 == self.recipe.plan.length
        late = time.monotonic() - self._saved >= _PAUSE
        return last or late or self.recipe.plan.at(round).size is None

    @contextmanager
    def _kept(self, round: int, state: State) -> Iterator[None]:
        """Write down what was done before a scheduled round that is cut short."""
        if self.recipe.plan.at(round).size is None:
            yield
            return
        before = self.runtime.save()  # a void round is counted once, when the run goes on
        try:
            yield
        except BaseException:
            with suppress(OutputError):  # a full disk must not hide what went wrong
                self._save(round, state, before)
            raise

    def _round(self, state: State, round: int) -> State:
        plan = self.recipe.plan
        cohort = self._cohort(round)
        if self.checkpoint and (plan.at(round).size is None or round == 0):
            self.checkpoint.begin(round, cohort)
        task = self.recipe.task(state, round)
        if receipts := plan.receipts(round, self.source.name):
            self.ledger.charge(receipts)
        total = self.gather.total(self.runtime.exchange, task, round, cohort)
        if total is None:
            return state
        self._completed += 1
        return self.recipe.step(state, total, rng=self.streams.child("step", round))

    def _cohort(self, round: int) -> np.ndarray:
        plan, phase = self.recipe.plan, self.recipe.plan.at(round)
        if phase.size is not None:
            begun = round - plan.start(plan.phase(round))
            return np.sort(scheduled(phase.sites, phase.size, begun, rng=self.streams))
        return draw_cohort(phase.sites, phase.rate, source=self.source.server("cohort", round))

    def _save(self, round: int, state: State, runtime: State | None = None) -> None:
        self._saved = time.monotonic()
        if self.checkpoint:
            held = self.runtime.save() if runtime is None else runtime
            kept = {_RUNTIME + name: value for name, value in held.items()}
            kept[_COMPLETED] = torch.tensor([self._completed])
            self.checkpoint.save(Saved(round, {**state, **kept}))

    def _resume(self) -> tuple[int, State]:
        """The first round that was never charged, and the last state that was completed."""
        charged = 1 + max((r.round for r in receipts_in(self.ledger.entries)), default=-1)
        saved = self.checkpoint.load() if self.checkpoint else None
        if saved is None:
            done, state = 0, self.recipe.init(rng=self.streams.child("init"))
        else:
            done, state = saved.round, self._restored(dict(saved.state))
        if done > charged and self.recipe.plan.private:
            raise ReleaseError(
                "a ledger that holds every round of the checkpoint",
                f"{charged} charged round(s), {done} done",
                "restore the ledger; it was cut or replaced, so this run cannot be released",
            )
        if saved is None and charged >= self.recipe.plan.length:
            raise unfinished(_COMPLETE, "none: every planned round was charged and cut short")
        self._count_void(range(done, charged))
        return max(done, charged), state

    def _restored(self, saved: State) -> State:
        """The recipe's own part of a checkpoint, after the rest was put back where it belongs."""
        self._completed = int(saved.pop(_COMPLETED))
        held = [name for name in saved if name.startswith(_RUNTIME)]
        self.runtime.restore({name.removeprefix(_RUNTIME): saved.pop(name) for name in held})
        return saved

    def _count_void(self, rounds: range) -> None:
        """Rounds charged but never completed; where the cohort is unknown, all have joined."""
        begun = self.checkpoint.begun() if self.checkpoint else None
        for round in rounds:
            if self.recipe.plan.at(round).size is not None:
                cohort = self._cohort(round)  # the schedule is public
            elif begun is not None and begun[0] == round:
                cohort = begun[1]
            else:
                cohort = np.arange(self.recipe.plan.sites)
            self.runtime.count_void(cohort, round)
