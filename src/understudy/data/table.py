"""Records and the files they come from: CSV, Parquet, npz, image folders, IDX.

A file is read by the public schema: its columns must be the declared ones, cells are
read by declared kind (never guessed), and a file without rows is a site without rows.
No error quotes a record's values.
"""

from __future__ import annotations

import gzip
import os
import warnings
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from understudy.data.cells import read_cells, settle, texts, to_array
from understudy.data.schema import Schema
from understudy.errors import DataError, OutputError

__all__ = ["Records", "from_frame", "read", "write"]

MAX_FILE = 16 * 2**30
IMAGE_FILES = (".png", ".jpg", ".jpeg")


@dataclass(frozen=True)
class Records:
    """Rows as users meet them: one of a frame, images (bytes [n, H, W(, C)]) or series [n, L, ch].

    ``labels`` and ``person`` [n] go with images and series (a table's label is a column).
    """

    frame: pd.DataFrame | None = None
    images: np.ndarray | None = None
    series: np.ndarray | None = None
    labels: np.ndarray | None = None
    person: np.ndarray | None = None

    def __len__(self) -> int:
        held = [h for h in (self.frame, self.images, self.series) if h is not None]
        return len(held[0]) if held else 0

    def take(self, rows: np.ndarray) -> Records:
        """Some of the records, in the given order."""
        cut = {
            name: None if held is None else held[rows]
            for name in ("images", "series", "labels", "person")
            for held in [getattr(self, name)]
        }
        frame = None if self.frame is None else self.frame.iloc[rows].reset_index(drop=True)
        return Records(frame=frame, **cut)


def read(path: str | Path, schema: Schema) -> Records:
    """Read a file (or a folder of images) by its public schema."""
    path = Path(path)
    if not path.exists():
        raise DataError("a data file", f"nothing at {path}", "check the path")
    if schema.kind == "table":
        return from_frame(read_frame(path, schema), schema)
    if path.is_dir():
        if schema.kind != "image":
            raise DataError("a file of series", "a folder", "save the series as npz")
        return _read_folder(path, schema)
    if "-idx" in path.name:
        return _read_idx(path, schema)
    return _read_arrays(path, schema)


def write(records: Records, path: str | Path) -> None:
    """Write a table as CSV or Parquet, images and series as npz; whole or not at all."""
    path = Path(path)
    kind = _kind_of(path)
    if (records.frame is None) != (kind == "npz"):
        raise OutputError(
            "CSV or Parquet for tables, npz for images and series", path.name, "rename the output"
        )
    part = path.with_name(f".{path.name}.part")
    try:
        _write(records, part, kind, "gzip" if path.suffix == ".gz" else None)
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise OutputError("room to write", f"{path}: {error.strerror}", "free it up") from None


def from_frame(frame: pd.DataFrame, schema: Schema) -> Records:
    """Check a table against the schema and type its columns, in declared order."""
    frame = frame.set_axis([str(c).strip() for c in frame.columns], axis=1)
    check_columns(list(frame.columns), schema)
    columns = {}
    for column in schema.columns:
        cells = settle(column, read_cells(column, frame[column.name], schema.missing_as))
        columns[column.name] = to_array(column, cells.values, cells.missing)
    person = None if schema.person is None else texts(frame[schema.person]).to_numpy()
    return Records(frame=pd.DataFrame(columns), person=person)


def check_columns(names: Sequence[str], schema: Schema, person_apart: bool = False) -> None:
    """Refuse missing, extra and repeated columns.

    Extra names are quoted only if most declared ones are there: without a header line
    they would be the values of the first record.
    """
    wanted = [c.name for c in schema.columns]
    if schema.person is not None and not person_apart:
        wanted.append(schema.person)
    lacking = [name for name in wanted if name not in names]
    if lacking:
        hint = "rename or add them" if len(lacking) < len(wanted) else "add the header line"
        raise DataError("the declared columns", f"no {_some(lacking)}", hint)
    if len(set(names)) < len(names):
        raise DataError("each column once", "a repeated column", "rename or remove it")
    extra = set(names) - {*wanted, *schema.ignore, schema.person}
    if extra:
        raise DataError(
            "only declared columns",
            f"also {_some(sorted(extra))}",
            "describe them in the schema or list them under ignore",
        )


def read_frame(path: Path, schema: Schema | None = None) -> pd.DataFrame:
    """A table's raw cells; ignored columns are not read. Text stays text."""
    kind = _kind_of(path)
    _check_size(path.stat().st_size)
    if kind == "csv":
        return _read_csv(path, schema)
    if kind == "parquet":
        return _read_parquet(path, schema)
    if schema is None:
        raise DataError("a CSV or Parquet table", path.name, "convert it")
    arrays = _load_npz(path)
    return _frame_of_arrays(arrays, schema)


def _read_csv(path: Path, schema: Schema | None) -> pd.DataFrame:
    options = dict(dtype=str, keep_default_na=False, encoding="utf-8-sig", skipinitialspace=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            top = pd.read_csv(path, header=None, nrows=1, **options)  # type: ignore[call-overload]
            names = [str(name).strip() for name in top.iloc[0]]
            if schema is not None:
                check_columns(names, schema)
            elif len(set(names)) < len(names):
                raise DataError("each column once", "a repeated column", "rename or remove it")
            ignored = schema.ignore if schema else ()
            keep = [i for i, name in enumerate(names) if name not in ignored]
            frame = pd.read_csv(  # type: ignore[call-overload]
                path, header=0, names=names, usecols=keep, index_col=False, **options
            )
    except pd.errors.EmptyDataError:
        return _no_rows(schema)
    except (pd.errors.ParserError, pd.errors.ParserWarning):
        raise DataError("as many cells in each line as columns", "others", "re-export it") from None
    except UnicodeError:
        raise DataError("text in UTF-8", "another encoding", "re-export it as UTF-8") from None
    except (OSError, EOFError, ValueError) as error:
        raise _unreadable(path, error) from None
    return frame


def _read_parquet(path: Path, schema: Schema | None) -> pd.DataFrame:
    import pyarrow as pa
    from pyarrow import parquet

    if path.stat().st_size == 0:
        return _no_rows(schema)
    try:
        names = parquet.read_schema(path).names
        names = [n for n in names if not (n.startswith("__index_level_"))]
        if schema is not None:
            check_columns(names, schema)
        keep = [n for n in names if schema is None or n not in schema.ignore]
        return parquet.read_table(path, columns=keep).to_pandas(ignore_metadata=False)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable(path, error) from None


def _no_rows(schema: Schema | None) -> pd.DataFrame:
    if schema is None:
        return pd.DataFrame()
    names = [c.name for c in schema.columns] + ([schema.person] if schema.person else [])
    return pd.DataFrame({name: pd.Series(dtype="str") for name in names})


def _load_npz(path: Path) -> dict[str, np.ndarray]:
    if path.stat().st_size == 0:
        return {}
    try:
        with zipfile.ZipFile(path) as archive:
            _check_size(sum(item.file_size for item in archive.infolist()))
        with np.load(path, allow_pickle=False) as held:
            return {key: held[key] for key in held.files}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise _unreadable(path, error) from None


def _main_array(arrays: dict[str, np.ndarray], schema: Schema, extras: set[str]) -> np.ndarray:
    keys = [key for key in ("X", "images", "series") if key in arrays]
    extra = set(arrays) - {*keys, "y", *schema.ignore, *extras}
    if len(keys) != 1 or extra:
        raise DataError(
            "an npz file with X (or images, or series) and y",
            f"{len(keys)} of them and {len(extra)} other arrays",
            "rename them, or list the others under ignore in the schema",
        )
    return arrays[keys[0]]


def _frame_of_arrays(arrays: dict[str, np.ndarray], schema: Schema) -> pd.DataFrame:
    if not arrays:
        return _no_rows(schema)
    person = {schema.person} if schema.person else set()
    x = _main_array(arrays, schema, person)
    names = [c.name for c in schema.features]
    if x.ndim != 2 or x.shape[1] != len(names):
        raise DataError(f"X of shape [rows, {len(names)}]", str(list(x.shape)), "check the schema")
    frame = pd.DataFrame(x, columns=names)
    try:
        for name, key in [(schema.label, "y"), *((p, p) for p in person)]:
            if name is not None:
                frame[name] = arrays[key]
    except (KeyError, ValueError):
        raise DataError(f"an array {key!r} with one entry per row", "none", "add it") from None
    return frame


def _read_arrays(path: Path, schema: Schema) -> Records:
    if _kind_of(path) != "npz":
        raise DataError(f"{schema.kind} data as npz", path.name, "save it with numpy.savez")
    arrays = _load_npz(path)
    person = arrays.get(schema.person) if schema.person else None
    if not arrays:
        return _arrays_of(schema, np.zeros((0, *schema.shape), np.uint8), np.zeros(0, int))
    held = _main_array(arrays, schema, {schema.person} if schema.person else set())
    return _arrays_of(schema, held, arrays.get("y"), person)


def _arrays_of(
    schema: Schema, held: np.ndarray, labels: np.ndarray | None, person: np.ndarray | None = None
) -> Records:
    labels = None if schema.classes == ("all",) else labels
    if schema.kind == "image":
        return Records(images=shape_images(schema, held), labels=labels, person=person)
    return Records(series=shape_series(schema, held), labels=labels, person=person)


def shape_images(schema: Schema, images: np.ndarray | None) -> np.ndarray:
    """Images as bytes [n, *shape]; whole numbers outside 0–255 are clamped."""
    if images is None or images.dtype.kind not in "iu":
        raise DataError(
            "images as whole numbers 0 to 255",
            "none" if images is None else str(images.dtype),
            "save them as uint8",
        )
    images = _shaped(schema, images)
    return images if images.dtype == np.uint8 else np.clip(images, 0, 255).astype(np.uint8)


def shape_series(schema: Schema, series: np.ndarray | None) -> np.ndarray:
    """Series as doubles [n, L, ch], none missing."""
    if series is None or series.dtype.kind not in "iuf":
        raise DataError(
            "series as numbers", "none" if series is None else str(series.dtype), "convert them"
        )
    series = _shaped(schema, series).astype(np.float64)
    missing = int(np.isnan(series).any(axis=(1, 2)).sum())
    if missing:
        raise DataError("no missing values in series", f"{missing} series with some", "fill them")
    return series


def _shaped(schema: Schema, held: np.ndarray) -> np.ndarray:
    """Allow for a left-out or an extra last axis of one."""
    shape = (len(held), *schema.shape) if held.ndim else ()
    squeezed = tuple(s for i, s in enumerate(shape) if i < 2 or s != 1)
    if tuple(s for i, s in enumerate(held.shape) if i < 2 or s != 1) != squeezed:
        raise DataError(
            f"{schema.kind} records of shape {list(schema.shape)}",
            f"{list(held.shape[1:])}",
            "correct the data or the schema's shape",
        )
    return held.reshape(shape)


def _read_folder(path: Path, schema: Schema) -> Records:
    """Images in one sub-folder per class (or directly, without classes)."""
    single = schema.classes == ("all",)
    found = {p.name for p in path.iterdir() if p.is_dir() and not p.name.startswith(".")}
    if not single and found - set(schema.classes):
        raise DataError(
            "sub-folders named after the public classes",
            f"{len(found - set(schema.classes))} others",
            "rename or move them",
        )
    folders = [path] if single else [path / name for name in schema.classes]
    files = [sorted(_images_in(folder)) for folder in folders]
    loaded = [_read_image(f, schema) for group in files for f in group]
    images = np.stack(loaded) if loaded else np.zeros((0, *schema.shape), np.uint8)
    labels = np.repeat(np.array(schema.classes), [len(group) for group in files])
    return _arrays_of(schema, images, labels)


def _images_in(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return [p for p in folder.iterdir() if p.suffix.lower() in IMAGE_FILES]


def _read_image(path: Path, schema: Schema) -> np.ndarray:
    from PIL import Image

    colour = "RGB" if schema.shape[2:] == (3,) else "L"
    try:
        with Image.open(path) as image:
            if (image.height, image.width) != schema.shape[:2]:
                raise DataError(
                    f"images of {schema.shape[0]} x {schema.shape[1]}",
                    "another size",
                    "resize them",
                )
            return np.asarray(image.convert(colour)).reshape(schema.shape)
    except (OSError, ValueError, Image.DecompressionBombError):
        raise DataError("PNG or JPEG images", "a file that is not", "remove it") from None


def _read_idx(path: Path, schema: Schema) -> Records:
    """MNIST's own format: images and, beside them, labels."""
    labels = path.with_name(path.name.replace("images-idx3", "labels-idx1"))
    found = _idx(labels) if labels != path and labels.exists() else None
    return _arrays_of(schema, _idx(path), found)


def _idx(path: Path) -> np.ndarray:
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        axes = raw[3] if raw[:3] == b"\0\0\x08" else 0
        shape = tuple(np.frombuffer(raw, ">u4", axes, 4).astype(int))
        return np.frombuffer(raw, np.uint8, offset=4 + 4 * axes).reshape(shape)
    except (OSError, EOFError, ValueError, IndexError) as error:
        raise _unreadable(path, error) from None


def _write(records: Records, path: Path, kind: str, compression: str | None) -> None:
    if kind == "npz":
        held = {"images": records.images, "series": records.series, "y": records.labels}
        with path.open("wb") as file:
            np.savez_compressed(file, **{k: v for k, v in held.items() if v is not None})
        return
    frame = records.frame
    assert frame is not None
    if kind == "parquet":
        frame.to_parquet(path, index=False)
    else:
        frame.to_csv(path, index=False, date_format="%Y-%m-%d", compression=compression)


def _kind_of(path: Path) -> str:
    name = path.name.lower().removesuffix(".gz")
    for kind, suffixes in {
        "csv": (".csv",),
        "parquet": (".parquet", ".pq"),
        "npz": (".npz",),
    }.items():
        if name.endswith(suffixes):
            return kind
    raise DataError(".csv, .csv.gz, .parquet or .npz", path.name, "convert or rename it")


def _check_size(size: int) -> None:
    if size > MAX_FILE:
        raise DataError(
            f"at most {MAX_FILE / 2**30:.0f} GiB", f"{size / 2**30:.1f} GiB", "split the file"
        )


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(map(repr, names[:5])) + more


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError("a readable data file", f"{path.name}: {type(error).__name__}", "re-export it")
