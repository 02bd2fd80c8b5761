"""The release: a model, what it promises, and the proof, as files that anyone can use and verify.

``release.json`` is the manifest: the study's public agreement, the plan that follows from it, and
hashes of every other file, of the agreement and of the schema. Beside it lie the generator
(safetensors), the public schema, the claims, the ledger, a card and a sample; or, instead of
generator and sample, a classifier; and, from a federation, its parties' signatures. Scores against
real rows are never in it. Nothing in it is executed. Every file but the model, the ledger and the
signatures follows from the others, so `verify` can write it again and compare.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import pandas as pd
import safetensors
import safetensors.torch
import torch

from understudy.data.encode import decode
from understudy.data.schema import Schema
from understudy.data.table import Records, write
from understudy.errors import ReleaseError, UnderstudyError
from understudy.privacy.claim import Claim, claims
from understudy.privacy.plan import PrivacyPlan
from understudy.release import archive
from understudy.release.card import write_card
from understudy.release.classifier import Classifier
from understudy.release.generator import Generator, class_of
from understudy.release.lawful import lawful_rows
from understudy.release.manifest import (
    FORMAT,
    MALFORMED,
    MANIFEST,
    read_files,
    seal_manifest,
    versions_here,
)
from understudy.release.rows import as_records, features, predictions
from understudy.release.signature import SIGNATURE_FILE, Signed
from understudy.rng import Streams
from understudy.study import agreement_hash

__all__ = ["Release"]

MODELS: dict[str, type[Generator] | type[Classifier]] = {
    "generator": Generator,
    "classifier": Classifier,
}
BATCH = 16_384
_FETCH = "fetch it again"
_LONGEST = 100  # letters of a version: there is room for no rows
SAMPLE_SEED = 0  # the same for all, so that nobody can pick a sample that flatters
MOST_ROWS = 1_000_000  # of the sample in a release, which `verify` draws again


@dataclass(frozen=True)
class Release:
    """A model, what it promises, and the proof of it.

    The model is a generator, which `sample` draws from, or a classifier, which `predict` asks.
    ``agreement`` is what the study's parties agreed on, as far as it is public (`Study.agreement`).
    ``rows`` is the size of a generator's sample in the release; ``versions`` is what it was made
    with; ``signed`` is who vouches for it, if anyone does.
    """

    agreement: dict[str, Any]
    schema: Schema
    plan: PrivacyPlan
    model: Generator | Classifier
    ledger: str
    source: str
    ran: str
    rows: int = 1000
    path: Path | None = None
    versions: dict[str, str] = field(default_factory=versions_here)
    signed: Signed | None = None

    def __repr__(self) -> str:
        """What it is and promises, in two lines; the parts are large."""
        where = "not saved" if self.path is None else str(self.path)
        return f"<Release {self.name!r} by {self.recipe}, {where}\n {self.claims[0].words}>"

    @property
    def name(self) -> str:
        return str(self.agreement["name"])

    @property
    def recipe(self) -> str:
        """The name of the recipe that made it."""
        return str(self.agreement["recipe"])

    @property
    def study(self) -> str:
        """The hash of the study, which the sites and `understudy plan --json` know too."""
        return agreement_hash(self.agreement)

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

    def sample(self, n: int, label: str | int | None = None, seed: int | None = None) -> Records:
        """``n`` synthetic records, all of one class if ``label`` is given."""
        return self._draw(_count(n), label, Streams.from_seed(seed).child("sample"))

    def batches(
        self, n: int, label: str | int | None = None, seed: int | None = None
    ) -> Iterator[Records]:
        """The same in batches, for any ``n``."""
        root = Streams.from_seed(seed).child("stream")
        for start in range(0, max(_count(n), 1), BATCH):
            yield self._draw(min(BATCH, n - start), label, root.child("batch", start))

    def _draw(self, n: int, label: str | int | None, rng: Streams) -> Records:
        x, y = lawful_rows(self.generator, self.schema, n, class_of(label, self.schema), rng=rng)
        return decode(self.schema, x.numpy(), y.numpy())

    @property
    def manifest(self) -> dict[str, Any]:
        """What ``release.json`` says, without the hashes of files."""
        sample = {"sample_rows": self.rows, "sample_seed": SAMPLE_SEED}
        return {
            "format": FORMAT,
            "name": self.name,
            "recipe": self.recipe,
            "study": self.study,
            "agreement": self.agreement,
            "schema": self.schema.hash,
            "source": self.source,
            "ran": self.ran,
            "plan": self.plan.to_dict(),
            self.model.role: self.model.to_dict(),
            **(sample if isinstance(self.model, Generator) else {}),
            "versions": self.versions,
        }

    @property
    def _model_file(self) -> bytes:
        tensors = {name: value.contiguous() for name, value in self.model.arrays.items()}
        return safetensors.torch.save(tensors)

    @property
    def model_hash(self) -> str:
        """Names the model, as sites' ledgers note it."""
        return sha256(self._model_file).hexdigest()

    def files(self) -> dict[str, bytes]:
        """Every file of the release, by name."""
        found = {**self.fixed_files(self.claims), **self.sample_file()}
        hashes = {name: sha256(data).hexdigest() for name, data in sorted(found.items())}
        manifest = seal_manifest({**self.manifest, "files": hashes})
        return {**found, MANIFEST: manifest, **self._signature_file(manifest)}

    def _signature_file(self, manifest: bytes) -> dict[str, bytes]:
        if self.signed is None:
            return {}
        if not self.signed.covers(manifest):
            raise ReleaseError(
                "the files that were signed",
                "others: written again with other versions",
                "copy the folder or zip as it is",
            )
        return {SIGNATURE_FILE: self.signed.to_bytes()}

    def fixed_files(self, said: Sequence[Claim]) -> dict[str, bytes]:
        """The files that follow to the byte from this release and what it claims."""
        plain = [claim.to_dict() for claim in said]
        return {
            f"{self.model.role}.safetensors": self._model_file,
            "schema.toml": self.schema.to_toml().encode(),
            "claims.json": (json.dumps(plain, indent=2, ensure_ascii=False) + "\n").encode(),
            "ledger.jsonl": self.ledger.encode(),
            "card.md": write_card(self.manifest, self.schema, said).encode(),
        }

    def sample_file(self) -> dict[str, bytes]:
        """A generator's sample, by the name of its file."""
        if isinstance(self.model, Classifier):
            return {}
        return _as_file(self.sample(self.rows, seed=SAMPLE_SEED))

    def save(self, path: str | Path) -> Path:
        """Write the folder (or ``.zip``) in one move; an existing one is never touched."""
        archive.refuse_existing(Path(path))
        archive.save(self.files(), Path(path))
        return Path(path)

    @classmethod
    def load(cls, path: str | Path) -> Release:
        """Read a release; every file is checked against the manifest."""
        return cls.parse(*read_files(archive.open_archive(Path(path))), Path(path))

    @classmethod
    def parse(cls, manifest: dict[str, Any], files: dict[str, bytes], path: Path) -> Release:
        """A release from its files; ``path`` is where they were found."""
        try:
            return cls._from(manifest, files, path)
        except ReleaseError:
            raise
        except (*MALFORMED, safetensors.SafetensorError, UnderstudyError) as error:
            raise ReleaseError(
                "a complete release", "missing or malformed fields", "fetch the release again"
            ) from error

    @classmethod
    def _from(cls, manifest: dict[str, Any], files: dict[str, bytes], path: Path) -> Release:
        schema = Schema.parse(files["schema.toml"].decode())
        if manifest["schema"] != schema.hash:
            raise ReleaseError("the schema that the manifest names", "another", _FETCH)
        agreement = dict(manifest["agreement"])
        if any(agreement[key] != manifest[key] for key in ("name", "recipe", "schema")):
            raise ReleaseError("an agreement on this name, recipe and schema", "another", _FETCH)
        if manifest["study"] != agreement_hash(agreement):
            raise ReleaseError("the agreement that the study hash names", "another", _FETCH)
        (role,) = MODELS.keys() & manifest.keys()  # one of them, or the manifest is malformed
        signed = Signed.parse(files[SIGNATURE_FILE]) if SIGNATURE_FILE in files else None
        if signed is not None:
            signed.check(files[MANIFEST])
        arrays = safetensors.torch.load(files[f"{role}.safetensors"])
        model = MODELS[role].from_dict(manifest[role], arrays)
        versions = manifest["versions"]
        if not all(isinstance(v, str) and len(v) <= _LONGEST for v in versions.values()):
            raise ReleaseError("names of versions", "something else", "do not trust this release")
        if not model.fits(schema) or versions.keys() != versions_here().keys():
            raise ReleaseError(f"a {role} for this schema", "another", _FETCH)
        return cls(
            agreement=agreement,
            schema=schema,
            plan=PrivacyPlan.from_dict(manifest["plan"]),
            model=model,
            ledger=files["ledger.jsonl"].decode(),
            source=manifest["source"],
            ran=manifest["ran"],
            rows=_sample_rows(manifest.get("sample_rows", 0)),
            path=path,
            versions=manifest["versions"],
            signed=signed,
        )


def _count(n: int) -> int:
    if n < 0 or not math.isfinite(n) or n != int(n):
        raise ReleaseError("a number of rows of 0 or more", str(n), "ask for -n 1000, say")
    return int(n)


def _sample_rows(n: object) -> int:
    if not isinstance(n, int) or isinstance(n, bool) or not 0 <= n <= MOST_ROWS:
        raise ReleaseError(f"a sample of 0 to {MOST_ROWS:,} rows", "another", "do not trust it")
    return n


def _as_file(records: Records) -> dict[str, bytes]:
    name = "sample.parquet" if records.frame is not None else "sample.npz"
    with tempfile.TemporaryDirectory() as folder:
        write(records, Path(folder) / name)
        return {name: (Path(folder) / name).read_bytes()}
