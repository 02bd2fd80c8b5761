"""From noisy tables to a generator: what fedmarginals' server does after its last sum.

The noisy tables are made to agree with the one-way margins, then weighed against what the earlier
sums predict. How wrong those predictions are is itself read from the noisy tables: the squared
distance beyond the noise, as a multiple of a cell's share. Post-processing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from understudy.federation.recipe import State, Summed
from understudy.recipes.catalogue import CATALOGUE
from understudy.recipes.margins import Margin, codes, margins
from understudy.recipes.projection import Aim, Start, Targets, consistent, moments, project
from understudy.recipes.tables import BINS, Size, cut, unlabelled
from understudy.recipes.two_sums import noise_of
from understudy.release.generator import Generator
from understudy.release.products import Column
from understudy.rng import Streams

__all__ = ["Imposed", "Pool", "emission"]

_POOL = (10_000, 60_000)  # draws of the earlier phases' generator: twice the records, within this
_ROWS = (500, 2000)  # of the mixture: a twentieth of the pool, within this, or more by class
_EACH = 20  # rows of a class at least
_USUAL = 20.0  # rows of the usual kind that a class's share of cells within a code begins with
_FIRM = 50.0  # how much more a prediction may count than a measured cell
_BLEND = 0.2  # of the independent table in the share that a prediction's error goes by


@dataclass(frozen=True)
class Pool:
    """Rows drawn by the earlier phases' generator: cells ``[N, d]``, classes and their shares."""

    codes: np.ndarray
    y: np.ndarray
    balance: np.ndarray

    def cuts(self, found: Sequence[Margin], codes: int, least: float) -> np.ndarray:
        """Which of at most ``codes`` codes every cell of every margin has ``[d, cells]``."""
        made = np.zeros((len(found), max(margin.size for margin in found)))
        for j, margin in enumerate(found):
            share = np.bincount(self.codes[:, j], minlength=margin.size) / len(self.codes)
            made[j, : margin.size] = cut(margin, share, codes, least)
        return made

    def coarse(self, cuts: np.ndarray) -> np.ndarray:
        """Codes ``[N, d]`` under the cuts ``[d, cells]``."""
        return np.take_along_axis(cuts.astype(np.int64), self.codes.T.astype(np.int64), 1).T

    def pairs(self, cuts: np.ndarray, size: Size) -> np.ndarray:
        """Tables of all pairs ``[C, d, k, d, k]``."""
        found, _ = moments(self.coarse(cuts), self.y, size.codes, size.classes)
        return found.reshape(-1, *2 * (size.columns, size.codes))


@dataclass(frozen=True)
class Imposed(Summed):
    """What fedmarginals is with rows at sites and with columns held apart: its last phase."""

    size: Size

    info = CATALOGUE["fedmarginals"]

    @cached_property
    def columns(self) -> tuple[Margin, ...]:
        """All columns but a label of classes."""
        return unlabelled(margins(self.schema, BINS))

    @property
    def std(self) -> float:
        """Of the noise in every count."""
        return noise_of(self.plan.own)

    def drawn(self, made: Generator, *, rng: Streams) -> tuple[Pool, State]:
        """Draws of the earlier phases' generator, and from them how the columns are cut."""
        pool = _sketch(made, self.columns, self.schema.records, rng=rng)
        least = 2 * self.std / max(self.schema.records, 1)
        arrays = {"codes": pool.codes, "y": pool.y, "balance": pool.balance}
        arrays["cut"] = pool.cuts(self.columns, self.size.codes, least)
        return pool, {name: torch.from_numpy(np.ascontiguousarray(a)) for name, a in arrays.items()}

    def imposed(self, state: State, **tables: np.ndarray) -> Generator:
        """Rows that agree with the tables, and with the earlier phases elsewhere."""
        held = {name: value.numpy() for name, value in state.items()} | tables
        pool = Pool(held["codes"], held["y"], held["balance"])
        return _generator(pool, self.columns, self.size, held, self.std)


def _sketch(made: Generator, found: Sequence[Margin], records: int, *, rng: Streams) -> Pool:
    """Draws of a generator, as cells of the margins; ``records`` is the public number of rows."""
    balance = np.array(made.balance)
    held, labels, step = [], [], 10_000
    for i in range(0, int(np.clip(2 * records, *_POOL)), step):
        x, y = made.rows(step, rng=rng.child("pool", i))
        held.append(codes(found, x, y).numpy().astype(np.int32))
        labels.append(y.numpy())
    return Pool(np.concatenate(held), np.concatenate(labels), balance)


def _generator(
    pool: Pool, found: Sequence[Margin], size: Size, held: Mapping[str, np.ndarray], std: float
) -> Generator:
    """The mixture of products that agrees best with the tables in ``held``."""
    cuts = held["cut"].astype(np.int64)
    coarse = pool.coarse(cuts)
    sizes = np.array([cuts[j, : m.size].max() + 1 for j, m in enumerate(found)])
    start = _start(coarse, pool, sizes, size.codes)
    told = _Predicted.of(coarse, pool, sizes, size)
    chance = project(start, _targets(told, _measured(held, told.margin, sizes, size, std)))
    within = [_within(pool, j, cuts[j, : m.size]) for j, m in enumerate(found)]
    arrays, columns = emission(found, cuts, sizes, within)
    kept = [chance[:, j, :n] for j, n in enumerate(sizes)]
    tensors = {name: torch.from_numpy(a).float() for name, a in arrays.items()}
    width = sum(column.width for column in columns)
    config = {"width": width, "rows": start.rows.tolist()}
    config["columns"] = [column.to_config() for column in columns]
    balance = tuple((pool.balance / pool.balance.sum()).tolist())
    return Generator("products", {"chance": torch.cat(kept, 1), **tensors}, config, balance)


def _start(coarse: np.ndarray, pool: Pool, sizes: np.ndarray, widest: int) -> Start:
    """Rows of the pool, more of common classes; of a class that was not drawn, rows of any."""
    wanted = np.clip(len(pool.y) / 20, *_ROWS)
    rows = np.maximum(np.rint(wanted * pool.balance), _EACH).astype(int)
    chosen = []
    for c, count in enumerate(rows):
        mine = np.flatnonzero(pool.y == c)
        chosen.append(np.resize(mine if len(mine) else np.arange(len(pool.y)), count))
    return Start(coarse[np.concatenate(chosen)], rows, sizes, widest, pool.balance)


@dataclass(frozen=True)
class _Predicted:
    """What the earlier sums say: shares of pairs ``[C, D, D]``, of single codes ``[C, D]``.

    ``apart`` ``[D, D]`` marks the codes of two different columns.
    """

    pairs: np.ndarray
    singles: np.ndarray
    apart: np.ndarray
    columns: int

    @classmethod
    def of(cls, coarse: np.ndarray, pool: Pool, sizes: np.ndarray, size: Size) -> _Predicted:
        pairs, singles = moments(coarse, pool.y, size.codes, size.classes)
        column = np.repeat(np.arange(size.columns), size.codes)
        real = (np.arange(size.codes) < sizes[:, None]).ravel()
        apart = (column[:, None] != column) & real[:, None] & real
        return cls(pairs, singles, apart, size.columns)

    @property
    def margin(self) -> np.ndarray:
        """Shares of single codes in all ``[D]``."""
        found: np.ndarray = self.singles.sum(0)
        return found


@dataclass(frozen=True)
class _Measured:
    """Noisy shares of pairs ``[G, D, D]``, by class where tables are labelled, else of all.

    ``seen`` ``[D, D]`` marks those that were counted; ``singles`` ``[C, D]`` are of the label and
    one column, if they were. All have noise of deviation ``std``.
    """

    pairs: np.ndarray
    seen: np.ndarray
    singles: np.ndarray | None
    std: float


def _measured(
    held: Mapping[str, np.ndarray], margin: np.ndarray, sizes: np.ndarray, size: Size, std: float
) -> _Measured:
    """The noisy tables as shares, each made to agree with the margins of its columns."""
    k, groups = size.codes, size.classes if size.labelled else 1
    tables = held["tables"].astype(float)
    counted = tables[: size.pairs, : groups * k * k].reshape(-1, groups, k, k)
    ends = [tuple(sizes[pair]) for pair in held["pairs"].astype(int)]
    rows = np.mean([t[:, :a, :b].sum() for t, (a, b) in zip(counted, ends, strict=True)])
    rows = max(float(rows), std, 1.0)
    pairs, seen = np.zeros((groups, *2 * (size.columns * k,))), np.zeros(2 * (size.columns * k,))
    for table, (a, b), (i, j) in zip(counted, ends, held["pairs"].astype(int) * k, strict=True):
        known = margin[i : i + a], margin[j : j + b]
        pairs[:, i : i + a, j : j + b] = consistent(table[:, :a, :b] / rows, *known)
        pairs[:, j : j + b, i : i + a] = pairs[:, i : i + a, j : j + b].swapaxes(1, 2)
        seen[i : i + a, j : j + b], seen[j : j + b, i : i + a] = 1, 1
    singles = None
    if size.singles:
        alone = tables[size.pairs :, : size.classes * k].reshape(-1, size.classes, k)
        singles = alone.swapaxes(0, 1).reshape(size.classes, -1) / rows
    return _Measured(pairs, seen, singles, max(std, 0.5) / rows)


def _targets(told: _Predicted, noisy: _Measured) -> Targets:
    """Predicted and measured shares, weighed by their errors; a measured one has weight 1."""
    grouped = told.pairs if len(noisy.pairs) == len(told.pairs) else told.pairs.sum(0)[None]
    blend = _blended(grouped, told.columns)
    error = _error(noisy.pairs - grouped, blend, noisy.seen * np.ones_like(blend), noisy.std)
    pairs = _weighed(grouped, told.apart * _trust(blend, error, noisy.std), noisy)
    margins = Aim(told.margin, np.full(told.singles.shape[1], _FIRM))
    none = Aim(np.zeros_like(told.apart, float), np.zeros(told.apart.shape))
    singles = _singles(told, noisy)
    if len(grouped) == len(told.pairs):
        return Targets(pairs, none, singles, margins)
    classes = Aim(
        told.pairs, told.apart * _trust(_blended(told.pairs, told.columns), error, noisy.std)
    )
    return Targets(classes, Aim(pairs.target[0], pairs.weight[0]), singles, margins)


def _weighed(predicted: np.ndarray, trust: np.ndarray, noisy: _Measured) -> Aim:
    weight = trust + noisy.seen
    target = (predicted * trust + noisy.pairs * noisy.seen) / np.maximum(weight, 1e-12)
    return Aim(target, weight)


def _singles(told: _Predicted, noisy: _Measured) -> Aim:
    """Of the label and one column."""
    if noisy.singles is None:
        return Aim(told.singles, np.zeros_like(told.singles))
    real = told.apart.any(1) * np.ones_like(told.singles)
    error = _error(noisy.singles - told.singles, told.singles, real, noisy.std)
    trust = _trust(told.singles, error, noisy.std)
    target = (told.singles * trust + noisy.singles) / (trust + 1)
    return Aim(target, real * (trust + 1))


def _blended(pairs: np.ndarray, columns: int) -> np.ndarray:
    """Shares, pulled a little towards those of independent columns: no cell is ruled out."""
    margin = np.einsum("cii->ci", pairs)
    share = np.maximum(margin.sum(1) / columns, 1e-12)[:, None, None]
    return (1 - _BLEND) * pairs + _BLEND * margin[:, :, None] * margin[:, None] / share


def _error(apart: np.ndarray, share: np.ndarray, seen: np.ndarray, std: float) -> float:
    """The variance of a prediction's error, as a multiple of the share that is predicted."""
    beyond = float(((apart**2 - std**2) * seen).sum())
    return max(beyond / max(float((share * seen).sum()), 1e-12), 1e-6)


def _trust(share: np.ndarray, error: float, std: float) -> np.ndarray:
    """How much a prediction counts beside a measured cell."""
    return np.minimum(std**2 / (error * share + 1e-15), _FIRM)


def emission(
    found: Sequence[Margin], cuts: np.ndarray, sizes: np.ndarray, within: Sequence[np.ndarray]
) -> tuple[dict[str, np.ndarray], list[Column]]:
    """The cells of every column in the order of their codes: shares ``within`` them, and values."""
    shares, lows, highs, columns = [], [], [], []
    for j, margin in enumerate(found):
        code = cuts[j, : margin.size]
        order = np.argsort(code, kind="stable")
        low, high = _values(margin)
        shares.append(within[j][:, order])
        lows.append(low[order])
        highs.append(high[order])
        kind = "onehot" if margin.onehot else "number" if margin.cells else "flag"
        cells = tuple(np.bincount(code, minlength=sizes[j]).tolist())
        missing = margin.missing and not margin.onehot
        columns.append(Column(int(margin.start or 0), kind, missing, cells))
    arrays = {"share": shares, "low": lows, "high": highs}
    return {name: np.concatenate(parts, -1) for name, parts in arrays.items()}, columns


def _within(pool: Pool, column: int, code: np.ndarray) -> np.ndarray:
    """The share ``[C, cells]`` of each cell within its code, class by class.

    Where few rows of a class were drawn, mostly that of all classes.
    """
    cells, classes = len(code), len(pool.balance)
    at = pool.y.astype(np.int64) * cells + pool.codes[:, column]
    count = np.bincount(at, minlength=classes * cells).reshape(classes, cells)

    def share(count: np.ndarray) -> np.ndarray:
        held = np.zeros((len(count), code.max() + 1))
        np.add.at(held.T, code, count.T)
        return count / held[:, code]

    return share(count + _USUAL * share(count.sum(0)[None] + 1e-3))


def _values(margin: Margin) -> tuple[np.ndarray, np.ndarray]:
    """From where to where each cell's encoded values lie; a missing one's are not looked at."""
    if margin.cells is None:
        place = np.arange(margin.size, dtype=float)
        place = place if margin.onehot else np.minimum(place, 1.0)
        return place, place
    gone = np.zeros(int(margin.missing))
    return np.append(margin.cells.low, gone), np.append(margin.cells.high, gone)
