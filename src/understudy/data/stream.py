"""Writing records, whole or batch by batch: any number of rows fits in memory."""

from __future__ import annotations

import gzip
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from understudy.data.dialect import FileForm
from understudy.data.records import Records
from understudy.data.schema import Schema
from understudy.data.series import series_to_frame
from understudy.errors import OutputError, unwritable

__all__ = ["Writer", "write"]

_LINES = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
_TABLES = (*_LINES, ".parquet", ".pq")


def write(
    records: Records, path: str | Path, schema: Schema | None = None, layout: str | None = None
) -> None:
    """Write a table as CSV or Parquet, images and series as npz; whole or not at all.

    With their ``schema`` series can be CSV or Parquet, too, long or wide as ``layout`` says.
    """
    kind = "table" if records.frame is not None else "series" if records.images is None else "image"
    with Writer(Path(path), schema, layout, kind=kind) as file:
        file.write(records)


class Writer:
    """A file that grows by batches and appears, complete, when the writer is closed.

    ``layout`` (long or wide) is for series in tables; by default the schema's, or long.
    """

    def __init__(
        self, path: Path, schema: Schema | None, layout: str | None = None, *, kind: str = ""
    ) -> None:
        kind = schema.kind if schema else kind
        _check_name(path.name, kind, schema)
        name = path.name.lower()
        self._csv, self._arrays = name.endswith(_LINES), path.suffix == ".npz"
        self._tabs = name.endswith((".tsv", ".tsv.gz"))
        if layout is not None and (kind != "series" or self._arrays):
            found = path.suffix if kind == "series" else f"{kind} data"
            raise OutputError("a layout for series in CSV or Parquet", found, "remove it")
        if not path.absolute().parent.is_dir():
            raise OutputError("an existing folder", f"none for {path.name}", "create it first")
        self.path, self.rows = path, 0
        self._schema, self._layout = schema, layout
        self._partial = path.with_name(f".{path.name}.partial")
        self._parquet: Any = None
        self._batches: list[Records] = []

    def __enter__(self) -> Writer:
        return self

    def write(self, batch: Records) -> None:
        """Add a batch."""
        try:
            self._write(batch)
        except OSError as error:
            raise unwritable(self.path.name, error) from error
        self.rows += len(batch)

    def _write(self, batch: Records) -> None:
        frame = batch.frame
        if batch.series is not None and self._schema is not None and not self._arrays:
            frame = series_to_frame(batch, self._schema, self._layout, first=self.rows)
        if frame is None or self._arrays:
            self._batches.append(batch)
        elif self._csv:
            self._write_lines(frame)
        else:
            self._write_parquet(frame)

    def _write_lines(self, frame: pd.DataFrame) -> None:
        from understudy.data.written import header, lines

        form = FileForm() if self._schema is None else self._schema.file
        form = replace(form, separator="\t") if self._tabs else form
        text = lines(frame, self._schema, form.separator)
        if not self.rows:
            text = form.mark + header(frame, form.separator).encode() + text
        opened = gzip.open if self.path.suffix == ".gz" else open
        with opened(self._partial, "ab" if self.rows else "wb") as file:
            file.write(form.encode(text))

    def _write_parquet(self, frame: pd.DataFrame) -> None:
        import pyarrow
        import pyarrow.parquet

        table = pyarrow.Table.from_pandas(frame, preserve_index=False)
        if self._parquet is None:
            self._parquet = pyarrow.parquet.ParquetWriter(self._partial, table.schema)
        self._parquet.write_table(table.cast(self._parquet.schema))

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self._finish(whole=kind is None)
        except OSError as error:
            raise unwritable(self.path.name, error) from error
        finally:
            self._partial.unlink(missing_ok=True)

    def _finish(self, whole: bool) -> None:
        if self._parquet is not None:
            self._parquet.close()
        if whole and self._batches:
            with open(self._partial, "wb") as file:
                np.savez_compressed(file, **self._joined())  # type: ignore[arg-type]
        if whole and self._partial.exists():
            os.replace(self._partial, self.path)

    def _joined(self) -> dict[str, np.ndarray]:
        """Whole arrays from all batches, by name."""
        frames = [b.frame for b in self._batches if b.frame is not None]
        if frames and self._schema is not None:
            from understudy.data.pictured import arrays_of

            return arrays_of(pd.concat(frames, ignore_index=True), self._schema)
        name = "images" if self._batches[0].images is not None else "series"
        arrays = {name: np.concatenate([getattr(b, name) for b in self._batches])}
        labels = [b.labels for b in self._batches if b.labels is not None]
        if labels:
            arrays["y"] = np.concatenate(labels)
        return arrays


def _check_name(name: str, kind: str, schema: Schema | None) -> None:
    """Refuse a file that cannot hold this kind of data; series in tables need their schema."""
    cut, images = schema is not None, schema is not None and bool(schema.images)
    tables = _TABLES if kind == "table" or (kind == "series" and cut) else ()
    wanted = (*tables, *([] if kind == "table" and not images else [".npz"]))
    if not name.lower().endswith(wanted):
        raise OutputError(
            f"a file ending in {' or '.join(wanted)} for {kind} data",
            name,
            "rename the output" + (", or pass the schema" if kind == "series" and not cut else ""),
        )
