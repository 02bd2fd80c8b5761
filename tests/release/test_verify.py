from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import understudy
from contracts.toys import TOYS, rows, study
from understudy.cli import app
from understudy.errors import ReleaseError
from understudy.privacy.ledger import _seal, read_entries
from understudy.release import archive
from understudy.release.bundle import Release
from understudy.release.manifest import FILES, seal_manifest
from understudy.release.verify import verify
from understudy.simulation import run


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


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
    archive.save({file.name: file.read_bytes() for file in folder.iterdir()}, path)
    return path


def test_an_untouched_release_verifies(folder: Path, tmp_path: Path) -> None:
    for path in (folder, zipped(folder, tmp_path / "r.zip")):
        verdict = verify(path)
        assert any("match the plan: 3 rounds" in line for line in verdict.checks)
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


NAMES = sorted({*FILES, "release.json"} - {"classifier.safetensors", "sample.npz"})


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
            manifest["plan"]["phases"][0]["parts"][0]["mechanism"]["noise"] = noise

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


def wider(entry: dict) -> dict:
    return {**entry, "body": {**entry["body"], "hidden": 1}}


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
        lambda entries: [*entries, {"kind": "note", "body": {"hidden": 1}}],
        lambda entries: [*entries, {"kind": "release", "body": {"run": "", "head": ""}}],
        lambda entries: [*entries, {"kind": "charge", "body": {"receipts": []}}],
        lambda entries: [*entries[:3], {"kind": "charge", "body": []}],
        lambda entries: [wider(entries[0]), *entries[1:]],
        lambda entries: [*entries[:3], wider(entries[3])],
        edit(1, std=8.0),
        edit(1, std=4),
        edit(1, std=0.1),
        edit(1, bound=99.0),
        edit(1, round=0),
        edit(1, round=7),
        edit(1, round=0.5),
        edit(1, part="other"),
        edit(1, where="client"),
        edit(1, source="os"),
        edit(1, std="2"),
        edit(1, extra=1),
    ],
    ids=range(26),
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


# Nothing is in a release but what it leads to.


def tables(value: Any) -> Iterator[dict]:
    """Every table in a manifest, however deep."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if isinstance(value, dict):
        yield value
    for each in inside:
        yield from tables(each)


def test_an_unknown_field_is_refused_wherever_it_is(folder: Path, made: Release) -> None:
    before = (folder / "release.json").read_bytes()
    count = len(list(tables(load(folder, "release.json"))))
    assert count > 6, "manifest, plan, parts, generator, config, versions, files"
    for place in range(count):

        def change(manifest: dict, place: int = place) -> None:
            list(tables(manifest))[place]["hidden"] = "x"

        rehash(folder, change)
        refused(folder)
        (folder / "release.json").write_bytes(before)
    verify(folder)


@pytest.mark.parametrize("key", ["sample_rows", "sample_seed"])
@pytest.mark.parametrize("value", [31, -1, 10**12, 1.5, "1", None, True])
def test_another_size_or_seed_of_the_sample_is_refused(
    folder: Path, key: str, value: object
) -> None:
    rehash(folder, lambda manifest: manifest.update({key: value}))
    refused(folder)


@pytest.mark.parametrize("name", ["claims.json", "release.json"])
def test_a_json_file_with_other_spaces_or_a_repeated_key_is_refused(
    folder: Path, name: str
) -> None:
    text = (folder / name).read_text()
    for other in (text + "\n", text.replace(": ", ":  ", 1), text.replace("{", '{"unit": 1, ', 1)):
        (folder / name).write_text(other)
        if name != "release.json":
            rehash(folder)
        refused(folder)


def test_a_model_file_holds_its_arrays_and_nothing_else(folder: Path) -> None:
    path = folder / "generator.safetensors"
    arrays = safetensors.torch.load_file(path)
    two = {name: torch.cat([value, value]) for name, value in arrays.items() if value.ndim > 2}
    means = {"mean": torch.cat([arrays["mean"]] * 2)}
    for data in (
        safetensors.torch.save(arrays, metadata={"hidden": "x"}),
        safetensors.torch.save({**arrays, "hidden": torch.ones(3)}),
        safetensors.torch.save({name: value.double() for name, value in arrays.items()}),
        safetensors.torch.save({**arrays, **two, **means}),  # classes that nobody asks for
        path.read_bytes() + b" ",
    ):
        path.write_bytes(data)
        rehash(folder)
        refused(folder)


def test_how_arrays_are_written_is_known_to_the_byte() -> None:
    """Old releases stop verifying if safetensors ever writes them differently: then say so."""
    data = safetensors.torch.save({"b": torch.ones(2), "a": torch.zeros(1, 2)})
    assert hashlib.sha256(data).hexdigest().startswith("d935def652cfe001")


def test_a_second_sample_is_refused(folder: Path) -> None:
    (folder / "sample.npz").write_bytes(b"hidden")
    rehash(folder, lambda manifest: manifest["files"].update({"sample.npz": sha(b"hidden")}))
    refused(folder, "files")


def test_a_sample_that_the_generator_does_not_draw_is_refused(folder: Path, made: Release) -> None:
    frame = made.sample(30, seed=0).frame
    for other in (
        made.sample(30, seed=1).frame,
        frame.iloc[:29],
        frame.iloc[::-1],
        frame.assign(height=frame["height"] + 1e-6),
        frame.assign(hidden=1),
    ):
        other.to_parquet(folder / "sample.parquet", index=False)
        rehash(folder)
        refused(folder, "as the generator draws it")


def other_machine(made: Release, folder: Path, **versions: str) -> Release:
    """The same release, made with other versions."""
    other = replace(made, versions={**made.versions, **versions})
    other.save(folder)
    return other


def test_a_sample_of_other_versions_passes_only_with_a_note(made: Release, tmp_path: Path) -> None:
    other_machine(made, tmp_path / "r", torch="1.0")
    plain = verify(tmp_path / "r")
    assert "the sample is what the generator draws" in plain.checks, "the bytes are the same"
    frame = made.sample(30, seed=0).frame
    frame.to_parquet(tmp_path / "r" / "sample.parquet", index=False, compression="gzip")
    rehash(tmp_path / "r")
    assert any("holds the rows that" in note for note in verify(tmp_path / "r").notes)
    made.sample(30, seed=1).frame.to_parquet(tmp_path / "r" / "sample.parquet", index=False)
    rehash(tmp_path / "r")
    verdict = verify(tmp_path / "r")
    assert any("cannot be compared" in n and "torch 1.0" in n for n in verdict.notes)
    assert not any("sample" in check for check in verdict.checks)
    (tmp_path / "r" / "sample.parquet").write_bytes(b"PAR1 nothing")
    rehash(tmp_path / "r")
    refused(tmp_path / "r", "can be read")


def restate(folder: Path, made: Release, factor: float) -> None:
    """A forger's ε, with words and card to match."""
    said = tuple(
        replace(claim, epsilon=claim.epsilon * factor) if claim.private else claim
        for claim in made.claims
    )
    for name, data in made.fixed_files(said).items():
        (folder / name).write_bytes(data)
    rehash(folder)


def test_epsilon_must_agree_to_the_last_digit(folder: Path, made: Release) -> None:
    restate(folder, made, 1.0)
    assert any("to the last digit" in check for check in verify(folder).checks)
    for factor in (1 - 1e-15, 1 + 1e-15, 0.9999, 1.0001):
        restate(folder, made, factor)
        refused(folder, "ε that is computed")


@pytest.mark.parametrize(
    "versions, near, far",
    [({"processor": "abacus"}, 1e-10, 1e-6), ({"dp-accounting": "0.0.1"}, 5e-4, 2e-3)],
    ids=["processor", "accountant"],
)
def test_epsilon_of_other_versions_agrees_closely_and_is_noted(
    made: Release, tmp_path: Path, versions: dict, near: float, far: float
) -> None:
    other = other_machine(made, tmp_path / "r", **versions)
    assert any("to the last digit" in check for check in verify(tmp_path / "r").checks)
    restate(tmp_path / "r", other, 1 - near)
    verdict = verify(tmp_path / "r")
    assert any("not to the last digit" in n and next(iter(versions)) in n for n in verdict.notes)
    assert not any("to the last digit" in check for check in verdict.checks)
    restate(tmp_path / "r", other, 1 - far)
    refused(tmp_path / "r", "ε that is computed")


def test_a_card_by_another_version_is_sent_to_that_version(made: Release, tmp_path: Path) -> None:
    other_machine(made, tmp_path / "r", understudy="0.0.9")
    card = tmp_path / "r" / "card.md"
    card.write_text(card.read_text() + "More.\n")
    rehash(tmp_path / "r")
    refused(tmp_path / "r", r"verify it with Understudy 0\.0\.9")


def test_unit_trust_and_data_must_be_the_recipes(folder: Path) -> None:
    toy = TOYS["toy-mean"]
    assert not verify(folder, {"toy-mean": toy}).notes
    for other in (
        replace(toy.info, supports=frozenset({("site", "local"), ("record", "central")})),
        replace(toy.info, kinds=("image",)),
    ):
        with pytest.raises(ReleaseError, match="toy-mean supports"):
            verify(folder, {"toy-mean": type("Other", (toy,), {"info": other})})
    for known in (None, {}, {"other": toy}):
        assert any("'toy-mean' is not known here" in note for note in verify(folder, known).notes)


@pytest.mark.usefixtures("toys")
def test_the_public_verify_knows_the_recipes(folder: Path) -> None:
    assert understudy.verify(folder).notes == ()


def test_the_command_line_says_what_could_not_be_compared(folder: Path) -> None:
    rehash(folder, lambda manifest: manifest["versions"].update(torch="1.0"))
    shown = CliRunner().invoke(app, ["verify", str(folder)])
    assert shown.exit_code == 0 and "– recipe 'toy-mean' is not known here" in shown.output
    told = json.loads(CliRunner().invoke(app, ["verify", str(folder), "--json"]).output)
    assert told["ok"] and any("not known here" in note for note in told["notes"])


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


def test_a_zip_bomb_is_refused_and_not_inflated(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "card.md").write_bytes(b"\0" * (8 << 20))
    rehash(folder)
    packed(folder, tmp_path / "bomb.zip", zipfile.ZIP_DEFLATED)
    monkeypatch.setattr(zipfile.ZipFile, "read", None)
    refused(tmp_path / "bomb.zip", "as Understudy writes a zip")


def test_a_file_beyond_the_limit_is_not_read(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = zipped(folder, tmp_path / "r.zip")
    monkeypatch.setattr(archive, "MAX_FILE", 100)
    refused(folder, "larger")
    refused(path, "larger")


@pytest.fixture(scope="module")
def files(made: Release) -> dict[str, bytes]:
    """The files of an untouched release."""
    return {file.name: file.read_bytes() for file in made.path.iterdir()}


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_any_other_byte_anywhere_is_refused(
    files: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """In each file of a folder and everywhere in a zip, its headers and dates included."""
    folder = tmp_path_factory.mktemp("spoiled") / "r"
    archive.save(files, folder)
    name = data.draw(st.sampled_from([*NAMES, "zip"]))
    path = folder / name if name != "zip" else zipped(folder, folder.with_name("r.zip"))
    whole = bytearray(path.read_bytes())
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(whole)
    refused(path if name == "zip" else folder)


def test_a_zip_cut_short_anywhere_is_refused(folder: Path, tmp_path: Path) -> None:
    path = zipped(folder, tmp_path / "r.zip")
    data = path.read_bytes()
    for length in range(0, len(data), max(1, len(data) // 30)):
        path.write_bytes(data[:length])
        refused(path)


def packed(folder: Path, path: Path, compression: int = zipfile.ZIP_STORED) -> Path:
    """A zip of the release as other software writes it."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        for file in sorted(folder.iterdir()):
            archive.write(file, file.name)
    return path


def around(before: bytes, after: bytes) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        path.write_bytes(before + path.read_bytes() + after)

    return change


def added(name: str, comment: bytes = b"", mode: int = 0) -> Callable[[Path], None]:
    """One more entry, a comment, or other permissions."""

    def change(path: Path) -> None:
        with zipfile.ZipFile(path, "a") as archive:
            archive.comment = comment
            if name:
                entry = zipfile.ZipInfo(name)
                entry.external_attr = mode << 16
                archive.writestr(entry, b"hidden")

    return change


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    "change",
    [
        around(b"#!/bin/sh\n", b""),
        around(b"", b"hidden"),
        around(b"", b"\n"),
        added("", b"hidden"),
        added("card.md"),
        added("more.txt"),
        added("folder/"),
        added("folder/card.md"),
        added("../card.md"),
        added("link", mode=0o120777),
        added(""),
    ],
    ids=range(11),
)
def test_a_zip_holds_the_files_and_nothing_else(folder: Path, tmp_path: Path, change) -> None:
    path = zipped(folder, tmp_path / "r.zip")
    untouched = path.read_bytes()
    change(path)
    if path.read_bytes() != untouched:
        refused(path)
    else:
        verify(path)


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_zip_by_other_software_is_refused_with_advice(
    folder: Path, tmp_path: Path, compression: int
) -> None:
    refused(packed(folder, tmp_path / "r.zip", compression), "unpack it and use the folder")


@pytest.mark.parametrize("name", ["more.txt", ".hidden", "folder"])
def test_a_folder_holds_the_files_and_nothing_else(folder: Path, name: str) -> None:
    (folder / name).mkdir() if name == "folder" else (folder / name).touch()
    refused(folder, "1 more")


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


@pytest.mark.parametrize("value", [{"rows": [1, 2, 3]}, ["x"], None, 3, "x" * 101])
def test_a_version_holds_no_rows(folder: Path, value: object) -> None:
    rehash(folder, lambda manifest: manifest["versions"].update(torch=value))
    refused(folder, "names of versions")


def test_the_number_of_units_is_the_declared_one(folder: Path) -> None:
    """δ is judged by it: two units would allow δ = .1."""
    release = Release.load(folder)
    plan = replace(release.plan, units=2, delta=0.1)
    first, *rest = read_entries(release.ledger)
    lines, previous = [], "0" * 64
    for entry in ({**first, "body": {**first["body"], "plan": plan.to_dict()}}, *rest):
        sealed = _seal(previous, entry["kind"], entry["body"])
        lines.append(json.dumps(sealed, sort_keys=True, ensure_ascii=False) + "\n")
        previous = sealed["hash"]
    shutil.rmtree(folder)
    replace(release, plan=plan, ledger="".join(lines)).save(folder)
    refused(folder, "units, as declared")
