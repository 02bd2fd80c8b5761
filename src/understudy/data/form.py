"""The form of one column in one file: how its numbers or times are written."""

from __future__ import annotations

from dataclasses import dataclass

from understudy.data.column import BLANKS

__all__ = ["ISO", "Form"]

ISO = "ISO8601"


@dataclass(frozen=True)
class Form:
    """Numbers: signs for decimals (if any) and thousands, what stands around. Times: a format."""

    decimal: str = "."
    thousands: str = ""
    prefix: str = ""
    suffix: str = ""
    format: str = ""

    def describe(self) -> str:
        """What is out of the ordinary, in plain words; nothing if all is as programs write it."""
        said = ["decimal commas"] if self.decimal == "," else []
        if self.thousands:
            said.append(f"{_SAID.get(self.thousands, self.thousands)} between thousands")
        said += [f"numbers with {part.strip()}" for part in (self.prefix, self.suffix) if part]
        if self.format not in ("", ISO, "%Y-%m-%d"):
            said.append(f"times as {self.format}")
        return ", ".join(said)


_SAID = {",": "commas", ".": "points", "'": "apostrophes", "’": "apostrophes"}
_SAID |= dict.fromkeys(BLANKS, "blanks")
