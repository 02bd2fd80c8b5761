"""Signed releases: who may sign, what a site looks at first, and that nothing can be changed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from contracts.toys import TOYS, rows, study
from understudy.cli import app
from understudy.deployment.enrolment import (
    approve,
    install,
    make_server,
    make_site,
    read_reply,
    read_request,
)
from understudy.deployment.keys import Keys, load_keys
from understudy.deployment.signing import check_trust, countersign, sign
from understudy.errors import KeysError, ReleaseError
from understudy.federation.secure.roster import Identity, identities
from understudy.recipes import RECIPES
from understudy.release.bundle import Release
from understudy.release.manifest import MANIFEST
from understudy.release.signature import Signed
from understudy.release.verify import verify
from understudy.simulation import run

SITES = ("north", "south")
RUN = "00ff"


def made(seed: int) -> Release:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(RECIPES, "toy-mean", TOYS["toy-mean"])  # type: ignore[arg-type]
        return run(study("toy-mean", 4, privacy={"noise": 4.0}), rows(4), seed=seed, rows=30)


@pytest.fixture(scope="module")
def release() -> Release:
    return made(0)


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Keys]:
    root = tmp_path_factory.mktemp("keys")
    make_server(root / "hub", "hub", [])
    requests = [read_request(make_site(root / name, name)[1]) for name in SITES]
    for name, path in approve(root / "hub", requests).items():
        install(root / name, read_reply(root / name, path))
    return {name: load_keys(root / name) for name in ("hub", *SITES)}


def joined(release: Release) -> dict[str, Any]:
    return {"run": RUN, "study": release.study, "plan": release.plan.to_dict()}


def signatures(release: Release, parties: dict[str, Keys], names: tuple[str, ...]) -> Any:
    manifest = release.files()[MANIFEST]
    return {name: countersign(manifest, parties[name], SITES, joined(release)) for name in names}


@pytest.fixture
def folder(release: Release, parties: dict[str, Keys], tmp_path: Path) -> Path:
    signed = sign(release, parties["hub"], SITES, RUN, signatures(release, parties, SITES))
    return signed.save(tmp_path / "signed")


def refused(path: Path, match: str) -> None:
    with pytest.raises(ReleaseError, match=match):
        verify(path)


def test_a_signed_release_verifies_and_says_who_signed(folder: Path, tmp_path: Path) -> None:
    verdict = verify(folder, TOYS)
    assert verdict.checks[-1] == "signed by hub, counter-signed by north, south (all 2 sites)"
    assert verdict.checks[0].startswith("6 files match")
    loaded = Release.load(folder)
    assert loaded.signed is not None and loaded.signed.run == RUN
    assert verify(loaded.save(tmp_path / "again.zip"), TOYS).checks == verdict.checks


def test_a_site_that_did_not_sign_is_named(
    release: Release, parties: dict[str, Keys], tmp_path: Path
) -> None:
    signed = sign(release, parties["hub"], SITES, RUN, signatures(release, parties, ("south",)))
    said = verify(signed.save(tmp_path / "r"), TOYS).checks[-1]
    assert said == "signed by hub, counter-signed by south (not by north)"


def test_a_release_without_signatures_stays_valid(release: Release, tmp_path: Path) -> None:
    verdict = verify(release.save(tmp_path / "r"), TOYS)
    assert verdict.release.signed is None and not any("signed" in c for c in verdict.checks)


@pytest.mark.parametrize("name", ("study", "plan"))
def test_a_site_signs_only_what_it_joined(
    release: Release, parties: dict[str, Keys], name: str
) -> None:
    manifest = release.files()[MANIFEST]
    other = {**joined(release), name: "another"}
    with pytest.raises(ReleaseError, match="that north joined"):
        countersign(manifest, parties["north"], SITES, other)
    with pytest.raises(ReleaseError, match=r"readable release\.json"):
        countersign(b"[]", parties["north"], SITES, joined(release))


def test_a_signature_for_another_run_release_or_site_is_left_out(
    release: Release, parties: dict[str, Keys]
) -> None:
    manifest, north = release.files()[MANIFEST], parties["north"]
    other_run = countersign(manifest, north, SITES, {**joined(release), "run": "01"})
    other_release = countersign(manifest + b" ", north, SITES, joined(release))
    other_order = countersign(manifest, north, ("south", "north"), joined(release))
    other_site = countersign(manifest, parties["south"], SITES, joined(release))
    for bad in (other_run, other_release, other_order, other_site, b"", bytes(64)):
        signed = sign(release, parties["hub"], SITES, RUN, {"north": bad}).signed
        assert signed is not None and signed.missing == SITES and signed.covers(manifest)
    strange = sign(release, parties["hub"], SITES, RUN, {"west": other_site}).signed
    assert strange is not None and list(strange.signatures) == ["hub"]


def _flip(text: str) -> str:
    return ("1" if text[0] == "0" else "0") + text[1:]


@pytest.mark.parametrize(
    "change",
    (
        lambda d: d.update(run="01"),
        lambda d: d["sites"].pop(),
        lambda d: d["sites"].reverse(),
        lambda d: d["server"].update(name="other"),
        lambda d: d["server"].update(identity=d["sites"][0]["identity"]),
        lambda d: d["signatures"].pop("hub"),
        lambda d: d["signatures"].update(north=_flip(d["signatures"]["north"])),
        lambda d: d["signatures"].update(north=d["signatures"]["south"]),
        lambda d: d["signatures"].update(west=d["signatures"]["south"]),
        lambda d: d.update(note="rows"),
        lambda d: d.update(format=2),
        lambda d: d.update(sites=3),
    ),
)
def test_an_altered_signature_file_is_refused(
    folder: Path, change: Callable[[dict[str, Any]], Any]
) -> None:
    path = folder / "signature"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data, indent=2) + "\n")
    refused(folder, "signature")
    with pytest.raises(ReleaseError, match="signature"):
        Release.load(folder)


def test_bytes_after_the_signatures_are_refused(folder: Path) -> None:
    path = folder / "signature"
    path.write_bytes(path.read_bytes() + b"\n")
    refused(folder, "as Understudy writes it")


def test_signatures_do_not_carry_over_to_another_release(folder: Path, tmp_path: Path) -> None:
    other = made(1).save(tmp_path / "other")
    shutil.copy(folder / "signature", other / "signature")
    refused(other, "a signature of")
    release = Release.load(folder)
    with pytest.raises(ReleaseError, match="copy the folder"):
        replace(release, rows=release.rows + 1).files()


def test_trust_is_in_keys_that_the_reader_has(
    folder: Path, parties: dict[str, Keys], tmp_path: Path
) -> None:
    verdict = verify(folder, TOYS)
    shutil.copy(parties["hub"].folder / "roster.json", tmp_path / "roster.json")
    for trusted in (tmp_path / "roster.json", parties["north"].folder):
        assert parties["hub"].fingerprint in check_trust(verdict, trusted)
    make_server(tmp_path / "other", "hub", [])
    with pytest.raises(KeysError, match="sites in"):
        check_trust(verdict, tmp_path / "other")
    requests = [read_request(make_site(tmp_path / name, name)[1]) for name in SITES]
    approve(tmp_path / "other", requests)
    with pytest.raises(ReleaseError, match="another key for north, south, hub"):
        check_trust(verdict, tmp_path / "other")
    with pytest.raises(ReleaseError, match="without signatures"):
        check_trust(replace(verdict, release=replace(verdict.release, signed=None)), tmp_path)


def test_a_forger_with_keys_of_his_own_is_caught_by_trust(
    release: Release, parties: dict[str, Keys], tmp_path: Path
) -> None:
    roster, each = identities(SITES)
    server = Identity(-1, each[0].key)
    forged = Signed(RUN, "hub", roster.keys[0], roster)
    statement = forged.statement(release.files()[MANIFEST])
    made = {"hub": server.sign(statement), "north": each[0].sign(statement)}
    path = replace(release, signed=replace(forged, signatures=made)).save(tmp_path / "r")
    verdict = verify(path, TOYS)
    with pytest.raises(ReleaseError, match="another key for"):
        check_trust(verdict, parties["hub"].folder)


def test_the_command_says_who_signed(folder: Path, parties: dict[str, Keys]) -> None:
    def call(*words: object) -> Any:
        return CliRunner().invoke(app, ["verify", str(folder), *map(str, words)])

    plain = call()
    assert plain.exit_code == 0 and "✓ signed by hub, counter-signed by north" in plain.output
    assert "whose keys these are was not checked" in " ".join(plain.output.split())
    trusted = call("--trust", parties["south"].folder, "--json")
    said = json.loads(trusted.output)
    assert said["signed"] == {"server": "hub", "sites": ["north", "south"]}
    assert said["missing"] == [] and any("the keys are those in" in c for c in said["checks"])
    assert call("--trust", folder / "none").exit_code == 10
    (folder / "signature").unlink()
    assert "it is not signed" in call().output
    assert call("--trust", parties["south"].folder).exit_code == 8
