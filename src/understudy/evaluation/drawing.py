"""Drawing for a page: matplotlib figures as SVG in the page's colours, pixels as embedded PNG.

Figures are drawn with placeholder colours, which become CSS variables of the page, so that one
drawing serves light and dark pages.
"""

from __future__ import annotations

import base64
import html
import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from PIL import Image

__all__ = ["BAD", "CARD", "INK", "LINE", "MUTED", "REAL", "SYNTHETIC", "chart", "picture", "svg"]

INK, MUTED, LINE, CARD = "#010101", "#020202", "#030303", "#060606"
REAL, SYNTHETIC, BAD = "#040404", "#050505", "#070707"
_VARIABLES = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    LINE: "var(--line)",
    REAL: "var(--real)",
    SYNTHETIC: "var(--synthetic)",
    CARD: "var(--card)",
    BAD: "var(--bad)",
}
_STYLE: Any = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 9,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "axes.edgecolor": LINE,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": LINE,
    "xtick.labelcolor": MUTED,
    "ytick.color": LINE,
    "ytick.labelcolor": INK,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "text.color": INK,
    "figure.constrained_layout.use": True,
}
_SURPLUS = (
    r"<metadata>.*?</metadata>",
    r"<style.*?</style>",
    r"<!--.*?-->",
    r' id="[A-Za-z0-9.]+_[0-9]+"',
)
"""What matplotlib adds that a page does not need, or that would repeat an id on it."""


@contextmanager
def chart(
    width: float, height: float, across: int = 1, widths: tuple[float, ...] | None = None
) -> Iterator[tuple[Figure, Any]]:
    """An empty figure of this size in inches, and its axes.

    Several are an array on one scale, or, with ``widths``, each on its own.
    """
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width, height))
        one = widths is None
        yield figure, figure.subplots(1, across, sharex=one, sharey=one, width_ratios=widths)


def svg(figure: Figure, alt: str) -> str:
    """The figure as inline SVG: page colours, no fixed size, ids of its own."""
    buffer = io.StringIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # glyphs the measuring font lacks
        with mpl.rc_context({"svg.hashsalt": alt}):
            figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    for pattern in _SURPLUS:
        text = re.sub(pattern, "", text, flags=re.DOTALL)
    for placeholder, variable in _VARIABLES.items():
        text = text.replace(placeholder, variable)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    return text.replace("<svg", f'<svg role="img" aria-label="{html.escape(alt)}"', 1)


def picture(pixels: np.ndarray, alt: str) -> str:
    """RGBA pixels as an embedded image that keeps its pixels sharp."""
    buffer = io.BytesIO()
    Image.fromarray(pixels, "RGBA").save(buffer, format="PNG", optimize=True)
    data = base64.b64encode(buffer.getvalue()).decode()
    return f'<img class="strip" alt="{html.escape(alt)}" src="data:image/png;base64,{data}">'
