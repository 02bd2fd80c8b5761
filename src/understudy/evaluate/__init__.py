"""How good the synthetic rows are, and what their claim means: scores and a report."""

from __future__ import annotations

from understudy.evaluate.clouds import coverage, mmd
from understudy.evaluate.correlation import correlation_distance
from understudy.evaluate.evaluation import Scores, evaluate, hold_out
from understudy.evaluate.fidelity import Fidelity, measure_fidelity
from understudy.evaluate.forecasts import Forecasts, measure_forecasts, next_step_mae
from understudy.evaluate.joints import attribute_codes, average_variation
from understudy.evaluate.rows import Rows
from understudy.evaluate.score import INTERNAL, Compared, Score
from understudy.evaluate.students import table_students
from understudy.evaluate.utility import Utility, measure_utility

__all__ = [
    "INTERNAL",
    "Compared",
    "Fidelity",
    "Forecasts",
    "Rows",
    "Score",
    "Scores",
    "Utility",
    "attribute_codes",
    "average_variation",
    "correlation_distance",
    "coverage",
    "evaluate",
    "hold_out",
    "measure_fidelity",
    "measure_forecasts",
    "measure_utility",
    "mmd",
    "next_step_mae",
    "table_students",
]
