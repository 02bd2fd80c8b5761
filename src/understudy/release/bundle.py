"""The release: a folder (or a zip) that anyone can use and verify.

``release.json`` is the manifest: the plan, hashes of every other file, of the study and
of the schema. Beside it lie the generator (safetensors), the public schema, the claims,
the ledger, a card and a sample; or, instead of generator and sample, a classifier. Scores
against real rows are never in it. Files are read by name from a fixed list, with size
limits, so that no path can escape and nothing is executed.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import json
import math
import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import safetensors
import safetensors.torch
import torch

from understudy.data.encode import decode
from understudy.data.schema import Schema
from understudy.data.table import Records, write
from understudy.errors import OutputError, ReleaseError, UnderstudyError, unwritable
from understudy.privacy.claim import Claim, claims
from understudy.privacy.plan import PrivacyPlan
from understudy.release.card import write_card
from understudy.release.classifier import Classifier
from understudy.release.generator import Generator, class_of
from understudy.release.rows import as_records, features, predictions
from understudy.rng import Streams

__all__ = ["Release", "read_files"]

FORMAT = 2
MANIFEST = "release.json"
MODELS: dict[str, type[Generator] | type[Classifier]] = {
    "generator": Generator,
    "classifier": Classifier,
}
_ALWAYS = {"schema.toml", "claims.json", "ledger.jsonl", "card.md"}
_SAMPLES = {"sample.parquet", "sample.npz"}
FILES = (*sorted(f"{role}.safetensors" for role in MODELS), *sorted(_ALWAYS | _SAMPLES))
_MALFORMED = (KeyError, TypeError, ValueError, AttributeError, RecursionError)
_BAD_ZIP = (  # RuntimeError: passwords and unknown compression
    OSError, KeyError, EOFError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error
)  # fmt: skip
MAX_FILE = 4 << 30
BATCH = 16_384


def _versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in ("understudy", "dp-accounting")}


@dataclass(frozen=True)
class Release:
    """A model, what it promises, and the proof of it.

    The model is a generator, which `sample` draws from, or a classifier, which `predict` asks.
    ``rows`` is the size of a generator's sample in the release.
    """

    name: str
    recipe: str
    study: str
    schema: Schema
    plan: PrivacyPlan
    model: Generator | Classifier
    ledger: str
    source: str
    ran: str
    rows: int = 1000
    path: Path | None = None
    versions: dict[str, str] = field(default_factory=_versions)

    @cached_property
    def claims(self) -> tuple[Claim, ...]:
        """Computed from the plan's promise, never stored numbers."""
        return claims(self.plan, self.source, self.ran)

    @property
    def generator(self) -> Generator:
        """The generator; a release of a classifier is refused."""
        if isinstance(self.model, Classifier):
            raise ReleaseError(
                "a release that holds a generator",
                "this release holds a classifier, which makes no rows",
                "understudy predict RELEASE --data FILE -o predictions.csv (with labels in the "
                "file it measures the accuracy)",
            )
        return self.model

    @property
    def classifier(self) -> Classifier:
        """The classifier; a release of a generator is refused."""
        if isinstance(self.model, Generator):
            raise ReleaseError(
                "a release that holds a classifier",
                "this release holds a generator, which predicts nothing",
                "understudy sample RELEASE -n 1000 -o FILE, and train on these rows",
            )
        return self.model

    def predict(self, rows: Records | pd.DataFrame) -> pd.DataFrame:
        """The predicted class of each row, and the probability of every class, in their order.

        Labels are not looked at and may be absent. Nothing about the rows leaves this process.
        """
        asked, model = as_records(self.schema, rows), self.classifier
        found = model.probabilities(torch.from_numpy(features(self.schema, asked)))
        return predictions(self.schema, asked, found.numpy())

    def sample(self, n: int, label: str | None = None, seed: int | None = None) -> Records:
        """``n`` synthetic records, all of one class if ``label`` is given."""
        rng = Streams.from_seed(seed).child("sample")
        x, y = self.generator.rows(_count(n), class_of(label, self.schema), rng=rng)
        return decode(self.schema, x.numpy(), y.numpy())

    def batches(
        self, n: int, label: str | None = None, seed: int | None = None
    ) -> Iterator[Records]:
        """The same in batches, for any ``n``."""
        root = Streams.from_seed(seed).child("stream")
        for start in range(0, max(_count(n), 1), BATCH):
            rng = root.child("batch", start)
            size = min(BATCH, n - start)
            x, y = self.generator.rows(size, class_of(label, self.schema), rng=rng)
            yield decode(self.schema, x.numpy(), y.numpy())

    @property
    def manifest(self) -> dict[str, Any]:
        """What ``release.json`` says, without the hashes of files."""
        return {
            "format": FORMAT,
            "name": self.name,
            "recipe": self.recipe,
            "study": self.study,
            "schema": self.schema.hash,
            "source": self.source,
            "ran": self.ran,
            "plan": self.plan.to_dict(),
            self.model.role: self.model.to_dict(),
            "versions": self.versions,
        }

    def files(self) -> dict[str, bytes]:
        """Every file of the release, by name."""
        tensors = {name: value.contiguous() for name, value in self.model.arrays.items()}
        said = [claim.to_dict() for claim in self.claims]
        found = {
            f"{self.model.role}.safetensors": safetensors.torch.save(tensors),
            "schema.toml": self.schema.to_toml().encode(),
            "claims.json": (json.dumps(said, indent=2, ensure_ascii=False) + "\n").encode(),
            "ledger.jsonl": self.ledger.encode(),
            "card.md": write_card(self.manifest, self.schema, self.claims).encode(),
            **self._sample(),
        }
        hashes = {name: hashlib.sha256(data).hexdigest() for name, data in sorted(found.items())}
        return {**found, MANIFEST: seal_manifest({**self.manifest, "files": hashes})}

    def _sample(self) -> dict[str, bytes]:
        """A generator's sample, by the name of its file."""
        if isinstance(self.model, Classifier):
            return {}
        seed = 0 if self.source == "simulation" else None
        return _sample_file(self.sample(self.rows, seed=seed))

    def save(self, path: str | Path) -> Path:
        """Write the folder (or ``.zip``) in one move; an existing one is never touched."""
        path = Path(path)
        refuse_existing(path)
        found = self.files()
        try:
            _save_zip(found, path) if path.suffix == ".zip" else _save_folder(found, path)
        except OSError as error:
            raise unwritable(path.name, error) from error
        return path

    @classmethod
    def load(cls, path: str | Path) -> Release:
        """Read a release; every file is checked against the manifest."""
        files = read_files(Path(path))
        manifest = json.loads(files[MANIFEST])
        try:
            return cls._from(manifest, files, Path(path))
        except ReleaseError:
            raise
        except (*_MALFORMED, safetensors.SafetensorError, UnderstudyError) as error:
            raise ReleaseError(
                "a complete release", "missing or malformed fields", "fetch the release again"
            ) from error

    @classmethod
    def _from(cls, manifest: dict[str, Any], files: dict[str, bytes], path: Path) -> Release:
        schema = Schema.parse(files["schema.toml"].decode())
        if manifest["schema"] != schema.hash:
            raise ReleaseError("the schema that the manifest names", "another", "fetch it again")
        (role,) = MODELS.keys() & manifest.keys()  # one of them, or the manifest is malformed
        arrays = safetensors.torch.load(files[f"{role}.safetensors"])
        model = MODELS[role].from_dict(manifest[role], arrays)
        if not model.fits(schema) or "understudy" not in manifest["versions"]:
            raise ReleaseError(f"a {role} for this schema", "another", "fetch it again")
        return cls(
            name=manifest["name"],
            recipe=manifest["recipe"],
            study=manifest["study"],
            schema=schema,
            plan=PrivacyPlan.from_dict(manifest["plan"]),
            model=model,
            ledger=files["ledger.jsonl"].decode(),
            source=manifest["source"],
            ran=manifest["ran"],
            path=path,
            versions=manifest["versions"],
        )


def refuse_existing(path: Path) -> None:
    """Nothing is ever overwritten."""
    if os.path.lexists(path):
        raise OutputError(
            "a new path for a release", f"something is there: {path}", "choose another --out"
        )
    if not path.absolute().parent.is_dir():
        raise OutputError(
            "an existing parent folder", "none", f"create the folder that {path} is in"
        )


def _count(n: int) -> int:
    if n < 0 or not math.isfinite(n) or n != int(n):
        raise ReleaseError("a number of rows of 0 or more", str(n), "ask for -n 1000, say")
    return int(n)


def _sample_file(records: Records) -> dict[str, bytes]:
    name = "sample.parquet" if records.frame is not None else "sample.npz"
    with tempfile.TemporaryDirectory() as folder:
        write(records, Path(folder) / name)
        return {name: (Path(folder) / name).read_bytes()}


def _save_folder(files: dict[str, bytes], path: Path) -> None:
    partial = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.absolute().parent))
    try:
        for name, data in files.items():
            (partial / name).write_bytes(data)
        partial.chmod(0o755)
        os.rename(partial, path)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _save_zip(files: dict[str, bytes], path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    partial = path.with_name(f".{path.name}.new")
    try:
        partial.write_bytes(buffer.getvalue())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def seal_manifest(manifest: dict[str, Any]) -> bytes:
    """``release.json``, with a digest of itself: it shows slips, as a signature would forgery."""
    body = {key: value for key, value in manifest.items() if key != "digest"}
    text = json.dumps({**body, "digest": _digest(body)}, indent=2, ensure_ascii=False)
    return (text + "\n").encode()


def _digest(body: dict[str, Any]) -> str:
    text = json.dumps(body, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def read_files(path: Path) -> dict[str, bytes]:
    """All files of a release, each matched against its hash in the manifest."""
    read = _zip_reader(path) if path.suffix == ".zip" else _folder_reader(path)
    manifest = _manifest(read(MANIFEST))
    found = {MANIFEST: json.dumps(manifest).encode()}
    for name, digest in manifest["files"].items():
        if name not in FILES:
            raise ReleaseError(
                f"files of {list(FILES)}", "another name", "do not trust this release"
            )
        found[name] = read(name)
        if hashlib.sha256(found[name]).hexdigest() != digest:
            raise ReleaseError(
                f"{name} as the manifest names it",
                "other content",
                "it was changed; fetch it again",
            )
    return found


def _manifest(data: bytes) -> dict[str, Any]:
    try:
        manifest = json.loads(data)
        version, files, digest = (manifest[key] for key in ("format", "files", "digest"))
    except _MALFORMED as error:
        raise ReleaseError("a readable release.json", "a damaged one", "fetch it again") from error
    if version != FORMAT:
        raise ReleaseError(
            f"release format {FORMAT}", f"{version}", "use the Understudy that made it"
        )
    if digest != _digest({key: value for key, value in manifest.items() if key != "digest"}):
        raise ReleaseError("release.json as it was written", "another", "fetch it again")
    if not isinstance(files, dict) or not _complete(set(files)):
        raise ReleaseError("a manifest that lists all files", "some missing", "fetch it again")
    return dict(manifest)


def _complete(files: set[str]) -> bool:
    """A generator with its sample, or a classifier without one; never both."""
    models = [role for role in MODELS if f"{role}.safetensors" in files]
    sampled = bool(files & _SAMPLES)
    return _ALWAYS <= files and models == (["generator"] if sampled else ["classifier"])


def _folder_reader(path: Path) -> Any:
    def read(name: str) -> bytes:
        file = path / name
        if not file.is_file() or file.is_symlink():
            raise ReleaseError(
                f"{name} in {path.name}", "no such file", "check the path; fetch it again"
            )
        if file.stat().st_size > MAX_FILE:
            raise ReleaseError(
                f"{name} below {MAX_FILE >> 30} GiB", "a larger one", "do not trust it"
            )
        return file.read_bytes()

    return read


def _zip_reader(path: Path) -> Any:
    def read(name: str) -> bytes:
        try:
            with zipfile.ZipFile(path) as archive:
                info = archive.getinfo(name)
                if info.file_size > MAX_FILE or info.file_size > 1000 * max(
                    info.compress_size, 1024
                ):
                    raise ReleaseError(f"{name} of sane size", "a zip bomb", "do not trust it")
                return archive.read(info)
        except _BAD_ZIP as error:
            raise ReleaseError(
                f"{name} in {path.name}", "none", "check the path; fetch again"
            ) from error

    return read
