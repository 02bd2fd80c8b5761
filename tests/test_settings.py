"""Settings: declared once; types and ranges are checked wherever a table is made."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.errors import StudyError
from understudy.settings import Range, Settings, allowed, nearest, read, setting


@dataclass(frozen=True)
class Own(Settings):
    top: float = setting(0.05, "share in the top set", above=0, below=1)
    average: float = setting(0.2, "share of the last rounds", least=0, most=1)
    momentum: float = setting(0.9, "of the server", least=0, below=1)
    widths: tuple[int, ...] = setting((128,), "hidden layers", least=1)
    steps: int | None = setting(None, "local steps", least=1)
    shift: float = setting(0.0, "anything")
    drawn: bool = setting(True, "yes or no", least=5)


BAD = [
    ("top", 0, "recipe.top above 0 and below 1"),
    ("top", 1.0, "recipe.top above 0 and below 1"),
    ("average", 1.1, "recipe.average from 0 to 1"),
    ("momentum", 1, "recipe.momentum at least 0 and below 1"),
    ("widths", (3, 0), "recipe.widths at least 1"),
    ("steps", 0, "recipe.steps at least 1"),
    ("shift", math.inf, "recipe.shift a number, finite"),
    ("top", math.nan, "recipe.top above 0 and below 1, finite"),
    ("shift", 10**400, "recipe.shift a number, finite"),
]


@pytest.mark.parametrize(("name", "value", "expected"), BAD)
def test_a_number_out_of_its_range_is_refused_when_a_table_is_read(
    name: str, value: Any, expected: str
) -> None:
    with pytest.raises(StudyError) as refusal:
        read(Own, {name: value}, "recipe")
    assert refusal.value.expected == expected
    assert refusal.value.do == f"correct it: {Own.__dataclass_fields__[name].metadata['help']}"


@pytest.mark.parametrize(("name", "value", "expected"), BAD[:-1])
def test_and_when_it_is_made_in_python(name: str, value: Any, expected: str) -> None:
    for make in (lambda: Own(**{name: value}), lambda: replace(Own(), **{name: value})):
        with pytest.raises(StudyError) as refusal:
            make()
        assert refusal.value.expected == expected


def test_what_fits_is_kept_and_none_has_no_range() -> None:
    own = read(Own, {"top": 0.5, "widths": [1, 2], "average": 1, "drawn": False}, "recipe")
    assert own == Own(top=0.5, widths=(1, 2), average=1.0, drawn=False)
    assert own.steps is None and type(own.average) is float


def test_a_plain_dataclass_is_checked_when_it_is_read() -> None:
    @dataclass(frozen=True)
    class Plain:
        rate: float = setting(1.0, "how fast", above=0)

    with pytest.raises(StudyError, match=r"recipe\.rate above 0"):
        read(Plain, {"rate": 0}, "recipe")


def test_a_misspelt_limit_is_an_error_of_the_programmer() -> None:
    with pytest.raises(TypeError):
        setting(1, "anything", atleast=0)


def test_the_reference_says_what_is_allowed() -> None:
    hints = get_type_hints(Own)
    said = {f.name: allowed(hints[f.name], f.metadata["range"]) for f in fields(Own)}
    assert said["top"] == "a number, above 0 and below 1"
    assert said["average"] == "a number, from 0 to 1"
    assert said["widths"] == "a list of whole numbers, each at least 1"
    assert said["steps"] == "a whole number, at least 1"
    assert said["shift"] == "a number"


@given(st.floats(), st.floats(-1e9, 1e9), st.floats(-1e9, 1e9))
def test_a_range_holds_what_lies_between_its_limits(value: float, low: float, high: float) -> None:
    finite = math.isfinite(value)
    assert (value in Range(least=low, most=high)) == (finite and low <= value <= high)
    assert (value in Range(above=low, below=high)) == (finite and low < value < high)


def test_the_nearest_name_is_suggested() -> None:
    assert nearest("fedvea", ["fedvae", "signds"]) == " (did you mean fedvae?)"
    assert nearest("zzz", ["fedvae", "signds"]) == ""
