"""What identifies a run across restarts."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from understudy.errors import ReleaseError, StudyError
from understudy.federation.checkpoint import write_atomic
from understudy.rng import NoiseSource, Streams
from understudy.study import Study

__all__ = ["Journal"]


@dataclass(frozen=True)
class Journal:
    """What identifies a run across restarts. It stays in the private folder."""

    run: str
    streams: Streams
    source: NoiseSource

    @classmethod
    def open(cls, folder: Path, study: Study, seed: int | None, resume: bool) -> Journal:
        """Start a run, or take up the one in ``folder``; noise is never taken up."""
        path = folder / "run.json"
        starts = 0
        if resume and path.exists():
            run, root, seed, starts = _resumed(path, study, seed)
        else:
            run, root = os.urandom(16).hex(), Streams.from_seed(seed).root.hex()
        names = {"study": study.hash, "inputs": study.inputs}
        kept = {"run": run, "root": root, "seed": seed, "starts": starts, **names}
        write_atomic(path, json.dumps(kept).encode())
        streams = Streams(bytes.fromhex(root))
        seeded = NoiseSource.seeded(streams.child("noise", starts))
        return cls(run, streams, NoiseSource.system() if seed is None else seeded)

    @property
    def source_name(self) -> str:
        return "simulation" if self.source.is_simulation else "os"


def _resumed(path: Path, study: Study, seed: int | None) -> tuple[str, str, int | None, int]:
    """Run id, root, seed and number of earlier starts of the run in a private folder."""
    try:
        saved = json.loads(path.read_text())
        found = saved["run"], saved["root"], saved["seed"], saved["starts"] + 1
        same = (saved["study"], saved["inputs"]) == (study.hash, study.inputs)
    except (ValueError, KeyError, TypeError) as error:
        raise ReleaseError(
            "a readable run.json", "a damaged one", "remove the folder; what it spent stays spent"
        ) from error
    if not same:
        raise StudyError(
            "the study that was interrupted", "another", "restore the study file, or start anew"
        )
    if seed not in (None, saved["seed"]):
        raise StudyError("the seed that the run began with", "another", "leave --seed out")
    return found
