"""The privacy slots as a site sees them: what a recipe may call, and how an update is sealed.

`Private` is handed to ``recipe.local``; `seal` is called by the engine on what comes back.
Which slot acts is the plan's choice, so the same recipe serves central and local trust.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from understudy.data.shards import Shards
from understudy.errors import PrivacyError
from understudy.privacy.clip import Bounded, Kind, Receipt, Sealed, clip, clipped_sum
from understudy.privacy.gaussian import add_noise
from understudy.privacy.plan import Part, PrivacyPlan
from understudy.privacy.respond import Response, respond
from understudy.privacy.select import Selection, choose
from understudy.rng import Draws

__all__ = ["Private", "seal"]

# Numbers of features held at once: rows per chunk fall as features widen. MNIST's fedmoments
# features in chunks of 8192 rows took 13 s and 2.35 GB a release, in these 7 s and 0.88 GB.
_HELD = 2**21

Features = Callable[[Tensor, Tensor], Tensor]


class Private:
    """The slots of one round at a stack of sites, which draw from ``source``."""

    def __init__(self, plan: PrivacyPlan, round: int, source: Draws) -> None:
        self.plan, self.round, self._source = plan.at(round), round, source
        self.receipts: list[Receipt] = []
        self._batches = 0

    def sum(
        self, part: str, data: Shards, features: Features, group: Callable[[Tensor], Tensor] | None
    ) -> Bounded:
        """Per site, the sum of its rows' features ``[n, d]``, each clipped to its share.

        ``group`` maps labels to the block (first axis of the part) that a row enters. At the
        site level rows are summed as they are and the whole is clipped.
        """
        spec = self.plan.part(part)
        groups, width = spec.shape if len(spec.shape) == 2 else (1, spec.shape[0])
        limit = float("inf") if self.plan.unit == "site" else spec.bound / spec.rows
        cells = _cells(data, features, group, groups, max(1, _HELD // width))
        total = clipped_sum(cells, len(data), (groups, width), limit)
        total = total.reshape(len(data), *spec.shape)
        if self.plan.unit == "site":
            return clip(total, spec.bound, spec.blocks)
        return Bounded(total, spec.bound, self.plan.unit)

    def sample(self, part: str, data: Shards) -> Tensor:
        """The records of one batch, as the plan promises: one row number after the other.

        Each record by its own coin flip from the noise source, or all of them where the plan
        has no rate. ``[n, 2]``: which site of the stack, and which stored row. A record's coin
        depends on no later record of its site, nor on any of another.
        """
        self._batches += 1
        site, row = data.members()
        rate = self.plan.part(part).rate
        if rate is not None and rate < 1:
            source = self._source.child("batch", self._batches)
            drawn = torch.from_numpy(source.coins_each(data.counts.numpy(), rate))
            site, row = site[drawn], row[drawn]
        return torch.stack((site, row), dim=1)

    def normals(self, members: Tensor, width: int) -> Tensor:
        """Standard normals ``[n, width]`` for the loss of a batch that `sample` gave.

        From the noise source, like the coins: which record got which number must stay unknown.
        """
        counts = torch.bincount(members[:, 0], minlength=len(self._source)).numpy()
        source = self._source.child("normals", self._batches)
        return torch.from_numpy(source.normal_each(width * counts)).float().view(-1, width)

    def step(self, part: str, bounded: Bounded) -> Tensor:
        """Step slot: noise one clipped sum of record gradients, here and now."""
        spec = self.plan.part(part)
        _check_bound(spec, bounded, self.plan)
        noised, receipt = add_noise(
            bounded, spec.noise, part=part, slot="step", round=self.round, source=self._source
        )
        self.receipts.append(receipt)
        return noised


def _cells(
    data: Shards,
    features: Features,
    group: Callable[[Tensor], Tensor] | None,
    groups: int,
    size: int,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Feature rows, ``size`` at a time, with the (site, group) cell each belongs to."""
    site, row = data.members()
    for start in range(0, len(row), size):
        rows, sites = row[start : start + size], site[start : start + size]
        labels = data.y[rows]
        block = group(labels) if group is not None else torch.zeros_like(labels)
        yield features(data.x[rows], labels), sites * groups + block


def _check_bound(spec: Part, bounded: Bounded, plan: PrivacyPlan) -> None:
    if not isinstance(bounded, Bounded):
        raise PrivacyError("a Bounded value", type(bounded).__name__, "clip it first")
    if bounded.sensitivity > spec.bound * (1 + 1e-9) or bounded.unit != plan.unit:
        raise PrivacyError(
            f"part {spec.name!r} bounded by {spec.bound:g} per {plan.unit}",
            f"{bounded.sensitivity:g} per {bounded.unit}",
            "make the recipe's plan and its clipping agree",
        )


def _bounded(spec: Part, value: Tensor | Bounded, plan: PrivacyPlan) -> Bounded:
    if isinstance(value, Bounded):
        _check_bound(spec, value, plan)
        return value if plan.unit != "site" else clip(value.value, spec.bound, spec.blocks)
    if plan.unit != "site" and plan.trust != "none":
        raise PrivacyError(
            f"part {spec.name!r} bounded per {plan.unit}",
            "a raw update",
            'form it with private.sum, or protect whole sites (privacy.unit = "site")',
        )
    return clip(value, spec.bound, spec.blocks)


def seal(
    plan: PrivacyPlan,
    update: Mapping[str, Tensor | Bounded],
    private: Private,
    source: Draws,
    noise: Tensor | None = None,
) -> Sealed:
    """Turn a stack of updates into what may leave the sites.

    ``noise`` holds each site's own multiplier where it wants more than the plan's.
    """
    plan = plan.at(private.round)
    if set(update) != {part.name for part in plan.parts}:
        raise PrivacyError(
            f"an update with parts {[p.name for p in plan.parts]}",
            f"{sorted(update)}",
            "fix the recipe",
        )
    receipts, values = list(private.receipts), {}
    for spec in plan.parts:
        value = update[spec.name]
        if spec.slot == "step":
            _check_steps(spec, private)
            if not isinstance(value, Tensor):
                raise PrivacyError(
                    "what private.step returned", "a Bounded value", "fix the recipe"
                )
            values[spec.name] = value
            continue
        if spec.rule is not None and plan.trust != "none":
            values[spec.name], receipt = _choice(spec, value, private.round, source)
            receipts.append(receipt)
            continue
        bounded = _bounded(spec, value, plan)
        values[spec.name] = bounded.value
        if spec.slot == "client" and plan.trust != "none":
            level = spec.noise if noise is None else torch.clamp(noise, min=spec.noise)
            values[spec.name], receipt = add_noise(
                bounded, level, part=spec.name, slot="client", round=private.round, source=source
            )
            receipts.append(receipt)
    plan.admits(receipts)  # nothing leaves with less noise than was promised
    return Sealed(_kind(plan), private.round, values, tuple(receipts))


def _choice(
    spec: Part, value: Tensor | Bounded, round: int, source: Draws
) -> tuple[Tensor, Receipt]:
    """Coordinates or an answer instead of the update itself.

    An update that is not finite counts as zero: to refuse it would say something about its site.
    """
    if not isinstance(value, Tensor):
        raise PrivacyError("a raw update", "a Bounded value", "fix the recipe")
    if isinstance(spec.rule, Response):
        return respond(value, spec.rule, part=spec.name, round=round, source=source)
    assert isinstance(spec.rule, Selection)
    finite = torch.isfinite(value).all(dim=1, keepdim=True)
    update = torch.where(finite, value, torch.zeros_like(value))
    return choose(update, spec.rule, part=spec.name, round=round, source=source)


def _check_steps(spec: Part, private: Private) -> None:
    done = sum(receipt.part == spec.name for receipt in private.receipts)
    if done != spec.steps:
        raise PrivacyError(
            f"{spec.steps} noised step(s) of {spec.name!r} per round", f"{done}", "fix the recipe"
        )


def _kind(plan: PrivacyPlan) -> Kind:
    if plan.trust == "none":
        return "not private"
    if any(part.slot == "distributed" for part in plan.parts):
        raise PrivacyError(
            "a slot with a mechanism", "distributed", "use trust central or local for now"
        )
    return "entrusted" if any(part.slot == "server" for part in plan.parts) else "noised"
