"""Plots for the report: small, calm, colour-blind safe.

Real rows are always a blue area, bar or panel, synthetic rows an orange line, bar or panel (blue
and orange stay apart for all common kinds of colour blindness; shape or place tells them apart
without). How they are drawn is in `drawing`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes

from understudy.data.column import bounds
from understudy.data.scale import from_unit
from understudy.data.schema import Schema
from understudy.evaluation.axes import Axis, axes
from understudy.evaluation.correlation import correlations
from understudy.evaluation.drawing import (
    CARD,
    INK,
    LINE,
    MUTED,
    REAL,
    SYNTHETIC,
    chart,
    picture,
    svg,
)
from understudy.evaluation.embedding import Embedding
from understudy.evaluation.joints import Joint
from understudy.evaluation.pixels import mean_images
from understudy.evaluation.rows import Rows
from understudy.evaluation.score import Compared, Score
from understudy.evaluation.utility import StudentScores

__all__ = [
    "class_rows",
    "column_plot",
    "correlation_plots",
    "joint_plot",
    "map_plot",
    "series_examples",
    "series_plots",
    "student_plot",
]

MOST_BARS = 12
BINS = 30
EXAMPLES, EXAMPLE_CHANNELS = 5, 2
ACROSS = 8
SIDES = ("real", "synthetic")


def column_plot(axis: Axis, real: Rows, synthetic: Rows) -> str:
    """Distribution of one column, real and synthetic laid over each other."""
    alt = f"Distribution of {axis.name}: real and synthetic"
    if axis.categories:
        return _bars(axis, real, synthetic, alt)
    values = [v[np.isfinite(v)].ravel() for v in (axis.values(real), axis.values(synthetic))]
    with chart(3.2, 1.55) as (figure, ax):
        ax.spines["left"].set_visible(False)
        ax.set_yticks([])
        if all(len(v) for v in values):
            _overlay(ax, axis, *values)
        else:
            ax.text(0.5, 0.5, "no values on one side", ha="center", transform=ax.transAxes)
        return svg(figure, alt)


def _overlay(ax: Axes, axis: Axis, real: np.ndarray, synthetic: np.ndarray) -> None:
    low = min(real.min(), synthetic.min())
    high = max(real.max(), synthetic.max())
    edges = np.linspace(low, high if high > low else low + 1e-6, BINS + 1)
    heights = [np.histogram(v, edges)[0] / len(v) for v in (real, synthetic)]
    ax.stairs(heights[0], edges, fill=True, color=REAL, alpha=0.32, linewidth=0)
    ax.stairs(heights[0], edges, color=REAL, linewidth=0.9, alpha=0.75)
    ax.stairs(heights[1], edges, color=SYNTHETIC, linewidth=1.7)
    ax.set_xlim(edges[0], edges[-1])
    ax.set_ylim(0, max(h.max() for h in heights) * 1.08)
    ticks = np.linspace(edges[0], edges[-1], 3)
    ax.set_xticks(ticks, [_natural(axis, t, high - low) for t in ticks])
    first, _, last = ax.get_xticklabels()
    first.set_horizontalalignment("left")
    last.set_horizontalalignment("right")


def _natural(axis: Axis, x: float, span: float) -> str:
    """An encoded value in the column's own units."""
    if axis.column is None:
        return f"{x:.2f}"
    column, value = axis.column, float(from_unit(axis.column, np.array(x)))
    if column.kind in ("date", "timestamp"):
        return str(np.datetime64(int(value), "D" if column.kind == "date" else "s"))
    if column.kind == "integer":
        return f"{round(value):,}"
    if column.scale == "log":
        return f"{value:,.3g}"
    low, high = bounds(column)
    step = span * (high - low)
    digits = int(np.clip(1 - np.floor(np.log10(step)), 0, 6)) if step > 0 else 2
    return f"{value:,.{digits}f}"


def _bars(axis: Axis, real: Rows, synthetic: Rows, alt: str) -> str:
    names = axis.categories
    shares = [
        np.bincount(axis.values(rows), minlength=len(names)) / max(1, len(rows))
        for rows in (real, synthetic)
    ]
    order = np.argsort(-shares[0], kind="stable") if len(names) > MOST_BARS else range(len(names))
    shown = list(order)[:MOST_BARS]
    labels = [names[i] if len(names[i]) <= 18 else names[i][:17] + "…" for i in shown]
    rows = [list(s[shown]) for s in shares]
    if len(names) > MOST_BARS:
        labels.append(f"{len(names) - MOST_BARS:,} others")
        rows = [[*r, 1 - sum(r)] for r in rows]
    with chart(3.2, max(1.55, 0.28 * len(labels) + 0.4)) as (figure, ax):
        _paired(ax, labels, rows[1], rows[0])
        ax.set_xlim(0, max(map(max, rows)) * 1.05)
        ax.xaxis.set_major_locator(mpl.ticker.MaxNLocator(3))
        ax.xaxis.set_major_formatter(mpl.ticker.PercentFormatter(1, decimals=0))
        return svg(figure, alt)


def _paired(
    ax: Axes, labels: Sequence[str], synthetic: Sequence[float], real: Sequence[float]
) -> None:
    """Two horizontal bars per label, real above synthetic."""
    place = np.arange(len(labels))
    ax.barh(place - 0.19, real, 0.34, color=REAL, alpha=0.75, linewidth=0)
    ax.barh(place + 0.19, synthetic, 0.34, color=SYNTHETIC, linewidth=0)
    ax.set_yticks(place, labels)
    ax.invert_yaxis()


def student_plot(students: Sequence[StudentScores], name: str, *, share: bool = True) -> str:
    """One measure for every student: trained on real above trained on synthetic, with intervals.

    A ``share`` is drawn from 0 to 1; anything else (an error) to the largest.
    """
    found = [(s.student, c) for s in students for c in s.scores if c.name == name]
    if not found:
        return ""
    labels = [student.replace(" ", "\n", 1) for student, _ in found]
    synthetic = [c.synthetic.value for _, c in found]
    real = [c.real.value if c.real else 0.0 for _, c in found]
    with chart(3.6, 0.62 * len(found) + 0.42) as (figure, ax):
        _paired(ax, labels, synthetic, real)
        end = 1.0 if share else 1.08 * _largest([c for _, c in found])
        for place, (_, compared) in enumerate(found):
            _whiskers(ax, place, compared, end)
        ax.set_xlim(0, end)
        if share:
            ax.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", ".25", ".5", ".75", "1"])
        else:
            ax.xaxis.set_major_locator(mpl.ticker.MaxNLocator(4))
        ax.grid(axis="x", color=LINE, linewidth=0.6)
        ax.set_axisbelow(True)
        return svg(figure, f"{name} of each model, trained on real and on synthetic rows")


def _largest(found: Sequence[Compared]) -> float:
    """The highest end of an interval, never zero."""
    return max(s.high for c in found for s in (c.synthetic, c.real) if s is not None) or 1.0


def _whiskers(ax: Axes, place: int, compared: Compared, end: float) -> None:
    """Intervals, and the values in figures: at the foot of a bar, or behind a short one."""
    for score, shift in ((compared.real, -0.19), (compared.synthetic, 0.19)):
        if score is not None:
            y = place + shift
            ax.plot([score.low, score.high], [y, y], color=INK, linewidth=1.1)
            text = f"{score.value:.{3 if end == 1 else 4}f}"
            fits = score.low > 0.2 * end
            start, colour = (0.0, CARD) if fits else (score.high, INK)
            ax.text(start + 0.02 * end, y, text, va="center", fontsize=7.5, color=colour)


def joint_plot(joints: Sequence[Joint]) -> str:
    """Distance of joint distributions against the number of columns, with the real floor."""
    with chart(5.2, 2.5) as (figure, ax):
        for side, colour, mark in (("real", REAL, "s"), ("synthetic", SYNTHETIC, "o")):
            found = [(j.ways, getattr(j.distance, side)) for j in joints]
            curve = [(ways, score) for ways, score in found if score is not None]
            if curve:
                _curve(ax, curve, colour, mark)
        ax.set_xticks([j.ways for j in joints])
        ax.set_xlabel("columns at a time", color=MUTED)
        ax.set_ylim(0, min(1.0, 1.15 * _largest([j.distance for j in joints])))
        ax.grid(axis="y", color=LINE, linewidth=0.6)
        ax.set_axisbelow(True)
        return svg(figure, "Distance of joint distributions against the number of columns")


def _curve(ax: Axes, curve: Sequence[tuple[int, Score]], colour: str, mark: str) -> None:
    ways = [w for w, _ in curve]
    low, high = ([getattr(s, end) for _, s in curve] for end in ("low", "high"))
    ax.fill_between(ways, low, high, color=colour, alpha=0.2, linewidth=0)
    ax.plot(ways, [s.value for _, s in curve], mark + "-", color=colour, linewidth=1.6, ms=4.5)


def map_plot(places: Embedding) -> str:
    """Real records as filled dots, synthetic ones as rings, on one map."""
    real, synthetic = places
    with chart(5.2, 4.2) as (figure, ax):
        how: Any = {"linestyle": "none", "marker": "o"}
        ax.plot(*real.T, **how, ms=4, color=REAL, alpha=0.5, mew=0)
        ax.plot(*synthetic.T, **how, ms=3.8, mfc="none", mec=SYNTHETIC, mew=0.9, alpha=0.85)
        ax.set_xticks([])
        ax.set_yticks([])
        for side in ("left", "bottom"):
            ax.spines[side].set_visible(False)
        return svg(figure, "Map of real and synthetic records (t-SNE)")


def correlation_plots(schema: Schema, real: Rows, synthetic: Rows) -> list[tuple[str, str]]:
    """Heat-maps as (caption, picture): real, synthetic, and their difference."""
    if schema.kind != "table" or min(len(real), len(synthetic)) < 2:
        return []
    a, b = correlations(schema, real), correlations(schema, synthetic)
    if len(a) < 2:
        return []
    maps = (("Real", a), ("Synthetic", b), ("Synthetic minus real", b - a))
    return [(name, picture(_diverging(m), f"Correlations: {name}", grow=True)) for name, m in maps]


def _diverging(values: np.ndarray) -> np.ndarray:
    """Blue (negative) over clear to orange (positive): clear shows the page, light or dark."""
    v = np.clip(values, -1, 1)
    colour = np.where(v[..., None] < 0, (31, 120, 200), (226, 110, 20))
    alpha = np.rint(255 * np.abs(v) ** 0.75)[..., None]
    return np.concatenate([colour, alpha], axis=2).astype(np.uint8)


def class_rows(
    schema: Schema, real: Rows, synthetic: Rows, *, rng: np.random.Generator
) -> list[tuple[str, str, str]]:
    """For images, per class: (name, real strip, synthetic strip), the mean image first."""
    if schema.kind != "image":
        return []
    found = []
    means = [mean_images(schema, rows)[0] for rows in (real, synthetic)]
    for k, name in enumerate(schema.classes[:20]):
        first, second = (
            _strip(schema, rows.x[rows.y == k], mean[k], rng, f"{side} images of class {name}")
            for side, rows, mean in zip(SIDES, (real, synthetic), means, strict=True)
        )
        found.append((name, first, second))
    return found


def _strip(
    schema: Schema, x: np.ndarray, mean: np.ndarray, rng: np.random.Generator, alt: str
) -> str:
    """Mean image, a gap, then samples in a row; clear where there are fewer rows."""
    if len(x) == 0:
        return ""
    chosen = x[rng.permutation(len(x))[:ACROSS]]
    height, width = schema.shape[:2]
    gap = max(1, width // 14)
    sheet = np.zeros((height, (ACROSS + 1) * (width + gap) + gap, 4), np.uint8)
    for i, image in enumerate([mean, *chosen]):
        left = i * (width + gap) + (gap if i else 0)
        sheet[:, left : left + width] = _rgba(schema, image)
    return picture(sheet, alt)


def _rgba(schema: Schema, image: np.ndarray) -> np.ndarray:
    pixels = np.rint(np.clip(image, 0, 1) * 255).astype(np.uint8).reshape(*schema.shape[:2], -1)
    colours = pixels if pixels.shape[2] == 3 else np.repeat(pixels[..., :1], 3, axis=2)
    return np.concatenate([colours, np.full((*schema.shape[:2], 1), 255, np.uint8)], axis=2)


def series_plots(schema: Schema, real: Rows, synthetic: Rows) -> list[tuple[str, str]]:
    """For series, per channel: median and middle 80 % over time."""
    if schema.kind != "series" or not len(real) or not len(synthetic):
        return []
    found = []
    for channel in axes(schema)[: min(12, len(schema.columns))]:
        with chart(3.2, 1.7) as (figure, ax):
            for rows, colour in ((real, REAL), (synthetic, SYNTHETIC)):
                low, mid, high = np.quantile(channel.values(rows), [0.1, 0.5, 0.9], axis=0)
                ax.fill_between(range(len(mid)), low, high, color=colour, alpha=0.2, linewidth=0)
                ax.plot(mid, color=colour, linewidth=1.6)
            ax.set_yticks([])
            found.append((channel.name, svg(figure, f"{channel.name} over time")))
    return found


def series_examples(
    schema: Schema, real: Rows, synthetic: Rows, *, rng: np.random.Generator
) -> list[tuple[str, str]]:
    """For series, of the channels that move most: a few real ones beside a few synthetic ones.

    Bands (`series_plots`) look alike whether each series moves or all lie flat; these do not.
    """
    if schema.kind != "series" or not len(real) or not len(synthetic):
        return []
    channels = axes(schema)[: len(schema.columns)]
    moves = [channel.values(real).std(1).mean() for channel in channels]
    busiest = np.argsort(np.negative(moves), kind="stable")[:EXAMPLE_CHANNELS]
    few = [rows.take(rng.permutation(len(rows))[:EXAMPLES]) for rows in (real, synthetic)]
    return [(channels[i].name, _examples(channels[i], *few)) for i in sorted(busiest)]


def _examples(channel: Axis, real: Rows, synthetic: Rows) -> str:
    """Two panels on one scale, a line per series."""
    with chart(4.6, 1.9, across=2) as (figure, panels):
        colours = (REAL, SYNTHETIC)
        for ax, side, rows, colour in zip(panels, SIDES, (real, synthetic), colours, strict=True):
            ax.plot(channel.values(rows).T, color=colour, linewidth=1.2, alpha=0.8)
            ax.set_title(side, loc="left", fontsize=9, color=MUTED)
            ax.set_yticks([])
        return svg(figure, f"{channel.name}: single real series beside single synthetic ones")
