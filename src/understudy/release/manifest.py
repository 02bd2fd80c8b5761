"""``release.json``: what a release is, and the hashes of its other files."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
from typing import Any

import torch

from understudy.errors import ReleaseError
from understudy.release.archive import Archive
from understudy.release.signature import SIGNATURE_FILE
from understudy.version import __version__

__all__ = ["FORMAT", "MALFORMED", "MANIFEST", "read_files", "seal_manifest", "versions_here"]

FORMAT = 4
MANIFEST = "release.json"
_ROLES = ("generator", "classifier")
_ALWAYS = {"schema.toml", "claims.json", "ledger.jsonl", "card.md"}
_SAMPLES = {"sample.parquet", "sample.npz"}
FILES = tuple(sorted({*_ALWAYS, *_SAMPLES, *(f"{role}.safetensors" for role in _ROLES)}))
MALFORMED = (KeyError, TypeError, ValueError, AttributeError, RecursionError)
_PACKAGES = ("dp-accounting", "numpy", "pandas", "pyarrow", "scipy", "torch")


def versions_here() -> dict[str, str]:
    """What ε and samples are computed with; where it is the same, so are they, to the last bit."""
    found = {name: importlib.metadata.version(name) for name in _PACKAGES}
    processor = f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
    return {**found, "understudy": __version__, "processor": processor}


def seal_manifest(manifest: dict[str, Any]) -> bytes:
    """``release.json`` with a digest of itself, which shows damage; it is not a signature."""
    body = {key: value for key, value in manifest.items() if key != "digest"}
    text = json.dumps({**body, "digest": _digest(body)}, indent=2, ensure_ascii=False)
    return (text + "\n").encode()


def _digest(body: dict[str, Any]) -> str:
    text = json.dumps(body, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def read_files(archive: Archive) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The manifest, and all files by name, each matched against its hash in the manifest.

    The signatures, where there are any, are of the manifest and cannot be in it.
    """
    found = {MANIFEST: archive.read(MANIFEST)}
    if SIGNATURE_FILE in archive.names:
        found[SIGNATURE_FILE] = archive.read(SIGNATURE_FILE)
    manifest = _manifest(found[MANIFEST])
    for name, digest in manifest["files"].items():
        if name not in FILES:
            raise ReleaseError(
                f"files of {list(FILES)}", "another name", "do not trust this release"
            )
        found[name] = archive.read(name)
        if hashlib.sha256(found[name]).hexdigest() != digest:
            raise ReleaseError(
                f"{name} with the hash in the manifest",
                "another hash",
                "the file was changed: get the release again from its source",
            )
    return manifest, found


def _manifest(data: bytes) -> dict[str, Any]:
    try:
        manifest = json.loads(data)
        version, files, digest = (manifest[key] for key in ("format", "files", "digest"))
    except MALFORMED as error:
        raise ReleaseError("a readable release.json", "a damaged one", "fetch it again") from error
    if version != FORMAT:
        raise ReleaseError(
            f"release format {FORMAT}", f"{version}", "use the version of Understudy that made it"
        )
    if digest != _digest({key: value for key, value in manifest.items() if key != "digest"}):
        raise ReleaseError("release.json as it was written", "another", "fetch it again")
    if not isinstance(files, dict) or not _complete(set(files)):
        raise ReleaseError("a manifest that lists all files", "some missing", "fetch it again")
    return dict(manifest)


def _complete(files: set[str]) -> bool:
    """A generator with its sample, or a classifier without one; never both."""
    models = [role for role in _ROLES if f"{role}.safetensors" in files]
    sampled = bool(files & _SAMPLES)
    return _ALWAYS <= files and models == (["generator"] if sampled else ["classifier"])
