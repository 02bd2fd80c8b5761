"""Plans by keyword, for these tests: terms of the one phase and of the plan together."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from understudy.privacy.gaussian import Gaussian, Plain
from understudy.privacy.mechanism import Mechanism
from understudy.privacy.plan import Part, Phase, PrivacyPlan

_PHASE = {field.name for field in fields(Phase)}
SLOTS = {"local": "client", "distributed": "distributed"}


def part(
    name: str, shape: tuple[int, ...], where: str, mechanism: Mechanism, combine: str = "mean"
) -> Part:
    """A part that is averaged unless said otherwise."""
    return Part(name, shape, combine, where, mechanism)  # type: ignore[arg-type]


def noised(
    name: str, shape: tuple[int, ...], where: str, bound: float, noise: float, **terms: Any
) -> Part:
    """A part under Gaussian noise."""
    combine = terms.pop("combine", "mean")
    return part(name, shape, where, Gaussian(bound, noise=noise, **terms), combine)


def sent(name: str, shape: tuple[int, ...], where: str = "client", **terms: Any) -> Part:
    """A part that is sent as it is."""
    return part(name, shape, where, Plain(**terms))


def one_phase(unit: str, trust: str, **terms: Any) -> PrivacyPlan:
    """A plan of a single phase, after those of ``before`` if that is given."""
    before = terms.pop("before", None)
    phase = Phase(**{name: terms.pop(name) for name in list(terms) if name in _PHASE})
    earlier = before.phases if before else ()
    return PrivacyPlan(unit, trust, (*earlier, phase), **terms)  # type: ignore[arg-type]
