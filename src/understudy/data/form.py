"""The form of one column in one file: how its numbers or times are written."""

from __future__ import annotations

from dataclasses import dataclass

from understudy.data.column import BLANKS

__all__ = ["ISO", "Form", "times_as"]

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
            said.append(times_as(self.format))
        return ", ".join(said)


def times_as(format: str) -> str:
    """A format of days or of times, called by what it is."""
    clock = "%H" in format or "%I" in format
    return f"{'times' if clock else 'days'} as {format}"


_SAID = {",": "commas", ".": "points", "'": "apostrophes", "’": "apostrophes"}
_SAID |= dict.fromkeys(BLANKS, "blanks")
