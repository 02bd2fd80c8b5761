"""A site in one round, as a recipe sees it, and how its update is sealed.

A recipe's ``local`` is handed a `Site`: rows, memory, random numbers, and the calls that protect
what is formed from rows (`sum`, `sample`, `step`). Where the protection acts is the plan's
choice, so the same recipe serves central and local trust. A simulation hands over a stack of
sites at once, all with a leading axis ``[C, …]``; a site on a network is a batch of size 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from understudy.data.shards import Shards
from understudy.errors import PrivacyError
from understudy.privacy.clip import (
    Bounded,
    Receipt,
    Sealed,
    clip,
    clipped_moments,
    clipped_sum,
    counted,
)
from understudy.privacy.clipped import Clipped
from understudy.privacy.mechanism import Use
from understudy.privacy.plan import Part, Phase, PrivacyPlan
from understudy.privacy.products import Products
from understudy.privacy.terms import Kind
from understudy.rng import Draws

__all__ = ["Columned", "Site", "Update", "seal"]

# Numbers held at once: rows per chunk fall as features widen, or rows. MNIST's fedmoments features
# in chunks of 8192 rows took 13 s and 2.35 GB a release, in these 7 s and 0.88 GB.
_HELD = 2**21

Features = Callable[[Tensor, Tensor], Tensor]
Groups = Callable[[Tensor], Tensor]
Update = Mapping[str, "Tensor | Bounded | Columned"]


@dataclass(frozen=True)
class Columned:
    """A party's features as whole numbers ``rows`` ``[records, d]``, for products with others'.

    Only `Site.columns` makes one: every row is within the party's bound.
    """

    rows: np.ndarray = field(repr=False)
    mechanism: Products
    party: int
    use: Use
    plan: PrivacyPlan

    def noised(self, blocks: Sequence[np.ndarray]) -> tuple[list[np.ndarray], Receipt]:
        """The party's block and shares with its own noise, and the receipt; once a round.

        Refused where that is less noise than the plan promises.
        """
        found, receipt = self.mechanism.add_noise(blocks, self.party, self.use)
        self.plan.admits([receipt])
        return found, receipt


@dataclass
class Site:
    """One site, or a stack of them, in one round.

    ``rng`` is for what needs no secrecy (the order of batches); ``secret`` is the noise source.
    ``noise`` holds each site's own multiplier where it wants more than the plan's; ``ids`` are the
    sites' numbers in the study. A party that holds columns is a batch of size 1, and ``data`` has
    its own columns, encoded by its part of the schema; parties draw the coins of their batches
    ``together``, since a record is at every one of them.
    """

    names: tuple[str, ...]
    data: Shards
    memory: dict[str, Tensor]
    plan: PrivacyPlan
    round: int
    rng: Draws
    secret: Draws
    noise: Tensor | None = None
    ids: tuple[int, ...] = ()
    together: Draws | None = None
    receipts: list[Receipt] = field(default_factory=list)
    _batches: int = 0

    def __len__(self) -> int:
        return len(self.data)

    @cached_property
    def phase(self) -> Phase:
        """The phase of the plan that this round belongs to."""
        return self.plan.at(self.round)

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts that are sent in this round: of a party, its own."""
        return self.phase.parts if self.plan.held == "rows" else self.phase.sent_by(self.ids[0])

    def use(self, part: str) -> Use:
        """A use of a part's mechanism, here and now."""
        return Use(self.phase.part(part), self.plan.unit, self.round, self.secret, self.noise)

    def sum(self, part: str, features: Features, group: Groups | None = None) -> Bounded:
        """Per site, the sum of its rows' features ``[n, d]``, each clipped to its share.

        ``group`` maps labels to the block (first axis of the part) that a row enters. Where
        whole sites are protected, rows are summed as they are and the sum is clipped.
        """
        spec = self.phase.part(part)
        groups, width = spec.shape if len(spec.shape) == 2 else (1, spec.shape[0])
        cells = _cells(self.data, features, group, groups, max(1, _HELD // width))
        total = clipped_sum(cells, len(self), (groups, width), self._row_bound(spec))
        return self._bounded(total.reshape(len(self), *spec.shape), spec)

    def moments(
        self, part: str, features: Features, group: Groups, weights: tuple[float, float]
    ) -> Bounded:
        """Per site and group, the sum of φ = (a, b·z, svec(zzᵀ)) over its rows' features z.

        What `sum` gives for φ as features, each clipped to its share, in a fraction of the time;
        ``weights`` are a and b, and the part is ``[groups, 1 + d + d(d + 1)/2]``.
        """
        spec = self.phase.part(part)
        groups, width = spec.shape
        size = max(1, _HELD // max(math.isqrt(2 * width), self.data.x.shape[1]))
        cells = _pieces(self.data, features, group, groups, size)
        total = clipped_moments(cells, len(self), spec.shape, self._row_bound(spec), weights)
        return self._bounded(total, spec)

    def count(self, part: str, codes: Features, sizes: Sequence[int]) -> Bounded:
        """Per site, the histograms of its rows' codes ``[n, columns]``, side by side.

        A row's share of the bound is spread evenly over the columns; a part that is longer than
        the histograms ends in zeros. Where whole sites are protected, a row counts as one in all
        and the histograms are clipped.
        """
        spec = self.phase.part(part)
        limit = 1.0 if self.plan.unit == "site" else self._row_bound(spec)
        cells = _cells(self.data, codes, None, 1, max(1, _HELD // len(sizes)))
        total = torch.zeros(len(self), *spec.shape, dtype=torch.float64)
        total[:, : sum(sizes)] = counted(cells, len(self), sizes, limit)
        return self._bounded(total, spec)

    def _row_bound(self, spec: Part) -> float:
        """What a row's features are clipped to: nothing where the whole site's sum is."""
        mechanism = clipping(spec)
        return math.inf if self.plan.unit == "site" else mechanism.bound / mechanism.rows

    def _bounded(self, total: Tensor, spec: Part) -> Bounded:
        """A sum of rows that were clipped one by one, or, of whole sites, clipped now."""
        mechanism = clipping(spec)
        if self.plan.unit == "site":
            return clip(total, mechanism.bound, mechanism.blocks)
        return Bounded(total, mechanism.bound, self.plan.unit)

    def columns(self, part: str, features: Features) -> Columned:
        """This party's half of a product sum: its rows' features, each within its bound."""
        use = self.use(part)
        if not isinstance(use.part.mechanism, Products):
            raise PrivacyError("a part of products", use.part.mechanism.name, "fix the recipe")
        (party,), mechanism = self.ids, use.part.mechanism
        rows = mechanism.rounded(features(*self.data.rows(0)), party)
        return Columned(rows, mechanism, party, use, self.plan)

    def sample(self, part: str) -> Tensor:
        """The records of one batch, as the plan promises: ``[n, 2]``, site of the stack and row.

        Each record by its own secret coin flip, or all of them where the plan has no rate. A
        record's coin depends on no later record of its site, nor on any of another.
        """
        self._batches += 1
        site, row = self.data.members()
        rate = self.phase.part(part).mechanism.rate
        if rate is not None and rate < 1:
            coins = self.secret if self.together is None else self.together
            source = coins.child("batch", self._batches)
            drawn = torch.from_numpy(source.coins_each(self.data.counts.numpy(), rate))
            site, row = site[drawn], row[drawn]
        return torch.stack((site, row), dim=1)

    def normals(self, members: Tensor, width: int) -> Tensor:
        """Standard normals ``[n, width]`` for the loss of a batch that `sample` gave.

        From the noise source, like the coins: which record got which number must stay unknown.
        """
        counts = torch.bincount(members[:, 0], minlength=len(self)).numpy()
        source = self.secret.child("normals", self._batches)
        return torch.from_numpy(source.normal_each(width * counts)).float().view(-1, width)

    def step(self, part: str, bounded: Bounded) -> Tensor:
        """Step slot: noise one clipped sum of record gradients, here and now."""
        use = self.use(part)
        mechanism = clipping(use.part)
        if use.part.where != "step":
            raise PrivacyError("a part of the step slot", use.part.where, "fix the recipe")
        noised, receipts = mechanism.add_noise(mechanism.bounded(bounded, use), use)
        self.receipts += receipts
        return noised


def clipping(part: Part) -> Clipped:
    """The mechanism of a part that is clipped."""
    if not isinstance(part.mechanism, Clipped):
        raise PrivacyError(
            f"part {part.name!r} to be clipped", f"{part.mechanism.name}", "fix the recipe"
        )
    return part.mechanism


def _cells(
    data: Shards, features: Features, group: Groups | None, groups: int, size: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Feature rows, ``size`` at a time, with the (site, group) cell each belongs to."""
    site, row = data.members()
    for start in range(0, len(row), size):
        rows, sites = row[start : start + size], site[start : start + size]
        labels = data.y[rows]
        block = group(labels) if group is not None else torch.zeros_like(labels)
        yield features(data.x[rows], labels), sites * groups + block


def _pieces(
    data: Shards, features: Features, group: Groups, groups: int, size: int
) -> Iterator[tuple[Tensor, int]]:
    """Feature rows of one (site, group) cell after the other, at most ``size`` at a time.

    Features are taken of one site's rows at a time: a product rounds by how many rows it is taken
    of, and other sites' must not show in a site's sum.
    """
    site, row = data.members()
    cell = site * groups + group(data.y[row])
    row = row[torch.argsort(cell, stable=True)]
    counts = torch.bincount(cell, minlength=len(data) * groups).reshape(-1, groups).tolist()
    for own, of_groups in enumerate(counts):
        for batch in _batches(of_groups, size):
            sizes = [n for _, n in batch]
            taken, row = row[: sum(sizes)], row[sum(sizes) :]
            found = features(data.x[taken], data.y[taken]).split(sizes)
            for z, (block, _) in zip(found, batch, strict=True):
                yield z, own * groups + block


def _batches(counts: Sequence[int], size: int) -> Iterator[list[tuple[int, int]]]:
    """A site's groups and how many of their rows: about ``size`` rows in a batch."""
    batch: list[tuple[int, int]] = []
    for block, count in enumerate(counts):
        for start in range(0, count, size):
            batch.append((block, min(size, count - start)))
            if sum(n for _, n in batch) >= size:
                yield batch
                batch = []
    if batch:
        yield batch


def seal(site: Site, update: Update) -> Sealed:
    """Turn the updates of a stack into what may leave the sites."""
    parts = site.parts
    if set(update) != {part.name for part in parts}:
        raise PrivacyError(
            f"an update with parts {[p.name for p in parts]}", f"{sorted(update)}", "fix the recipe"
        )
    if site.plan.unit == "site":
        update = _silenced(update, site)
    values, receipts = {}, list(site.receipts)
    for part in parts:
        value = update[part.name]
        if isinstance(value, Columned):
            raise PrivacyError("an update of one exchange", "half of a product", "fix the runtime")
        values[part.name], made = part.mechanism.seal(value, site.use(part.name))
        receipts += made
    _check_steps(site)
    site.plan.admits(receipts)  # nothing leaves with less noise than was promised
    kind: Kind = "share" if site.plan.kind == "masked" else site.plan.kind
    return Sealed(kind, site.round, values, tuple(receipts))


def _silenced(update: Update, site: Site) -> Update:
    """A site without rows sends zero, whatever the recipe made of it.

    The empty-site claim rests on it: zero and a clipped update are S apart, two clipped
    updates 2S. What was noised step by step is left alone: silence would give it away.
    """
    empty = site.data.counts == 0

    def silence(value: Tensor | Columned) -> Tensor:
        assert isinstance(value, Tensor)  # parties are never protected as wholes
        return value.masked_fill(empty.reshape(-1, *[1] * (value.dim() - 1)), 0)

    return {
        name: replace(value, value=silence(value.value))
        if isinstance(value, Bounded)
        else (value if site.phase.part(name).where == "step" else silence(value))
        for name, value in update.items()
    }


def _check_steps(site: Site) -> None:
    """Parts of the step slot were noised exactly as often as promised."""
    for part in site.parts:
        if part.where != "step" or not part.mechanism.promises:
            continue
        done = sum(receipt.part == part.name for receipt in site.receipts)
        if done != part.mechanism.steps:
            raise PrivacyError(
                f"{part.mechanism.steps} noised step(s) of {part.name!r} per round",
                f"{done}",
                "fix the recipe",
            )
