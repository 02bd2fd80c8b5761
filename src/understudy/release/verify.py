"""Verification: write the release again from its plan, model and ledger, and compare.

It shows that the files are whole and hold nothing more than a release holds, that the ledger
charges every round of the plan, that the printed ε follows from it, and that the sample was drawn
from the generator. It cannot show that the run was carried out as the plan says: only those who ran
it can vouch for that.

Where the recipe is known here, the plan is built again from the public agreement of the study, and
must be the one in the release: no other noise, rounds, unit, trust, bound or phase. Whoever took
part can compare the study's hash with their own.

ε, plan and sample are computed again and must be equal to the last bit where the same versions run
on the same kind of processor. Elsewhere arithmetic may differ a little: then ε and plan must agree
closely, and whatever could not be compared exactly is said in `Verdict.notes`.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from understudy.errors import PrivacyError, ReleaseError, UnderstudyError
from understudy.privacy.claim import RAN, Claim
from understudy.privacy.ledger import Entry, read_entries, receipts_in
from understudy.privacy.plan import PrivacyPlan
from understudy.release.archive import open_archive
from understudy.release.bundle import Release
from understudy.release.manifest import MANIFEST, read_files, seal_manifest, versions_here
from understudy.release.rebuild import Known, agreed, difference
from understudy.release.signature import SIGNATURE_FILE
from understudy.study import Study

__all__ = ["Verdict", "verify"]

Files = Mapping[str, bytes]
_DISTRUST = "do not trust this release"


@dataclass(frozen=True)
class Verdict:
    """What was checked and what could not be, in words, and the release that passed."""

    release: Release
    checks: tuple[str, ...]
    notes: tuple[str, ...] = ()


def verify(path: str | Path, recipes: Mapping[str, Known] | None = None) -> Verdict:
    """Check a release folder or zip; raise `ReleaseError` at the first thing that is wrong.

    ``recipes`` are those whose plans can be built again, by name.
    """
    archive = open_archive(Path(path))
    manifest, files = read_files(archive)
    if archive.names - files.keys():
        more = f"{len(archive.names - files.keys())} more"
        raise ReleaseError("no files but those in the manifest", more, "remove them")
    release = Release.parse(manifest, files, Path(path))
    study, entries = _agreed(release), list(read_entries(release.ledger))
    _check_opening(release, entries)
    _check_charges(release, entries)
    said, exact = _agreed_claims(release, files["claims.json"])
    drawn = _check_model(release)
    _check_files(release, said, files, drawn)
    known = (recipes or {}).get(release.recipe)
    planned = _unknown(release) if known is None else _check_recipe(release, known, study)
    notes = (exact, _compare_sample(release, files, drawn), planned)
    listed = len(files.keys() - {MANIFEST, SIGNATURE_FILE})
    checks = (
        f"{listed} files match the manifest, and there are no others",
        f"the ledger is an unbroken chain of {len(entries)} entries",
        f"the charges match the plan: {_many(len(entries) - 1, 'round')}",
        *([] if planned else [f"the plan is the one that study {release.study[:12]} leads to"]),
        f"{_many(len(said), 'claim')} recomputed: ε agrees"
        + ("" if exact else " to the last digit"),
        *(["the sample is what the generator draws"] if drawn and not notes[1] else []),
        *([release.signed.words] if release.signed else []),
    )
    return Verdict(release, checks, tuple(note for note in notes if note))


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _check_opening(release: Release, entries: list[Entry]) -> None:
    """One opening, for this study, schema and plan, and then nothing but charges."""
    kinds = [entry["kind"] for entry in entries]
    if kinds != ["open", *["charge"] * (len(kinds) - 1)]:
        raise ReleaseError("a ledger of one opening, then charges", "another", _DISTRUST)
    plan = release.plan.to_dict()
    expected = {"study": release.study, "schema": release.schema.hash, "plan": plan}
    if _plain(entries[0]["body"]) != _plain(expected) or not release.ledger.endswith("\n"):
        raise ReleaseError("a ledger opened for this study, schema and plan", "another", _DISTRUST)


def _check_charges(release: Release, entries: list[Entry]) -> None:
    """Every round of the plan was charged once, exactly as planned."""
    receipts = receipts_in(entries)
    if release.source not in ("os", "simulation") or not RAN.get(release.ran):
        raise ReleaseError("a known noise source and place of the run", "another", _DISTRUST)
    try:
        release.plan.settles(receipts)
    except PrivacyError as error:
        raise ReleaseError(
            error.expected, error.found, "the ledger does not cover the claim; do not trust it"
        ) from error
    rounds = range(release.plan.length) if receipts else ()
    planned = [release.plan.receipts(n, release.source) for n in rounds]
    charges = [{"receipts": [asdict(receipt) for receipt in each]} for each in planned if each]
    if _plain([entry["body"] for entry in entries[1:]]) != _plain(charges):
        raise ReleaseError(
            f"the plan's receipts, with noise source {release.source!r}", "others", _DISTRUST
        )


def _plain(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _agreed_claims(release: Release, text: bytes) -> tuple[tuple[Claim, ...], str]:
    """The claims with ε as the release states it, if that agrees; and a note if not exactly."""
    try:
        stated = [(claim["epsilon"], claim["epsilon_rdp"]) for claim in json.loads(text)]
    except (ValueError, RecursionError, TypeError, KeyError):
        stated = []
    if len(stated) != len(release.claims):
        raise ReleaseError(f"{len(release.claims)} claims", "others", _DISTRUST)
    tolerance = _tolerance(release)
    for values, claim in zip(stated, release.claims, strict=True):
        computed = (claim.epsilon, claim.epsilon_rdp)
        if not all(_close(a, b, tolerance) for a, b in zip(values, computed, strict=True)):
            raise ReleaseError(
                "claims with the ε that is computed from the plan",
                "another ε",
                "the claim does not follow from the plan; do not trust it",
            )
    said = tuple(
        replace(claim, epsilon=epsilon, epsilon_rdp=check)
        for (epsilon, check), claim in zip(stated, release.claims, strict=True)
    )
    note = f"ε agrees within {tolerance:.1g} of itself, not to the last digit: {_others(release)}"
    return said, "" if said == release.claims else note


def _tolerance(release: Release) -> float:
    """How far ε may be off: nowhere here; elsewhere rounding, and .1 % by another accountant."""
    here = versions_here()
    if release.versions == here:
        return 0.0
    return 1e-9 if release.versions.get("dp-accounting") == here["dp-accounting"] else 1e-3


def _close(stated: object, computed: float | None, tolerance: float) -> bool:
    if not (isinstance(stated, float) and isinstance(computed, float)):
        return stated is None and computed is None
    return math.isclose(stated, computed, rel_tol=tolerance)


def _others(release: Release) -> str:
    """What this release was made with that is different here."""
    here = versions_here()
    names = [name for name in here if release.versions.get(name) != here[name]]
    told = (f"{name} {release.versions.get(name)} (here {here[name]})" for name in names)
    return f"it was made with {', '.join(told)}"


def _check_files(release: Release, said: Sequence[Claim], files: Files, drawn: Files) -> None:
    """Every file is, to the byte, what this release leads to; the sample is compared apart."""
    fixed = release.fixed_files(said)
    hashes = dict(sorted(json.loads(files[MANIFEST])["files"].items()))
    fixed[MANIFEST] = seal_manifest({**release.manifest, "files": hashes})
    if release.signed is not None:
        fixed[SIGNATURE_FILE] = release.signed.to_bytes()
    if files.keys() != {*fixed, *drawn}:
        raise ReleaseError(f"the files {sorted({*fixed, *drawn})}", "others", _DISTRUST)
    for name in sorted(fixed):
        if files[name] != fixed[name]:
            raise ReleaseError(
                f"{name} as it follows from the claims, plan and model", "another", _remedy(release)
            )


def _check_model(release: Release) -> dict[str, bytes]:
    """Use it a little, and draw the sample again: what cannot be used is no release."""
    role = release.model.role
    try:
        if role == "classifier":
            _ask(release)
            return {}
        for label in release.schema.classes[:10] if release.generator.conditional else ():
            release.sample(1, label=label, seed=0)
        return release.sample_file()
    except Exception as error:
        raise ReleaseError(f"a {role} that can be used", type(error).__name__, _DISTRUST) from error


def _ask(release: Release) -> None:
    """Rows at the corners and in the middle of the encoded values, and one that is not even.

    Layers that take an image's brightness away make nothing of the even ones.
    """
    width = release.schema.width
    uneven = torch.rand(1, width, generator=torch.Generator().manual_seed(0))
    for rows in (torch.tensor([0.0, 0.5, 1.0]).unsqueeze(1).expand(3, width), uneven):
        release.classifier.probabilities(rows)


def _compare_sample(release: Release, files: Files, drawn: Files) -> str:
    """Refuse a sample that the generator does not draw; a note where that cannot be told."""
    for name, data in drawn.items():
        if files[name] == data:
            continue
        if release.versions == versions_here():
            raise ReleaseError(f"{name} as the generator draws it", "other rows", _DISTRUST)
        if _rows(name, files[name]) == _rows(name, data):
            return f"{name} holds the rows that the generator draws; {_others(release)}"
        return f"{name} cannot be compared with what the generator draws: {_others(release)}"
    return ""


def _rows(name: str, data: bytes) -> dict[str, list[Any]]:
    """Columns or arrays by name; two files of the same rows may differ in how they are written."""
    try:
        if name.endswith(".parquet"):
            frame = pd.read_parquet(io.BytesIO(data))
            return {str(key): frame[key].astype(str).tolist() for key in frame}
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            return {key: arrays[key].tolist() for key in arrays}
    except Exception as error:  # whatever a damaged file makes these libraries raise
        raise ReleaseError(f"{name} that can be read", type(error).__name__, _DISTRUST) from error


def _agreed(release: Release) -> Study:
    """The study, as far as it is public; its number of units is the one that δ is judged by."""
    try:
        study = agreed(release.agreement, release.schema)
    except UnderstudyError as error:
        raise ReleaseError(error.expected, error.found, _remedy(release)) from error
    plan = release.plan
    units = study.n_sites if plan.unit == "site" else release.schema.records
    if plan.units != units:
        raise ReleaseError(f"a plan for {units} units, as declared", f"{plan.units}", _DISTRUST)
    return study


def _unknown(release: Release) -> str:
    return (
        f"recipe {release.recipe!r} is not known here: its unit and trust were not compared, and "
        "whether its plan follows from the study was not checked"
    )


def _check_recipe(release: Release, recipe: Known, study: Study) -> str:
    """Refuse a unit, trust, kind of data or plan that the recipe does not have for this study."""
    info, plan, kind = recipe.info, release.plan, release.schema.kind
    unit, trust = plan.unit, plan.trust
    supported = info.parties if study.parties else info.supports
    if kind not in info.kinds or not (trust == "none" or (unit, trust) in supported):
        raise ReleaseError(
            f"a unit, trust and kind of data that {info.name} supports",
            f"{unit}, {trust}, {kind}",
            _DISTRUST,
        )
    return _compare_plan(release, _rebuilt(release, recipe, study))


def _rebuilt(release: Release, recipe: Known, study: Study) -> PrivacyPlan:
    try:
        return recipe.build(study).plan
    except Exception as error:  # whatever numbers in a forged agreement make a recipe raise
        found = f"{error.found}" if isinstance(error, UnderstudyError) else type(error).__name__
        raise ReleaseError(
            f"an agreement that {release.recipe} has a plan for", found, _remedy(release)
        ) from error


def _compare_plan(release: Release, rebuilt: PrivacyPlan) -> str:
    """Refuse a plan that is not the rebuilt one; a note if it is, but not to the last digit."""
    stored, expected = (json.loads(_plain(p.to_dict())) for p in (release.plan, rebuilt))
    if not difference(stored, expected, 0.0):
        return ""
    if (tolerance := _tolerance(release)) and not difference(stored, expected, tolerance):
        return f"the plan agrees within {tolerance:.1g} of its numbers: {_others(release)}"
    place = difference(stored, expected, tolerance)
    raise ReleaseError(
        f"the plan that {release.recipe} makes of the study's agreement",
        f"another {place}",
        _remedy(release),
    )


def _remedy(release: Release) -> str:
    """What to do about something that does not follow from the rest."""
    made_by = release.versions.get("understudy")
    same = made_by == versions_here()["understudy"]
    return _DISTRUST if same else f"verify it with Understudy {made_by}, which made it"
