from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from contracts.toys import rows, study
from understudy.errors import ReleaseError
from understudy.privacy.ledger import _seal, read_entries
from understudy.release import bundle
from understudy.release.bundle import Release, seal_manifest
from understudy.release.verify import verify
from understudy.run import run


def load(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text())


def rehash(folder: Path, change: Callable[[dict], None] = lambda manifest: None) -> None:
    """What a careful forger does: make the manifest fit again."""
    manifest = load(folder, "release.json")
    for name in list(manifest["files"]):
        if (folder / name).exists():
            manifest["files"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    change(manifest)
    (folder / "release.json").write_bytes(seal_manifest(manifest))


def refused(path: Path, match: str | None = None) -> None:
    with pytest.raises(ReleaseError, match=match):
        verify(path)


def zipped(folder: Path, path: Path) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.iterdir()):
            archive.write(file, file.name)
    return path


def test_an_untouched_release_verifies(folder: Path, tmp_path: Path) -> None:
    for path in (folder, zipped(folder, tmp_path / "r.zip")):
        verdict = verify(path)
        assert any("3 charged round(s)" in line for line in verdict.checks)
        assert verdict.release.name == "toy"


def test_rehashing_alone_changes_nothing(folder: Path) -> None:
    rehash(folder)
    verify(folder)


@pytest.mark.parametrize("trust", ["local", "none"])
@pytest.mark.usefixtures("toys")
def test_releases_of_every_trust_verify(tmp_path: Path, trust: str) -> None:
    privacy = {"trust": trust} if trust == "none" else {"trust": trust, "noise": 9.0}
    run(study("toy-mean", 4, privacy=privacy), rows(4), out=tmp_path / "r.zip", rows=5)
    assert verify(tmp_path / "r.zip").release.plan.trust == trust


NAMES = sorted({*bundle.FILES, "release.json"} - {"classifier.safetensors", "sample.npz"})


@pytest.mark.parametrize("name", NAMES)
def test_a_flipped_byte_in_any_file_is_found(folder: Path, name: str) -> None:
    data = bytearray((folder / name).read_bytes())
    for place in range(0, len(data), max(1, len(data) // 40)):
        spoiled = bytearray(data)
        spoiled[place] ^= 0x01
        (folder / name).write_bytes(bytes(spoiled))
        refused(folder)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("length", [0, 1, -2])
def test_a_truncated_file_is_found(folder: Path, name: str, length: int) -> None:
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[:length])
    refused(folder)


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_file_is_found(folder: Path, name: str) -> None:
    (folder / name).unlink()
    refused(folder, name)


@pytest.mark.parametrize("name", [n for n in NAMES if n != "release.json"])
def test_a_file_that_the_manifest_forgot_is_missed(folder: Path, name: str) -> None:
    (folder / name).unlink()
    rehash(folder, lambda manifest: manifest["files"].pop(name))
    refused(folder)


# The forger recomputes the hashes. What follows from the ledger must still be found.


@pytest.mark.parametrize("field", ["epsilon", "epsilon_rdp", "delta"])
def test_a_smaller_price_in_the_claims_is_found(folder: Path, field: str) -> None:
    said = load(folder, "claims.json")
    said[0][field] *= 0.99
    (folder / "claims.json").write_text(json.dumps(said))
    rehash(folder)
    refused(folder, "claim")


@pytest.mark.parametrize(
    "field, value",
    [
        ("adversary", "everyone"),
        ("unit", "person"),
        ("trust", "nobody is trusted"),
        ("noise_source", "os"),
        ("caveats", []),
        ("words", "Perfectly private."),
        ("epsilon", None),
        ("epsilon", float("nan")),
        ("epsilon", "1"),
    ],
)
def test_other_words_in_the_claims_are_found(folder: Path, field: str, value: object) -> None:
    said = load(folder, "claims.json")
    said[0][field] = value
    (folder / "claims.json").write_text(json.dumps(said))
    rehash(folder)
    refused(folder, "claim")


@pytest.mark.parametrize("text", ["", "{}", "3", "[]", "[1, 2]", "[null, null]", "[[], []]"])
def test_claims_that_are_none_are_found(folder: Path, text: str) -> None:
    (folder / "claims.json").write_text(text)
    rehash(folder)
    refused(folder)


def test_a_prettier_card_is_found(folder: Path) -> None:
    card = (folder / "card.md").read_text()
    (folder / "card.md").write_text(card.replace("ε", "tiny ε"))
    rehash(folder)
    refused(folder, "card")


def test_a_plan_with_less_noise_is_found(folder: Path) -> None:
    for noise in (1.0, 8.0, 0.0, -1.0, "4"):

        def change(manifest: dict, noise=noise) -> None:
            manifest["plan"]["parts"][0]["noise"] = noise

        rehash(folder, change)
        refused(folder)


@pytest.mark.parametrize(
    "key, value",
    [
        ("study", "0" * 64),
        ("schema", "0" * 64),
        ("source", "os"),
        ("source", "quantum"),
        ("recipe", "other"),
        ("name", "other"),
        ("plan", {}),
        ("plan", None),
        ("generator", {}),
        ("generator", {"kind": "pickle", "config": {}, "balance": [0.5, 0.5]}),
        ("generator", {"kind": "gaussian", "config": {"width": 3}, "balance": [1.0]}),
        ("generator", {"kind": "gaussian", "config": {"width": 2**40}, "balance": [0.5, 0.5]}),
        ("generator", {"kind": "gaussian", "config": {}, "balance": [0.5, 0.5]}),
        ("generator", {"kind": "gaussian", "config": None, "balance": [0.5, 0.5]}),
        ("generator", {"kind": "gaussian", "config": {"width": 3}, "balance": ["a", "b"]}),
        ("generator", {"kind": "decoder", "config": {"width": 3}, "balance": [0.5, 0.5]}),
        ("versions", None),
        ("versions", {}),
    ],
    ids=range(18),
)
def test_an_altered_manifest_is_found(folder: Path, key: str, value: object) -> None:
    rehash(folder, lambda manifest: manifest.update({key: value}))
    refused(folder)


@pytest.mark.parametrize("version", [0, 1, 99, "1", None])
def test_another_format_is_refused(folder: Path, version: object) -> None:
    rehash(folder, lambda manifest: manifest.update(format=version))
    refused(folder, "format")


@pytest.mark.parametrize("text", ["", "[]", "null", "3", "{}", "[" * 100_000, '{"format": 1}'])
def test_a_manifest_that_is_none_is_refused(folder: Path, text: str) -> None:
    (folder / "release.json").write_text(text)
    refused(folder)


@pytest.mark.parametrize("files", [None, [], {}, "x", {"ledger.jsonl": "0" * 64}])
def test_a_manifest_without_its_files_is_refused(folder: Path, files: object) -> None:
    manifest = load(folder, "release.json")
    manifest["files"] = files
    (folder / "release.json").write_bytes(seal_manifest(manifest))
    refused(folder)


def chain(folder: Path, change: Callable[[list[dict]], list[dict]]) -> None:
    """Rewrite the ledger with a new, unbroken chain."""
    entries = change(list(read_entries((folder / "ledger.jsonl").read_text())))
    previous, lines = "0" * 64, []
    for entry in entries:
        sealed = _seal(previous, entry["kind"], entry["body"])
        previous = sealed["hash"]
        lines.append(json.dumps(sealed, sort_keys=True, ensure_ascii=False) + "\n")
    (folder / "ledger.jsonl").write_text("".join(lines))
    rehash(folder)


def test_the_chain_can_be_rewritten_by_the_tests(folder: Path) -> None:
    chain(folder, lambda entries: entries)
    verify(folder)


@pytest.mark.parametrize("line", range(4))
def test_a_ledger_line_edited_or_removed_breaks_the_chain(folder: Path, line: int) -> None:
    path = folder / "ledger.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    whole = list(lines)
    del lines[line]
    path.write_text("".join(lines))
    rehash(folder)
    refused(folder)
    whole[line] = whole[line].replace("simulation", "os").replace('"rounds": 3', '"rounds": 2')
    path.write_text("".join(whole))
    rehash(folder)
    refused(folder)


def edit(receipt: int, **changes: object) -> Callable[[list[dict]], list[dict]]:
    def change(entries: list[dict]) -> list[dict]:
        entries[1 + receipt]["body"]["receipts"][0].update(changes)
        return entries

    return change


@pytest.mark.parametrize(
    "change",
    [
        lambda entries: entries[:-1],
        lambda entries: [entries[0], *entries[2:]],
        lambda entries: [*entries, entries[-1]],
        lambda entries: entries[1:],
        lambda entries: [],
        lambda entries: [*entries[:1], *entries[:1], *entries[1:]],
        lambda entries: [*entries[:3], {"kind": "charge", "body": {}}],
        lambda entries: [*entries[:3], {"kind": "note", "body": {}}],
        edit(1, std=0.1),
        edit(1, bound=99.0),
        edit(1, round=0),
        edit(1, round=7),
        edit(1, round=0.5),
        edit(1, part="other"),
        edit(1, slot="client"),
        edit(1, source="os"),
        edit(1, std="2"),
        edit(1, extra=1),
    ],
    ids=range(18),
)
def test_a_forged_ledger_that_does_not_fit_the_plan_is_found(folder: Path, change) -> None:
    chain(folder, change)
    refused(folder)


def test_a_generator_that_is_not_finite_or_not_whole_is_refused(folder: Path) -> None:
    path = folder / "generator.safetensors"
    arrays = safetensors.torch.load_file(path)
    spoiled = {**arrays, "mean": torch.full_like(arrays["mean"], torch.nan)}
    for data in (
        safetensors.torch.save(spoiled),
        safetensors.torch.save({"mean": arrays["mean"]}),
        safetensors.torch.save({**arrays, "mean": torch.zeros(2, 1)}),
        safetensors.torch.save({}),
        path.read_bytes()[:-4],
        b"",
        b"\x80\x04pickle",
    ):
        path.write_bytes(data)
        rehash(folder)
        refused(folder)


def test_another_schema_is_found(folder: Path, made: Release) -> None:
    text = made.schema.to_toml().replace("400", "4000")
    (folder / "schema.toml").write_text(text)
    rehash(folder)
    refused(folder, "schema")
    for text in ("", "\x00", "kind = 3"):
        (folder / "schema.toml").write_text(text)
        rehash(folder)
        refused(folder)


# Files that try to be somewhere else.


@pytest.mark.parametrize(
    "name", ["../evil", "/etc/passwd", "sub/file", "..", "evil.py", "release.json", ""]
)
def test_no_path_leads_out_of_a_release(folder: Path, name: str) -> None:
    (folder.parent / "evil").write_text("x")
    digest = hashlib.sha256(b"x").hexdigest()
    rehash(folder, lambda manifest: manifest["files"].update({name: digest}))
    refused(folder, "files of")


@pytest.mark.parametrize("name", NAMES)
def test_a_link_is_not_followed(folder: Path, tmp_path: Path, name: str) -> None:
    shutil.move(folder / name, tmp_path / "elsewhere")
    (folder / name).symlink_to(tmp_path / "elsewhere")
    refused(folder, name)


def test_a_zip_bomb_is_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "card.md").write_bytes(b"\0" * (8 << 20))
    rehash(folder)
    refused(zipped(folder, tmp_path / "bomb.zip"), "bomb")


def test_a_file_beyond_the_limit_is_not_read(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = zipped(folder, tmp_path / "r.zip")
    monkeypatch.setattr(bundle, "MAX_FILE", 100)
    refused(folder, "larger")
    refused(archive)


def test_a_zip_with_a_spoiled_byte_is_refused_or_means_the_same(
    folder: Path, tmp_path: Path
) -> None:
    path = zipped(folder, tmp_path / "r.zip")
    data = path.read_bytes()
    for place in range(0, len(data), max(1, len(data) // 150)):
        spoiled = bytearray(data)
        spoiled[place] ^= 0xFF
        path.write_bytes(bytes(spoiled))
        try:  # dates and attributes may change; contents may not
            verify(path)
        except ReleaseError:
            pass
    for length in range(0, len(data), max(1, len(data) // 30)):
        path.write_bytes(data[:length])
        refused(path)


def test_a_zip_with_a_password_is_refused(folder: Path, tmp_path: Path) -> None:
    path = zipped(folder, tmp_path / "r.zip")
    data = bytearray(path.read_bytes())
    start = 0
    while (start := data.find(b"PK\x01\x02", start)) >= 0:
        data[start + 8] |= 1  # the flag "encrypted"
        start += 4
    path.write_bytes(bytes(data))
    refused(path)


@pytest.mark.parametrize("name", ["nothing", "nothing.zip"])
def test_what_is_not_there_is_said_so(tmp_path: Path, name: str) -> None:
    refused(tmp_path / name, "release.json")
