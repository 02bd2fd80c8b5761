"""The gallery: every column, real beside synthetic, and the pairs that are worst.

Both sides share one scale. Numbers are drawn on the schema's own axis (a column with scale = "log"
therefore on a log axis); single values that hold a large share of the rows (atoms) are drawn as
bars of their own at the left, in per cent of all rows, and the rest of the values beside them.
Whole numbers with few values are all bars. Categories are sorted by how common they are in the
real rows. Far tails are gathered in the last cell, and its label says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes

from understudy.data.schema import Schema
from understudy.evaluation.axes import Axis, axes
from understudy.evaluation.drawing import LINE, MUTED, REAL, SYNTHETIC, chart, svg
from understudy.evaluation.natural import natural
from understudy.evaluation.pairs import Cut, PairFit
from understudy.evaluation.rows import Rows
from understudy.evaluation.worst import atoms

__all__ = ["column_plot", "pair_plots", "paired", "short"]

MOST_BARS = 10
FEW_VALUES = 16
BINS = 30
TAIL = 0.25
SIZE = (3.2, 1.7)


def column_plot(axis: Axis, real: Rows, synthetic: Rows) -> str:
    """Distribution of one column, real and synthetic on one scale."""
    alt = f"Distribution of {axis.name}: real and synthetic"
    sides = [axis.values(real).ravel(), axis.values(synthetic).ravel()]
    if axis.categories:
        return _categories(axis, sides, alt)
    seen = [v[np.isfinite(v)] for v in sides]
    if not all(len(v) for v in seen):
        with chart(*SIZE) as (figure, ax):
            ax.set_axis_off()
            ax.text(0.5, 0.5, "no values on one side", ha="center", transform=ax.transAxes)
            return svg(figure, alt)
    values = np.unique(np.concatenate(seen))
    single = list(values) if _is_counted(axis, values) else atoms(axis, sides)
    return _numbers(axis, sides, single, alt)


def _is_counted(axis: Axis, values: np.ndarray) -> bool:
    whole = axis.column is not None and axis.column.kind in ("integer", "date")
    return whole and len(values) <= FEW_VALUES


def _numbers(axis: Axis, sides: list[np.ndarray], single: list[float], alt: str) -> str:
    """Bars for single values and missing cells, a histogram for the rest."""
    bars = [(natural(axis, a), [float((v == a).mean()) for v in sides]) for a in single]
    gone = [float(np.isnan(v).mean()) for v in sides]
    bars += [("missing", gone)] if max(gone) > 0.005 else []
    rest = [v[np.isfinite(v) & ~np.isin(v, single)] for v in sides]
    shares = [len(r) / len(v) for r, v in zip(rest, sides, strict=True)]
    if max(shares) < 0.005:
        with chart(*SIZE) as (figure, ax):
            _standing(ax, bars)
            return svg(figure, alt)
    if not bars:
        with chart(*SIZE) as (figure, ax):
            _overlay(ax, axis, rest, [len(v) for v in sides])
            return svg(figure, alt)
    widths = (min(2.0, 0.4 + 0.3 * len(bars)), 3.0)
    with chart(*SIZE, across=2, widths=widths) as (figure, panels):
        _standing(panels[0], bars)
        _overlay(panels[1], axis, rest, [len(v) for v in sides])
        return svg(figure, alt)


def _standing(ax: Axes, bars: Sequence[tuple[str, list[float]]]) -> None:
    """Upright pairs of bars, real at the left."""
    place = np.arange(len(bars))
    real, ours = zip(*(heights for _, heights in bars), strict=True)
    ax.bar(place - 0.2, real, 0.38, color=REAL, alpha=0.75, linewidth=0)
    ax.bar(place + 0.2, ours, 0.38, color=SYNTHETIC, linewidth=0)
    shown = place[:: -(-len(bars) // 8)]
    labels = [bars[i][0] for i in shown]
    turned = sum(map(len, labels)) > 26
    ax.set_xticks(shown, labels, rotation=90 if turned else 0)
    ax.set_ylim(0, max(*real, *ours) * 1.08 or 1)
    _percent(ax)


def _percent(ax: Axes, axis: Literal["x", "y"] = "y") -> None:
    side = ax.yaxis if axis == "y" else ax.xaxis
    side.set_major_locator(mpl.ticker.MaxNLocator(3))
    side.set_major_formatter(mpl.ticker.FuncFormatter(lambda v, _: f"{100 * v:.3g}%"))
    ax.tick_params(axis=axis, labelcolor=MUTED)


def _overlay(ax: Axes, axis: Axis, rest: list[np.ndarray], rows: list[int]) -> None:
    """Two histograms as shares of all rows; what lies far out is gathered in the end cells."""
    (low, high), cut = _range([r for r in rest if len(r)])
    edges = np.linspace(low, high if high > low else low + 1e-6, BINS + 1)
    heights = [
        np.histogram(np.clip(r, low, high), edges)[0] / n for r, n in zip(rest, rows, strict=True)
    ]
    ax.stairs(heights[0], edges, fill=True, color=REAL, alpha=0.32, linewidth=0)
    ax.stairs(heights[0], edges, color=REAL, linewidth=0.9, alpha=0.75)
    ax.stairs(heights[1], edges, color=SYNTHETIC, linewidth=1.6)
    ax.set_xlim(edges[0], edges[-1])
    ax.set_ylim(0, max(h.max() for h in heights) * 1.08 or 1)
    ticks = np.linspace(edges[0], edges[-1], 3)
    labels = [natural(axis, t, high - low) for t in ticks]
    labels[0] = "≤ " * cut[0] + labels[0]
    labels[-1] = "≥ " * cut[1] + labels[-1]
    ax.set_xticks(ticks, labels)
    first, _, last = ax.get_xticklabels()
    first.set_horizontalalignment("left")
    last.set_horizontalalignment("right")
    _percent(ax)


def _range(rest: list[np.ndarray]) -> tuple[tuple[float, float], tuple[bool, bool]]:
    """From the least to the largest value, but for a tail of few values that takes much of it."""
    low, high = float(min(r.min() for r in rest)), float(max(r.max() for r in rest))
    inner_low = float(min(np.quantile(r, 0.005) for r in rest))
    inner_high = float(max(np.quantile(r, 0.995) for r in rest))
    if inner_low >= inner_high:
        return (low, high), (False, False)
    cut = inner_low - low > TAIL * (high - low), high - inner_high > TAIL * (high - low)
    return (inner_low if cut[0] else low, inner_high if cut[1] else high), cut


def _categories(axis: Axis, sides: list[np.ndarray], alt: str) -> str:
    names = axis.categories
    shares = [np.bincount(v, minlength=len(names)) / max(1, len(v)) for v in sides]
    order = np.argsort(-shares[0], kind="stable")
    shown = list(order)[:MOST_BARS]
    labels = [short(names[i]) for i in shown]
    rows = [list(s[shown]) for s in shares]
    if len(names) > MOST_BARS:
        labels.append(f"{len(names) - MOST_BARS:,} others")
        rows = [[*r, max(0.0, 1 - sum(r))] for r in rows]
    with chart(SIZE[0], max(SIZE[1], 0.28 * len(labels) + 0.4)) as (figure, ax):
        paired(ax, labels, rows[1], rows[0])
        ax.set_xlim(0, max(map(max, rows)) * 1.05)
        _percent(ax, "x")
        return svg(figure, alt)


def short(name: str, most: int = 18) -> str:
    """A name that fits beside a bar."""
    return name if len(name) <= most else name[: most - 1] + "…"


def paired(
    ax: Axes, labels: Sequence[str], synthetic: Sequence[float], real: Sequence[float]
) -> None:
    """Two horizontal bars per label, real above synthetic."""
    place = np.arange(len(labels))
    ax.barh(place - 0.19, real, 0.34, color=REAL, alpha=0.75, linewidth=0)
    ax.barh(place + 0.19, synthetic, 0.34, color=SYNTHETIC, linewidth=0)
    ax.set_yticks(place, labels)
    ax.invert_yaxis()


def pair_plots(
    schema: Schema, pairs: Sequence[PairFit], real: Rows, synthetic: Rows
) -> list[tuple[PairFit, str]]:
    """For each pair, two heat maps on one scale: how often values occur together."""
    by_name = {axis.name: axis for axis in axes(schema)}
    return [(p, _pair(by_name[p.first], by_name[p.second], real, synthetic)) for p in pairs]


def _pair(first: Axis, second: Axis, real: Rows, synthetic: Rows) -> str:
    cuts = [Cut.at_quantiles(axis, real, len(real)) for axis in (first, second)]
    tables = [_table(cuts, rows) for rows in (real, synthetic)]
    top, both = max(t.max() for t in tables), tables[0] + tables[1]
    alt = f"{first.name} with {second.name}: how often values occur together"
    with chart(3.4, 2.0, across=2) as (figure, panels):
        for ax, side, table in zip(panels, ("real", "synthetic"), tables, strict=True):
            _cells(ax, table / top, REAL if side == "real" else SYNTHETIC)
            ax.set_title(side, loc="left", fontsize=9, color=MUTED)
            ax.set_xticks(*_ticks(cuts[0]), rotation=90)
            ax.set_yticks(*_ticks(cuts[1]))
            ax.set_xlim(*_filled(both.sum(1)))
            ax.set_ylim(*_filled(both.sum(0)))
            ax.set_xlabel(short(first.name, 20), color=MUTED)
        panels[0].set_ylabel(short(second.name, 20), color=MUTED)
        return svg(figure, alt)


def _filled(shares: np.ndarray) -> tuple[float, float]:
    """From the first cell with rows to the last."""
    found = np.flatnonzero(shares)
    return found[0] - 0.5, found[-1] + 0.5


def _cells(ax: Axes, table: np.ndarray, colour: str) -> None:
    """A square per cell, the fuller the more rows it has."""
    for (i, j), share in np.ndenumerate(table):
        if share > 0.004:
            alpha = float(share) ** 0.6
            ax.add_patch(
                mpl.patches.Rectangle((i - 0.5, j - 0.5), 1, 1, color=colour, alpha=alpha, lw=0)
            )
    for side in ("top", "right"):
        ax.spines[side].set_visible(True)
        ax.spines[side].set_color(LINE)


def _ticks(cut: Cut) -> tuple[list[int], list[str]]:
    """Names of categories, or where some of the cells of numbers begin."""
    axis = cut.axis
    if axis.categories:
        first = [int(np.flatnonzero(cut.places == k)[0]) for k in range(cut.n)]
        names = [short(axis.categories[i], 12) for i in first]
        if (cut.places == cut.n - 1).sum() > 1:
            names[-1] = "others"
        return list(range(cut.n)), names
    span = float(np.ptp(cut.edges)) if len(cut.edges) > 1 else 1.0
    shown = range(0, len(cut.edges), max(1, len(cut.edges) // 4))
    return [i + 1 for i in shown], [natural(axis, cut.edges[i], span) for i in shown]


def _table(cuts: Sequence[Cut], rows: Rows) -> np.ndarray:
    a, b = (cut.codes(rows) for cut in cuts)
    whole = np.bincount(a * cuts[1].n + b, minlength=cuts[0].n * cuts[1].n)
    return whole.reshape(cuts[0].n, cuts[1].n) / max(1, len(rows))
