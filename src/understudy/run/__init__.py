"""A whole run in one process: rows in, a verified release out."""

from understudy.run.budgets import site_plans
from understudy.run.loading import load_sites
from understudy.run.simulate import run

__all__ = ["load_sites", "run", "site_plans"]
