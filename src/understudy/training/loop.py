"""Stacked training: every client of a cohort in one set of kernels.

Clients are ordered by their number of steps, so at any step those still training are the
first ``a`` of the stack: the step runs on views ``[:a]`` and a client that has finished,
its parameters and its optimiser state cannot move. The stack is cut into chunks of clients whose
batches have one width, small enough for the cache; each thread takes its own chunks and computes
with one core, which also keeps convolutions (chunks of one client) on all cores.

What a client learns depends on no other, to the last bit: it draws from streams of its own, its
batches are as wide as its own rows ask for, kernels see it alike in any stack (`nets.stacked`),
and its parameters fill whole vectors of memory, since Adam's kernel treats the end of a run of
memory apart. Only a lone client with large convolutions uses several cores, and rounds by them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from understudy.nets.layers import PATCH_LIMIT, Params
from understudy.nets.stacked import equal_chunks, in_threads
from understudy.rng import Draws
from understudy.training import optim
from understudy.training.batches import Batches
from understudy.training.optim import VECTOR, Optimiser

__all__ = ["CHUNK_BYTES", "Batch", "Loss", "Rows", "chunk_size", "train"]

CHUNK_BYTES = 16 * 2**20  # parameters, gradients and two moments of one chunk
GATHER_BYTES = 4 * 2**20  # rows of one chunk that are gathered for all steps at once
PATCH_CLIENTS = 25  # clients per chunk whose convolutions are products of patches
LEAST_CLIENTS = 16  # per chunk: fewer are not worth another thread


@dataclass(frozen=True)
class Batch:
    """What a loss sees at one step: ``x [C, B, F]``, ``y [C, B]``, ``weight [C, B]``."""

    x: Tensor
    y: Tensor
    weight: Tensor
    members: Tensor  # [C] which members of the stack these are
    step: int
    drawn: LossDraws

    def normal(self, width: int) -> Tensor:
        """Standard normals ``[C, B, width]`` for this step; zero where there is only padding."""
        return self.drawn.at(self.step, len(self.members), width)

    def uniform(self) -> Tensor:
        """One number in (0, 1) per row ``[C, B]`` for this step; zero for padding."""
        return self.drawn.at(self.step, len(self.members), 0)[..., 0]


class LossDraws:
    """What the losses of a chunk draw: each client for its own rows, in the order of its steps.

    Numbers of many steps are drawn in one go. Asked twice at one step, it gives the same ones.
    """

    def __init__(self, batches: Batches, rng: Draws) -> None:
        taken = torch.arange(len(batches.index))[:, None] < batches.steps  # [S, C]
        self._real = ((batches.weight > 0) & taken[..., None]).numpy()
        self._rng = rng
        self._streams: dict[int, Draws] = {}
        self._held: dict[int, tuple[int, Tensor]] = {}  # by width: the first step, the numbers

    def at(self, step: int, clients: int, width: int) -> Tensor:
        """Of the first clients: ``width`` normals per row, or a uniform number (width 0)."""
        first, held = self._held.get(width, (0, torch.empty(0)))
        if not first <= step < first + len(held):
            first, held = self._held[width] = step, self._draw(step, width)
        return held[step - first, :clients]

    def _draw(self, step: int, width: int) -> Tensor:
        """The numbers of the next steps ``[S', C, B, width or 1]``."""
        if width not in self._streams:
            self._streams[width] = self._rng.child("loss", width)
        draw, each = self._streams[width], max(width, 1)
        _, clients, rows = self._real.shape
        ahead = max(1, GATHER_BYTES // (8 * max(1, clients * rows * each)))
        real = self._real[step : step + ahead].swapaxes(0, 1)  # [C, S', B]
        counts = each * real.sum((1, 2))
        drawn = draw.normal_each(counts) if width else draw.uniform_each(counts)
        out = np.zeros((*real.shape, each), np.float32)
        out[real] = drawn.reshape(-1, each)
        return torch.from_numpy(out).swapaxes(0, 1)


Loss = Callable[[Mapping[str, Tensor], Batch], Tensor]  # → [C], one number per client


Rows = tuple[Tensor, Tensor]  # features [n, F] and labels [n], which batches point into


@dataclass(frozen=True)
class _Run:
    """One call of `train`, shared by its workers; every chunk writes its own rows of ``out``."""

    params: Mapping[str, Tensor]
    state: Mapping[str, Tensor]
    out: dict[str, Tensor]
    loss: Loss
    rows: Rows
    batches: Batches
    optimiser: Optimiser
    rng: Draws


def train(
    params: Mapping[str, Tensor],
    loss: Loss,
    rows: Rows,
    batches: Batches,
    optimiser: Optimiser,
    state: Mapping[str, Tensor] | None = None,
    *,
    rng: Draws,
) -> tuple[Params, Params]:
    """Train ``params`` ``[C, …]``, which are not written to.

    Returns new parameters and, if a ``state`` of `optim.start` came in, the optimiser state to
    keep (else an empty one). A client whose training left the finite numbers keeps what it came
    with. ``rng`` has a stream for every client, or for every site where a site has several
    clients of the stack.
    """
    kept = dict(state or {})
    out = {name: torch.empty(t.shape) for name, t in {**params, **kept}.items()}
    rng = rng.split(max(1, len(batches.steps) // max(1, len(rng))))
    rng.check(len(batches.steps))
    run = _Run(params, kept, out, loss, rows, batches, optimiser, rng)
    _all_chunks(run, _chunks(batches, chunk_size(params)))
    return {n: out[n] for n in params}, {n: out[n] for n in kept}


def chunk_size(params: Mapping[str, Tensor], limit: int = CHUNK_BYTES) -> int:
    """Clients per chunk: one for convolutions, a few if small, else what fits ``limit`` bytes."""
    kernels = [math.prod(p.shape[2:]) for p in params.values() if p.ndim > 4]
    if kernels:
        return 1 if max(kernels) > PATCH_LIMIT else PATCH_CLIENTS
    each = 16 * sum(math.prod(p.shape[1:]) for p in params.values())
    return max(1, limit // max(1, each))


def _chunks(batches: Batches, most: int) -> list[Tensor]:
    """Members of one width and similar numbers of steps, at most so many together."""
    members = torch.argsort(batches.steps, descending=True, stable=True)
    alike = [members[batches.widths[members] == width] for width in batches.widths.unique()]
    threads = torch.get_num_threads()
    sizes = [equal_chunks(len(some), most, LEAST_CLIENTS, threads) for some in alike]
    return [c for some, size in zip(alike, sizes, strict=True) for c in some.split(size)]


def _all_chunks(run: _Run, chunks: list[Tensor]) -> None:
    """Workers draw chunks from one queue; a lone client's convolutions get all cores."""
    queue = iter(chunks)
    if len(chunks) == 1 and chunk_size(run.params) == 1:
        return _worker(run, queue)
    workers = range(min(torch.get_num_threads(), len(chunks)))
    list(in_threads(lambda _: _worker(run, queue), workers))
    return None


def _worker(run: _Run, queue: Iterator[Tensor]) -> None:
    """Train chunk after chunk in buffers that are allocated once: ``[C, …]`` as ``[C, whole]``."""
    buffers = _Buffers()
    for members in queue:
        params = {n: buffers.select(n, p, members) for n, p in run.params.items()}
        state = {n: buffers.select(n, s, members) for n, s in run.state.items()}
        state = state or optim.start(run.optimiser, params, empty=buffers.empty)
        scratch = {n: buffers.empty(f"scratch {n}", p.shape) for n, p in params.items()}
        _run_chunk(run, params, state, scratch, members)
        _store(run, {**params, **state}, members)


class _Buffers:
    """Named storage that later chunks use again."""

    def __init__(self) -> None:
        self._held: dict[str, Tensor] = {}

    def empty(self, name: str, shape: Sequence[int]) -> Tensor:
        if name not in self._held or len(self._held[name]) < shape[0]:
            self._held[name] = torch.zeros(*shape)
        return self._held[name][: shape[0]]

    def select(self, name: str, source: Tensor, members: Tensor) -> Tensor:
        """Copies of some members ``[C, …]``, a row of whole vectors each, with zeros at its end."""
        size = math.prod(source.shape[1:])
        wide = () if source.ndim == 1 else (-(-size // VECTOR) * VECTOR,)
        part = self.empty(name, (len(members), *wide))
        _shaped(part, source).copy_(source[members])
        return part


def _shaped(whole: Tensor, like: Tensor) -> Tensor:
    """Rows of whole vectors as what they hold."""
    if like.ndim == 1:
        return whole
    return whole[:, : math.prod(like.shape[1:])].view(len(whole), *like.shape[1:])


def _run_chunk(
    run: _Run,
    params: dict[str, Tensor],
    state: dict[str, Tensor],
    scratch: dict[str, Tensor],
    members: Tensor,
) -> None:
    """All steps of one chunk, in place."""
    batches = run.batches.take(members)
    drawn = LossDraws(batches, run.rng.take(members.tolist()))
    rows = _gathered(run.rows, batches.index)
    active = (batches.steps > torch.arange(len(batches.index))[:, None]).sum(1).tolist()
    moving: dict[str, _Moving] = {}
    for step, count in enumerate(active):
        if step == 0 or count < active[step - 1]:
            moving = {}
        prefix = optim.turn(run.optimiser, step)
        if prefix not in moving:
            held = ({n: t[:count] for n, t in some.items()} for some in (params, state, scratch))
            moving[prefix] = _moving(run, prefix, *held)
        weight = batches.weight[step, :count]
        batch = Batch(*rows(step, count), weight, members[:count], step, drawn)
        moving[prefix].step(run.loss, batch)


@dataclass(frozen=True)
class _Moving:
    """The parameters that move at a step, those that stand still, and the optimiser's move."""

    leaves: dict[str, Tensor]
    fixed: dict[str, Tensor]
    slopes: dict[str, Tensor]
    move: optim.Step

    def step(self, loss: Loss, batch: Batch) -> None:
        """One step of all clients, in place."""
        total = loss({**self.fixed, **self.leaves}, batch).sum()
        self.move(_gradients(total, self.leaves, self.slopes))


def _moving(
    run: _Run,
    prefix: str,
    params: dict[str, Tensor],
    state: dict[str, Tensor],
    scratch: dict[str, Tensor],
) -> _Moving:
    """Those under ``prefix``, of the clients that still train."""
    owned = {n: p for n, p in params.items() if n.startswith(prefix)}  # the leaves' storage
    leaves = {n: _leaf(p, scratch[n], run.params[n]) for n, p in owned.items()}
    fixed = {n: _shaped(p, run.params[n]) for n, p in params.items() if n not in owned}
    slopes = {n: scratch[n] for n in owned}
    return _Moving(leaves, fixed, slopes, optim.stepper(run.optimiser, owned, state))


def _gathered(rows: Rows, index: Tensor) -> Callable[[int, int], Rows]:
    """Those of a step's first clients; where small, of all steps in one go."""
    x, y = rows
    if 4 * index.numel() * math.prod(x.shape[1:]) > GATHER_BYTES:
        return lambda step, count: (x[index[step, :count]], y[index[step, :count]])
    x, y = x[index], y[index]
    return lambda step, count: (x[step, :count], y[step, :count])


def _leaf(param: Tensor, scratch: Tensor, like: Tensor) -> Tensor:
    leaf = _shaped(param, like).detach().requires_grad_()
    leaf.scratch = _shaped(scratch, like)  # type: ignore[attr-defined]
    return leaf


def _gradients(
    total: Tensor, leaves: Mapping[str, Tensor], slopes: Mapping[str, Tensor]
) -> list[Tensor]:
    """Per-client gradients: clients share no parameter, so one sum gives them all."""
    for leaf in leaves.values():
        leaf.scratch_used = False  # type: ignore[attr-defined]
    grads = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
    for grad, leaf in zip(grads, leaves.values(), strict=True):
        _collect(grad, leaf)
    return list(slopes.values())


def _collect(grad: Tensor | None, leaf: Any) -> None:
    """What the graph says of a leaf, into its buffer."""
    if leaf.scratch_used and grad is not None:
        leaf.scratch.add_(grad)
    elif not leaf.scratch_used:
        leaf.scratch.copy_(torch.zeros(()) if grad is None else grad)


def _store(run: _Run, tensors: dict[str, Tensor], members: Tensor) -> None:
    """Keep what was trained; a client with a number that is not finite keeps what it had."""
    sums = [t.view(len(members), -1).sum(1) for t in tensors.values()]
    broken = members[~torch.stack(sums).isfinite().all(0)]
    for name, out in run.out.items():
        out.index_copy_(0, members, _shaped(tensors[name], out))
        if len(broken):
            out[broken] = {**run.params, **run.state}[name][broken]
