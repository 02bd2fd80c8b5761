"""Where a recipe is the wrong tool, as far as it was measured: what `plan` says before a run.

Each line is one comparison of two recipes on the same tables at the same ε (record level, central
trust, five sites; `bench/results/tables.json`). A test computes its figures from that file. Nothing
is said beyond what was run: other kinds, units and trusts, a larger ε or more rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from understudy.privacy.plan import PrivacyPlan
from understudy.study import Study

__all__ = ["COMPARED", "Compared", "advice"]


@dataclass(frozen=True)
class Compared:
    """``recipe`` beside ``better`` on tables of up to ``rows`` rows at ``epsilon``.

    ``pairs`` and ``boosting`` are means over ``tables`` and seeds, of one and the other: the
    distance of pairs of columns from real rows, and the AUC of boosting taught by synthetic rows.
    """

    recipe: str
    better: str
    tables: tuple[str, ...]
    rows: int
    epsilon: float
    pairs: tuple[float, float]
    boosting: tuple[float, float]

    def holds(self, study: Study, plan: PrivacyPlan) -> bool:
        """Whether this study is of the kind that was measured, with as few rows and as small ε."""
        asked = study.privacy.epsilon
        return (
            (study.recipe, study.schema.kind) == (self.recipe, "table")
            and (plan.unit, plan.trust) == ("record", "central")
            and study.schema.records <= self.rows
            and asked is not None
            and asked <= self.epsilon
        )

    @property
    def words(self) -> str:
        """What was found, and what to do."""
        return (
            f"{self.better} did better than {self.recipe} where both were measured: tables of up "
            f"to {self.rows:,} rows ({', '.join(self.tables)}) at ε = {self.epsilon:g} per record, "
            f"five sites. On average pairs of columns were {self.pairs[1]:.3f} from real rows "
            f"against {self.pairs[0]:.3f}, and boosting reached an AUC of {self.boosting[1]:.3f} "
            f'against {self.boosting[0]:.3f}. Set study.recipe = "{self.better}".'
        )


COMPARED = (
    Compared("dpd_fvae", "fedmoments", ("shoppers",), 10_000, 4, (0.148, 0.058), (0.872, 0.902)),
    Compared(
        "fedmarginals",
        "fedmoments",
        ("breast_cancer", "titanic", "obesity", "mushroom", "shoppers"),
        10_000,
        1,
        (0.238, 0.229),
        (0.858, 0.876),
    ),
)


def advice(study: Study, plan: PrivacyPlan) -> list[str]:
    """Which recipe was measured to be the right one instead, if so."""
    return [found.words for found in COMPARED if found.holds(study, plan)]
