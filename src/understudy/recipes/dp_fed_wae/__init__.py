"""DP-Fed-WAE: a Wasserstein autoencoder under local privacy (Jiang 2023 ch. 4).

Every site trains the WAE on its few rows and sends, instead of the update, a sign and the
coordinates that SignDS chooses: nobody is trusted, and one update costs ε, pure. Two recipes:

* as published (Algorithm 5, `paper`): an answer is about the whole net, and a table's label is one
  more column. For images, and for tables with ``teach = "paper"``.
* by parts (`parts`): a round teaches one part of a table's model. The default for tables.

A site, not a person, is protected: the thesis deals 10⁵ rows of Adult out to clients with
repetition, so one person may be at several.

Corrections to the thesis: none to the mechanism. Each update is charged, the schedule that calls
everyone once is public, and a site that was called often pays for all of it.
"""

from __future__ import annotations

from understudy.errors import StudyError
from understudy.federation.recipe import Recipe
from understudy.recipes.dp_fed_wae.paper import as_published
from understudy.recipes.dp_fed_wae.parts import by_parts
from understudy.recipes.options import DpFedWAEOptions
from understudy.study import Study

__all__ = ["build"]


def build(study: Study, own: DpFedWAEOptions) -> Recipe:
    """By parts where votes are cast about a table; otherwise as published."""
    _refuse_parts(study)
    whole = study.schema.kind != "table" or study.privacy.trust == "none"
    return (as_published if whole or own.teach == "paper" else by_parts)(study, own)


def _refuse_parts(study: Study) -> None:
    """Options of teaching by parts where nothing is: they would be ignored."""
    whole = study.schema.kind != "table" or study.options.get("teach") == "paper"
    given = sorted({"margins", "head"} & set(study.options))
    if study.schema.kind != "table" and study.options.get("teach") == "parts":
        given.append("teach")
    if whole and given:
        raise StudyError(
            "tables taught by parts, for recipe.margins, head and teach = 'parts'",
            f"{', '.join(given)} for {study.schema.kind}s taught as a whole",
            "leave them out",
        )
