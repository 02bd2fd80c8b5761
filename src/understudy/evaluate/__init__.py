"""How good the synthetic rows are, and what their claim means: scores and a report."""

from __future__ import annotations

from understudy.evaluate.evaluation import Scores, evaluate, hold_out
from understudy.evaluate.fidelity import Fidelity, measure_fidelity
from understudy.evaluate.rows import Rows
from understudy.evaluate.score import INTERNAL, Compared, Score
from understudy.evaluate.utility import Utility, measure_utility

__all__ = [
    "INTERNAL",
    "Compared",
    "Fidelity",
    "Rows",
    "Score",
    "Scores",
    "Utility",
    "evaluate",
    "hold_out",
    "measure_fidelity",
    "measure_utility",
]
