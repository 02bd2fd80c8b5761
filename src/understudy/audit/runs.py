"""Many runs, one canary: the plan as it stands, with the worst unit in it or not.

Each run is the whole study through the real engine: all its sites, rounds and numbers, with the
`Probe` in place of the recipe and one unit whose update is far beyond the bound, present by a coin
flip; all others are empty. Runs are independent whatever the noise does within one, and nothing
is cut short. The likelihood ratio says of each run whether the canary was there. Two bounds follow
from how often it was wrong (Clopper and Pearson at `CONFIDENCE`): that of the rates alone
(Jagielski et al. 2020), which assumes nothing, and the trade-off curve's (`evidence`), which scales
all noise. It takes as many runs as there are guesses, so it is for tiny studies.

Of noise in shares, what is looked at is the sum of as few shares as the claim counts on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from understudy.audit.canary import Canaries, played
from understudy.audit.evidence import least_epsilon, rates, separate_bound
from understudy.privacy.claim import Claim
from understudy.privacy.plan import Phase, PrivacyPlan
from understudy.rng import Streams

__all__ = ["RUNS", "many_runs", "tiny"]

RUNS = 2000
_ROUNDS = 12  # of a tiny study: all runs take a minute or so for each claim
_NUMBERS = 50_000  # that are noised in the time that a round takes anyway


def tiny(plan: PrivacyPlan) -> bool:
    """Whether many runs of the plan take little time."""
    noises = [1 if plan.trust == "central" else phase.cohort for phase in plan.phases]
    pairs = zip(plan.phases, noises, strict=True)
    return sum(phase.rounds * (1 + n * _numbers(phase) / _NUMBERS) for phase, n in pairs) <= _ROUNDS


def _numbers(phase: Phase) -> int:
    """What one noise is added to in a round."""
    return sum(math.prod(part.shape) * part.mechanism.steps for part in phase.parts)


def many_runs(
    plan: PrivacyPlan,
    claim: Claim,
    runs: int,
    *,
    rng: Streams,
    tick: Callable[[int, int], None] = lambda done, total: None,
) -> Canaries | None:
    """The ε that a run of this plan has at least; None where nothing is claimed."""
    if claim.epsilon is None:
        return None
    replaced, whole = claim.relation == "replace one", replace(plan, unproven="")
    present = rng.numpy("present").random(runs) < 0.5
    scores = np.zeros(runs)
    for i in range(runs):
        tick(i, runs)
        once = rng.child("run", i)
        scores[i] = played(whole, present[i : i + 1], replaced, once, _ears(plan, claim))[0]
    found, delta = rates(scores[present], scores[~present]), claim.delta or plan.delta
    least = least_epsilon(found, claim.events, claim.events, delta)
    return Canaries(least, separate_bound(found, claim.delta), found, plan.length)


def _ears(plan: PrivacyPlan, claim: Claim) -> int:
    """The canary's site; or those whose shares of the noise the claim counts on."""
    known = 0 if claim.adversary == "the public" else plan.own.colluders
    return plan.own.survivors - known if plan.trust == "distributed" else 1
