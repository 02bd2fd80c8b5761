"""Verification: recompute the claim from the plan and the receipts, trust no stored number.

It shows that files are whole, that the ledger is an unbroken chain that fits the promised
plan, and that the printed ε follows from it. It cannot show that the run was executed as
written: that rests on whoever ran it.
"""

from __future__ import annotations

import json
import math
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from understudy.errors import PrivacyError, ReleaseError
from understudy.privacy.claim import RAN
from understudy.privacy.clip import Receipt
from understudy.privacy.ledger import read_entries, receipts_in
from understudy.release.bundle import Release, read_files
from understudy.release.card import write_card

__all__ = ["Verdict", "verify"]


@dataclass(frozen=True)
class Verdict:
    """What was checked, in words, and the release that passed."""

    release: Release
    checks: tuple[str, ...]


def verify(path: str | Path) -> Verdict:
    """Check a release folder or zip; raise `ReleaseError` at the first thing that is wrong."""
    files = read_files(Path(path))
    _check_strangers(Path(path), set(files))
    release = Release.load(path)
    entries = list(read_entries(release.ledger))
    receipts = receipts_in(entries)
    _check_opening(release, entries)
    _check_charges(release, receipts)
    _check_source(release, {receipt.source for receipt in receipts})
    _check_claims(release, files["claims.json"])
    _check_card(release, files["card.md"])
    _check_model(release)
    rounds = len({receipt.round for receipt in receipts})
    return Verdict(
        release,
        (
            f"{len(files) - 1} files match the manifest",
            f"the ledger is an unbroken chain of {len(entries)} entries",
            f"{rounds} charged round(s) fit the plan of {release.plan.length}",
            f"{len(release.claims)} claim(s) recomputed: ε agrees",
        ),
    )


def _check_strangers(path: Path, known: set[str]) -> None:
    """Nothing may lie in a release that its manifest does not cover."""
    if path.is_dir():
        found = {child.name for child in path.iterdir()}
    else:
        with zipfile.ZipFile(path) as archive:
            found = set(archive.namelist())
    if found - known:
        raise ReleaseError(
            "no files but those in the manifest", f"{len(found - known)} more", "remove them"
        )


def _check_opening(release: Release, entries: list[dict]) -> None:
    if [entry["kind"] for entry in entries].count("open") != 1:
        raise ReleaseError("a ledger with one opening", "none or several", "do not trust it")
    opening: dict[str, Any] = entries[0]
    body: dict[str, Any] = opening["body"]
    plan = json.loads(json.dumps(release.plan.to_dict()))
    if opening["kind"] != "open" or body.get("plan") != plan or body.get("study") != release.study:
        raise ReleaseError(
            "a ledger opened for this study and plan", "another", "do not trust this release"
        )
    if release.schema.hash != body.get("schema"):
        raise ReleaseError("the schema the ledger was opened for", "another", "do not trust it")


def _check_charges(release: Release, receipts: list[Receipt]) -> None:
    try:
        release.plan.settles(receipts)
    except PrivacyError as error:
        raise ReleaseError(
            error.expected, error.found, "the ledger does not cover the claim; do not trust it"
        ) from error


def _check_source(release: Release, sources: set[str]) -> None:
    known = release.source in ("os", "simulation") and release.ran in RAN and release.ran
    if sources - {release.source} or not known:
        raise ReleaseError(
            f"receipts of noise source {release.source!r}", f"{sorted(sources)}", "do not trust it"
        )


def _check_claims(release: Release, text: bytes) -> None:
    computed = [json.loads(json.dumps(claim.to_dict())) for claim in release.claims]
    try:
        stored = json.loads(text)
    except (ValueError, RecursionError):
        stored = None
    if not isinstance(stored, list) or [type(c) for c in stored] != [dict] * len(computed):
        raise ReleaseError(f"{len(computed)} claims", "others", "do not trust this release")
    for said, found in zip(stored, computed, strict=True):
        for key in sorted({*said, *found}):
            if key not in found or not _same(said.get(key), found[key]):
                raise ReleaseError(
                    f"claim field {key!r} as recomputed from the plan",
                    "another value",
                    "the claim does not follow from the receipts; do not trust it",
                )


def _check_card(release: Release, said: bytes) -> None:
    if said != write_card(release.manifest, release.schema, release.claims).encode():
        raise ReleaseError("the card that follows from the claims", "another", "do not trust it")


def _check_model(release: Release) -> None:
    """Use it a little: what cannot be drawn from, or asked, is no release."""
    role = release.model.role
    try:
        _ask(release) if role == "classifier" else _draw(release)
    except Exception as error:
        raise ReleaseError(
            f"a {role} that can be used", type(error).__name__, "do not trust it"
        ) from error


def _draw(release: Release) -> None:
    release.sample(10, seed=0)
    for label in release.schema.classes[:10] if release.generator.conditional else ():
        release.sample(1, label=label, seed=0)


def _ask(release: Release) -> None:
    """Rows at the corners and in the middle of the encoded values, and one that is not even.

    Layers that take an image's brightness away make nothing of the even ones.
    """
    width = release.schema.width
    uneven = torch.rand(1, width, generator=torch.Generator().manual_seed(0))
    for rows in (torch.tensor([0.0, 0.5, 1.0]).unsqueeze(1).expand(3, width), uneven):
        release.classifier.probabilities(rows)


def _same(said: object, found: object) -> bool:
    """Equal; for numbers, within 0.1 % (accountants may differ a little between versions)."""
    if isinstance(said, float) and isinstance(found, float):
        return math.isclose(said, found, rel_tol=1e-3)
    return said == found
