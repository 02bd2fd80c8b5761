"""What promised events cost: ε by PLD (the headline) and by RDP (the check).

Events are ours, frozen and JSON-able; dp_accounting does the arithmetic. Its known
traps are kept out: Gaussians that act on the same sample are merged exactly before they
are handed over, replace-one is expressed as doubled sensitivity instead of a relation on
which its two accountants disagree, and an event that is not understood is refused. Pure ε
(selection, response) never reaches it: its accountants disagree about how often such an event
counts, so pure ε is added up here, count by count.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Context
from functools import lru_cache, partial
from typing import Any, Literal

from understudy.errors import PrivacyError
from understudy.privacy import hints
from understudy.privacy.analytic import analytic_delta, analytic_noise

__all__ = [
    "Cost",
    "Event",
    "cost",
    "profile",
    "pure_epsilon",
    "rdp_epsilon",
    "round_up",
    "solve_noise",
]

_NOISE_RANGE = (1e-3, 1e5)
_PROFILE_GRID = 1e-3
_SPARE = 2.0**-20  # of δ, for the gap of integer noise

Parts = tuple[tuple[float, float, int], ...]  # (multiplier, Poisson rate, count)


@dataclass(frozen=True)
class Event:
    """``count`` rounds, in each of which mechanisms act on one sample.

    ``noise`` holds the multiplier of each Gaussian under the claim's relation; ``rate`` is the
    Poisson rate, or None where the adversary knows who took part. ``epsilon`` is what the pure
    mechanisms of one round cost together; an event has one kind or the other. ``gap`` is how far
    the noise of one round is from a Gaussian's: zero, but for noise in whole numbers, whose
    chances are within a factor of e^gap of it, but for a chance of ``gap``. ``seen``: the adversary
    knows every sample, so that it is only chance which hides a record.
    """

    noise: tuple[float, ...]
    rate: float | None
    count: int
    epsilon: float = 0.0
    gap: float = 0.0
    seen: bool = False

    @property
    def merged(self) -> float:
        """Gaussians on one sample are exactly one Gaussian with 1/z² = Σ 1/zᵢ²."""
        return 1 / math.sqrt(sum(1 / z**2 for z in self.noise))

    @property
    def private(self) -> bool:
        """False where some part has no noise."""
        return all(z > 0 for z in self.noise)


@dataclass(frozen=True)
class Cost:
    """ε at one δ, by both accountants."""

    epsilon: float
    epsilon_rdp: float
    delta: float


def round_up(price: float, digits: int = 3) -> str:
    """ε or δ to so many significant digits, never below the truth.

    A number that is written with fewer digits stays as it is: 0.1 is "0.1".
    """
    if not 0 < price < math.inf:
        return f"{price:g}"
    above = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(repr(float(price)))
    return f"{float(above):.{digits}g}"


def _simplify(events: Sequence[Event]) -> Parts:
    """(z, rate, count) triples, with everything that is not sampled merged into one Gaussian."""
    noised = [event for event in events if event.noise]
    plain = sum(e.count / e.merged**2 for e in noised if e.rate is None or e.rate == 1)
    sampled = [
        (e.merged, float(e.rate), e.count) for e in noised if e.rate is not None and e.rate < 1
    ]
    return (
        *((z, q, n) for z, q, n in sampled if q > 0),
        *([(plain**-0.5, 1.0, 1)] if plain else []),
    )


def _accountant(kind: Literal["pld", "rdp"], **options: Any) -> Any:
    """An accountant under add-or-remove-one. Loading the library takes a second: only on use."""
    import dp_accounting

    made = {"pld": dp_accounting.pld.PLDAccountant, "rdp": dp_accounting.rdp.RdpAccountant}[kind]
    relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    return made(neighboring_relation=relation, **options)


def _dp_event(noise: float, rate: float, count: int) -> Any:
    import dp_accounting

    gaussian = dp_accounting.GaussianDpEvent(noise)
    event = gaussian if rate == 1 else dp_accounting.PoissonSampledDpEvent(rate, gaussian)
    return dp_accounting.SelfComposedDpEvent(event, count)


@contextmanager
def _quiet() -> Iterator[None]:
    """dp_accounting warns about Rényi orders that it leaves out; leaving them out is sound."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _epsilon(accountant: Any, parts: Parts, delta: float) -> float:
    with _quiet():
        for noise, rate, count in parts:
            accountant.compose(_dp_event(noise, rate, count))
        return float(accountant.get_epsilon(delta))


@lru_cache(maxsize=512)
def _rdp(parts: Parts, delta: float) -> float:
    return _epsilon(_accountant("rdp"), parts, delta)


def _pld(parts: Parts, delta: float, coarse: int = 1) -> float:
    return hints.priced((parts, delta, coarse), lambda: _pld_found(parts, delta, coarse))


@lru_cache(maxsize=512)
def _pld_found(parts: Parts, delta: float, coarse: int) -> float:
    rough = _rdp(parts, delta)
    grid = min(1e-4, rough * 1e-4) if rough < 1 else max(1e-4, rough * 1e-5)
    accountant = _accountant("pld", value_discretization_interval=max(coarse * grid, 1e-7))
    return _epsilon(accountant, parts, delta)  # whatever the grid, an upper bound


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise PrivacyError("δ between 0 and 1", f"{delta}", "set privacy.delta, or leave it out")


def _check_event(event: Event) -> None:
    """Refuse what would fall through the cracks of `_simplify` and so cost nothing."""
    if not ((event.rate is None or 0 <= event.rate <= 1) and event.count >= 0):
        raise PrivacyError(
            "events with a rate in [0, 1] and a count of 0 or more",
            f"rate {event.rate}, count {event.count}",
            "correct the plan",
        )
    pure = event.epsilon > 0 and not event.noise and event.rate is None
    if not pure and not (event.epsilon == 0 and event.noise):
        raise PrivacyError(
            "events of Gaussian noise, or of pure ε without sampling",
            f"{len(event.noise)} noise multiplier(s), ε {event.epsilon}, rate {event.rate}",
            "correct the plan",
        )


def pure_epsilon(events: Sequence[Event]) -> float:
    """ε of the pure mechanisms: the sum over all rounds."""
    return math.fsum(event.epsilon * event.count for event in events)


def cost(events: Sequence[Event], delta: float) -> Cost:
    """ε of all events together at δ. An event with no noise, or next to none, costs infinity.

    Pure ε is added to that of the Gaussians; where there are none, δ is 0. A gap g of integer noise
    is paid for with ε + 2g and δ + (e^ε + 1)·g, for which a millionth of δ is set aside.
    """
    _check_delta(delta)
    for event in events:
        _check_event(event)
    if gap := math.fsum(event.gap * event.count for event in events):
        inside = cost([replace(event, gap=0.0) for event in events], _set_aside(delta, gap))
        return _widened(inside, delta, gap)
    if not all(event.private for event in events):
        return Cost(math.inf, math.inf, delta)
    if any(event.seen for event in events):
        return _seen(events, delta)
    try:
        parts = _simplify(events)
        price = (_pld(parts, delta), _rdp(parts, delta)) if parts else (0.0, 0.0)
    except (OverflowError, ZeroDivisionError):  # ε is beyond what the accountants can count to
        return Cost(math.inf, math.inf, delta)
    pure = pure_epsilon(events)
    return Cost(price[0] + pure, price[1] + pure, delta if parts or not pure else 0.0)


def _seen(events: Sequence[Event], delta: float) -> Cost:
    """Known samples in one phase at most, and what acts on every record besides."""
    known = [event for event in events if event.seen]
    rest = [event for event in events if not event.seen]
    parts = _simplify(rest)
    if len(known) > 1 or pure_epsilon(events) or any(rate < 1 for _, rate, _ in parts):
        raise PrivacyError(
            "known samples in one phase, and no secret ones beside them", "others", "fix the plan"
        )
    from understudy.privacy.seen import Seen, seen_epsilon, seen_epsilon_rdp

    (event,), more = known, sum(count / noise**2 for noise, _, count in parts)
    found = Seen(event.merged, float(event.rate or 1.0), event.count, more)
    return Cost(seen_epsilon(found, delta), seen_epsilon_rdp(found, delta), delta)


def _set_aside(delta: float, gap: float) -> float:
    """The δ that is left for the Gaussians."""
    return delta * (1 - _SPARE) if gap else delta


def _widened(price: Cost, delta: float, gap: float) -> Cost:
    """What it costs with the gap; infinity where that is not small beside the price."""
    try:
        enough = 2 * gap * (math.exp(price.epsilon) + 1) <= _SPARE * delta
    except OverflowError:
        enough = False
    if not enough:
        return Cost(math.inf, math.inf, delta)
    return Cost(price.epsilon + 2 * gap, price.epsilon_rdp + 2 * gap, delta)


def rdp_epsilon(events: Sequence[Event], delta: float) -> float:
    """ε by RDP alone: an upper bound, computed in a tenth of a second."""
    parts = _simplify(events)
    return (_rdp(parts, delta) if parts else 0.0) + pure_epsilon(events)


def profile(events: Sequence[Event], epsilons: Sequence[float]) -> list[float]:
    """δ of all events together at each ε: the whole trade-off, for audits.

    By PLD, so from above; events of pure ε alone are one randomised response of their sum, which is
    the worst that such an ε allows. The gap of integer noise is left out.
    """
    for event in events:
        _check_event(event)
    parts, pure = _simplify(events), pure_epsilon(events)
    if parts and pure:
        raise PrivacyError("events of one kind", "noise and pure ε", "audit them apart")
    if not parts:
        return [max(0.0, (1 - math.exp(e - pure)) / (1 + math.exp(-pure))) for e in epsilons]
    if len(parts) == 1 and parts[0][1] == 1:
        return [analytic_delta(e, parts[0][0]) for e in epsilons]
    grid = _PROFILE_GRID * max(1.0, _rdp(parts, 1e-5))  # coarse where there is little noise
    accountant = _accountant("pld", value_discretization_interval=grid)
    with _quiet():
        for noise, rate, count in parts:
            accountant.compose(_dp_event(noise, rate, count))
        return [float(accountant.get_delta(e)) for e in epsilons]


def solve_noise(events: Callable[[float], Sequence[Event]], epsilon: float, delta: float) -> float:
    """The smallest multiplier z whose events cost at most ε; never overshoots ε."""
    if not (epsilon > 0 and math.isfinite(epsilon)):
        raise PrivacyError("a positive, finite ε", f"{epsilon}", "set privacy.epsilon, e.g. 1.0")
    _check_delta(delta)
    most = _NOISE_RANGE[1]
    if (reached := _least(events(most), epsilon, delta)) > epsilon:
        raise PrivacyError(
            f"an ε that some noise can reach (at z={most:g} it is {round_up(reached)})",
            f"ε={epsilon:g} at δ={delta:g}",
            "ask for a larger ε or δ, fewer rounds or a smaller rate",
        )
    delta = _set_aside(delta, max((event.gap for event in events(1.0)), default=0.0))
    single, double = _simplify(events(1.0)), _simplify(events(2.0))
    scales = math.isclose(double[0][0], 2 * single[0][0])  # no noise but the one to be found
    if len(single) == 1 and single[0][1] == 1 and scales:  # one Gaussian: closed form
        return analytic_noise(epsilon, delta) * _headroom / single[0][0]
    search = _Search(lambda z: _simplify(events(z)), epsilon, delta)
    return hints.kept((single, double, epsilon, delta), search.fits, search.solve)


def _least(events: Sequence[Event], epsilon: float, delta: float) -> float:
    """An upper bound of the price: by RDP where that is enough, which takes no time."""
    quick = all(event.private and not event.gap and not event.seen for event in events)
    if quick and (price := rdp_epsilon(events, delta)) <= epsilon:
        return price
    return cost(events, delta).epsilon


_SLACK = 2e-3  # of ε that may be left unspent
_headroom = 1 + 1e-3  # covers the rounding of the PLD grid, so that the recomputed ε is not above
_GUESSES = 6
_COARSE = 4  # times the grid of a claim: a quarter of the time, ε by less than 0.1 % more


@dataclass(frozen=True)
class _Search:
    """The least noise that keeps ε: bracketed by RDP, which takes no time, then found by PLD."""

    parts: Callable[[float], Parts]
    epsilon: float
    delta: float

    def rdp(self, z: float) -> float:
        """ε by RDP: never below that by PLD."""
        return _rdp(self.parts(z), self.delta)

    def pld(self, z: float, coarse: int = 1) -> float:
        """ε by PLD: what is claimed; on a coarser grid it is quicker, and a little more."""
        return _pld(self.parts(z), self.delta, coarse)

    def fits(self, z: float) -> bool:
        """Whether ε is kept by this noise, and nearly spent."""
        return self.epsilon * (1 - 5 * _SLACK) <= self.pld(z) <= self.epsilon

    def solve(self) -> float:
        """On a coarse grid, where that is good enough."""
        found = self._searched(_COARSE)
        return found if self.fits(found) else self._searched(1)

    def _searched(self, coarse: int) -> float:
        """Prices fall nearly as a power of the noise, so few guesses are needed."""
        price = partial(self.pld, coarse=coarse)
        high = _narrow(self.rdp, self.epsilon, *_NOISE_RANGE, 1.01)
        power, low, z = self._power(high), _NOISE_RANGE[0], high
        for _ in range(_GUESSES):
            part = price(z) / self.epsilon
            low, high = (max(low, z), high) if part > 1 else (low, min(high, z))
            if 1 - _SLACK <= part <= 1:
                return z
            z *= (part / (1 - _SLACK / 2)) ** (1 / power)
            if not low < z < high:
                break
        return self._halved(price, low, high)

    def _power(self, z: float) -> float:
        """How fast prices fall here, by RDP; as 1/z where that is at its end."""
        less, more = self.rdp(z), self.rdp(z / 1.01)
        return min(4.0, max(0.1, math.log(more / less) / math.log(1.01))) if less else 1.0

    def _halved(self, price: Callable[[float], float], low: float, high: float) -> float:
        """By bisection, where prices do not fall as a power: beside noise of another size."""
        while high / 2 > low and price(high / 2) <= self.epsilon:
            high /= 2
        return _narrow(price, self.epsilon, max(low, high / 2), high, 1.002)


def _narrow(
    price: Callable[[float], float], epsilon: float, low: float, high: float, ratio: float
) -> float:
    """Bisect to within ``ratio``; the upper end, whose price is known to be at most ε."""
    while high / low > ratio:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if price(middle) > epsilon else (low, middle)
    return high
