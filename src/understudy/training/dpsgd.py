"""DP-SGD over a stack of clients: secret batches, clipped gradients of single records.

One step of every client at once (Abadi et al. 2016): each record enters the batch by its own
coin flip, its gradient is clipped as a whole to the bound, the sum is handed out as `Bounded`
for noise. The batch comes from the plan (`Site.sample`) and so does the noise; what is
here is the sum between them. Batches are cut into pieces that fit memory; empty batches give
zero; a gradient that is not finite counts as zero. How the records of a client are cut, padded and
added up depends on that client alone, so its sum is the same in any company.

What record-level privacy needs of a loss, and is checked: one number per record that no
other record moves. BatchNorm or a batch MMD inside the loss breaks it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from understudy.errors import PrivacyError
from understudy.nets.layers import Params, Tapped, concatenated
from understudy.nets.pergrad import RecordGradients, formed_size
from understudy.nets.stacked import in_threads
from understudy.privacy.clip import Bounded
from understudy.privacy.terms import Unit
from understudy.training.batches import padded
from understudy.training.loop import chunk_size

__all__ = [
    "RecordBatch",
    "RecordLoss",
    "check_separable",
    "clipped_gradients",
    "of_sites",
    "pieces",
]

# Kernels round differently for batches of different size, so one record can move the others'
# gradients in their last digits. Clipping this much below the bound leaves room for it. Sums are
# in double: in single precision, 10⁵ records moved by one place spent three times as much.
ROUNDING = 1e-3
_BLOCK_RECORDS = 4096  # of a client in one block
_LARGEST = 1e30  # times the bound: beyond it the clip's factor would be no normal number
_PIECE_BYTES = 48 * 2**20  # of rows and activations in one piece of a batch
_BLOCK_BYTES = 16 * 2**20  # held at once: 4 MB took 1.2 to 1.5 times as long, 32 gained nothing
_COPIES = 12  # activations and their gradients, as multiples of a record


@dataclass(frozen=True)
class RecordBatch:
    """What a loss sees: ``x`` [C, B, F], ``y`` [C, B], ``real`` [C, B] (1, or 0 for padding)."""

    x: Tensor
    y: Tensor
    real: Tensor
    noise: Tensor  # [C, B, …] what the loss draws at random, one row per record
    clients: Tensor | None = None  # [C] which of the stack's these are; None: all of them


# → [C, B]. It is called on some clients and records at a time, so whatever belongs to a client
# must be in the parameters it is given, and whatever belongs to a record in the `RecordBatch`.
RecordLoss = Callable[[Mapping[str, Tensor], RecordBatch], Tensor]


def clipped_gradients(
    loss: RecordLoss,
    params: Mapping[str, Tensor],
    pieces: Iterator[RecordBatch],
    bound: float,
    *,
    only: str = "",
) -> Bounded:
    """Per client, the sum of its batch's gradients, each clipped to L2 norm ``bound``: ``[C, P]``.

    ``params`` are ``[C, …]``; those under ``only`` are differentiated and flattened in order.
    Guarantee: adding or removing one record moves a client's row by at most ``bound``, because
    a record has one gradient, clipped as a whole. It breaks where the loss couples records.
    """
    names = [name for name in params if name.startswith(only)]
    clients = len(params[names[0]])
    total = torch.zeros(clients, sum(params[n][0].numel() for n in names), dtype=torch.float64)
    for piece in pieces:
        blocks = _blocks(piece, {name: params[name] for name in names})
        work = partial(_block, loss, params, piece, bound, only)
        for (some, _), summed in zip(blocks, in_threads(work, blocks), strict=True):
            own = torch.arange(clients)[some] if piece.clients is None else piece.clients[some]
            total.index_add_(0, own, concatenated(summed, names))
    return Bounded(total, bound, "record")


def of_sites(sums: Bounded, nets: int, rows: int, unit: Unit) -> Bounded:
    """Sums of the ``nets`` of each site, ``[C·K, P]``, as one vector of the site, ``[C, K, P]``.

    Guarantee: a record is at one net, so it moves the whole vector by that net's bound; a unit
    of up to ``rows`` records moves it by as many bounds, wherever they are.
    """
    return Bounded(sums.value.unflatten(0, (-1, nets)), sums.sensitivity * rows, unit)


Block = tuple[slice, slice]  # of the clients, and of the records, of a piece


def _blocks(piece: RecordBatch, params: Mapping[str, Tensor]) -> list[Block]:
    """Cut a piece so that what one block holds fits the cache."""
    clients, records, features = piece.x.shape
    each = 4 * (formed_size(params) + _COPIES * features)
    width = max(1, min(_BLOCK_RECORDS, _BLOCK_BYTES // each))  # of a client, whoever is beside it
    size = max(1, min(chunk_size(params), width // min(width, records)))
    return [
        (slice(start, start + size), slice(first, first + width))
        for start in range(0, clients, size)
        for first in range(0, records, width)
    ]


def _block(
    loss: RecordLoss,
    params: Mapping[str, Tensor],
    piece: RecordBatch,
    bound: float,
    only: str,
    block: Block,
) -> Params:
    """Clipped sums by parameter, of one block of clients and records."""
    records = RecordBatch(piece.x[block], piece.y[block], piece.real[block], piece.noise[block])
    own = block[0] if piece.clients is None else piece.clients[block[0]]
    tapped = Tapped({name: value[own] for name, value in params.items()}, only)
    losses = loss(tapped, records)
    if losses.shape != records.real.shape:
        raise PrivacyError("a loss per record [C, B]", f"{tuple(losses.shape)}", "do not sum it")
    gradients = RecordGradients.of(losses.sum(), tapped.taps)
    norms = gradients.square_norms().sqrt()
    broken = ~(norms <= _LARGEST * bound)
    limit = bound * (1 - ROUNDING)
    scale = torch.where(norms > limit, limit / norms, torch.ones_like(norms)) * records.real
    if bool(broken.any()):  # masked before any product: zero times infinity would be no number
        gradients, scale = gradients.without(broken), scale.masked_fill(broken, 0)
    return gradients.weighted_sum(scale)


def pieces(
    x: Tensor, y: Tensor, members: Tensor, clients: int, noise: Tensor
) -> Iterator[RecordBatch]:
    """A drawn batch ``[n, 2]`` (client, row), sorted, as stacks of one width that fit memory.

    ``noise [n, …]`` are the random numbers of the loss, one row per record.
    """
    site, row = members.unbind(1)
    counts = torch.bincount(site, minlength=clients)
    first = counts.cumsum(0) - counts
    most = max(2, _PIECE_BYTES // (4 * _COPIES * x.shape[1]))
    for start in range(0, int(counts.max()), most):
        left = (counts - start).clamp(0, most)
        widths = torch.from_numpy(padded(left.numpy())).clamp(max=most)
        for width in widths[left > 0].unique().tolist():
            alike = ((widths == width) & (left > 0)).nonzero().flatten()
            for some in alike.split(max(1, most // width)):
                place = torch.arange(width).expand(len(some), -1)
                real = place < left[some, None]
                drawn = torch.where(real, first[some, None] + start + place, 0)
                laid = (_laid_out(v, real) for v in (x[row[drawn]], y[row[drawn]], noise[drawn]))
                rows, labels, draws = laid
                yield RecordBatch(rows, labels, real.to(x.dtype), draws, some)


def _laid_out(held: Tensor, real: Tensor) -> Tensor:
    """Records ``[C, B, …]``, with zeros where none is real."""
    held[~real] = 0
    return held


def check_separable(loss: RecordLoss, params: Mapping[str, Tensor], probe: RecordBatch) -> None:
    """Refuse a loss in which one record moves another's: it cannot be clipped per record.

    ``probe`` holds made-up records; the first is changed and the others' losses must stay.
    """
    changed = RecordBatch(probe.x.clone(), probe.y.clone(), probe.real, probe.noise.clone())
    changed.x[:, 0] = 1 - changed.x[:, 0]
    changed.noise[:, 0] += 1
    with torch.no_grad():
        before, after = (loss(params, p) for p in (probe, changed))
    same = before.shape == probe.real.shape and torch.allclose(
        before[:, 1:], after[:, 1:], rtol=1e-4
    )
    if not same:
        raise PrivacyError(
            "a loss in which records do not see each other",
            "one that couples the records of a batch (BatchNorm, a batch MMD)",
            'protect whole sites (privacy.unit = "site"), or use GroupNorm and a loss per record',
        )
