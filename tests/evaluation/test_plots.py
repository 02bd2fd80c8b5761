import base64
import io
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from PIL import Image

from understudy.data.schema import Column, Schema
from understudy.evaluation.axes import axes
from understudy.evaluation.gallery import column_plot, pair_plots
from understudy.evaluation.joints import Joint
from understudy.evaluation.pairs import PairFit
from understudy.evaluation.plots import (
    class_rows,
    joint_plot,
    map_plot,
    series_examples,
    series_plots,
    student_plot,
)
from understudy.evaluation.rows import Rows
from understudy.evaluation.score import Compared, Score
from understudy.evaluation.utility import StudentScores

TABLE = Schema(
    "table",
    "t",
    9,
    columns=(
        Column("number", "numeric", low=0.0, high=10.0),
        Column("day", "date", low="2020-01-01", high="2020-12-31"),
        Column("many", "categorical", categories=tuple(f"v{i} $x_" for i in range(20))),
        Column("漢", "boolean", missing=True),
    ),
)


def table(n: int, seed: int) -> Rows:
    draw = np.random.default_rng(seed)
    many = np.eye(20)[draw.integers(0, 20, n)]
    x = np.column_stack([draw.random(n), draw.random(n), many, draw.random((n, 2)) > 0.5])
    return Rows(x.astype(np.float32), np.zeros(n, np.int64))


@pytest.mark.parametrize("axis", axes(TABLE), ids=lambda axis: axis.kind)
@pytest.mark.parametrize("n", [1, 40])
def test_column_plot_is_well_formed_svg_in_page_colours(axis, n) -> None:  # type: ignore[no-untyped-def]
    text = column_plot(axis, table(n, 0), table(n, 1))
    ET.fromstring(text)
    assert "var(--real)" in text and "var(--synthetic)" in text
    assert not re.search(r"#0[1-6]0[1-6]0[1-6]", text)
    assert "<style" not in text and "<metadata" not in text


def test_plots_are_the_same_each_time() -> None:
    axis = axes(TABLE)[0]
    first, again = (column_plot(axis, table(9, 0), table(9, 1)) for _ in range(2))
    assert first == again


def test_a_column_without_values_on_one_side_says_so() -> None:
    schema = Schema(
        "table", "t", 9, columns=(Column("a", "numeric", low=0.0, high=1.0, missing=True),)
    )
    gone = Rows(np.array([[0.5, 1.0]], np.float32), np.zeros(1, np.int64))
    assert "no values on one side" in column_plot(axes(schema)[0], gone, gone)


def test_dates_are_on_the_axis_as_dates() -> None:
    data = table(2, 0)
    data.x[:, 1] = [0, 1]
    text = column_plot(axes(TABLE)[1], data, data)
    assert "2020-01-01" in text and "2020-12-31" in text


def pixels(markup: str) -> np.ndarray:
    data = base64.b64decode(markup.split("base64,")[1].split('"')[0])
    return np.asarray(Image.open(io.BytesIO(data)))


def test_image_strips_show_mean_then_samples() -> None:
    schema = Schema("image", "i", 9, classes=("a", "<b>"), shape=(4, 4, 3))
    x = np.concatenate([np.zeros((2, 48)), np.ones((2, 48))]).astype(np.float32)
    real = Rows(x, np.array([0, 0, 0, 0]))
    found = class_rows(schema, real, real, rng=np.random.default_rng(0))
    assert [name for name, *_ in found] == ["a", "<b>"]
    assert found[1][1:] == ("", "")
    strip = pixels(found[0][1])
    assert (strip[:, :4, :3] == 128).all()
    assert "<b>" not in "".join(found[1][1:])


def bars(text: str) -> int:
    """How many filled shapes there are in either page colour."""
    paths = [e for e in ET.fromstring(text).iter() if e.tag.endswith("}path")]
    return sum(
        bool(re.search(r"fill: var\(--(real|synthetic)\)", e.get("style", ""))) for e in paths
    )


AMOUNT = Schema("table", "t", 9, columns=(Column("amount", "numeric", low=0.0, high=1e4),))
LOGGED = Schema(
    "table", "t", 9, columns=(Column("amount", "numeric", low=0.0, high=1e4, scale="log"),)
)


def amounts(zeros: float, seed: int) -> Rows:
    draw = np.random.default_rng(seed)
    x = np.where(draw.random(400) < zeros, 0, draw.random(400))
    return Rows(x.astype(np.float32)[:, None], np.zeros(400, np.int64))


def test_a_value_that_many_rows_share_has_bars_of_its_own() -> None:
    plain, spiky = (
        column_plot(axes(AMOUNT)[0], amounts(0, 0), amounts(zeros, 1)) for zeros in (0.0, 0.6)
    )
    assert bars(spiky) == bars(plain) + 2
    assert ">60%</text>" in spiky or ">50%</text>" in spiky


def test_a_log_column_is_drawn_on_a_log_axis() -> None:
    linear, logged = (
        column_plot(axes(s)[0], amounts(0, 0), amounts(0, 1)) for s in (AMOUNT, LOGGED)
    )
    middle = float(re.findall(r">([\d,]+(?:\.\d+)?)</text>", linear)[1].replace(",", ""))
    below = float(re.findall(r">([\d,]+(?:\.\d+)?)</text>", logged)[1].replace(",", ""))
    assert 4_000 < middle < 6_000 and below < 500


def test_far_tails_are_gathered_and_said_so() -> None:
    data = amounts(0, 0)
    data.x[:] *= 0.1
    data.x[0] = 1.0
    text = column_plot(axes(AMOUNT)[0], data, data)
    assert "≥" in text and "≤" not in text


def test_categories_are_sorted_by_how_common_they_are() -> None:
    data = table(400, 0)
    data.x[:, 2:22] = np.eye(20)[np.minimum(np.random.default_rng(0).geometric(0.3, 400), 19)]
    text = column_plot(axes(TABLE)[2], data, data)
    names = re.findall(r">v(\d+) \$x_</text>", text)
    assert names[:3] == ["1", "2", "3"] and "10 others" in text


def test_pairs_are_drawn_with_their_names_and_both_sides() -> None:
    pairs = [PairFit("number", "many", 0.4, 0.1, 0.2), PairFit("day", "漢", 0.3, None, 0.1)]
    found = pair_plots(TABLE, pairs, table(300, 0), table(300, 1))
    for (_, text), pair in zip(found, pairs, strict=True):
        ET.fromstring(text)
        assert pair.first in text and ">real</text>" in text and ">synthetic</text>" in text
        assert "var(--real)" in text and "var(--synthetic)" in text
    assert ">others</text>" in found[0][1]


def test_series_get_one_band_per_channel() -> None:
    channels = tuple(Column(c, "numeric", low=0.0, high=1.0) for c in "ab")
    schema = Schema("series", "s", 9, columns=channels, shape=(5, 2))
    data = Rows(np.random.default_rng(0).random((6, 10)).astype(np.float32), np.zeros(6, np.int64))
    assert [name for name, _ in series_plots(schema, data, data)] == ["a", "b"]


def series(n: int, length: int, channels: int) -> tuple[Schema, Rows]:
    columns = tuple(Column(f"c{i}", "numeric", low=0.0, high=1.0) for i in range(channels))
    x = np.random.default_rng(0).random((n, length, channels)).astype(np.float32)
    x[:, :, 1] = 0.5
    rows = Rows(x.reshape(n, -1), np.zeros(n, np.int64))
    return Schema("series", "s", 9, columns=columns, shape=(length, channels)), rows


def strokes(text: str, colour: str) -> list[str]:
    """The paths of the lines drawn in a page colour."""
    paths = [e for e in ET.fromstring(text).iter() if e.tag.endswith("}path")]
    return [e.get("d", "") for e in paths if f"stroke: var(--{colour})" in e.get("style", "")]


def test_single_series_show_what_bands_hide() -> None:
    """Flat synthetic series at the real ones' levels have their bands, but not their lines."""
    schema, real = series(40, 6, 3)
    levels = np.random.default_rng(1).random((40, 1, 3))
    flat = Rows(np.broadcast_to(levels, (40, 6, 3)).reshape(40, -1), real.y)
    found = series_examples(schema, real, flat, rng=np.random.default_rng(0))
    assert [name for name, _ in found] == ["c0", "c2"], "c1 never moves"
    for _, text in found:
        lines, level = strokes(text, "real"), strokes(text, "synthetic")
        assert len(lines) == len(level) == 5 == len(set(lines))
        heights = [{re.findall(r"[-\d.]+", p)[i] for i in range(1, 12, 2)} for p in level]
        assert all(len(h) == 1 for h in heights)


def test_single_series_are_the_same_each_time_and_few_are_all_shown() -> None:
    schema, rows = series(2, 4, 2)
    first, again = (
        series_examples(schema, rows, rows, rng=np.random.default_rng(3)) for _ in range(2)
    )
    assert first == again and len(strokes(first[0][1], "real")) == 2
    assert series_examples(TABLE, table(5, 0), table(5, 1), rng=np.random.default_rng(0)) == []


def score(value: float) -> Score:
    return Score("d", value, value * 0.9, value * 1.1, 50)


def test_joint_plot_has_a_curve_for_each_side_that_is_there() -> None:
    pairs = [Compared("d", score(m / 10), score(m / 20)) for m in (2, 3, 4)]
    both = joint_plot([Joint(m, 9, d) for m, d in zip((2, 3, 4), pairs, strict=True)])
    alone = joint_plot([Joint(m, 9, Compared("d", score(m / 10))) for m in (2, 3)])
    ET.fromstring(both)
    assert "var(--real)" in both and "var(--synthetic)" in both
    assert "var(--real)" not in alone and "var(--synthetic)" in alone
    assert all(f">{m}</text>" in both for m in (2, 3, 4))


def test_map_has_a_mark_for_every_record() -> None:
    draw = np.random.default_rng(0)
    text = map_plot((draw.random((30, 2)), draw.random((20, 2))))
    root = ET.fromstring(text)
    marks = [e for e in root.iter() if e.tag.endswith("}use")]
    assert sum("--real" in m.get("style", "") for m in marks) == 30
    assert sum("--synthetic" in m.get("style", "") for m in marks) == 20


def test_small_errors_are_drawn_to_their_own_scale_and_in_figures() -> None:
    models = [
        StudentScores(n, (Compared("MAE", score(v), score(v / 9)),)) for n, v in (("m", 0.09),)
    ]
    text = student_plot(models, "MAE")
    ET.fromstring(text)
    assert ">0.0900</text>" in text and ">0.0100</text>" in text and ">.25</text>" not in text
    assert student_plot([], "MAE") == ""
