"""How a CSV file is written: its encoding, and what stands between its cells.

Found from the file's form alone, and said: separators are those that cut the lines into equally
many cells (and the first line into the declared columns), the encoding is that of the byte order
mark, UTF-8, or else cp1252, as Excel writes it in Western Europe. How the cells themselves are
written is found column by column, in `forms`.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from understudy.errors import DataError, OutputError, SchemaError

__all__ = ["ENCODINGS", "SEPARATORS", "Dialect", "FileForm", "find_dialect", "open_bytes"]

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "cp1252")
SAMPLE = 2**18
LINES = 200

_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_NAMES = {"utf-8-sig": "UTF-8 with a byte order mark", "utf-16": "UTF-16", "cp1252": "cp1252"}


@dataclass(frozen=True)
class FileForm:
    """How CSV files are to be written: ``[file]`` in a schema."""

    separator: str = ","
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        if self.separator not in SEPARATORS:
            raise SchemaError(
                f"file.separator one of {', '.join(map(repr, SEPARATORS))}",
                repr(self.separator),
                "choose one",
            )
        if self.encoding not in ENCODINGS:
            raise SchemaError(
                f"file.encoding one of {', '.join(ENCODINGS)}", repr(self.encoding), "choose one"
            )

    @property
    def mark(self) -> bytes:
        """The byte order mark, in UTF-8: `encode` turns it into that of the encoding."""
        return codecs.BOM_UTF8 if self.encoding in ("utf-8-sig", "utf-16") else b""

    def encode(self, text: bytes) -> bytes:
        """UTF-8 in the encoding of the file."""
        if self.encoding.startswith("utf-8"):
            return text
        name = "utf-16-le" if self.encoding == "utf-16" else self.encoding
        try:
            return text.decode().encode(name)
        except UnicodeEncodeError:
            raise OutputError(
                f"letters of {self.encoding}", "others", 'set file.encoding = "utf-8"'
            ) from None


@dataclass(frozen=True)
class Dialect:
    """``skip`` lines stand before the header; ``padded``: blanks stand before quotes.

    ``names`` are the cells of the header, ``other`` another separator that would fit as well,
    ``stated`` that Excel's ``sep=`` line names it.
    """

    encoding: str = "utf-8"
    separator: str = ","
    skip: int = 0
    padded: bool = False
    names: tuple[str, ...] = ()
    other: str = ""
    stated: bool = False

    def describe(self, declared: FileForm | None = None) -> list[str]:
        """What is out of the ordinary, in plain words, and not as the schema says."""
        declared = declared or FileForm()
        said = []
        if self.separator != declared.separator or self.other:
            also = f"; {SEPARATORS[self.other]} would fit, too" if self.other else ""
            name = SEPARATORS.get(self.separator, repr(self.separator))
            said.append(f"{name} between cells{also}")
        if self.stated and self.separator != declared.separator:
            said.append(f"a first line sep={self.separator} is passed over")
        if self.encoding == declared.encoding:
            return said
        if self.encoding == "cp1252":
            said.append(
                "no UTF-8, so read as cp1252 (Western Europe); if letters are wrong, re-export it"
            )
        elif self.encoding != "utf-8":
            said.append(f"text in {_NAMES[self.encoding]}")
        return said


def find_dialect(path: Path, columns: Collection[str] = ()) -> Dialect:
    """The form of a file; ``columns`` are names that its header should hold."""
    with open_bytes(path) as file:
        data = file.read(SAMPLE)
    encoding = _encoding(data)
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(data)
    except UnicodeError:
        raise DataError("text in one encoding", encoding, "re-export it as UTF-8") from None
    lines = text.splitlines(keepends=True)
    skip = _blank(lines, 0)
    said = re.fullmatch(r"\"?sep=(.)\"?\s*", lines[skip]) if skip < len(lines) else None
    skip = _blank(lines, skip + 1) if said else skip
    whole = lines[skip:] if len(data) < SAMPLE else lines[skip:-1] or lines[skip:]
    found = (said[1],) if said else _separators("".join(whole), columns)
    names = _header("".join(whole), found[0])
    padded = any(f'{found[0]} "' in line for line in whole)
    other = next(iter(found[1:]), "")
    return Dialect(encoding, found[0], skip, padded, names, other, bool(said))


def _blank(lines: list[str], start: int) -> int:
    """The first line from ``start`` on that is not blank."""
    return next((i for i in range(start, len(lines)) if lines[i].strip()), len(lines))


def open_bytes(path: Path) -> IO[bytes]:
    """A file to read from, unpacked if it is called .gz."""
    return gzip.open(path, "rb") if path.suffix.lower() == ".gz" else open(path, "rb")  # type: ignore[return-value]


def _encoding(data: bytes) -> str:
    for mark, name in _MARKS.items():
        if data.startswith(mark):
            return name
    if b"\0" in data:
        raise DataError(
            "text in UTF-8 or UTF-16 with a byte order mark", "zero bytes", "re-export it as UTF-8"
        )
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"


def _separators(text: str, columns: Collection[str]) -> tuple[str, ...]:
    """The separators that fit, best first: by the declared names, then by equal lines."""
    widths = {separator: _widths(text, separator) for separator in SEPARATORS}
    headers = {s: {n.strip() for n in _header(text, s)} for s in SEPARATORS}
    named = [s for s in SEPARATORS if columns and headers[s] >= set(columns)]
    if named:
        return (named[0],)
    even = [s for s, found in widths.items() if len({*found}) == 1 and found[0] > 1]
    even.sort(key=lambda s: -widths[s][0])
    if even:
        return tuple(even)
    most = max(SEPARATORS, key=lambda s: widths[s][0] if widths[s] else 0)
    return (most if widths[most] and widths[most][0] > 1 else ",",)


def _widths(text: str, separator: str) -> list[int]:
    try:
        lines = csv.reader(io.StringIO(text), delimiter=separator, skipinitialspace=True)
        return [len(cells) for cells, _ in zip(lines, range(LINES), strict=False) if cells]
    except csv.Error:
        return []


def _header(text: str, separator: str) -> tuple[str, ...]:
    try:
        reader = csv.reader(io.StringIO(text), delimiter=separator, skipinitialspace=True)
        return tuple(next(reader, ()))
    except csv.Error:
        return ()
