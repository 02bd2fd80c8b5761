"""The rows of every site, read, checked and encoded before anything is spent."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from understudy.data.bundled import bundled
from understudy.data.columns import Columns, records_of
from understudy.data.encode import Encoded, encode
from understudy.data.records import Progress
from understudy.data.shards import Shards
from understudy.data.split import split
from understudy.data.table import Records, read
from understudy.errors import DataError, StudyError
from understudy.rng import Streams
from understudy.study import SiteEntry, Study

__all__ = ["check_within", "load_parties", "load_sites"]

_LOG = logging.getLogger("understudy.data")  # where the readers of rows say things
Coded = Callable[[Records], Encoded]


def load_sites(
    study: Study,
    sites: Sequence[Records] | None,
    *,
    rng: Streams,
    progress: Progress | None = None,
    capped: bool = True,
) -> Shards:
    """Encode every site's rows and check them, before anything is spent.

    ``capped`` is that of `encode`: off where single records are protected.
    """
    coded = partial(encode, study.schema, capped=capped)
    if sites is not None:
        if len(sites) != study.n_sites:
            raise StudyError(f"{study.n_sites} sites", f"{len(sites)}", "match the study")
        return _pack([coded(records) for records in sites])
    if study.sites:
        _check_named(study)
        return _pack([_encode_site(study, entry, progress, coded) for entry in study.sites])
    if study.simulation is None:
        raise StudyError("[simulation] or [[site]] entries", "neither", "say where the rows are")
    return _split(study, progress, coded, rng=rng)


def _check_named(study: Study) -> None:
    """In one process the rows of every site, or party, must be at hand."""
    kind = "party" if study.parties else "site"
    for entry in study.owners:
        if entry.data is None:
            raise StudyError(
                f"{kind}.data of {kind} {entry.name}",
                "it is missing",
                "add the path of its rows; or run the study over a network, with understudy "
                "serve and understudy join",
            )


def load_parties(
    study: Study, parties: Sequence[Records] | None, *, progress: Progress | None = None
) -> Columns:
    """Encode every party's columns, aligned by row, and check them before anything is spent."""
    held = study.held
    assert held is not None
    if parties is not None and len(parties) != len(held):
        raise StudyError(f"{len(held)} parties", f"{len(parties)}", "match the study")
    if parties is None and study.simulation is not None:
        whole = _source(study, progress)
        parties = [records_of(whole, columns) for columns in held.columns]
    if parties is None:
        _check_named(study)
    found = []
    for i, entry in enumerate(study.parties):
        records = _read_party(study, i, progress) if parties is None else parties[i]
        with _named(f"party {entry.name}"):
            found.append(encode(held.schema_of(i), records))
    columns = Columns.of(found)
    check_within(study, int(columns.counts.max()))
    return columns


def _read_party(study: Study, party: int, progress: Progress | None) -> Records:
    entry, held = study.parties[party], study.held
    assert held is not None and entry.data is not None
    with _named(f"party {entry.name}"):
        return read(study.base / entry.data, held.schema_of(party), progress=progress)


def check_within(study: Study, rows: int) -> None:
    """No more rows than declared: products are formed over the declared number, a public one."""
    if rows > study.schema.records:
        raise DataError(
            f"at most {study.schema.records:,} rows, the schema's public number of records",
            "more",
            "raise records in the schema, at every party",
        )


@contextmanager
def _named(who: str) -> Iterator[None]:
    """Say in errors whose rows are meant."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{error.expected} ({who})", error.found, error.do) from error


def _encode_site(
    study: Study, entry: SiteEntry, progress: Progress | None, coded: Coded
) -> Encoded:
    assert entry.data is not None
    with _named(f"site {entry.name}"):
        found = coded(read(study.base / entry.data, study.schema, progress=progress))
    if not len(found):
        _LOG.warning(
            "site %s: the file has no rows; it takes part and contributes nothing", entry.name
        )
    return found


def _split(study: Study, progress: Progress | None, coded: Coded, *, rng: Streams) -> Shards:
    assert study.simulation is not None
    plan, source = study.simulation, study.simulation.data
    records = _source(study, progress)
    rows = coded(records)
    if not len(rows):
        raise DataError("rows to deal out to sites", f"none in {source}", "is the file complete?")
    given: dict[str, Any] = {"rng": rng.numpy("split"), "records": records}
    for name in given.keys() & plan.options.keys():
        raise StudyError("options of the split", f"simulation.{name}", "remove it")
    parts = split(study.schema, rows, plan.split, plan.sites or 1, **plan.options, **given)
    del records, given  # what the rows were made from, before they are moved
    return Shards.pack(rows, parts[plan.kept], in_place=True)


def _source(study: Study, progress: Progress | None) -> Records:
    """The rows that a simulation splits."""
    assert study.simulation is not None
    source = study.simulation.data
    if source.startswith("bundled:"):
        return bundled(source.removeprefix("bundled:"))[1]
    return read(study.base / source, study.schema, progress=progress)


def _pack(sites: Sequence[Encoded]) -> Shards:
    ends = np.cumsum([len(site) for site in sites])
    parts = [np.arange(end - len(site), end) for site, end in zip(sites, ends, strict=True)]
    x, y = (np.concatenate([getattr(site, name) for site in sites]) for name in ("x", "y"))
    return Shards.pack(Encoded(x, y, None), parts)
