from __future__ import annotations

from dataclasses import replace
from datetime import date

import numpy as np
import pandas as pd
import pytest

from understudy.data.encode import decode, encode
from understudy.data.keeping import broken, keeps, keeps_encoded
from understudy.data.rules import MAX_RULES, Rule, Test
from understudy.data.schema import Schema
from understudy.data.table import from_frame
from understudy.errors import SchemaError

COLUMNS = """
kind = "table"
name = "clinic"
records = 100
label = "ill"
[columns.sex]
kind = "categorical"
categories = ["male", "female", "other"]
[columns.pregnant]
kind = "categorical"
categories = ["no", "yes"]
missing = true
[columns.age]
kind = "integer"
low = 0
high = 120
missing = true
[columns.dose]
kind = "numeric"
low = 0
high = 10
decimals = 1
[columns.seen]
kind = "date"
low = 2020-01-01
high = 2030-12-31
[columns.ill]
kind = "boolean"
"""
MEN = """
[[rule]]
if = { sex = "male" }
then = { pregnant = "no" }
"""
YOUNG = """
[[rule]]
if = { age = { below = 12 } }
then = { pregnant = { not = "yes" }, dose = { at_most = 2.5 } }
"""
LATE = """
[[rule]]
if = { seen = { at_least = 2030-01-01 }, sex = ["male", "female"] }
then = { ill = false, age = { missing = false, above = 3 } }
"""


def parse(*rules: str) -> Schema:
    return Schema.parse(COLUMNS + "".join(rules))


ROWS = pd.DataFrame(
    {
        "sex": ["male", "male", "female", "male", "female", "other", "male"],
        "pregnant": ["no", "yes", "yes", None, "yes", "yes", "no"],
        "age": [40, 40, 30, 40, 11, None, 12],
        "dose": [9.0, 1.0, 1.0, 1.0, 2.0, 9.0, 9.0],
        "seen": [date(2021, 1, 1)] * 7,
        "ill": [True] * 7,
    }
)


def rows() -> pd.DataFrame:
    frame = from_frame(ROWS.astype({"seen": "datetime64[s]"}), parse()).frame
    assert frame is not None
    return frame


def test_a_rule_is_broken_where_if_holds_and_then_does_not() -> None:
    kept = keeps(parse(MEN, YOUNG), rows())
    assert kept.tolist() == [True, False, True, True, False, True, True]
    assert [count for _, count in broken(parse(MEN, YOUNG), rows())] == [1, 1]


def test_without_rules_every_row_keeps_them() -> None:
    assert keeps(parse(), rows()).all()


def test_missing_is_unknown_unless_the_rule_asks_for_it() -> None:
    frame = rows().assign(seen=pd.Timestamp("2030-06-01"), ill=False)
    kept = keeps(parse(LATE), frame)
    assert kept.tolist() == [True] * 7  # the one row without an age is of another sex
    frame["sex"] = pd.Categorical(["male"] * 7, categories=["male", "female", "other"])
    assert keeps(parse(LATE), frame).tolist() == [*[True] * 5, False, True]


def test_encoded_rows_give_the_same_answer() -> None:
    schema = parse(MEN, YOUNG, LATE)
    frame = rows()
    frame.loc[2:4, "seen"] = pd.Timestamp("2030-02-02")
    encoded = encode(schema, from_frame(frame, schema))
    assert (keeps_encoded(schema, encoded.x, encoded.y) == keeps(schema, frame)).all()


def test_soft_rows_are_judged_as_they_are_decoded() -> None:
    schema = parse(MEN, YOUNG, LATE)
    rng = np.random.default_rng(0)
    x, y = rng.random((2000, schema.width), np.float32), rng.integers(0, 2, 2000)
    frame = decode(schema, x, y).frame
    assert frame is not None
    kept = keeps_encoded(schema, x, y)
    assert (kept == keeps(schema, frame)).all()
    assert 0.05 < kept.mean() < 0.95


def test_rules_are_part_of_the_text_and_the_hash() -> None:
    schema = parse(MEN, YOUNG, LATE)
    assert Schema.parse(schema.to_toml()) == schema
    assert schema.hash != parse(MEN, YOUNG).hash
    assert str(schema.rules[0]) == "if sex = male then pregnant = no"
    assert str(schema.rules[1]) == "if age below 12 then pregnant not yes, dose at most 2.5"


def test_a_party_keeps_the_rules_whose_columns_it_holds() -> None:
    schema = parse(MEN, YOUNG)
    assert schema.project(["sex", "pregnant"]).rules == schema.rules[:1]
    assert schema.project(["sex", "age"]).rules == ()


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ('if = { sez = "male" }\nthen = { ill = true }', "did you mean sex"),
        ('if = { sex = "man" }\nthen = { ill = true }', "one of its categories for 'sex'"),
        ("if = { age = 130 }\nthen = { ill = true }", "within its bounds for 'age'"),
        ('if = { age = "old" }\nthen = { ill = true }', "within its bounds for 'age'"),
        ("if = { age = 3.5 }\nthen = { ill = true }", "within its bounds for 'age'"),
        ("if = { ill = 1 }\nthen = { age = 3 }", "true or false for 'ill'"),
        ("if = { seen = 3 }\nthen = { age = 3 }", "within its bounds for 'seen'"),
        ("if = { sex = { below = 3 } }\nthen = { age = 3 }", "categorical column 'sex'"),
        ("if = { age = { under = 3 } }\nthen = { ill = true }", "known conditions"),
        ("if = { age = {} }\nthen = { ill = true }", "a condition on 'age'"),
        ("if = { age = [] }\nthen = { ill = true }", "a value or a list"),
        ("if = { dose = { missing = true } }\nthen = { ill = true }", "columns that may be"),
        ("if = { age = 3 }", "if = {…} and then = {…}"),
        ("if = { age = 3 }\nthen = {}", "if = {…} and then = {…}"),
        ("if = { age = 3 }\nthen = { ill = true }\nelse = { ill = false }", "if = {…} and then"),
        ("if = { age = { below = 0 } }\nthen = { ill = true }", "its if never holds"),
        ("if = { ill = true }\nthen = { dose = { above = 10 } }", "its then never holds"),
        ("if = { ill = true }\nthen = { ill = false }", "no row for which its if holds"),
        (
            "if = { ill = true }\nthen = { age = { missing = false, above = 4, below = 5 } }",
            "its then never holds",
        ),
    ],
)
def test_rules_that_do_not_fit_the_schema_are_refused(rule: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        parse(f"\n[[rule]]\n{rule}\n")


def test_rules_that_contradict_each_other_are_refused() -> None:
    other = MEN.replace('"no"', '{ not = "no", missing = false }')
    with pytest.raises(SchemaError, match="no row for which its if holds keeps all rules"):
        parse(MEN, other)


def test_a_contradiction_over_several_rules_is_found() -> None:
    chain = [
        "[[rule]]\nif = { ill = true }\nthen = { sex = 'male' }\n",
        "[[rule]]\nif = { sex = 'male' }\nthen = { dose = { below = 5 } }\n",
        "[[rule]]\nif = { dose = { at_most = 4.9 } }\nthen = { ill = false }\n",
    ]
    assert len(parse(*chain[:2]).rules) == 2
    with pytest.raises(SchemaError, match="no row"):
        parse(*chain)


def test_rules_are_for_tables_and_not_too_many() -> None:
    rule = Rule((Test("ill", (True,)),), (Test("age", (3,)),))
    with pytest.raises(SchemaError, match=f"at most {MAX_RULES} rules"):
        replace(parse(), rules=(rule,) * (MAX_RULES + 1))
    with pytest.raises(SchemaError, match="only for tables"):
        Schema("image", "i", 10, shape=(4, 4), rules=(rule,))


def test_something_else_than_tables_of_rules_is_refused() -> None:
    with pytest.raises(SchemaError, match=r"\[\[rule\]\]"):
        Schema.parse("rule = 3\n" + COLUMNS)
