"""A whole run in one process: rows in, a verified release out."""

from understudy.federation.budget import Standing
from understudy.simulation.budgets import site_plans, standings
from understudy.simulation.loading import load_sites
from understudy.simulation.simulate import Doing, run, run_apart
from understudy.simulation.verification import verify

__all__ = [
    "Doing",
    "Standing",
    "load_sites",
    "run",
    "run_apart",
    "site_plans",
    "standings",
    "verify",
]
