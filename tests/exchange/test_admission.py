"""What a push has to be: each way of falling short is refused with its own reason."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch

from contracts.toys import plain, records
from exchange.parties import release
from understudy import Study, run
from understudy.errors import ReleaseError
from understudy.exchange.admission import Rules, examine
from understudy.exchange.budget import Share, total
from understudy.privacy.account import Event, cost
from understudy.release import archive
from understudy.release.manifest import seal_manifest
from understudy.simulation.verification import verify

RULES = Rules(plain().hash, "record", ("local",), (), 1.0, 1e-5, False, 100)


def sealed(
    files: dict[str, bytes], path: Path, change: Callable[[dict], None] | None = None
) -> Path:
    """What a careful forger does: make the manifest fit again."""
    manifest = json.loads(files["release.json"])
    for name in manifest["files"]:
        manifest["files"][name] = hashlib.sha256(files[name]).hexdigest()
    if change:
        change(manifest)
    archive.save({**files, "release.json": seal_manifest(manifest)}, path)
    return path


def refused(path: Path, found: str, rules: Rules = RULES, earlier: Any = ()) -> None:
    with pytest.raises(ReleaseError) as error:
        examine(path, rules, earlier, verify)
    assert found in f"{error.value.expected} / {error.value.found}"


def test_a_fit_push_is_told_of_as_plain_values(pushed: dict[str, Path]) -> None:
    found = examine(pushed["one"], RULES, [], verify)
    facts = json.loads(json.dumps(found, allow_nan=False))["facts"]
    assert facts["epsilon"] == facts["together"] < 0.5
    assert set(facts["classes"]) == {"no", "yes"} and facts["trust"] == "local"
    assert found["preview"]["columns"][0]["counts"]


@pytest.mark.parametrize(
    "change, found",
    [
        ({"schema": "0" * 64}, "another schema hash"),
        ({"unit": "site"}, "unit site"),
        ({"trust": ("central",)}, "trust of central"),
        ({"kinds": ("decoder",)}, "a generator of decoder"),
        ({"epsilon": 0.4}, "ε of at most 0.4"),
        ({"delta": 1e-9}, "δ of at most 1e-09"),
        ({"sample_rows": 3}, "at most 3 rows"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_does_not_meet_the_requirements_is_refused(
    pushed: dict[str, Path], change: dict, found: str
) -> None:
    refused(pushed["one"], found, replace(RULES, **change))


def test_the_cap_is_on_all_pushes_together(pushed: dict[str, Path]) -> None:
    share = examine(pushed["one"], RULES, [], verify)["facts"]["share"]
    examine(pushed["two"], RULES, [share], verify)
    refused(pushed["two"], "with 9 earlier push(es)", earlier=[share] * 9)


def test_shares_compose_by_the_accountant_and_never_below_one_of_them() -> None:
    first, second = (Event((z,), None, 1) for z in (4.0, 5.0))
    shares = [Share(cost([e], 1e-5).epsilon, 1e-5, (e,)) for e in (first, second)]
    both = total(shares, 1e-5)
    assert both == cost([first, second], 1e-5).epsilon
    assert max(s.epsilon for s in shares) < both < sum(s.epsilon for s in shares)
    assert Share.from_dict(json.loads(json.dumps(shares[0].to_dict()))) == shares[0]


def test_shares_that_cannot_be_composed_are_added_up_if_their_deltas_allow() -> None:
    seen = Share(0.3, 4e-6, (Event((4.0,), 0.5, 3, seen=True),))
    assert total([seen, seen], 1e-5) == pytest.approx(0.6)
    assert total([seen, seen, seen], 1e-5) == float("inf")


def test_no_claim_and_noise_from_a_seed_are_refused(tmp_path: Path) -> None:
    refused(release(tmp_path / "bare.zip", epsilon=None, trust="none", unit="record"), "claim")
    asked = Study.parse(
        {
            "study": {"name": "seeded", "recipe": "fedmoments"},
            "privacy": {"trust": "local", "unit": "record", "epsilon": 0.5},
            "simulation": {"data": "-", "sites": 1},
        },
        schema=plain(),
    )
    run(asked, [records(50, 0, plain())], out=tmp_path / "seeded.zip", seed=0, rows=5)
    refused(tmp_path / "seeded.zip", "seed")
    examine(tmp_path / "seeded.zip", replace(RULES, simulated=True), [], verify)


def test_forged_claims_and_receipts_are_refused(files: dict[str, bytes], tmp_path: Path) -> None:
    claims = json.loads(files["claims.json"])
    claims[0]["epsilon"] /= 2
    cheap = {**files, "claims.json": (json.dumps(claims, indent=2) + "\n").encode()}
    refused(sealed(cheap, tmp_path / "claims.zip"), "claims")
    cut = {**files, "ledger.jsonl": b"".join(files["ledger.jsonl"].splitlines(True)[:-1])}
    refused(sealed(cut, tmp_path / "cut.zip"), "charge")

    def quieter(manifest: dict) -> None:
        manifest["plan"]["phases"][0]["parts"][0]["mechanism"]["noise"] *= 2

    refused(sealed(files, tmp_path / "plan.zip", quieter), "ledger")


def test_a_generator_that_draws_nan_is_refused(files: dict[str, bytes], tmp_path: Path) -> None:
    arrays = safetensors.torch.load(files["generator.safetensors"])
    huge = {name: value * 0 + 3e38 for name, value in arrays.items()}
    spoiled = {**files, "generator.safetensors": safetensors.torch.save(huge)}
    refused(sealed(spoiled, tmp_path / "nan.zip"), "NaN")
    for name in arrays:
        arrays[name] = arrays[name] * float("nan")
    spoiled = {**files, "generator.safetensors": safetensors.torch.save(arrays)}
    refused(sealed(spoiled, tmp_path / "bare.zip"), "finite numbers")


def zipped(path: Path, entries: dict[str, bytes], how: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", how) as file:
        for name, data in entries.items():
            file.writestr(name, data)
    return path


def test_a_zip_that_swells_is_refused(tmp_path: Path) -> None:
    bomb = zipped(tmp_path / "bomb.zip", {"release.json": bytes(64 << 20)}, zipfile.ZIP_DEFLATED)
    assert bomb.stat().st_size < 1 << 20
    refused(bomb, "as Understudy writes a zip")


def test_paths_that_lead_elsewhere_are_refused(files: dict[str, bytes], tmp_path: Path) -> None:
    refused(zipped(tmp_path / "out.zip", {**files, "../../evil": b"x"}), "as Understudy writes")
    archive.save({**files, "../evil": b"x"}, tmp_path / "same.zip")
    refused(tmp_path / "same.zip", "no files but those in the manifest")
    around = (tmp_path, tmp_path.parent, tmp_path.parent.parent)
    assert not [folder for folder in around if (folder / "evil").exists()]


def test_what_is_no_release_is_refused(files: dict[str, bytes], tmp_path: Path) -> None:
    (tmp_path / "text.zip").write_text("no zip at all")
    refused(tmp_path / "text.zip", "a damaged one")
    archive.save({**files, "release.json": b"[" * 100_000}, tmp_path / "deep.zip")
    refused(tmp_path / "deep.zip", "readable")


def test_files_far_smaller_than_a_reader_would_take_are_too_large(
    files: dict[str, bytes], tmp_path: Path
) -> None:
    padded = {**files, "card.md": files["card.md"] + b" " * (1 << 18)}
    refused(sealed(padded, tmp_path / "card.zip"), "card.md of at most 256 KiB")
