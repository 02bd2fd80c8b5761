"""The verdict: are these rows fit for use, and for what?

Every use is judged in the same way, by three figures on the same test rows: what synthetic rows
reach, what real rows reach, and what guessing reaches that needs no data. What real rows gain
over guessing is all there is to gain; the share of it that synthetic rows *keep*, with its 95 %
interval, gives the level. "As good as real" needs evidence (the lower end), so does "worse than
guessing" (the whole interval): in between stands what was found, or that nothing was found with so
few rows. Too few test rows, or a task at which even real rows do no better than guessing, are not
judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from understudy.data.schema import Schema
from understudy.evaluation.fidelity import Fidelity
from understudy.evaluation.forecasts import REPEATING, Forecasts
from understudy.evaluation.measures import ACCURACY, AUC, R2
from understudy.evaluation.pairs import PairFit
from understudy.evaluation.score import Compared, Contrast, Score
from understudy.evaluation.utility import Utility
from understudy.evaluation.words import listed, percentage
from understudy.evaluation.worst import WorstColumn

__all__ = ["LEVELS", "Judgement", "Verdict", "judge", "judge_all", "remarks", "sum_up"]

AS_GOOD, NEARLY = 0.95, 0.80
FEW = 30
"""With fewer test rows nothing is judged."""

REAL, NEAR, ALIKE, BETTER, NONE, WORSE, OPEN = LEVELS = (
    "as good as real",
    "nearly as good as real",
    "no different from real as far as the test rows can tell",
    "better than guessing, not as good as real",
    "no better than guessing",
    "worse than guessing",
    "not judged",
)
TITLES = {
    "fit": "Fit for use",
    "limited": "Use with care",
    "unfit": "Do not use",
    "unknown": "Cannot be judged",
}
EVEN = "rows drawn evenly within the public bounds"


@dataclass(frozen=True)
class Judgement:
    """One use of the rows: the figures, the level they give, and the same in words.

    ``kept`` is the share of what real rows gain over guessing that synthetic rows keep.
    ``group`` is "models" or "distances".
    """

    use: str
    measure: str
    group: str
    level: str
    words: str
    synthetic: Score
    real: Score | None = None
    guess: Score | None = None
    guessing: str = ""
    kept: Score | None = None


@dataclass(frozen=True)
class Verdict:
    """What the rows are good for, what is worst, and what to change."""

    level: str
    headline: str
    judgements: tuple[Judgement, ...]
    columns: tuple[WorstColumn, ...] = ()
    pairs: tuple[PairFit, ...] = ()
    advice: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The verdict in three words."""
        return TITLES[self.level]


def judge(compared: Compared, use: str, measure: str, group: str, guessing: str) -> Judgement:
    """Judge one use of the rows by its figures."""
    level, words, kept = _level(compared)
    said = compared.synthetic, compared.real, compared.guess
    return Judgement(use, measure, group, level, words, *said, guessing, kept)


def _level(compared: Compared) -> tuple[str, str, Score | None]:
    contrast = compared.contrast
    if contrast is None or compared.synthetic.n < FEW:
        return OPEN, f"only {compared.synthetic.n} test rows", None
    gain, reach, lost = contrast.gain, contrast.reach, contrast.lost
    if gain.high < 0 and (lost is None or lost.low > 0):
        return WORSE, f"{WORSE}: do not use", None
    if reach is not None and reach.low <= 0 and gain.low <= 0:
        return OPEN, "even real rows do no better than guessing", None
    if gain.low <= 0:
        return NONE, f"{NONE}: not fit for this use", None
    kept = _kept(contrast)
    if kept is None:
        return BETTER, "better than guessing", None
    if kept.low >= NEARLY:
        level = REAL if kept.low >= AS_GOOD else NEAR
        return level, level, kept
    if kept.high >= 1:
        return (
            ALIKE,
            f"no difference from real found, with {lost.n if lost else 0:,} test rows",
            kept,
        )
    return (
        BETTER,
        f"keeps {percentage(max(0.0, min(1.0, kept.value)))} of what real rows give",
        kept,
    )


def _kept(contrast: Contrast) -> Score | None:
    """The share of what real rows gain over guessing that synthetic rows keep."""
    reach, lost = contrast.reach, contrast.lost
    if reach is None or lost is None or reach.value <= 0:
        return None
    low, value, high = (1 - x / reach.value for x in (lost.high, lost.value, lost.low))
    return Score("kept", value, low, high, lost.n)


def judge_all(
    schema: Schema, utility: Utility, forecasts: Forecasts, fidelity: Fidelity
) -> tuple[Judgement, ...]:
    """Every use that this kind of data has."""
    return (*_models(schema, utility), *_next_step(forecasts), *_distances(schema, fidelity))


def _models(schema: Schema, utility: Utility) -> list[Judgement]:
    best, use = utility.best, f"predicting {schema.label or 'the class'}"
    guessing = {ACCURACY: f"always {utility.guess}", AUC: "a coin", R2: f"always {utility.guess}"}
    scores = best.scores if best else ()
    return [
        judge(c, use, f"{c.name}, {best.student}", "models", guessing[c.name])
        for c in scores
        if best and c.name in guessing
    ]


def _next_step(forecasts: Forecasts) -> list[Judgement]:
    if forecasts.main is None:
        return []
    measure = "error, LSTM"
    return [judge(forecasts.main, "predicting the next step", measure, "models", REPEATING)]


def _distances(schema: Schema, fidelity: Fidelity) -> list[Judgement]:
    """Columns and pairs of a table, channels of series, whole images."""
    if schema.kind == "image":
        covered = fidelity.coverage
        found = [] if covered is None else [(covered, "single images", "coverage", "noise")]
    else:
        name = "columns" if schema.kind == "table" else "channels"
        apart = fidelity.overall[:1]
        found = [(c, f"single {name}", "mean distance", EVEN) for c in apart]
        if fidelity.pairs is not None:
            found.append((fidelity.pairs.mean, "pairs of columns", "mean distance", EVEN))
    return [judge(c, use, measure, "distances", how) for c, use, measure, how in found]


def sum_up(judgements: Sequence[Judgement]) -> tuple[str, str]:
    """The level of the whole, and one sentence that says why."""
    judged = [j for j in judgements if j.level != OPEN]
    level = _whole(judged)
    if not judged:
        why = {j.words for j in judgements} or {"nothing could be measured"}
        return level, f"{TITLES[level]}: {'; '.join(sorted(why))}."
    by_level = {name: _uses(judged, name) for name in LEVELS}
    said = [f"{name} for {uses}" for name, uses in by_level.items() if uses]
    return level, f"{TITLES[level]}: {'; '.join(said)}."


def _whole(judged: Sequence[Judgement]) -> str:
    """Models count first: distances alone decide only where there are none."""
    if not judged:
        return "unknown"
    first = [j.level for j in judged if j.group == "models"] or [j.level for j in judged]
    if WORSE in [j.level for j in judged] or all(level == NONE for level in first):
        return "unfit"
    fine, sure = (REAL, NEAR, ALIKE), (REAL, NEAR)
    fit = all(j.level in fine for j in judged) and any(j.level in sure for j in judged)
    return "fit" if fit else "limited"


def _uses(judged: Sequence[Judgement], level: str) -> str:
    """Uses of one level; the measure is named where another measure of it has another level."""
    found = [j for j in judged if j.level == level]
    split = {j.use for j in judged if any(o.use == j.use and o.level != level for o in judged)}
    names = [f"{j.use} ({j.measure.split(',')[0]})" if j.use in split else j.use for j in found]
    each = list(dict.fromkeys(names))
    return " and ".join(filter(None, [", ".join(each[:-1]), *each[-1:]]))


def remarks(schema: Schema, utility: Utility, same: bool) -> tuple[str, ...]:
    """What the verdict rests on, where a reader would expect more.

    ``same``: the test rows are the real rows.
    """
    found = []
    if same:
        found.append(
            "The test rows are the real rows themselves: real rows look perfect here, and whatever "
            "was learnt by heart counts as right. Give --test rows that no site held."
        )
    if schema.task == "none" and schema.kind == "table":
        found.append("The schema names no label: no model was tried, only distances were measured.")
    rare = [c.name for c in utility.classes if c.recognised is None]
    if rare and utility.students:
        found.append(f"Too few test rows to say anything about {listed(rare)}.")
    return tuple(found)
