"""What identifies a run across restarts: ``run.json`` in its private folder.

It also keeps the length and head that each ledger had when the run last started, so that a ledger
replaced by an older copy in between is refused. A private folder that is replaced as a whole by an
older copy is not noticed until the run is released: then the sites' ledgers name its last charge.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from understudy.errors import ReleaseError, StudyError
from understudy.federation.checkpoint import write_atomic
from understudy.privacy.ledger import Ledger
from understudy.rng import NoiseSource, Streams
from understudy.study import Study

__all__ = ["Journal"]


@dataclass(frozen=True)
class Journal:
    """Run id and randomness of a run; ``kept`` is what ``run.json`` says."""

    path: Path
    kept: dict[str, Any]
    streams: Streams
    source: NoiseSource

    @classmethod
    def open(cls, folder: Path, study: Study, seed: int | None, resume: bool) -> Journal:
        """Start a run, or resume the one in ``folder``; noise never continues where it stopped."""
        path = folder / "run.json"
        if resume and path.exists():
            kept = _resumed(path, study, seed)
        else:
            root = Streams.from_seed(seed).root.hex()
            kept = {"run": os.urandom(16).hex(), "root": root, "seed": seed, "starts": 0}
            kept |= {"study": study.hash, "inputs": study.inputs, "heads": {}}
        write_atomic(path, json.dumps(kept).encode())
        streams = Streams(bytes.fromhex(kept["root"]))
        seeded = NoiseSource.seeded(streams.child("noise", kept["starts"]))
        system = NoiseSource.system(agreed=os.urandom(32))  # all parties are in this process
        return cls(path, kept, streams, system if kept["seed"] is None else seeded)

    @property
    def run(self) -> str:
        """The id under which sites pay for this run."""
        return str(self.kept["run"])

    def check(self, name: str, ledger: Ledger) -> None:
        """Refuse a ledger that has lost entries since this run last started."""
        if name in self.kept["heads"] and not ledger.holds(*self.kept["heads"][name]):
            raise ReleaseError(
                f"{name} with every entry it had when this run last started",
                f"fewer, or others (it has {len(ledger.entries)})",
                "restore its newest copy; a ledger must never go back",
            )

    def record(self, ledgers: Mapping[str, Ledger]) -> None:
        """Write down where each ledger stands, for `check` when the run is resumed."""
        heads = {name: ledger.position for name, ledger in ledgers.items()}
        write_atomic(self.path, json.dumps({**self.kept, "heads": heads}).encode())


def _resumed(path: Path, study: Study, seed: int | None) -> dict[str, Any]:
    """What ``run.json`` says, for one more start."""
    try:
        kept = dict(json.loads(path.read_text()))
        again = {**kept, "starts": int(kept["starts"]) + 1}
        same = (kept["study"], kept["inputs"]) == (study.hash, study.inputs)
        bytes.fromhex(kept["root"]), kept["run"], kept["seed"]
        [(int(length), str(head)) for length, head in kept["heads"].values()]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ReleaseError(
            "a readable run.json",
            "a damaged one",
            "remove the folder and start a new run; budget that was spent cannot be recovered",
        ) from error
    if not same:
        raise StudyError(
            "the study that was interrupted",
            "another",
            "restore the study file, or start a new run in another folder",
        )
    if seed not in (None, kept["seed"]):
        raise StudyError("the seed that the run began with", "another", "leave --seed out")
    return again
