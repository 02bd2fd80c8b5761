"""Privacy core: bounds, mechanisms, plan, ledger, accounting, claims.

It imports no network and no recipe, so that it can be read and audited alone. Start
with `plan` (what is promised), then `clip` and the mechanisms (what is done), `ledger` (what
is written down) and `claim` (what is said).
"""

from understudy.privacy.account import Cost, Event, cost, fixed_size_cost, solve_noise
from understudy.privacy.claim import Claim, claims, headline, projection
from understudy.privacy.clip import Bounded, Receipt, Sealed, clip
from understudy.privacy.gaussian import Gaussian, Plain
from understudy.privacy.ledger import Ledger
from understudy.privacy.plan import Part, Phase, PrivacyPlan, allowed_joins, default_delta, solve

__all__ = [
    "Bounded",
    "Claim",
    "Cost",
    "Event",
    "Gaussian",
    "Ledger",
    "Part",
    "Phase",
    "Plain",
    "PrivacyPlan",
    "Receipt",
    "Sealed",
    "allowed_joins",
    "claims",
    "clip",
    "cost",
    "default_delta",
    "fixed_size_cost",
    "headline",
    "projection",
    "solve",
    "solve_noise",
]
