"""Kernels whose result for a client does not depend on the clients beside it, to the last bit.

Two things make it depend, and both are about where a client's numbers lie in memory. A batched
matrix product rounds otherwise for a matrix that does not begin at a multiple of 16 bytes, and for
one of a single column. And some elementwise kernels (sigmoid and its kin) treat the last few
numbers of a run of memory apart. So products are padded to sizes that keep every client aligned
(most sizes are such: even widths and batches), and sigmoids leave a gap behind each client.
What else nets use here (sums along an axis, exp, tanh, softmax, sums and products) was measured
to be free of it, on one thread: several would cut a run where they please.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import functional

from understudy.nets.allocator import keep_freed_memory

__all__ = [
    "equal_chunks",
    "in_threads",
    "multiply",
    "one_thread",
    "product",
    "sigmoid",
    "squash",
    "torch_threads",
    "write_product",
]

_ALIGNED = 16  # bytes
Item = TypeVar("Item")
Result = TypeVar("Result")


def product(a: Tensor, b: Tensor, plus: Tensor | None = None) -> Tensor:
    """``[C, m, k] × [C, k, n] → [C, m, n]``, and ``plus [C, 1 or m, 1 or n]`` added."""
    return _Product.apply(a, b, plus)


def write_product(a: Tensor, b: Tensor, out: Tensor) -> None:
    """The product, without a graph, into memory that is there already."""
    if _fits(a, b) and out.is_contiguous():
        torch.bmm(a, b, out=out)
    else:
        out.copy_(multiply(a, b))


def sigmoid(x: Tensor) -> Tensor:
    """1/(1 + e^−x) of ``[C, …]``."""
    return _Sigmoid.apply(x)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, plus: Tensor | None) -> Tensor:
        ctx.save_for_backward(a, b)
        ctx.plus = None if plus is None else plus.shape
        return multiply(a, b, plus)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        (a, b), needed = ctx.saved_tensors, ctx.needs_input_grad
        to_a = multiply(grad, b.transpose(1, 2)) if needed[0] else None
        to_b = multiply(a.transpose(1, 2), grad) if needed[1] else None
        return to_a, to_b, grad.sum_to_size(ctx.plus) if needed[2] else None


class _Sigmoid(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        out = squash(x)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        found: Tensor = torch.ops.aten.sigmoid_backward(grad, ctx.saved_tensors[0])
        return found


def squash(x: Tensor) -> Tensor:
    """`sigmoid` without a graph."""
    flat = x.reshape(len(x), -1)
    size = flat.shape[1]
    apart = flat.new_empty(len(flat), size - size % _ALIGNED + _ALIGNED)[:, :size]
    return torch.sigmoid(flat, out=apart).view(x.shape)


def _fits(a: Tensor, b: Tensor) -> bool:
    """Whether every client's factors and product are aligned as they are, and no vector."""
    return b.shape[2] > 1 and _added(a, b) == (0, 0)


def _added(a: Tensor, b: Tensor) -> tuple[int, int]:
    """Zero rows of ``a``, and inner numbers of both, that align every client.

    Rows of ``a`` first: they are a batch's, few beside the weights, which are then not copied.
    """
    unit = _ALIGNED // a.element_size()
    (m, k), n = a.shape[1:], max(b.shape[2], 2)
    rows, inner = -m % unit, -k % unit
    for more, deeper in ((0, 0), (rows, 0), (0, inner)):
        (m_, k_) = (m + more, k + deeper)
        if not (m_ * k_ % unit or k_ * n % unit or m_ * n % unit):
            return more, deeper
    return rows, inner


def multiply(a: Tensor, b: Tensor, plus: Tensor | None = None) -> Tensor:
    """`product` without a graph, for what is one node of a graph itself."""
    if _fits(a, b):
        return torch.bmm(a, b) if plus is None else torch.baddbmm(plus, a, b)
    rows, columns, (more, deeper) = a.shape[1], b.shape[2], _added(a, b)
    a = functional.pad(a, (0, deeper, 0, more)) if more or deeper else a
    lone = int(columns == 1)
    b = functional.pad(b, (0, lone, 0, deeper)) if lone or deeper else b
    made = torch.bmm(a, b)[:, :rows, :columns]
    return made.contiguous() if plus is None else made + plus


@contextmanager
def torch_threads(number: int | None) -> Iterator[None]:
    """Run torch on so many threads, None: as many as it has, and then on as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one thread, and give the others back."""
    with torch_threads(1):
        yield


def in_threads(work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """Results in order: as many items at a time as torch has threads, each on one of them.

    An item is begun when there is a thread for it and all but as many results were taken.
    """
    keep_freed_memory()
    threads = min(torch.get_num_threads(), len(items))
    if threads <= 1:
        for item in items:
            with one_thread():
                made = work(item)
            yield made
        return
    with (
        one_thread(),
        ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool,
    ):
        waiting = iter(items)
        begun = deque(pool.submit(work, item) for item in islice(waiting, threads))
        while begun:
            made = begun.popleft().result()
            begun.extend(pool.submit(work, item) for item in islice(waiting, 1))
            yield made


def equal_chunks(members: int, most: int, least: int, threads: int) -> int:
    """The size of equal chunks, as many as threads or a multiple: all are busy to the end."""
    chunks = max(-(-members // most), min(threads, members // least), 1)
    return max(-(-members // (chunks if chunks == 1 else -(-chunks // threads) * threads)), 1)
