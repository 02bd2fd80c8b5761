"""Rows to sites, for simulation: each row goes to one site, and sites may be empty.

Uniform, k-means and geometric follow FedVAE §4.4.1; Dirichlet and classes-per-site are the usual
label-skewed splits. All rows of a person go to one site, unless the split is by column.

Where it can be, the site of a row follows from the row itself and from its place in the file:
removing a row moves no other. `split_rules` says which splits keep to that. Two splits leave rows
out: by person (those with few rows) and by blocks (windows that cross a border).
"""

from __future__ import annotations

import hashlib
import inspect
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from understudy.data.encode import Block, Encoded, blocks
from understudy.data.records import Records, by_time, crossing
from understudy.data.schema import Schema
from understudy.data.shards import Dealt
from understudy.errors import StudyError
from understudy.rng import Streams

__all__ = ["SPLITS", "check_options", "option_names", "split"]

MAX_CLUSTERS = 1_000
LARGE = 20_000
"""With more rows than this, k-means works on mini-batches."""
TRIED = 1_000
"""How many numbers of blocks are tried to find the largest that works."""


@dataclass(frozen=True)
class Unsplit:
    """The rows to split, what they were encoded from, and the randomness of the split."""

    schema: Schema
    rows: Encoded
    records: Records | None
    rng: np.random.Generator

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def places(self) -> np.ndarray:
        """The place of each row in its file."""
        return np.arange(len(self)) if self.rows.rows is None else self.rows.rows

    @property
    def labels(self) -> np.ndarray:
        """The class of each row; of a person's rows, that of the first."""
        return self.together(self.rows.y)

    def together(self, values: np.ndarray) -> np.ndarray:
        """One value for all rows of a person: that of the first."""
        if self.rows.person is None:
            return values
        _, first, inverse = np.unique(self.rows.person, return_index=True, return_inverse=True)
        return values[first][inverse]

    def draws(self, n: int) -> np.ndarray:
        """``n`` uniform numbers in [0, 1) that belong to a row: by its person or its place.

        They do not depend on any other row, nor on how many there are.
        """
        if self.rows.person is not None:
            return self._draws_of_persons(n)
        count = 1 + int(self.places.max(initial=-1))
        return self.rng.random((count, n))[self.places]

    def _draws_of_persons(self, n: int) -> np.ndarray:
        names, inverse = np.unique(self._persons().astype(str), return_inverse=True)
        key = self.rng.bytes(32)
        hashes = [hashlib.blake2b(x.encode(), key=key, digest_size=8 * n).digest() for x in names]
        words = np.frombuffer(b"".join(hashes), np.uint64).reshape(len(names), n)
        return ((words >> np.uint64(11)) * 2.0**-53)[inverse]

    def _persons(self) -> np.ndarray:
        """The names of persons as they are in the file: their codes depend on other rows."""
        held, name = self.records, self.schema.person
        if held is not None and held.person is not None:
            return np.asarray(held.person)[self.places]
        if held is not None and held.frame is not None and name in held.frame:
            return held.frame[name].to_numpy()[self.places]
        assert self.rows.person is not None
        return self.rows.person


def split(
    schema: Schema,
    encoded: Encoded,
    how: str,
    sites: int,
    *,
    rng: np.random.Generator | Streams,
    records: Records | None = None,
    **options: object,
) -> Dealt:
    """Row numbers of each site, ascending. Options depend on ``how``: see ``SPLITS``.

    ``records`` are what ``encoded`` was made from: column and blocks need what is not encoded.
    """
    if how not in SPLITS:
        raise StudyError(f"a split among {', '.join(SPLITS)}", repr(how), "choose one")
    if sites < 1:
        raise StudyError("at least one site", str(sites), "change sites")
    check_options(how, options)
    generator = rng.numpy("split") if isinstance(rng, Streams) else rng
    table = Unsplit(schema, encoded, records, generator)
    return _parts(SPLITS[how](table, sites, **options), sites)


def check_options(how: str, options: Iterable[str]) -> None:
    """Refuse options that a split does not know."""
    unknown = sorted(set(options) - set(option_names(how)))
    if unknown:
        raise StudyError(
            f"options {', '.join(option_names(how)) or '(none)'} for split {how!r}",
            ", ".join(unknown),
            "remove or rename them",
        )


def option_names(how: str) -> list[str]:
    """The options of a split."""
    if how == "columns":  # not of rows: `understudy.parties` deals columns out
        return ["seed"]
    return list(inspect.signature(SPLITS[how]).parameters)[2:]


def pooled(table: Unsplit, sites: int) -> np.ndarray:
    """All rows at one site."""
    return np.zeros(len(table), np.int64)


def uniform(table: Unsplit, sites: int) -> np.ndarray:
    """Equal shares. Each run of as many rows as there are sites is dealt one to a site."""
    if table.rows.person is not None:
        return (table.draws(1)[:, 0] * sites).astype(np.int64)
    runs = 1 + int(table.places.max(initial=-1)) // sites
    return table.rng.random((runs, sites)).argsort(axis=1).ravel()[table.places]


def kmeans(table: Unsplit, sites: int) -> np.ndarray:
    """One cluster of similar rows per site: sizes and contents differ widely."""
    from sklearn.cluster import KMeans, MiniBatchKMeans

    clusters = min(sites, len(table))
    if clusters > MAX_CLUSTERS:
        raise StudyError(f"at most {MAX_CLUSTERS} k-means sites", str(sites), "use another split")
    if clusters < 2:
        return np.zeros(len(table), np.int64)
    method = MiniBatchKMeans if len(table) > LARGE else KMeans
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fewer distinct rows than sites: some stay empty
        fitted = method(clusters, n_init=1, random_state=int(table.rng.integers(2**31)))
        return table.together(fitted.fit_predict(table.rows.x).astype(np.int64))


def geometric(table: Unsplit, sites: int, a: float = 0.99) -> np.ndarray:
    """Site k with probability p(1-p)^(k-1), p = 1-(1-a)^(1/N); beyond N: anywhere."""
    if not 0 < a < 1:
        raise StudyError("a between 0 and 1", str(a), "change a")
    first, second = table.draws(2).T
    site = np.floor(np.log1p(-first) / (np.log1p(-a) / sites))
    return np.where(site < sites, site, np.floor(second * sites)).astype(np.int64)


def dirichlet(table: Unsplit, sites: int, alpha: float = 0.5) -> np.ndarray:
    """Shares of each class are drawn from Dirichlet(alpha): a small alpha skews the labels."""
    if not 0 < alpha < np.inf:
        raise StudyError("alpha above 0", str(alpha), "change alpha")
    # Gamma draws, not rng.dirichlet: a tiny alpha may underflow to all zeros.
    weights = table.rng.standard_gamma(alpha, (table.schema.n_classes, sites)) + 1e-300
    edges = np.cumsum(weights / weights.sum(axis=1, keepdims=True), axis=1)
    edges[:, -1] = 1.0
    labels, draw = table.labels, table.draws(1)[:, 0]
    site = np.empty(len(table), np.int64)
    for label, shares in enumerate(edges):
        members = labels == label
        site[members] = np.searchsorted(shares, draw[members], side="right")
    return site


def classes(table: Unsplit, sites: int, classes_per_site: int = 2) -> np.ndarray:
    """Each site has only so many classes; a row goes to any of the sites that have its class."""
    count = table.schema.n_classes
    if not 1 <= classes_per_site <= count:
        raise StudyError(f"classes_per_site from 1 to {count}", str(classes_per_site), "change it")
    if sites * classes_per_site < count:
        raise StudyError(f"enough sites for all {count} classes", str(sites), "add sites")
    has = _deal_classes(count, sites, classes_per_site, rng=table.rng)
    labels, draw = table.labels, table.draws(1)[:, 0]
    site = np.empty(len(table), np.int64)
    for label in range(count):
        holders = np.flatnonzero((has == label).any(axis=1))
        members = labels == label
        site[members] = holders[(draw[members] * len(holders)).astype(np.int64)]
    return site


def column(table: Unsplit, sites: int, column: str = "") -> np.ndarray:
    """A site per value of a column; if there are more values than sites, they take turns."""
    return _column_codes(table, column) % sites


def blocks_of_time(table: Unsplit, sites: int) -> np.ndarray:
    """Equal stretches of time, one per site; -1 for windows that reach into the next one."""
    timed = None if table.records is None else by_time(table.records)
    if timed is None:
        raise StudyError("series read from a table", "records without times", "use another split")
    if table.rows.person is not None:
        raise StudyError(
            "blocks of series without persons", "a person", 'use split = "person" or "column"'
        )
    length = table.schema.shape[0]
    order, recording, start = timed
    site = np.arange(len(order)) * sites // max(len(order), 1)
    if not _all_have_windows(sites, recording, start, length):
        most = most_blocks(sites, recording, start, length)
        raise StudyError(
            "stretches of time that are longer than a window",
            f"shorter ones, for {sites} sites",
            f"set sites = {most}, or a stride as long as the window in the schema",
        )
    found = np.empty(len(order), np.int64)
    found[order] = np.where(crossing(site, recording, start, length), -1, site)
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


def person(table: Unsplit, sites: int, least: int = 1) -> np.ndarray:
    """A site per person, in order of first appearance; -1 for those with fewer rows than least."""
    most = table.schema.rows_per_person
    if table.rows.person is None or most is None:
        raise StudyError("a person in the schema", "none", "set person and rows_per_person")
    if type(least) is not int or not 1 <= least <= most:
        raise StudyError(
            f"least from 1 to the schema's {most} rows_per_person", repr(least), "change it"
        )
    _, first, code, counts = np.unique(
        table.rows.person, return_index=True, return_inverse=True, return_counts=True
    )
    kept = np.flatnonzero(counts >= least)
    if len(kept) > sites:
        raise StudyError(
            f"a site for each of {len(kept)} persons", str(sites), f"set sites = {len(kept)}"
        )
    home = np.full(len(counts), -1)
    home[kept[np.argsort(first[kept])]] = np.arange(len(kept))
    return home[code]


SPLITS: dict[str, Callable[..., np.ndarray]] = {
    "uniform": uniform,
    "kmeans": kmeans,
    "geometric": geometric,
    "dirichlet": dirichlet,
    "classes": classes,
    "column": column,
    "blocks": blocks_of_time,
    "person": person,
    "pooled": pooled,
}


def _parts(site: np.ndarray, sites: int) -> Dealt:
    order = np.argsort(site, kind="stable")
    left_out = int((site < 0).sum())
    return Dealt(order[left_out:], np.bincount(site[site >= 0], minlength=sites))


def _deal_classes(n: int, sites: int, each: int, *, rng: np.random.Generator) -> np.ndarray:
    """Classes of each site [sites, each]: random, but every class at one site at least."""
    seen = rng.random((sites, n)).argsort(axis=1)[:, :each]
    cover = -(-n // each)
    seen[:cover] = np.resize(rng.permutation(n), (cover, each))
    return seen


def _column_codes(table: Unsplit, name: str) -> np.ndarray:
    """The value of a column in each row, as a number."""
    schema, rows, records = table.schema, table.rows, table.records
    if name == schema.label and schema.task != "regression":
        return rows.y
    if name == schema.person and rows.person is not None:
        return rows.person
    for block in blocks(schema):
        if block.column == name and block.kind in ("categorical", "boolean"):
            return _listed_codes(schema, block, rows.x)
    if records is not None and records.recording is not None and name == schema.series:
        return pd.factorize(records.recording[table.places])[0]
    if records is None or records.frame is None or name not in records.frame:
        raise StudyError("the name of a column to split by", repr(name), "name one of the table's")
    values = records.frame[name].iloc[table.places]
    return pd.factorize(values, sort=True, use_na_sentinel=False)[0]


def _listed_codes(schema: Schema, block: Block, x: np.ndarray) -> np.ndarray:
    """Codes in the order of the schema, so that they do not depend on other rows."""
    if block.kind == "categorical":
        return x[:, block.start : block.stop].argmax(1)
    code = (x[:, block.start] > 0.5).astype(np.int64)
    may_miss = next(c.missing for c in schema.columns if c.name == block.column)
    return np.where(x[:, block.stop] > 0.5, 2, code) if may_miss else code
