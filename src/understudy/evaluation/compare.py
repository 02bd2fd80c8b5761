"""Evaluate a release against real rows: scores.json and report.html, never inside the release.

Unless test rows are given, real rows are split at random, with a fixed seed, into rows to train
the baseline on and rows to test on; persons stay whole. All scores against real rows are exact,
cost no budget and are therefore internal: publishing them beside the release would undo its claim.
So the output may not lie in a release folder.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from understudy.data.encode import Encoded, encode
from understudy.data.layout import overlap
from understudy.data.schema import Schema
from understudy.data.table import Records, read
from understudy.errors import OutputError, UnderstudyError, unwritable
from understudy.evaluation.advice import Circumstances, advise
from understudy.evaluation.attacks.suite import Attacks, attack
from understudy.evaluation.embedding import embed
from understudy.evaluation.fidelity import Fidelity, measure_fidelity
from understudy.evaluation.forecasts import Forecasts, measure_forecasts
from understudy.evaluation.frechet import Sides, measure_frechet
from understudy.evaluation.parties import measure_parties
from understudy.evaluation.rows import Rows, same_rows
from understudy.evaluation.score import INTERNAL, plain
from understudy.evaluation.students import silent
from understudy.evaluation.utility import Progress, Utility, measure_utility, share
from understudy.evaluation.verdict import Verdict, judge_all, remarks, sum_up
from understudy.evaluation.worst import worst_columns, worst_pairs
from understudy.privacy.claim import Claim
from understudy.rng import Streams

if TYPE_CHECKING:
    from understudy.evaluation.inception import Inception
    from understudy.release import Release

__all__ = ["Scores", "evaluate", "hold_out", "remove_report"]

LEAST, MOST = 1000, 20_000
TEST_SHARE = 0.3
FILES = ("scores.json", "report.html")
READ = 80
"""So many thousandths of the progress are for reading images."""
ATTACKED = 600
"""So many are done when attacks begin, where there are any."""


@dataclass(frozen=True)
class Scores:
    """What was found, and where the report is. Internal: see ``INTERNAL``."""

    name: str
    rows: Mapping[str, int]
    verdict: Verdict
    utility: Utility
    forecasts: Forecasts
    fidelity: Fidelity
    claims: tuple[Claim, ...]
    manifest: Mapping[str, Any]
    notes: tuple[str, ...]
    folder: Path
    attacks: Attacks | None = None

    @property
    def report(self) -> Path:
        """The page for people."""
        return self.folder / "report.html"

    @property
    def path(self) -> Path:
        """The same for machines."""
        return self.folder / "scores.json"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, marked as the page is."""
        attacked = {} if self.attacks is None else {"attacks": self.attacks.to_dict()}
        return {
            "format": "understudy-scores-1",
            "mark": INTERNAL,
            "name": self.name,
            "rows": dict(self.rows),
            "notes": list(self.notes),
            "verdict": {"mark": INTERNAL, "title": self.verdict.title, **plain(self.verdict)},
            "utility": {"mark": INTERNAL, **plain(self.utility)},
            "forecasts": {"mark": INTERNAL, **plain(self.forecasts)},
            "fidelity": {"mark": INTERNAL, **plain(self.fidelity)},
            **{name: {"mark": INTERNAL, **found} for name, found in attacked.items()},
            "privacy": {"mark": "public", "claims": [claim.to_dict() for claim in self.claims]},
            "provenance": {"mark": "public", "release": self.manifest},
        }


def evaluate(
    release: Release,
    real: Records | str | Path,
    out: str | Path,
    *,
    test: Records | str | Path | None = None,
    inception: str | Path | None = None,
    attacks: bool = False,
    progress: Progress = silent,
) -> Scores:
    """Score ``release`` against ``real`` rows and write the report into ``out``.

    The same rows give the same report. ``inception`` is a safetensors
    file with the FID weights of Inception-v3: images then get their FID as well. ``attacks`` tries
    what synthetic rows give away of ``real`` rows, the members, with ``test`` rows as controls.
    ``progress`` is called with a stage in words, the work done and the work in all.
    """
    if attacks and test is None:
        raise UnderstudyError(
            "test rows that no site held, for the attacks to be compared on",
            "none",
            "add --test FILE, or leave out --attacks",
        )
    from understudy.evaluation.report import Material, render  # matplotlib takes a second to load

    folder = _checked(Path(out), release)
    network = None if inception is None else _inception(inception, release.schema)
    streams = Streams.from_seed(0)
    schema, whole = release.schema, progress
    progress = share(whole, 0, ATTACKED) if attacks else whole
    train, held, notes, same = _real_rows(schema, real, test, streams, progress)
    synthetic = _synthetic_rows(release, max(LEAST, len(train)), streams)
    sides = (synthetic, train, held)
    part, classes = share(progress, READ, 400), streams.child("students")
    found = measure_utility(schema, *sides, rng=classes, progress=part)
    part, steps = share(progress, 400, 700), streams.child("forecasts")
    ahead = measure_forecasts(schema, *sides, rng=steps, progress=part)
    apart = _fidelity(schema, sides, network, streams, progress)
    apart = _by_parties(release, apart, sides, streams)
    said = _verdict(release, found, ahead, apart, sides)
    said = replace(said, remarks=remarks(schema, found, same))
    progress("a map of records", 900, 1000)
    places = embed(held, synthetic, rng=streams.child("map"))
    tried, claims = None, tuple(release.claims)
    if attacks:
        own, tell = streams.child("attacks"), share(whole, ATTACKED, 980)
        tried = attack(schema, sides, claims, rng=own, progress=tell)
    whole("report", 950 if tried is None else 980, 1000)
    rows = {"synthetic": len(synthetic), "train": len(train), "test": len(held)}
    scores = Scores(
        name=schema.name,
        rows=rows,
        verdict=said,
        utility=found,
        forecasts=ahead,
        fidelity=apart,
        claims=claims,
        manifest=release.manifest,
        notes=notes,
        folder=folder,
        attacks=tried,
    )
    page = render(Material(schema, scores, *sides, places), rng=streams.numpy("pictures"))
    text = json.dumps(scores.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)
    _write(folder, dict(zip(FILES, (text + "\n", page), strict=True)))
    whole("report", 1000, 1000)
    return scores


def _verdict(
    release: Release, utility: Utility, forecasts: Forecasts, fidelity: Fidelity, sides: Sides
) -> Verdict:
    schema, (synthetic, _, test) = release.schema, sides
    found = judge_all(schema, utility, forecasts, fidelity)
    level, headline = sum_up(found)
    how = Circumstances.of(release.manifest, release.claims, schema)
    return Verdict(
        level,
        headline,
        found,
        worst_columns(schema, fidelity, test, synthetic),
        worst_pairs(fidelity),
        advise(schema, how, found, utility, fidelity, test),
    )


def _inception(path: str | Path, schema: Schema) -> Inception:
    if schema.kind != "image":
        raise UnderstudyError("images, for an FID", f"a {schema.kind}", "remove --inception")
    from understudy.evaluation.inception import load_inception

    return load_inception(path)


def _fidelity(
    schema: Schema, sides: Sides, network: Inception | None, rng: Streams, tell: Progress
) -> Fidelity:
    tell("distributions", 700, 1000)
    found = measure_fidelity(schema, *sides, rng=rng.numpy("fidelity"))
    part, streams = share(tell, 760, 900), rng.child("frechet")
    frechet = measure_frechet(schema, *sides, rng=streams, inception=network, progress=part)
    return replace(
        found,
        overall=found.overall + frechet.scores,
        notes=found.notes + frechet.notes,
        remarks=found.remarks + frechet.remarks,
    )


def _by_parties(release: Release, found: Fidelity, sides: Sides, rng: Streams) -> Fidelity:
    """Where parties hold columns: relations within a party and across two, apart."""
    told = release.agreement.get("parties", [])
    synthetic, train, test = sides
    if not told or not len(synthetic) or not len(test):
        return found
    compared = {"synthetic": synthetic} | ({"real": train} if len(train) else {})
    columns = [release.schema.columns_of(party["columns"]) for party in told]
    draw = rng.numpy("parties")
    more = measure_parties(release.schema, columns, compared, test, rng=draw)
    return replace(found, overall=found.overall + more)


def hold_out(rows: Encoded, *, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Indices to train and to test on, 70/30: per class, or by person so that none is in both."""
    n = len(rows)
    if rows.person is not None:
        return _by_person(rows.person, rng)
    order = rng.permutation(n)
    test = np.zeros(n, dtype=bool)
    for k in np.unique(rows.y):
        members = order[rows.y[order] == k]
        test[members[: round(TEST_SHARE * len(members))]] = True
    if n > 1 and not test.any():
        test[order[0]] = True
    return np.flatnonzero(~test), np.flatnonzero(test)


def _by_person(person: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    people = rng.permutation(np.unique(person))
    count = max(min(1, len(people) - 1), round(TEST_SHARE * len(people)))
    test = np.isin(person, people[:count])
    return np.flatnonzero(~test), np.flatnonzero(test)


def _real_rows(
    schema: Schema,
    real: Records | str | Path,
    test: Records | str | Path | None,
    rng: Streams,
    tell: Progress,
) -> tuple[Rows, Rows, tuple[str, ...], bool]:
    """Rows to train the baseline on, rows to test on, notes, and whether both are the same."""
    first = READ if test is None else READ // 2
    most = MOST if test is not None else round(MOST / TEST_SHARE)
    whole, cut = _encoded(schema, real, most, rng, share(tell, 0, first))
    everything = Rows(whole.x, whole.y)
    if test is None:
        index, held = hold_out(whole, rng=rng.numpy("hold out"))
        train, tested = everything.take(index), everything.take(held)
    else:
        given, more = _encoded(schema, test, MOST, rng, share(tell, first, READ))
        train, tested, cut = everything, Rows(given.x, given.y), cut or more
    same = test is not None and same_rows(train, tested)
    notes = _held_out(schema) if test is None else []
    if cut or max(len(train), len(tested)) > MOST:
        notes.append(
            f"At most {MOST:,} rows of each kind are used, drawn with the seed: that leaves "
            "intervals of about one point."
        )
    train, tested = (
        rows.some(MOST, rng.numpy(f"thin {name}"))
        for rows, name in ((train, "train"), (tested, "test"))
    )
    return train, tested, tuple(notes), same


def _held_out(schema: Schema) -> list[str]:
    notes = [
        "No test rows were given, so 30 % of the real rows were held out for testing. If the "
        "release was made from them, its scores are a little optimistic."
    ]
    if schema.kind == "series" and overlap(schema) > 1:
        notes.append(
            "Windows overlap: those held out share time steps with those used for training. Test "
            "rows from another period would give more honest scores."
        )
    return notes


def _encoded(
    schema: Schema, source: Records | str | Path, most: int, rng: Streams, tell: Progress
) -> tuple[Encoded, bool]:
    """Rows as numbers, and whether some were left out: many are thinned before they are encoded.

    The same file is thinned to the same rows. Where persons are told apart, all is encoded.
    """
    records = source
    if not isinstance(records, Records):
        records = read(records, schema, progress=partial(tell, "reading images"))
    many = len(records) > most and schema.person is None
    if many:
        chosen = np.sort(rng.numpy("chosen").permutation(len(records))[:most])
        records = records.take(chosen)
    return encode(schema, records), many


def _synthetic_rows(release: Release, n: int, rng: Streams) -> Rows:
    seed = int(rng.numpy("synthetic").integers(2**31))
    nobody = replace(release.schema, person=None, rows_per_person=None)
    drawn = encode(nobody, release.sample(min(n, MOST), seed=seed))
    return Rows(drawn.x, drawn.y)


def _checked(out: Path, release: Release) -> Path:
    """Refuse, before any work, a place where scores must not go."""
    folder = out.resolve()
    homes = [p for p in (folder, *folder.parents) if (p / "release.json").is_file()]
    if release.path is not None:
        home = Path(release.path).resolve()
        homes += [p for p in (folder, *folder.parents) if p == home]
    if homes:
        raise OutputError(
            "a folder outside any release",
            f"{out} inside one",
            "choose another folder: scores against real rows must not be shared with the release",
        )
    if folder.exists() and not folder.is_dir():
        raise OutputError("a folder for the report", f"a file at {out}", "choose another name")
    if any((folder / name).exists() for name in FILES):
        raise OutputError(
            "a folder without a report", f"a report in {out}", "choose another, or add --force"
        )
    return folder


def remove_report(folder: Path) -> None:
    """Make room for a new report where there is an earlier one."""
    for name in FILES:
        (folder / name).unlink(missing_ok=True)


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    """Each file whole or not at all."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            part = folder / f".{name}.part"
            part.write_text(text, encoding="utf-8")
            os.replace(part, folder / name)
    except OSError as error:
        raise unwritable(f"the report in {folder}", error) from None
