"""VAEs that learn from single records under DP-SGD: what DPD-fVAE and SGDE say and refuse alike."""

from __future__ import annotations

from understudy.errors import StudyError
from understudy.study import Study

__all__ = ["LEAST_SPREAD", "SINGLE", "batch_rate", "refuse_epochs"]

LEAST_SPREAD = -3.0  # no column is fitted so closely that rounding decides where a gradient points
SINGLE = (
    "gradients of records are computed in single precision and added in double: 0.1 % of the bound "
    "is set aside for rounding, of which measurements use less than a hundredth; that is no proof"
)


def batch_rate(study: Study) -> float | None:
    """The public rate of secret batches; None takes every record."""
    share = study.schema.records / study.n_sites
    if study.training.batch is None or study.training.batch == share:
        return None
    if study.training.batch > share:
        raise StudyError(
            f"training.batch of at most {share:g}, a site's public share of the records",
            f"{study.training.batch}",
            "lower it, or leave it out to take every record in every step",
        )
    return study.training.batch / share


def refuse_epochs(study: Study) -> None:
    """Steps are public and the same at every site."""
    if study.training.epochs:
        raise StudyError(
            "recipe.steps at record level", "training.epochs",
            "leave epochs out: passes over a site's rows would tell how many it has",
        )  # fmt: skip
