"""The whole audit of a study: replay, and lower bounds on ε beside each claim.

No real row is read and nothing is spent: rows are made up within the public bounds, and canaries
are in the place of updates or of rows. What is found proves a defect; what is not found proves
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from understudy.audit.canary import Canaries, canaries
from understudy.audit.evidence import CONFIDENCE
from understudy.audit.inputs import handed, inputs
from understudy.audit.replay import Replay, replay
from understudy.audit.runs import RUNS, many_runs, tiny
from understudy.errors import AuditError, StudyError
from understudy.federation.recipe import Recipe
from understudy.privacy.claim import Claim, claims
from understudy.recipes import build
from understudy.rng import Streams
from understudy.study import Study

__all__ = ["MANY", "Audit", "Measured", "audit"]

MANY = 4000
CAVEAT = "An audit falsifies; it never certifies: a bound below the claim proves nothing."
APART = "noise is added in shares: a bound takes many runs (--runs), which this study is large for"
Tick = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Measured:
    """A claim, and what canaries in one run, and one in each of many ``runs``, measured.

    ``rows``: worst-case rows in the place of worst-case updates. None where it was not tried;
    ``reason`` where nothing was.
    """

    claim: Claim
    found: Canaries | None
    runs: Canaries | None = None
    reason: str = ""
    rows: Canaries | None = None

    @property
    def tried(self) -> dict[str, float]:
        """The lower bound of each way in which it was tried."""
        ways = {"canaries": self.found, "many runs": self.runs, "rows": self.rows}
        return {way: one.least for way, one in ways.items() if one is not None}

    @property
    def least(self) -> float | None:
        """The largest of all lower bounds."""
        return max(self.tried.values(), default=None)

    @property
    def way(self) -> str:
        """How the largest was found."""
        return max(self.tried, key=self.tried.__getitem__, default="")

    @property
    def broken(self) -> bool:
        """Whether the run has a larger ε than it claims."""
        claimed = self.claim.epsilon
        return claimed is not None and self.least is not None and self.least > claimed


@dataclass(frozen=True)
class Audit:
    """Everything that was tried on a study."""

    name: str
    recipe: str
    replay: Replay
    bounds: tuple[Measured, ...] = ()

    @property
    def failures(self) -> tuple[str, ...]:
        """What was proved wrong, as sentences."""
        found = [f"replay: {self.replay.words}"] if self.replay.findings else []
        found += [
            f"against {b.claim.adversary} ({b.claim.relation}): ε is at least {b.least:.3g}, "
            f"claimed {b.claim.epsilon:.3g}"
            for b in self.bounds
            if b.broken
        ]
        return tuple(found)

    def check(self) -> None:
        """Raise `AuditError` where something was proved wrong."""
        if self.failures:
            raise AuditError(
                "a run that keeps its promise",
                "; ".join(self.failures),
                "make no release with this code; fix the recipe or its plan",
            )

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form, for audit.json."""
        return {
            "format": "understudy-audit-1",
            "caveat": CAVEAT,
            "name": self.name,
            "recipe": self.recipe,
            "confidence": CONFIDENCE,
            "failures": list(self.failures),
            "replay": {**asdict(self.replay), "words": self.replay.words},
            "claims": [_plain(b) for b in self.bounds],
        }


def _plain(bound: Measured) -> dict[str, Any]:
    claim, found = bound.claim, bound.found
    return {
        "adversary": claim.adversary,
        "unit": claim.unit,
        "relation": claim.relation,
        "delta": claim.delta,
        "claimed": claim.epsilon,
        "at_least": bound.least,
        "broken": bound.broken,
        "canaries": None if found is None else asdict(found),
        "many_runs": None if bound.runs is None else asdict(bound.runs),
        "input_canaries": None if bound.rows is None else asdict(bound.rows),
        "reason": bound.reason,
    }


def audit(
    study: Study,
    *,
    only_replay: bool = False,
    many: int = MANY,
    runs: int | None = None,
    rng: Streams | None = None,
    progress: Tick = lambda *done: None,
) -> Audit:
    """Try to prove a study's claims wrong. With ``only_replay``, by replay alone.

    ``runs``: how often the whole study is run with one canary or without (None: `RUNS` times
    where the study is tiny, otherwise never).
    """
    if study.held is not None:
        raise StudyError(
            "a study whose sites hold rows",
            "parties that hold columns, which no audit here covers",
            "audit the recipe on a study with rows at the sites",
        )
    replayed = replay(study, progress=progress)
    if only_replay:
        return Audit(study.name, study.recipe, replayed)
    recipe, streams = build(study), rng or Streams.from_seed(None)
    times = (RUNS if tiny(recipe.plan) else 0) if runs is None else runs
    told, found = claims(recipe.plan, "os"), []
    for i, claim in enumerate(told):
        progress("canaries", i, len(told))
        own = streams.child("claim", i)
        found.append(_measured(recipe, claim, (many, times), own, progress))
    progress("canaries", len(told), len(told))
    return Audit(study.name, study.recipe, replayed, tuple(found))


def _measured(
    recipe: Recipe, claim: Claim, counts: tuple[int, int], rng: Streams, progress: Tick
) -> Measured:
    """The bounds of one claim, from so many canaries in one run and so many runs."""
    plan, (many, runs) = recipe.plan, counts

    def tick(done: int, total: int) -> None:
        progress("many runs", done, total)

    one = canaries(plan, claim, many, rng=rng)
    each = many_runs(plan, claim, runs, rng=rng.child("runs"), tick=tick) if runs else None
    rows = inputs(plan, claim, handed(recipe, claim), many, rng=rng.child("rows"))
    reason = "" if one or each else (APART if claim.private else "nothing is promised")
    return Measured(claim, one, each, reason, rows)
