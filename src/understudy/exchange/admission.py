"""What is checked of a push before anybody is shown it.

Everything that a release says of itself is recomputed by the verifier (claim from plan and ledger,
plan from the study's agreement, sample from the generator); here it is held against what this
exchange asks. The order is from cheap to dear. This runs in a process of its own (`worker`), which
may be ended at any time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from understudy.errors import ReleaseError
from understudy.exchange.budget import Share, total
from understudy.exchange.preview import preview
from understudy.privacy.account import round_up
from understudy.privacy.claim import Claim
from understudy.release.archive import Archive, open_archive
from understudy.release.bundle import Release
from understudy.release.generator import Generator
from understudy.release.verify import Verdict
from understudy.rng import Streams

__all__ = ["Rules", "Verifier", "examine"]

_FILES = {  # the most bytes of each file that is not numbers
    "release.json": 1 << 20,
    "schema.toml": 1 << 20,
    "claims.json": 1 << 20,
    "ledger.jsonl": 8 << 20,
    "card.md": 1 << 18,
    "signature": 1 << 20,
}
_TRIED = 64  # rows of each class
_AGAIN = "make a release that meets the requirements: understudy exchange requirements"


Verifier = Callable[[Path], Verdict]


@dataclass(frozen=True)
class Rules:
    """The requirements that a push is held against, as plain values for another process."""

    schema: str
    unit: str
    trust: tuple[str, ...]
    kinds: tuple[str, ...]
    epsilon: float
    delta: float
    simulated: bool
    sample_rows: int


def examine(
    path: Path, rules: Rules, earlier: Sequence[Mapping[str, Any]], verify: Verifier
) -> dict[str, Any]:
    """What the exchange keeps of a push that is fit for it; another one is refused.

    ``earlier`` are the shares of this member's other pushes of the same data.
    """
    archive = open_archive(path)
    _check_sizes(archive)
    _check_manifest(_manifest(archive), rules)
    release = Release.load(path)
    claim = _check_claim(release, rules)
    _check_rows(release)
    checked = verify(path)
    _check_known(checked)
    _check_sample(checked)
    own = Share.of(claim)
    together = total([*(Share.from_dict(each) for each in earlier), own], rules.delta)
    _check_total(claim, together, rules, len(earlier))
    return {
        "facts": _facts(checked, claim, own, together, archive),
        "preview": preview(release),
    }


def _refuse(expected: str, found: str, do: str = _AGAIN) -> ReleaseError:
    return ReleaseError(expected, found, do)


def _check_sizes(archive: Archive) -> None:
    for name, most in _FILES.items():
        if name in archive.names and len(archive.read(name)) > most:
            raise _refuse(f"{name} of at most {most >> 10} KiB", "a larger one")


def _manifest(archive: Archive) -> dict[str, Any]:
    try:
        found = json.loads(archive.read("release.json"))
    except (ValueError, RecursionError) as error:
        raise _refuse("a readable release.json", "a damaged one") from error
    if not isinstance(found, dict):
        raise _refuse("a readable release.json", "another")
    return found


def _check_manifest(manifest: Mapping[str, Any], rules: Rules) -> None:
    """What can be told before anything is loaded."""
    if manifest.get("schema") != rules.schema:
        raise _refuse(
            f"the exchange's schema, {rules.schema[:12]}…",
            "another schema hash",
            "train with the schema that subscribing gave you",
        )
    if "generator" not in manifest:
        raise _refuse("a release of a generator", "another")
    rows = manifest.get("sample_rows")
    if type(rows) is not int or not 0 <= rows <= rules.sample_rows:
        raise _refuse(f"a sample of at most {rules.sample_rows:,} rows", "a larger one")
    if manifest.get("source") != "os" and not rules.simulated:
        raise _refuse(
            "noise that nobody can draw again",
            "noise from a seed (a simulation)",
            "run it without --seed",
        )


def _check_claim(release: Release, rules: Rules) -> Claim:
    """The first claim of the release, computed from its plan."""
    plan, claim = release.plan, release.claims[0]
    if rules.kinds and release.generator.kind not in rules.kinds:
        raise _refuse(f"a generator of {', '.join(rules.kinds)}", release.generator.kind)
    if claim.epsilon is None:
        raise _refuse("a release with a claim", "one that promises nothing")
    if claim.unit != rules.unit:
        raise _refuse(f"the unit {rules.unit}", claim.unit)
    if plan.trust not in rules.trust:
        raise _refuse(f"trust of {', '.join(rules.trust)}", plan.trust)
    if claim.delta > rules.delta:
        raise _refuse(f"δ of at most {rules.delta:g}", f"δ = {round_up(claim.delta)}")
    return claim


def _check_rows(release: Release) -> None:
    """Draw rows of every class that can be asked for, and look whether they are numbers."""
    model: Generator = release.generator
    labels = range(release.schema.n_classes) if model.conditional else (None,)
    for label in labels:
        x, _ = model.rows(_TRIED, label, rng=Streams.from_seed(1))
        if not bool(x.isfinite().all()):
            raise _refuse("finite numbers in every row", "NaN or infinity", "train it again")


def _check_known(checked: Verdict) -> None:
    if not any("leads to" in line for line in checked.checks):
        raise _refuse(
            "a recipe that this exchange knows, so that its plan can be built again",
            f"recipe {checked.release.recipe!r}",
            "use one of `understudy recipes`, or ask for an update of the exchange",
        )


def _check_sample(checked: Verdict) -> None:
    """A sample of other software may hold any rows: nothing says that the generator drew them."""
    if any("cannot be compared" in note for note in checked.notes):
        raise _refuse(
            "a sample that the generator draws here too",
            "one that cannot be compared, drawn by other versions or altered",
            "make the release without a sample (run --rows 0), or with the exchange's versions",
        )


def _check_total(claim: Claim, together: float, rules: Rules, earlier: int) -> None:
    if together <= rules.epsilon:
        return
    added = f", with {earlier} earlier push(es) of the same data" if earlier else ""
    raise _refuse(
        f"ε of at most {rules.epsilon:g} at δ = {rules.delta:g} for all pushes of one dataset",
        f"ε = {round_up(together)}{added} (this push: {round_up(claim.epsilon or 0)})",
        "push a generator that costs less; what earlier pushes spent cannot be recovered",
    )


def _facts(
    checked: Verdict, claim: Claim, own: Share, together: float, archive: Archive
) -> dict[str, Any]:
    """All that the pool shows of a release; text in it is the pusher's, and is escaped by pages."""
    release = checked.release
    model = release.generator
    return {
        "name": release.name[:200],
        "recipe": release.recipe,
        "study": release.study,
        "generator": model.kind,
        "data": release.schema.kind,
        "unit": claim.unit,
        "trust": release.plan.trust,
        "relation": claim.relation,
        "adversary": claim.adversary,
        "epsilon": claim.epsilon,
        "delta": claim.delta,
        "words": claim.words,
        "claims": [each.words for each in release.claims],
        "caveats": list(claim.caveats),
        "share": own.to_dict(),
        "together": together,
        "sites": release.plan.sites,
        "parameters": sum(array.numel() for array in model.arrays.values()),
        "classes": dict(zip(release.schema.classes, model.balance, strict=False)),
        "conditional": model.conditional,
        "signed": release.signed.words if release.signed else "",
        "versions": release.versions,
        "checks": list(checked.checks),
        "notes": list(checked.notes),
        "card": archive.read("card.md").decode(errors="replace"),
    }
