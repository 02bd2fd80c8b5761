"""Writing records batch by batch, so that any number of rows fits in memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from understudy.data.records import Records
from understudy.data.schema import Schema
from understudy.data.series import series_to_frame
from understudy.errors import OutputError, unwritable

__all__ = ["Writer"]

_TABLES = (".csv", ".parquet")
_ENDINGS = {"table": _TABLES, "image": (".npz",), "series": (".npz", *_TABLES)}


class Writer:
    """A file that grows by batches and appears, complete, when the writer is closed.

    ``layout`` (long or wide) is for series in tables; by default the schema's, or long.
    """

    def __init__(self, path: Path, schema: Schema, layout: str | None = None) -> None:
        wanted = _ENDINGS[schema.kind]
        if path.suffix not in wanted:
            raise OutputError(
                f"a file ending in {' or '.join(wanted)} for {schema.kind} data",
                path.suffix or "no ending",
                "change the name of the output",
            )
        if layout is not None and (schema.kind != "series" or path.suffix == ".npz"):
            found = path.suffix if schema.kind == "series" else f"{schema.kind} data"
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
        if batch.series is not None and self.path.suffix != ".npz":
            frame = series_to_frame(batch, self._schema, self._layout, first=self.rows)
        if frame is None:
            self._batches.append(batch)
        elif self.path.suffix == ".csv":
            frame.to_csv(
                self._partial, mode="a" if self.rows else "w", header=not self.rows, index=False
            )
        else:
            self._write_parquet(frame)

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
            self._save_arrays()
        if whole and self._partial.exists():
            os.replace(self._partial, self.path)

    def _save_arrays(self) -> None:
        name = "images" if self._batches[0].images is not None else "series"
        arrays = {name: np.concatenate([getattr(b, name) for b in self._batches])}
        labels = [b.labels for b in self._batches if b.labels is not None]
        if labels:
            arrays["y"] = np.concatenate(labels)
        with open(self._partial, "wb") as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
