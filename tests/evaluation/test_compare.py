import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from understudy.data.encode import Encoded
from understudy.data.schema import Column, Schema
from understudy.data.table import Records, write
from understudy.errors import DataError, OutputError
from understudy.evaluation import compare
from understudy.evaluation.compare import evaluate, hold_out, remove_report
from understudy.evaluation.score import INTERNAL


@pytest.fixture(autouse=True)
def short(shorten: Callable[[int], None]) -> None:
    shorten(60)


def test_scores_and_report_are_written_and_marked(table_release, table_records, tmp_path) -> None:
    scores = evaluate(table_release, table_records, tmp_path / "out")
    found = json.loads(scores.path.read_text())
    assert found["mark"] == found["utility"]["mark"] == found["fidelity"]["mark"] == INTERNAL
    assert found["privacy"]["mark"] == "public"
    assert found["rows"] == {"synthetic": 1000, "train": 210, "test": 90}
    assert found == json.loads(json.dumps(scores.to_dict()))
    page = scores.report.read_text()
    assert page.count(INTERNAL) >= 4
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"report.html", "scores.json"}


@pytest.mark.slow
def test_the_same_rows_give_the_same_bytes(table_release, table_records, tmp_path) -> None:
    outs = [tmp_path / name for name in ("a", "b", "c")]
    for out, rows in zip(outs, (100, 100, 99), strict=True):
        evaluate(table_release, table_records.take(np.arange(rows)), out)
    for name in ("report.html", "scores.json"):
        assert (outs[0] / name).read_bytes() == (outs[1] / name).read_bytes()
        assert (outs[0] / name).read_bytes() != (outs[2] / name).read_bytes()


@pytest.mark.slow
def test_files_are_read_by_the_schema_and_given_test_rows_are_used(
    table_release, table_records, tmp_path
) -> None:
    write(table_records, tmp_path / "real.csv")
    write(table_records.take(np.arange(40)), tmp_path / "test.csv")
    scores = evaluate(
        table_release, tmp_path / "real.csv", tmp_path / "out", test=tmp_path / "test.csv"
    )
    assert dict(scores.rows) == {"synthetic": 1000, "train": 300, "test": 40}


def test_scores_are_refused_inside_a_release(table_release, table_records, tmp_path) -> None:
    home = tmp_path / "release"
    home.mkdir()
    table_release.path = home
    for out in (home, home / "deep" / "er", home / ".." / "release" / "x"):
        with pytest.raises(OutputError, match="outside any release"):
            evaluate(table_release, table_records, out)
    assert list(home.iterdir()) == []


def test_scores_are_refused_inside_another_release(table_release, table_records, tmp_path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "release.json").write_text("{}")
    (tmp_path / "link").symlink_to(tmp_path / "other")
    for out in (tmp_path / "other" / "scores", tmp_path / "link" / "scores"):
        with pytest.raises(OutputError, match="outside any release"):
            evaluate(table_release, table_records, out)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["report.html", "scores.json"])
def test_an_earlier_report_is_kept_until_it_is_removed_and_other_files_always(
    name: str, table_release, table_records, tmp_path
) -> None:
    (tmp_path / name).write_text("earlier")
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(OutputError, match="without a report"):
        evaluate(table_release, table_records, tmp_path)
    assert (tmp_path / name).read_text() == "earlier" and len(list(tmp_path.iterdir())) == 2
    remove_report(tmp_path)
    evaluate(table_release, table_records, tmp_path)
    assert (tmp_path / name).read_text() != "earlier"
    assert (tmp_path / "mine.txt").read_text() == "keep"


@pytest.mark.slow
def test_a_file_in_the_way_and_a_full_disk_are_output_errors(
    table_release, table_records, tmp_path, monkeypatch
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="a file at"):
        evaluate(table_release, table_records, tmp_path / "file")

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OutputError, match="No space left"):
        evaluate(table_release, table_records, tmp_path / "out")


def test_real_rows_that_do_not_fit_are_refused_without_their_values(
    table_release, table_records, tmp_path
) -> None:
    frame = table_records.frame.astype({"place": object})
    frame.loc[3, "place"] = "secret-place"
    with pytest.raises(DataError) as caught:
        evaluate(table_release, Records(frame=frame), tmp_path / "out")
    assert "secret-place" not in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_tiny_real_data_still_gives_a_report(table_release, table_records, tmp_path, n) -> None:
    scores = evaluate(table_release, table_records.take(np.arange(n)), tmp_path / "out")
    assert scores.rows["train"] + scores.rows["test"] == n
    assert scores.utility.notes and scores.report.exists()


def test_a_table_without_label_gives_a_report_without_students(table_release, tmp_path) -> None:
    schema = Schema("table", "bare", 9, columns=(Column("a", "numeric", low=0.0, high=1.0),))

    def draw(n: int, rng: np.random.Generator) -> Encoded:
        return Encoded(rng.random((n, 1)).astype(np.float32), np.zeros(n, np.int64))

    release = replace(table_release, schema=schema, draw=draw)
    scores = evaluate(release, release.sample(50, seed=1), tmp_path / "out")
    page = scores.report.read_text()
    assert (
        scores.utility.students == ()
        and "nothing to predict" in page
        and "no model was tried" in page
    )


def test_images_are_shown_and_marked_as_real_records(
    image_release, image_records, tmp_path
) -> None:
    scores = evaluate(image_release, image_records, tmp_path / "out")
    page = scores.report.read_text()
    assert "internal: shows real records" in page
    assert page.count('class="strip"') == 6
    assert {c.name for c in scores.fidelity.overall} >= {"mean-image distance", "mean distance"}


def test_progress_is_one_bar_from_start_to_end(table_release, table_records, tmp_path) -> None:
    seen: list[tuple[int, int]] = []
    evaluate(
        table_release,
        table_records,
        tmp_path / "out",
        progress=lambda stage, done, total: seen.append((done, total)),
    )
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (1000, 1000) and {total for _, total in seen} == {1000}


@pytest.mark.parametrize("kind", ["table", "image", "series"])
def test_what_is_being_done_leaves_room_for_a_bar(kind, request, tmp_path, shorten) -> None:
    shorten(2)
    release, real = (request.getfixturevalue(f"{kind}_{name}") for name in ("release", "records"))
    stages: set[str] = set()
    evaluate(release, real, tmp_path / "out", progress=lambda stage, *_: stages.add(stage))
    assert len(stages) > 3 and max(map(len, stages)) <= 42, stages


@pytest.mark.slow
def test_reading_images_is_part_of_the_bar(image_release, image_records, tmp_path) -> None:
    for i, (pixels, name) in enumerate(
        zip(image_records.images, image_records.labels, strict=True)
    ):
        (tmp_path / "real" / str(name)).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(tmp_path / "real" / str(name) / f"{i}.png")
    seen: list[tuple[str, int]] = []
    real, out = tmp_path / "real", tmp_path / "out"

    def progress(stage: str, done: int, total: int) -> None:
        seen.append((stage, done))

    evaluate(image_release, real, out, test=real, progress=progress)
    assert [stage for stage, _ in seen].count("reading images") == 8, "200 images, 64 at a time"
    assert [done for _, done in seen] == sorted(done for _, done in seen)


def test_hold_out_keeps_class_shares_and_uses_each_row_once() -> None:
    y = np.repeat([0, 1], [90, 10])
    train, test = hold_out(Encoded(np.zeros((100, 1)), y), rng=np.random.default_rng(0))
    assert sorted([*train, *test]) == list(range(100))
    assert len(test) == 30 and (y[test] == 1).sum() == 3


def test_hold_out_never_puts_a_person_on_both_sides() -> None:
    person = np.random.default_rng(0).integers(0, 20, 200)
    rows = Encoded(np.zeros((200, 1)), np.zeros(200, np.int64), person)
    train, test = hold_out(rows, rng=np.random.default_rng(0))
    assert not set(person[train]) & set(person[test])
    assert len(set(person[test])) == 6


def test_synthetic_rows_need_no_person(table_release, tmp_path) -> None:
    columns = (Column("a", "numeric", low=0.0, high=1.0), Column("y", "boolean"))
    schema = Schema("table", "p", 60, columns=columns, label="y", person="id", rows_per_person=2)

    def draw(n: int, rng: np.random.Generator) -> Encoded:
        return Encoded(rng.random((n, 1)).astype(np.float32), rng.integers(0, 2, n))

    release = replace(table_release, schema=schema, draw=draw)
    rows = release.sample(60, seed=0)
    real = Records(frame=rows.frame, person=np.arange(60) // 3)
    scores = evaluate(release, real, tmp_path / "out")
    assert scores.rows["train"] + scores.rows["test"] == 40


@pytest.mark.slow
def test_names_from_the_schema_cannot_become_markup(table_release, table_records, tmp_path) -> None:
    scores = evaluate(table_release, table_records, tmp_path / "out")
    page = scores.report.read_text()
    assert "south <b>" not in page
    assert not re.search(r"<script|javascript:|onload=", page)


@pytest.mark.slow
def test_claims_without_epsilon_stay_strict_json(table_release, table_records, tmp_path) -> None:
    nothing = replace(table_release.claims[0], epsilon=None, epsilon_rdp=None)
    table_release.claims = (nothing,)
    scores = evaluate(table_release, table_records, tmp_path / "out")
    text = scores.path.read_text()
    assert "Infinity" not in text
    assert json.loads(text)["privacy"]["claims"][0]["epsilon"] is None
    assert "no protection is claimed" in scores.report.read_text()


SECTIONS = {
    "joints": "Several columns at once",
    "pairs": 'id="pairs"',
    "map": "Map of real and synthetic records",
    "forecasts": "Predicting the next step",
    "time": "Over time",
    "images": 'id="images"',
}


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        (0, {"joints", "pairs", "map"}),
        (1, {"images", "map"}),
        (2, {"forecasts", "map", "time"}),
    ],
    ids=["table", "image", "series"],
)
def test_a_report_has_the_sections_of_its_kind_and_no_others(reports, kind, shown) -> None:
    page = reports[kind].read_text()
    assert {name for name, text in SECTIONS.items() if text in page} == shown


def test_a_report_is_headed_by_what_the_study_is_called(
    table_release, table_records, tmp_path, monkeypatch
) -> None:
    """A drafted schema is called like its file: "rows" tells a reader nothing."""
    table_release.schema = replace(table_release.schema, name="rows")
    page = evaluate(table_release, table_records, tmp_path / "a").report.read_text()
    assert "<h1>An understudy for test</h1>" in page and "<title>test · " in page
    monkeypatch.setattr(type(table_release), "manifest", {"recipe": "fake"})
    page = evaluate(table_release, table_records, tmp_path / "b").report.read_text()
    assert "<h1>An understudy for rows</h1>" in page, "the data's name is better than none"


def names(found: list[dict]) -> set[str]:  # type: ignore[type-arg]
    return {f["name"] for f in found}


def test_scores_of_a_table_have_joints_coverage_and_both_matrix_distances(reports) -> None:
    found = json.loads((reports[0].parent / "scores.json").read_text())
    fidelity = found["fidelity"]
    assert [j["ways"] for j in fidelity["joints"]] == [2, 3, 4, 5, 6]
    for joint in fidelity["joints"]:
        assert set(joint) == {"ways", "sets", "distance"}
        assert joint["distance"]["real"]["n"] == found["rows"]["test"]
    assert names(fidelity["overall"]) >= {
        "mean column distance",
        "correlation-matrix distance",
        "maximum mean discrepancy (MMD²)",
    }
    assert 0 <= fidelity["coverage"]["synthetic"]["value"] <= 1
    assert found["forecasts"]["models"] == []
    students = [s["student"] for s in found["utility"]["students"]]
    expected = ["logistic regression", "random forest", "boosting", "neural network"]
    assert students == expected


def test_a_report_tells_of_the_most_sets_of_columns_not_of_the_first(reports) -> None:
    joints = json.loads((reports[0].parent / "scores.json").read_text())["fidelity"]["joints"]
    sets = [joint["sets"] for joint in joints]
    assert sets[0] < max(sets)
    assert f"over up to {max(sets)} sets" in reports[0].read_text()


@pytest.mark.parametrize(
    ("kind", "guessing"),
    [(0, "always the most common class"), (1, "noise"), (2, "repeating the last step")],
    ids=["table", "image", "series"],
)
def test_cards_show_what_takes_no_learning_beside_the_score(reports, kind, guessing) -> None:
    verdict = json.loads((reports[kind].parent / "scores.json").read_text())["verdict"]
    page = reports[kind].read_text()
    cards = page.split('<ul class="tiles">')[1].split("</ul>")[0].split("<li")[1:]
    assert len(cards) == len(verdict["judgements"]) > 1
    for card, judged in zip(cards, verdict["judgements"], strict=True):
        value = judged["guess"]["value"]
        share = judged["measure"].startswith(("accuracy", "coverage"))
        decimals = 4 if judged["measure"].startswith("error") else 3
        said = f"{100 * value:.1f}" if share else f"{value:.{decimals}f}"
        assert f"<dt>guessing</dt><dd>{said}" in card
    assert guessing in page and guessing in {j["guessing"] for j in verdict["judgements"]}


def test_scores_of_series_have_forecasts_and_no_joints(reports) -> None:
    found = json.loads((reports[2].parent / "scores.json").read_text())
    models = found["forecasts"]["models"]
    assert [m["student"] for m in models] == ["LSTM", "random forest", "two-layer network"]
    assert all(names(m["scores"]) == {"next-step error (MAE)"} for m in models)
    assert found["forecasts"]["mark"] == INTERNAL
    assert all(m["scores"][0]["guess"]["value"] > 0 for m in models)
    assert found["fidelity"]["joints"] == [] and found["fidelity"]["coverage"] is not None


def test_series_without_classes_are_judged_by_the_next_step(reports) -> None:
    page = reports[2].read_text()
    assert "No model was trained" not in page and "nothing to predict" not in page
    assert "predicting the next step: error, LSTM" in page and "fast &lt;b&gt;" in page
    assert "Windows overlap" not in page


def test_single_series_are_shown_and_marked_as_real_records(reports) -> None:
    section = reports[2].read_text().split("<h3>Single series</h3>")[1].split("</section>")[0]
    assert "internal: shows real records" in section
    assert section.count("single real series beside") == 2
    assert all("Single series" not in page.read_text() for page in reports[:2])


@pytest.mark.slow
def test_overlapping_windows_are_a_note(series_release, series_records, tmp_path) -> None:
    series_release.schema = replace(series_release.schema, layout="recording", stride=3)
    out = evaluate(series_release, series_records, tmp_path / "out")
    assert any("Windows overlap" in note for note in out.notes)
    given = evaluate(series_release, series_records, tmp_path / "given", test=series_records)
    assert given.notes == ()


@pytest.mark.slow
def test_series_are_scored_the_same_twice(series_release, series_records, tmp_path) -> None:
    for out in ("a", "b"):
        evaluate(series_release, series_records, tmp_path / out)
    for name in ("report.html", "scores.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_the_verdict_comes_first_in_the_report_and_is_in_the_scores(reports) -> None:
    for report in reports:
        page, found = report.read_text(), json.loads((report.parent / "scores.json").read_text())
        verdict = found["verdict"]
        assert verdict["mark"] == INTERNAL and verdict["level"] in ("fit", "limited", "unfit")
        assert verdict["headline"].startswith(verdict["title"])
        assert page.index(verdict["headline"]) < page.index("<nav") < page.index(">Privacy</h2>")


def test_the_floor_is_explained_where_it_is_first_named(reports) -> None:
    for report in reports:
        body = report.read_text().split("<body>")[1]
        text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", body))
        assert text.index("that is the floor") <= text.lower().index("floor")


def test_no_figure_is_minus_nothing(reports) -> None:
    for report in reports:
        page = report.read_text()
        assert not re.search(r"[-−]0\.0+(?![0-9])", page), "−0.00"
        assert "-0.0," not in (report.parent / "scores.json").read_text()


@pytest.mark.slow
def test_rows_tested_on_themselves_are_remarked(table_release, table_records, tmp_path) -> None:
    write(table_records, tmp_path / "real.csv")
    order = np.random.default_rng(0).permutation(len(table_records))
    shuffled = table_records.take(order)
    for i, test in enumerate((tmp_path / "real.csv", shuffled)):
        scores = evaluate(table_release, tmp_path / "real.csv", tmp_path / str(i), test=test)
        assert any("the real rows themselves" in line for line in scores.verdict.remarks)
        assert "the real rows themselves" in scores.report.read_text()
    other = evaluate(
        table_release, table_records, tmp_path / "other", test=table_records.take(order[:200])
    )
    assert not any("themselves" in line for line in other.verdict.remarks)


@pytest.mark.slow
def test_many_rows_are_thinned_before_they_are_encoded_and_said_so(
    table_release, table_records, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr("understudy.evaluation.compare.MOST", 60)
    seen: list[int] = []
    whole = compare.encode

    def watched(schema: Schema, records: Records) -> Encoded:
        seen.append(len(records))
        return whole(schema, records)

    monkeypatch.setattr("understudy.evaluation.compare.encode", watched)
    scores = evaluate(table_release, table_records, tmp_path / "out")
    assert max(seen) == 200 < len(table_records), "60 test rows are 30 %"
    assert dict(scores.rows) == {"synthetic": 60, "train": 60, "test": 60}
    assert any("At most 60 rows" in note for note in scores.notes)
    given = evaluate(table_release, table_records, tmp_path / "same", test=table_records)
    assert any("themselves" in line for line in given.verdict.remarks), "thinned alike"


def test_a_numeric_label_is_reported_end_to_end(table_release, tmp_path) -> None:
    columns = (
        Column("size", "numeric", low=0.0, high=1.0),
        Column("price", "numeric", low=0.0, high=1e4, scale="log"),
    )
    schema = Schema("table", "homes", 60, columns=columns, label="price")

    def draw(n: int, rng: np.random.Generator) -> Encoded:
        size = rng.random(n)
        price = np.clip(0.4 + 0.5 * size + rng.normal(0, 0.02, n), 0, 1)
        x = np.column_stack([size, price]).astype(np.float32)
        return Encoded(x, np.zeros(n, np.int64))

    release = replace(table_release, schema=schema, draw=draw)
    scores = evaluate(release, release.sample(400, seed=1), tmp_path / "out")
    page = scores.report.read_text()
    assert scores.verdict.judgements[0].use == "predicting price"
    assert scores.verdict.judgements[0].measure.startswith("R²")
    assert "always the mean" in page and "R² is the share" in page
    assert scores.verdict.level == "fit", scores.verdict.headline
