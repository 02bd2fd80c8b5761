from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.neighbors import NearestCentroid

from understudy.data.bundled import bundled
from understudy.data.encode import Encoded
from understudy.data.schema import Column, Schema
from understudy.data.split import split
from understudy.errors import PrivacyError, SchemaError, StudyError
from understudy.federation.splits import split_notes
from understudy.recipes import build
from understudy.settings import read, setting
from understudy.simulation import run
from understudy.study import Privacy, Study

SCHEMA = Schema("table", "t", 100, (Column("a", "numeric", 0, 1),))


def parse(**tables: Any) -> Study:
    return Study.parse({"study": {"name": "s", "recipe": "fedvae"}, **tables}, schema=SCHEMA)


FILE = """
[study]
name = "two hospitals"
schema = "schema.toml"
recipe = "fedmoments"

[privacy]
unit = "record"
epsilon = 1

[cohort]
rate = 0.5

[simulation]
data = "rows.csv"
sites = 4
split = "dirichlet"
alpha = 0.3
"""


def test_a_study_file_is_read_with_paths_beside_it(tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text(SCHEMA.to_toml())
    (tmp_path / "study.toml").write_text(FILE)
    study = Study.load(tmp_path / "study.toml")
    assert study.schema == SCHEMA and study.base == tmp_path
    assert study.privacy.epsilon == 1.0 and isinstance(study.privacy.epsilon, float)
    assert study.n_sites == 4 and study.simulation is not None
    assert study.simulation.options == {"alpha": 0.3}


def test_what_is_left_out_stays_open_for_the_recipe() -> None:
    study = parse()
    assert study.rounds is None and study.privacy.trust is None and study.n_sites == 1


@pytest.mark.parametrize(
    "tables",
    [
        {"privcy": {}},
        {"privacy": {"epsilom": 1}},
        {"privacy": {"Epsilon": 1}},
        {"cohort": {"rat": 0.1}},
        {"training": {"epoch": 1}},
        {"study": {"name": "s", "recipe": "r", "round": 2}},
        {"site": [{"name": "a", "data": "d", "epsilion": 1}]},
    ],
)
def test_unknown_keys_are_refused_everywhere(tables: dict) -> None:
    with pytest.raises(StudyError, match="unknown key"):
        parse(**tables)


def test_sites_do_not_share_a_ledger() -> None:
    sites = [{"name": n, "data": "d", "ledger": f"{n}/../l.jsonl"} for n in "ab"]
    with pytest.raises(StudyError, match="a ledger of its own"):
        parse(site=sites)


def test_the_refusal_names_the_key_and_what_is_known() -> None:
    with pytest.raises(StudyError) as refusal:
        parse(privacy={"epsilom": 1})
    assert "privacy.epsilom" in str(refusal.value) and "epsilon" in refusal.value.expected


def test_a_recipes_own_options_are_checked_like_the_rest() -> None:
    @dataclass(frozen=True)
    class Own:
        width: int = setting(8, "how wide")

    assert read(Own, {}, "recipe").width == 8 and read(Own, {"width": 3}, "recipe").width == 3
    with pytest.raises(StudyError, match=r"unknown key recipe\.widht"):
        read(Own, {"widht": 3}, "recipe")
    with pytest.raises(StudyError, match=r"recipe\.width as a whole number"):
        read(Own, {"width": 3.5}, "recipe")


BAD_NUMBERS = [0, 0.0, -1, -0.5, math.nan, math.inf, -math.inf]


@pytest.mark.parametrize("value", BAD_NUMBERS)
@pytest.mark.parametrize("name", ["epsilon", "delta", "clip", "noise"])
def test_privacy_numbers_must_be_positive_and_finite(name: str, value: float) -> None:
    with pytest.raises(StudyError, match=f"privacy.{name}"):
        parse(privacy={name: value})


@pytest.mark.parametrize("value", ["1", True, [1.0], {"a": 1}])
@pytest.mark.parametrize("name", ["epsilon", "delta", "clip", "noise"])
def test_privacy_numbers_must_be_numbers(name: str, value: object) -> None:
    with pytest.raises(StudyError, match=f"privacy.{name}"):
        parse(privacy={name: value})


def test_epsilon_and_noise_together_are_refused() -> None:
    with pytest.raises(StudyError, match="several"):
        parse(privacy={"epsilon": 1.0, "noise": 1.0})


@pytest.mark.parametrize("extra", [{"epsilon": 1.0}, {"noise": 1.0}, {"noise": math.nan}])
def test_no_trust_goes_with_no_noise(extra: dict) -> None:
    with pytest.raises(StudyError, match="none"):
        parse(privacy={"trust": "none", **extra})
    assert parse(privacy={"trust": "none"}).privacy.trust == "none"


@pytest.mark.parametrize("change", [{"trust": "blind"}, {"unit": "house"}, {"trust": 1}])
def test_unknown_trusts_and_units_are_refused(change: dict) -> None:
    with pytest.raises(StudyError, match=r"privacy\."):
        parse(privacy=change)


@pytest.mark.parametrize("rate", [0, -0.1, 1.01, math.nan, math.inf, "0.1"])
def test_a_cohort_rate_outside_zero_and_one_is_refused(rate: object) -> None:
    with pytest.raises(StudyError, match=r"cohort\.rate"):
        parse(cohort={"rate": rate})


@pytest.mark.parametrize("cohort", [{"size": 0}, {"size": 10, "rate": 0.1}, {"size": 1.5}])
def test_a_cohort_size_is_a_whole_number_and_excludes_a_rate(cohort: dict) -> None:
    with pytest.raises(StudyError, match=r"cohort\.size"):
        parse(cohort=cohort)


@pytest.mark.parametrize("joins", [0, -1, 1.5])
def test_joins_are_counted_from_one(joins: float) -> None:
    with pytest.raises(StudyError, match=r"cohort\.joins"):
        parse(cohort={"joins": joins})


@pytest.mark.parametrize("rounds", [0, -3, 1.5, "3", True])
def test_rounds_are_counted_from_one(rounds: object) -> None:
    with pytest.raises(StudyError, match=r"study\.rounds"):
        parse(study={"name": "s", "recipe": "r", "rounds": rounds})


@pytest.mark.parametrize(
    "change",
    [
        {"epochs": 0},
        {"epochs": -1},
        {"epochs": 1.5},
        {"batch": 0},
        {"batch": -4},
        {"rate": 0},
        {"rate": -1e-3},
        {"rate": math.nan},
        {"rate": math.inf},
        {"optimiser": "lion"},
    ],
)
def test_training_values_that_cannot_train_are_refused(change: dict) -> None:
    with pytest.raises(StudyError, match=r"training\."):
        parse(training=change)


@pytest.mark.parametrize(
    "table",
    [
        {},
        {"data": "x"},
        {"sites": 2},
        {"data": "x", "sites": 0},
        {"data": "x", "sites": "2"},
        {"data": "x", "sites": 2, "only": 0},
        {"data": "x", "sites": 2, "only": 3},
        {"data": "x", "sites": 2, "split": "pooled"},
        {"data": "x", "split": "pooled", "only": 1},
    ],
)
def test_a_simulation_needs_rows_and_sites(table: dict) -> None:
    with pytest.raises(StudyError, match=r"simulation\."):
        parse(simulation=table)


@pytest.mark.parametrize("epsilon", BAD_NUMBERS)
def test_a_sites_cap_must_be_positive_and_finite(epsilon: float) -> None:
    with pytest.raises(StudyError, match=r"site\.epsilon"):
        parse(site=[{"name": "a", "data": "d", "epsilon": epsilon}])


def test_two_sites_of_one_name_are_refused() -> None:
    with pytest.raises(StudyError, match="name"):
        parse(site=[{"name": "a", "data": "d"}, {"name": "a", "data": "e"}])


def test_sites_and_a_simulation_together_are_refused() -> None:
    with pytest.raises(StudyError, match="simulation"):
        parse(site=[{"name": "a", "data": "d"}], simulation={"data": "x", "sites": 3})


@pytest.mark.parametrize("site", [{"name": "a", "data": "d"}, ["a"], 3, [{"nmae": "a"}]])
def test_sites_are_a_list_of_tables(site: object) -> None:
    with pytest.raises(StudyError):
        parse(site=site)


@pytest.mark.parametrize(
    "table", ["privacy", "cohort", "training", "recipe", "simulation", "study"]
)
@pytest.mark.parametrize("value", [3, "x", [1]])
def test_a_table_must_be_a_table(table: str, value: object) -> None:
    with pytest.raises(StudyError):
        parse(**{table: value})


@pytest.mark.parametrize("head", [{}, {"name": "s"}, {"recipe": "r"}, {"name": 3, "recipe": "r"}])
def test_a_study_has_a_name_and_a_recipe(head: dict) -> None:
    with pytest.raises(StudyError, match=r"study\."):
        parse(study=head)


DEEP = "a = " + 5000 * "[" + 5000 * "]"


@pytest.mark.parametrize("text", ["[study", "= 3", "\x00", 'a = "\n"', DEEP])
def test_a_file_that_is_no_toml_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "s.toml").write_text(text)
    with pytest.raises(StudyError, match="TOML"):
        Study.load(tmp_path / "s.toml")
    with pytest.raises(SchemaError, match="TOML"):
        Schema.parse(text)


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"nothing\.toml: No such file"):
        Study.load(tmp_path / "nothing.toml")
    (tmp_path / "s.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(StudyError, match="TOML"):
        Study.load(tmp_path / "s.toml")
    with pytest.raises(StudyError):
        Study.load(tmp_path)
    (tmp_path / "t.toml").write_text(FILE)
    with pytest.raises(SchemaError):
        Study.load(tmp_path / "t.toml")


def test_the_hash_names_what_all_agree_on_and_nothing_local() -> None:
    def site(**extra: Any) -> dict:
        return {"site": [{"name": "a", "data": "d", **extra}]}

    base = parse(**site())
    assert parse(**site()).hash == base.hash
    assert parse(**site(epsilon=0.5, ledger="l")).hash == base.hash, "a cap is the site's secret"
    changed = [
        parse(**site(), privacy={"epsilon": 1.0}),
        parse(**site(), cohort={"rate": 0.1}),
        parse(**site(), training={"epochs": 2}),
        parse(**site(), recipe={"latent": 3}),
        parse(site=[*site()["site"], {"name": "b", "data": "d"}]),
    ]
    assert len({base.hash, *(s.hash for s in changed)}) == 6


def test_no_error_quotes_more_than_the_study_file() -> None:
    with pytest.raises(StudyError) as refusal:
        parse(privacy={"epsilon": "lots"})
    assert {"expected", "found", "do"} <= set(vars(refusal.value))
    assert "lots" in str(refusal.value)


def test_a_typo_is_answered_with_the_nearest_key() -> None:
    with pytest.raises(StudyError, match=r"did you mean epsilon\?"):
        parse(privacy={"epsilom": 1.0})


def test_a_wrong_choice_lists_the_right_ones() -> None:
    with pytest.raises(StudyError, match='"record", "person" or "site"'):
        parse(privacy={"unit": "patient"})


def test_a_misspelt_recipe_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(StudyError, match=r"did you mean fedmoments\?"):
        build(parse(study={"name": "s", "recipe": "fedmoment"}))


def simulated(unit: str = "record", trust: str = "local", **simulation: Any) -> Study:
    table = {"data": "x", **simulation}
    privacy = {"unit": unit, "trust": trust, "noise": 1.0}
    if trust == "none":
        del privacy["noise"]
    return Study.parse(
        {
            "study": {"name": "s", "recipe": "fedmoments"},
            "privacy": privacy,
            "simulation": table if table.get("split") == "pooled" else {"sites": 2, **table},
        },
        schema=replace(PERSONS, person=None, rows_per_person=None) if unit == "record" else PERSONS,
    )


PERSONS = Schema(
    "table",
    "t",
    100,
    (*SCHEMA.columns, Column("c", "categorical", categories=("u", "v"))),
    label="c",
    person="who",
    rows_per_person=3,
)


def test_the_attack_on_a_split_by_kmeans_is_refused() -> None:
    """One row less, and the sums of both sites move by far more than one row can add."""

    def sums(values: list[float]) -> np.ndarray:
        x = np.array(values, np.float32)[:, None]
        rows = Encoded(x, np.zeros(len(x), np.int64))
        parts = split(SCHEMA, rows, "kmeans", 2, rng=np.random.default_rng(0))
        counts = sorted((len(part), float(x[part].sum())) for part in parts)
        return np.array(counts)

    table = [0.0] * 10 + [0.2] * 10 + [1.0]
    moved = np.abs(sums(table) - sums(table[:-1])).sum(axis=1)
    assert moved.min() > 5, "a row in [0, 1] adds 1 to one count and at most 1 to one sum"
    with pytest.raises(PrivacyError, match='split = "kmeans"'):
        build(simulated(split="kmeans"))


REFUSED = [
    ("record", "local", {"split": "kmeans"}),
    ("person", "local", {"split": "kmeans"}),
    ("person", "local", {"split": "person"}),
    ("person", "local", {"split": "column", "column": "who"}),
    ("record", "local", {"split": "column", "column": "a"}),
    ("record", "central", {"split": "kmeans", "only": 1}),
]
ACCEPTED = [
    ("site", "local", {"split": "kmeans"}),
    ("record", "central", {"split": "kmeans"}),
    ("record", "none", {"split": "kmeans"}),
    ("record", "local", {"split": "uniform"}),
    ("record", "local", {"split": "dirichlet", "alpha": 0.1}),
    ("record", "local", {"split": "classes"}),
    ("record", "local", {"split": "column", "column": "c"}),
    ("person", "local", {"split": "dirichlet"}),
    ("record", "central", {"split": "uniform", "only": 2}),
    ("record", "local", {"split": "pooled"}),
]


@pytest.mark.parametrize(("unit", "trust", "simulation"), REFUSED)
def test_splits_that_move_other_rows_are_refused_where_the_server_sees_sites(
    unit: str, trust: str, simulation: dict
) -> None:
    with pytest.raises(PrivacyError, match="keeps every other row at its site"):
        build(simulated(unit, trust, **simulation))


@pytest.mark.parametrize(("unit", "trust", "simulation"), ACCEPTED)
def test_other_splits_are_accepted(unit: str, trust: str, simulation: dict) -> None:
    build(simulated(unit, trust, **simulation))


def test_labels_that_send_a_person_are_no_rule_for_one_record() -> None:
    by_person = replace(simulated("person", "local", split="dirichlet"), privacy=Privacy())
    assert by_person.split_moves_others("record")
    assert not by_person.split_moves_others("person")


def test_a_simulated_split_is_noted() -> None:
    (note,) = split_notes(simulated(split="dirichlet"))
    assert "taken as given" in note and "dirichlet" in note
    assert split_notes(parse()) == () == split_notes(simulated(split="pooled"))


def test_pooled_rows_and_one_site_alone_are_one_site() -> None:
    assert simulated(split="pooled").n_sites == 1
    alone = simulated(sites=5, only=2)
    assert alone.n_sites == 1 and alone.simulation is not None
    assert list("abcde")[alone.simulation.kept] == ["b"]


@pytest.mark.parametrize("simulation", [{"split": "pooled"}, {"sites": 10, "only": 3}])
def test_the_baselines_of_the_study_page_learn(simulation: dict) -> None:
    """All rows at one site, or one site alone: a student of their rows reads real digits."""
    schema, real = bundled("digits")
    study = Study.parse(
        {
            "study": {"name": "baseline", "recipe": "fedvae", "rounds": 1},
            "privacy": {"trust": "none", "clip": 1e9},
            "recipe": {
                "steps": 400,
                "server": "sgd",
                "server_rate": 1.0,
                "momentum": 0.0,
                "average": 0.0,
            },
            "simulation": {"data": "bundled:digits", **simulation},
        },
        schema=schema,
    )
    release = run(study, seed=0, rows=0)
    assert release.plan.sites == 1 and not release.claims[0].private
    made = release.sample(500, seed=0)
    student = NearestCentroid().fit(made.images.reshape(500, -1), made.labels)
    assert student.score(real.images.reshape(len(real), -1), real.labels) > 0.75


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([{"name": "a"}, {"name": "b"}, {"name": "a"}], "'a' twice"),
        ([{"name": "a", "ledger": "l"}, {"name": "b", "ledger": "./l"}], "l for two of them"),
        ([{"name": "a"}, {"nmae": "b"}], r"site\.nmae \(site 2\)"),
        ([{"name": "a"}, {"name": "b", "epsilon": -1}], r"-1\.0 \(site b\)"),
    ],
)
def test_errors_of_sites_say_which(entries: list[dict], said: str) -> None:
    data = {"study": {"name": "t", "recipe": "fedmoments"}, "site": entries}
    with pytest.raises(StudyError, match=said):
        Study.parse(data, schema=SCHEMA)


def test_a_simulation_beside_named_sites_is_refused_and_masks_are_not_asked_for() -> None:
    head = {"name": "t", "recipe": "fedmoments"}
    data = {"study": head, "site": [{"name": "a"}], "simulation": {"masks": "checked"}}
    with pytest.raises(StudyError, match="under masks without being told"):
        Study.parse(data, schema=SCHEMA)
