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

from understudy.data.schema import Schema
from understudy.evaluation.axes import Axis, axes
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
from understudy.evaluation.gallery import paired
from understudy.evaluation.joints import Joint
from understudy.evaluation.pixels import mean_images
from understudy.evaluation.rows import Rows
from understudy.evaluation.score import Compared, Score
from understudy.evaluation.utility import StudentScores
from understudy.evaluation.words import figure as figure_of

__all__ = [
    "class_rows",
    "joint_plot",
    "map_plot",
    "rgba",
    "series_examples",
    "series_plots",
    "student_plot",
]

EXAMPLES, EXAMPLE_CHANNELS = 5, 2
ACROSS = 8
DEEPEST = -0.5
SIDES = ("real", "synthetic")


def student_plot(students: Sequence[StudentScores], name: str) -> str:
    """One measure for every student: trained on real above trained on synthetic, and guessing.

    Errors are drawn to the largest; everything else to 1, and below 0 no farther than `DEEPEST`.
    """
    found = [(s.student, c) for s in students for c in s.scores if c.name == name]
    if not found:
        return ""
    labels = [student.replace(" ", "\n", 1) for student, _ in found]
    synthetic = [c.synthetic.value for _, c in found]
    real = [c.real.value if c.real else 0.0 for _, c in found]
    error = "MAE" in name
    with chart(3.6, 0.62 * len(found) + 0.42) as (figure, ax):
        start = 0.0 if error else max(DEEPEST, min(0.0, *synthetic, *real))
        end = 1.08 * _largest([c for _, c in found]) if error else 1.0
        paired(ax, labels, *([max(x, start) for x in side] for side in (synthetic, real)))
        for place, (_, compared) in enumerate(found):
            _whiskers(ax, place, compared, end)
        ax.set_xlim(start, end)
        ax.xaxis.set_major_locator(mpl.ticker.MaxNLocator(4))
        ax.grid(axis="x", color=LINE, linewidth=0.6)
        ax.set_axisbelow(True)
        return svg(figure, f"{name} of each model, trained on real and on synthetic rows")


def _largest(found: Sequence[Compared]) -> float:
    """The highest end of an interval, never zero."""
    scores = (s for c in found for s in (c.synthetic, c.real, c.guess) if s is not None)
    return max(s.high for s in scores) or 1.0


def _whiskers(ax: Axes, place: int, compared: Compared, end: float) -> None:
    """Intervals, guessing as a dotted line, and values: at the foot of a bar, or behind it."""
    if compared.guess is not None:
        x = compared.guess.value
        ax.plot([x, x], [place - 0.42, place + 0.42], ":", color=INK, linewidth=1.3)
    for score, shift in ((compared.real, -0.19), (compared.synthetic, 0.19)):
        if score is not None:
            y = place + shift
            ax.plot([score.low, score.high], [y, y], color=INK, linewidth=1.1)
            fits = score.low > 0.22 * end
            x, colour = (0.0, CARD) if fits else (max(score.high, 0.0), INK)
            ax.text(
                x + 0.02 * end,
                y,
                _written(score.value, end),
                va="center",
                fontsize=7.5,
                color=colour,
            )


def _written(value: float, end: float) -> str:
    """A value as it fits on a bar."""
    if end == 1:
        return figure_of(value, 3)
    return figure_of(value, 4) if end < 10 else f"{value:,.3g}" if end < 1000 else f"{value:,.0f}"


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


def class_rows(
    schema: Schema, real: Rows, synthetic: Rows, *, rng: np.random.Generator
) -> list[tuple[str, str, str]]:
    """Of images, per class: (name, real strip, synthetic strip), the mean image first."""
    found = []
    for said, shape, places in _images(schema):
        sides = [Rows(rows.x[:, places], rows.y) for rows in (real, synthetic)]
        means = [mean_images(schema, rows)[0] for rows in sides]
        for k, name in enumerate(schema.classes[:20]):
            first, second = (
                _strip(shape, rows.x[rows.y == k], mean[k], rng, f"{side} images of class {name}")
                for side, rows, mean in zip(SIDES, sides, means, strict=True)
            )
            found.append((said.format(name), first, second))
    return found


def _images(schema: Schema) -> list[tuple[str, tuple[int, ...], slice]]:
    """What shows a class of each image, its shape, and where its pixels stand in rows."""
    if schema.kind == "image":
        return [("{}", schema.shape, slice(None))]
    found = []
    for image in schema.images:
        start = schema.place(image.pixels[0])[0]
        said = image.name if schema.n_classes < 2 else f"{image.name}, {schema.label} {{}}"
        found.append((said, image.shape, slice(start, start + len(image.pixels))))
    return found


def _strip(
    shape: tuple[int, ...], x: np.ndarray, mean: np.ndarray, rng: np.random.Generator, alt: str
) -> str:
    """Mean image, a gap, then samples in a row; clear where there are fewer rows."""
    if len(x) == 0:
        return ""
    chosen = x[rng.permutation(len(x))[:ACROSS]]
    height, width = shape[:2]
    gap = max(1, width // 14)
    sheet = np.zeros((height, (ACROSS + 1) * (width + gap) + gap, 4), np.uint8)
    for i, image in enumerate([mean, *chosen]):
        left = i * (width + gap) + (gap if i else 0)
        sheet[:, left : left + width] = rgba(shape, image)
    return picture(sheet, alt)


def rgba(shape: tuple[int, ...], image: np.ndarray) -> np.ndarray:
    """Pixels of an encoded image, opaque."""
    pixels = np.rint(np.clip(image, 0, 1) * 255).astype(np.uint8).reshape(*shape[:2], -1)
    colours = pixels if pixels.shape[2] == 3 else np.repeat(pixels[..., :1], 3, axis=2)
    return np.concatenate([colours, np.full((*shape[:2], 1), 255, np.uint8)], axis=2)


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
