"""A whole run in one process: rows in, a verified release out."""

from understudy.run.budgets import site_plans
from understudy.run.loading import load_sites
from understudy.run.simulate import Doing, run, run_apart
from understudy.run.verification import verify

__all__ = ["Doing", "load_sites", "run", "run_apart", "site_plans", "verify"]
