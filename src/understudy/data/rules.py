"""Structural rules: what must hold between columns, as public knowledge.

::

    [[rule]]
    if = { sex = "male" }
    then = { pregnant = "no" }

    [[rule]]
    if = { age = { below = 16 } }
    then = { married = "no", children = 0 }

Both sides are conditions on columns, all of which must hold: a value, a list of values (one of
them), or a table of ``below``, ``at_most``, ``above``, ``at_least``, ``not`` and ``missing``. A row
breaks a rule if ``if`` holds and ``then`` does not. A missing cell is unknown: it makes no ``if``
hold and breaks no ``then``, unless the condition says ``missing = …``.

Rules that name what the schema does not have, or that no row could keep, are refused. `keeping`
applies them to rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import pairwise
from typing import Any, TypeVar

from understudy.data.column import BOUNDED, Column, bounds, number, parse_bound
from understudy.data.names import nearest
from understudy.errors import SchemaError

__all__ = ["LIMITS", "MAX_RULES", "Rule", "Test", "check_rules", "parse_rules"]

MAX_RULES = 100

Value = str | bool | int | float | date
Cell = TypeVar("Cell", bound=Any)
"""A number or an array of numbers; with it go one or as many yes-or-no."""

LIMITS = ("below", "at_most", "above", "at_least")
_KEYS = ("not", "missing", *LIMITS)


@dataclass(frozen=True)
class Test:
    """A condition on one column. Values are those of the column, as a schema writes them."""

    __test__ = False  # not one of pytest's

    column: str
    one_of: tuple[Value, ...] = ()
    none_of: tuple[Value, ...] = ()
    below: Value | None = None
    at_most: Value | None = None
    above: Value | None = None
    at_least: Value | None = None
    missing: bool | None = None

    def holds(self, column: Column, cells: Cell, missing: Cell, *, unknown: bool) -> Cell:
        """Whether cells (numbers as in `cells`, or one) meet it; missing ones are ``unknown``."""
        if self.missing is True:
            return missing
        found = _within(self, column, cells)
        if self.missing is False or not unknown:
            return found & (missing == False)  # noqa: E712, as it must do for arrays
        return found | missing

    @property
    def values(self) -> tuple[Value, ...]:
        """All values that it names."""
        limits = (getattr(self, key) for key in LIMITS)
        return (*self.one_of, *self.none_of, *(value for value in limits if value is not None))

    def __str__(self) -> str:
        limits = {key.replace("_", " "): getattr(self, key) for key in LIMITS}
        said = [f"{key} {value}" for key, value in limits.items() if value is not None]
        said += [f"= {' or '.join(map(_said, self.one_of))}"] if self.one_of else []
        said += [f"not {' or '.join(map(_said, self.none_of))}"] if self.none_of else []
        said += [] if self.missing is None else ["missing" if self.missing else "not missing"]
        return f"{self.column} {' and '.join(said)}"


@dataclass(frozen=True)
class Rule:
    """Where all of ``when`` hold, all of ``then`` must."""

    when: tuple[Test, ...]
    then: tuple[Test, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it is about."""
        return tuple(dict.fromkeys(test.column for test in (*self.when, *self.then)))

    def __str__(self) -> str:
        return f"if {', '.join(map(str, self.when))} then {', '.join(map(str, self.then))}"


def parse_rules(raw: Any) -> tuple[Rule, ...]:
    """``[[rule]]`` tables, not yet compared with the columns."""
    if not isinstance(raw, list) or not all(isinstance(entry, dict) for entry in raw):
        raise SchemaError("rules as [[rule]] tables", "something else", "write [[rule]]")
    return tuple(_rule(entry) for entry in raw)


def _rule(entry: dict[str, Any]) -> Rule:
    for key in ("if", "then", *entry):
        if key not in ("if", "then") or not isinstance(entry.get(key), dict) or not entry[key]:
            raise SchemaError(
                "a rule with if = {…} and then = {…}, conditions on columns",
                "something else",
                'write if = {sex = "male"}, for example',
            )
    when, then = (tuple(_test(*item) for item in entry[side].items()) for side in ("if", "then"))
    return Rule(when, then)


def _test(column: str, said: Any) -> Test:
    if not isinstance(said, dict):
        return Test(column, one_of=_listed(column, said))
    for key in said:
        if key not in _KEYS:
            hint = f"use {', '.join(_KEYS)}{nearest(key, _KEYS)}"
            raise SchemaError(f"known conditions on {column!r} in a rule", repr(key), hint)
    said = dict(said)
    none_of = _listed(column, said.pop("not")) if "not" in said else ()
    if not said and not none_of:
        raise SchemaError(f"a condition on {column!r} in a rule", "none", "name a value or limits")
    return Test(column, none_of=none_of, **said)


def _listed(column: str, said: Any) -> tuple[Value, ...]:
    values = tuple(said) if isinstance(said, list) else (said,)
    if not values or not all(isinstance(value, Value) for value in values):
        raise SchemaError(
            f"a value or a list of values for {column!r} in a rule", "something else", "correct it"
        )
    return values


def check_rules(rules: Sequence[Rule], columns: Iterable[Column]) -> tuple[Rule, ...]:
    """The rules in the columns' own terms; refused if they do not fit them or each other."""
    known = {column.name: column for column in columns}
    if len(rules) > MAX_RULES:
        raise SchemaError(f"at most {MAX_RULES} rules", str(len(rules)), "merge some")
    settled = tuple(
        Rule(*(tuple(_settled(test, known) for test in side) for side in (rule.when, rule.then)))
        for rule in rules
    )
    _check_possible(settled, known)
    return settled


def _settled(test: Test, known: Mapping[str, Column]) -> Test:
    column = known.get(test.column)
    if column is None:
        hint = f"name a column of the schema{nearest(test.column, known)}"
        raise SchemaError("columns of the schema in rules", repr(test.column), hint)
    if test.missing is not None and (not isinstance(test.missing, bool) or not column.missing):
        raise SchemaError(
            f"missing = true or false, for columns that may be: {column.name!r} in a rule",
            "another value, or a column without missing cells",
            "correct the rule, or set missing = true for the column",
        )
    limits = {k: v for k in LIMITS if (v := getattr(test, k)) is not None}
    if limits and column.kind not in BOUNDED:
        raise SchemaError(
            f"values of {column.kind} column {column.name!r} in a rule",
            next(iter(limits)),
            "list them",
        )
    return replace(
        test,
        one_of=tuple(_value(column, value) for value in test.one_of),
        none_of=tuple(_value(column, value) for value in test.none_of),
        **{key: _value(column, value) for key, value in limits.items()},  # type: ignore[arg-type]
    )


def _value(column: Column, value: Any) -> Value:
    """A value as the column's kind writes it; refused if it has none such."""
    if column.kind == "boolean" and isinstance(value, bool):
        return value
    if column.kind == "categorical":
        text = str(value) if type(value) is int else value
        if isinstance(text, str) and text in column.categories:
            return text
    if column.kind in BOUNDED and not isinstance(value, bool):
        try:
            found = parse_bound(column.kind, value)
        except (TypeError, ValueError, OverflowError):
            found = None
        low, high = bounds(column)
        if found is not None and low <= number(column, found) <= high:
            return found
    wanted = {"boolean": "true or false", "categorical": "one of its categories"}
    raise SchemaError(
        f"{wanted.get(column.kind, 'a value within its bounds')} for {column.name!r} in a rule",
        repr(value),
        "correct the rule, or the column",
    )


def _within(test: Test, column: Column, cells: Any) -> Any:
    found = cells == cells
    if test.one_of:
        found = cells != cells
        for value in test.one_of:
            found = found | (cells == number(column, value))
    for value in test.none_of:
        found = found & (cells != number(column, value))
    for key, compare in _COMPARE.items():
        limit = getattr(test, key)
        if limit is not None:
            found = found & compare(cells, number(column, limit))
    return found


_COMPARE = {
    "below": lambda cells, limit: cells < limit,
    "at_most": lambda cells, limit: cells <= limit,
    "above": lambda cells, limit: cells > limit,
    "at_least": lambda cells, limit: cells >= limit,
}


# That some row can keep all rules: cells that tests tell apart stand for all others.

_Box = dict[str, frozenset[float | None]]
"""For each column the cells that are still open; None is a missing one."""


def _check_possible(rules: Sequence[Rule], known: Mapping[str, Column]) -> None:
    whole = _whole_box(rules, known)
    for rule in rules:
        if not _possible(_narrowed(whole, rule.then, known, True)):
            raise _impossible(rule, "its then never holds")
        box = _narrowed(whole, rule.when, known, False)
        if not _possible(box):
            raise _impossible(rule, "its if never holds")
        if not _some_row(rules, box, known):
            raise _impossible(rule, "no row for which its if holds keeps all rules")


def _impossible(rule: Rule, why: str) -> SchemaError:
    return SchemaError(
        "rules that agree with the schema and with each other",
        f"{rule}: {why}",
        "correct the rules",
    )


def _whole_box(rules: Sequence[Rule], known: Mapping[str, Column]) -> _Box:
    named = {name for rule in rules for name in rule.columns}
    tests = [test for rule in rules for test in (*rule.when, *rule.then)]
    return {
        name: _cells(known[name], [t for t in tests if t.column == name]) for name in sorted(named)
    }


def _cells(column: Column, tests: Sequence[Test]) -> frozenset[float | None]:
    """Cells such that every test treats any other cell like one of them."""
    gone: set[float | None] = {None} if column.missing else set()
    if column.kind not in BOUNDED:
        return frozenset({*map(float, range(len(column.classes))), *gone})
    low, high = bounds(column)
    points = sorted({low, high, *(number(column, v) for test in tests for v in test.values)})
    if column.kind == "numeric" and column.decimals is None:
        near = {(a + b) / 2 for a, b in pairwise(points)}
    else:
        step = 10.0 ** -(column.decimals or 0)
        near = {point + side for point in points for side in (-step, step)}
    return frozenset({*points, *(v for v in near if low <= v <= high), *gone})


def _narrowed(box: _Box, tests: Iterable[Test], known: Mapping[str, Column], unknown: bool) -> _Box:
    for test in tests:
        kept = {cell for cell in box[test.column] if _meets(test, known, cell, unknown)}
        box = {**box, test.column: frozenset(kept)}
    return box


def _meets(test: Test, known: Mapping[str, Column], cell: float | None, unknown: bool) -> bool:
    value = 0.0 if cell is None else cell
    missing = cell is None
    if missing and test.missing is not True:
        return unknown and test.missing is None
    return bool(test.holds(known[test.column], value, missing, unknown=unknown))


def _possible(box: _Box) -> bool:
    return all(box.values())


def _some_row(rules: Sequence[Rule], box: _Box, known: Mapping[str, Column]) -> bool:
    """Whether a row of the box keeps all rules: rule by rule, ``then`` holds or an ``if`` fails."""
    if not _possible(box):
        return False
    if not rules:
        return True
    first, *others = rules
    if _some_row(others, _narrowed(box, first.then, known, True), known):
        return True
    return any(_some_row(others, _without(box, test, known), known) for test in first.when)


def _without(box: _Box, test: Test, known: Mapping[str, Column]) -> _Box:
    kept = {cell for cell in box[test.column] if not _meets(test, known, cell, False)}
    return {**box, test.column: frozenset(kept)}


def _said(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
