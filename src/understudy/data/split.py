"""Rows to sites, for simulation: each row goes to exactly one site, sites may be empty.

Uniform, k-means and geometric follow FedVAE §4.4.1; Dirichlet and classes-per-site are
the usual label-skewed splits; column and files follow sites that exist. Splits read
private rows freely: they say who holds what, they are no part of a mechanism. Where
rows belong to persons, all of a person's rows go to the site of the first of them
(column and files excepted: there the data says where a row lives). Windows of one long
recording overlap; blocks and column keep neighbours together. Two splits may leave rows
out: the one by person those of few rows, the one by blocks windows that cross a border.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pandas as pd

from understudy.data.encode import Encoded, blocks
from understudy.data.records import Records, by_time, crossing
from understudy.data.schema import Schema
from understudy.errors import StudyError
from understudy.rng import Streams

__all__ = ["SPLITS", "check_options", "split"]

MAX_CLUSTERS = 1_000
LARGE = 20_000
"""Above so many rows k-means works on mini-batches."""
TRIED = 1_000
"""So many numbers of blocks are tried, to name the largest that works."""


def split(
    schema: Schema,
    encoded: Encoded,
    how: str,
    sites: int,
    *,
    rng: np.random.Generator | Streams,
    records: Records | None = None,
    **options: object,
) -> list[np.ndarray]:
    """Row numbers of each site, ascending. Options depend on ``how``: see ``SPLITS``.

    ``records`` are what ``encoded`` was made from: column and blocks need what is not encoded.
    """
    if how not in SPLITS:
        raise StudyError(f"a split among {', '.join(SPLITS)}", repr(how), "choose one")
    if sites < 1:
        raise StudyError("at least one site", str(sites), "change sites")
    check_options(how, options)
    generator = rng.numpy("split") if isinstance(rng, Streams) else rng
    extra = {"records": records} if "records" in _parameters(how) else {}
    site = SPLITS[how](schema, encoded, sites, rng=generator, **options, **extra)
    if encoded.person is not None and how not in ("column", "person", "files"):
        site = _keep_together(site, encoded.person)
    return _parts(site, sites)


def check_options(how: str, options: Iterable[str]) -> None:
    """Refuse options that a split does not know."""
    allowed = [name for name in _parameters(how) if name != "records"]
    unknown = sorted(set(options) - set(allowed))
    if unknown:
        raise StudyError(
            f"options {', '.join(allowed) or '(none)'} for split {how!r}",
            ", ".join(unknown),
            "remove or rename them",
        )


def _parameters(how: str) -> list[str]:
    """What a split takes beside schema, rows, sites and chance."""
    return list(inspect.signature(SPLITS[how]).parameters)[4:]


def uniform(schema: Schema, rows: Encoded, sites: int, *, rng: np.random.Generator) -> np.ndarray:
    """Equal shares of shuffled rows."""
    return rng.permutation(len(rows)) % sites


def kmeans(schema: Schema, rows: Encoded, sites: int, *, rng: np.random.Generator) -> np.ndarray:
    """One cluster of similar rows per site: sizes and contents differ widely."""
    from sklearn.cluster import KMeans, MiniBatchKMeans

    clusters = min(sites, len(rows))
    if clusters > MAX_CLUSTERS:
        raise StudyError(f"at most {MAX_CLUSTERS} k-means sites", str(sites), "use another split")
    if clusters < 2:
        return np.zeros(len(rows), np.int64)
    method = MiniBatchKMeans if len(rows) > LARGE else KMeans
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fewer distinct rows than sites: some stay empty
        seed = int(rng.integers(2**31))
        return method(clusters, n_init=1, random_state=seed).fit_predict(rows.x).astype(np.int64)


def geometric(
    schema: Schema, rows: Encoded, sites: int, *, rng: np.random.Generator, a: float = 0.99
) -> np.ndarray:
    """Site k with probability p(1-p)^(k-1), p = 1-(1-a)^(1/N); beyond N: anywhere."""
    if not 0 < a < 1:
        raise StudyError("a between 0 and 1", str(a), "change a")
    site = rng.geometric(1 - (1 - a) ** (1 / sites), len(rows)) - 1
    return np.where(site < sites, site, rng.integers(sites, size=len(rows)))


def dirichlet(
    schema: Schema, rows: Encoded, sites: int, *, rng: np.random.Generator, alpha: float = 0.5
) -> np.ndarray:
    """Each class dealt out by its own Dirichlet(alpha) shares: a small alpha skews the labels."""
    if not 0 < alpha < np.inf:
        raise StudyError("alpha above 0", str(alpha), "change alpha")
    site = np.empty(len(rows), np.int64)
    for label in range(schema.n_classes):
        members = np.flatnonzero(rows.y == label)
        # Gamma draws, not rng.dirichlet: a tiny alpha may underflow to all zeros.
        weights = rng.standard_gamma(alpha, sites) + 1e-300
        edges = np.cumsum(weights / weights.sum())
        edges[-1] = 1.0
        site[members] = np.searchsorted(edges, rng.random(len(members)), side="right")
    return site


def classes(
    schema: Schema,
    rows: Encoded,
    sites: int,
    *,
    rng: np.random.Generator,
    classes_per_site: int = 2,
) -> np.ndarray:
    """Each site sees only so many classes; a class is shared equally by the sites that see it."""
    if not 1 <= classes_per_site <= schema.n_classes:
        raise StudyError(
            f"classes_per_site from 1 to {schema.n_classes}", str(classes_per_site), "change it"
        )
    if sites * classes_per_site < schema.n_classes:
        raise StudyError(
            f"enough sites to see all {schema.n_classes} classes", str(sites), "add sites"
        )
    seen = _deal_classes(schema.n_classes, sites, classes_per_site, rng=rng)
    site = np.empty(len(rows), np.int64)
    for label in range(schema.n_classes):
        members = np.flatnonzero(rows.y == label)
        holders = np.flatnonzero((seen == label).any(axis=1))
        site[members] = holders[rng.permutation(len(members)) % len(holders)]
    return site


def column(
    schema: Schema,
    rows: Encoded,
    sites: int,
    *,
    rng: np.random.Generator,
    column: str = "",
    records: Records | None = None,
) -> np.ndarray:
    """A site per value of a column; if there are more values than sites, they take turns."""
    return _column_codes(schema, rows, column, records) % sites


def blocks_of_time(
    schema: Schema,
    rows: Encoded,
    sites: int,
    *,
    rng: np.random.Generator,
    records: Records | None = None,
) -> np.ndarray:
    """Equal stretches of time, one per site; -1 for windows that reach into the next one."""
    timed = None if records is None else by_time(records)
    if timed is None:
        raise StudyError("series read from a table", "others", "use another split")
    if rows.person is not None:
        raise StudyError(
            "blocks of series without persons", "a person", 'use split = "person" or "column"'
        )
    order, recording, start = timed
    site = np.arange(len(order)) * sites // max(len(order), 1)
    if not _all_have_windows(sites, recording, start, schema.shape[0]):
        most = most_blocks(sites, recording, start, schema.shape[0])
        raise StudyError(
            "stretches of time that are longer than a window",
            f"shorter ones, for {sites} sites",
            f"set sites = {most}, or a stride as long as the window in the schema",
        )
    found = np.empty(len(order), np.int64)
    found[order] = np.where(crossing(site, recording, start, schema.shape[0]), -1, site)
    return found


def _all_have_windows(sites: int, recording: np.ndarray, start: np.ndarray, length: int) -> bool:
    """Whether each of so many equal stretches keeps its first window, out of the next one's way."""
    n, sites = len(start), min(sites, len(start))
    first = -(-np.arange(sites) * n // max(sites, 1))
    here, after = first[:-1], first[1:]
    reaches = (recording[here] == recording[after]) & (start[after] < start[here] + length)
    return not reaches.any()


def most_blocks(sites: int, recording: np.ndarray, start: np.ndarray, length: int) -> int:
    """The largest number of equal stretches below ``sites`` that all have a window of their own.

    Windows are in order of time. Where recordings end, more may work than fewer: the numbers are
    tried from the top, and after a thousand the one is taken that works wherever borders fall.
    """
    span = int(start.max()) + length
    place = recording * (2 * span) + start
    widest = int((np.searchsorted(place, place + length) - np.arange(len(place))).max())
    sure = min(len(place) // widest, sites - 1)
    ends = np.append(np.flatnonzero(np.diff(recording)), len(start) - 1)
    starts = np.append(0, ends[:-1] + 1)
    top = int(((start[ends] - start[starts]) // length + 1).sum())
    tried = range(min(sites - 1, top), sure, -1)[:TRIED]
    return next((n for n in tried if _all_have_windows(n, recording, start, length)), sure)


def person(
    schema: Schema, rows: Encoded, sites: int, *, rng: np.random.Generator, least: int = 1
) -> np.ndarray:
    """A site per person, in order of first appearance; -1 for those with fewer rows than least."""
    if rows.person is None or schema.rows_per_person is None:
        raise StudyError("a person in the schema", "none", "set person and rows_per_person")
    if type(least) is not int or not 1 <= least <= schema.rows_per_person:
        raise StudyError(
            f"least from 1 to the schema's {schema.rows_per_person} rows_per_person",
            repr(least),
            "change it",
        )
    _, first, code, counts = np.unique(
        rows.person, return_index=True, return_inverse=True, return_counts=True
    )
    kept = np.flatnonzero(counts >= least)
    if len(kept) > sites:
        raise StudyError(
            f"a site for each of {len(kept)} persons", str(sites), f"set sites = {len(kept)}"
        )
    home = np.full(len(counts), -1)
    home[kept[np.argsort(first[kept])]] = np.arange(len(kept))
    return home[code]


def files(
    schema: Schema,
    rows: Encoded,
    sites: int,
    *,
    rng: np.random.Generator,
    counts: Sequence[int] = (),
) -> np.ndarray:
    """Rows of several files read one after the other: ``counts`` rows each."""
    place = np.arange(len(rows)) if rows.rows is None else rows.rows
    total = int(np.sum(counts, dtype=np.int64))
    if len(counts) != sites or (len(place) and place[-1] >= total):
        raise StudyError(
            f"counts: the rows of {sites} files", f"{len(counts)} files, {total} rows", "fix counts"
        )
    return np.searchsorted(np.cumsum(counts), place, side="right")


SPLITS: dict[str, Callable[..., np.ndarray]] = {
    "uniform": uniform,
    "kmeans": kmeans,
    "geometric": geometric,
    "dirichlet": dirichlet,
    "classes": classes,
    "column": column,
    "blocks": blocks_of_time,
    "person": person,
    "files": files,
}


def _parts(site: np.ndarray, sites: int) -> list[np.ndarray]:
    order = np.argsort(site, kind="stable")
    left_out = int((site < 0).sum())
    stops = np.cumsum(np.bincount(site[site >= 0], minlength=sites))
    return np.split(order[left_out:], stops[:-1])


def _keep_together(site: np.ndarray, person: np.ndarray) -> np.ndarray:
    _, first, inverse = np.unique(person, return_index=True, return_inverse=True)
    return site[first][inverse]


def _deal_classes(n: int, sites: int, each: int, *, rng: np.random.Generator) -> np.ndarray:
    """Classes of each site [sites, each]: random, but every class at one site at least."""
    seen = rng.random((sites, n)).argsort(axis=1)[:, :each]
    cover = -(-n // each)
    seen[:cover] = np.resize(rng.permutation(n), (cover, each))
    return seen


def _column_codes(schema: Schema, rows: Encoded, name: str, records: Records | None) -> np.ndarray:
    """The value of a column in each row, as a number."""
    if name == schema.label:
        return rows.y
    if name == schema.person and rows.person is not None:
        return rows.person
    for block in blocks(schema):
        if block.column == name and block.kind == "categorical":
            return rows.x[:, block.start : block.stop].argmax(1)
    if records is not None and records.recording is not None and name == schema.series:
        held = records.recording if rows.rows is None else records.recording[rows.rows]
        return pd.factorize(held)[0]
    if records is None or records.frame is None or name not in records.frame:
        raise StudyError("the name of a column to split by", repr(name), "name one of the table's")
    values = records.frame[name] if rows.rows is None else records.frame[name].iloc[rows.rows]
    return pd.factorize(values, sort=True, use_na_sentinel=False)[0]
