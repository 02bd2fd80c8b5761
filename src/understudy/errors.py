"""Every error a user can meet, in one small hierarchy.

::

    UnderstudyError            exit code 1
    ├── SchemaError            2   the public schema is wrong
    ├── DataError              3   rows do not fit the schema (values are never quoted)
    ├── StudyError             4   the study file is wrong
    ├── PrivacyError           5   a privacy rule would be broken; nothing was spent
    │   └── BudgetError        6   the budget does not allow it; nothing was spent
    ├── WireError              7   a message is malformed, too large or not sealed
    ├── ReleaseError           8   a release is truncated, tampered with or over-claimed
    ├── OutputError            9   the output cannot be written (exists, no space)
    ├── KeysError             10   keys are missing, expired, exposed, altered or of others
    ├── AuditError            11   an audit proved a claim wrong
    └── ExchangeError         12   an exchange of generators refused a request, or is out of reach

Each says what was expected, what was found and what to do. No message may hold
a record's values: names of columns, counts the user typed and rules only.
"""

from __future__ import annotations

import errno


class UnderstudyError(Exception):
    """Base of all expected failures: ``expected``, ``found``, ``do``."""

    exit_code = 1

    def __init__(self, expected: str, found: str, do: str) -> None:
        self.expected, self.found, self.do = expected, found, do
        super().__init__(f"Expected {expected}; found {found}. Do: {do}")

    def __reduce__(self) -> tuple[type[UnderstudyError], tuple[str, str, str]]:
        """Errors cross from one process to another."""
        return type(self), (self.expected, self.found, self.do)


class SchemaError(UnderstudyError):
    """The public schema is incomplete or contradicts itself."""

    exit_code = 2


class DataError(UnderstudyError):
    """Rows do not fit the public schema."""

    exit_code = 3


class StudyError(UnderstudyError):
    """The study file asks for something unknown or impossible."""

    exit_code = 4


class PrivacyError(UnderstudyError):
    """A privacy rule would be broken. Nothing was spent."""

    exit_code = 5


class BudgetError(PrivacyError):
    """The remaining budget does not allow the request. Nothing was spent."""

    exit_code = 6


class WireError(UnderstudyError):
    """A message is malformed, too large, of another version, or not sealed."""

    exit_code = 7


class ReleaseError(UnderstudyError):
    """A release folder is truncated, altered, or claims more than its receipts show."""

    exit_code = 8


class OutputError(UnderstudyError):
    """The output cannot be written: it exists, the disk is full or the folder is read-only."""

    exit_code = 9


class KeysError(UnderstudyError):
    """Keys, certificates or rosters are missing, expired, exposed, altered or of others."""

    exit_code = 10


class AuditError(UnderstudyError):
    """An audit proved that a run leaks more than it claims, or moves more than it declares."""

    exit_code = 11


class ExchangeError(UnderstudyError):
    """An exchange of generators refused a request, cannot be reached, or is damaged."""

    exit_code = 12


def unfinished(expected: str, found: str = "one that was charged and cut short") -> ReleaseError:
    """What a run lacks for good: its ledger has charged what did not come about."""
    do = "start a new run in another folder; the budget that this run charged cannot be recovered"
    return ReleaseError(expected, found, do)


def unwritable(what: str, error: OSError) -> OutputError:
    """Why ``what`` was not written; freeing space helps only if the disk is full."""
    found = str(error.strerror or error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return OutputError(f"room to write {what}", found, "free some space, then try again")
    return OutputError(f"to write {what}", found, "choose a folder that you may write to")
