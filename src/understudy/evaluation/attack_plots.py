"""Pictures of the section on attacks: every advantage on one scale, with what the claim allows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from understudy.data.schema import Schema
from understudy.evaluation.attacks.bound import Bound
from understudy.evaluation.attacks.outcome import Attack
from understudy.evaluation.drawing import BAD, INK, LINE, MUTED, SYNTHETIC, chart, picture, svg
from understudy.evaluation.plots import rgba

__all__ = ["advantage_plot", "strips"]


def advantage_plot(attacks: Sequence[Attack], bound: Bound | None, *, narrow: bool = False) -> str:
    """A line per attack from harmless (0) to certain (1); beyond the bound is ruled out.

    ``narrow``: for the page of a phone, where names stand above their lines.
    """
    width, each = (4.4, 0.5) if narrow else (8.4, 0.34)
    with chart(width, each * len(attacks) + 0.75) as (figure, ax):
        start = min(-0.1, *(min(a.advantage.low, a.naive.value) for a in attacks)) - 0.02
        for place, attack in enumerate(attacks):
            _line(ax, place, attack)
        if bound is not None:
            ax.axvspan(bound.value, 1.02, fc="none", ec=BAD, hatch="////", lw=0, alpha=0.35)
            ax.axvline(bound.value, color=BAD, linewidth=1.4)
        ax.axvline(0, color=INK, linewidth=0.8)
        if narrow:
            ax.set_yticks([])
            for place, attack in enumerate(attacks):
                ax.annotate(attack.name, (start, place - 0.28), annotation_clip=False, va="center")
        else:
            ax.set_yticks(range(len(attacks)), [a.name for a in attacks])
        ax.set_ylim(len(attacks) - 0.5, -0.65 if narrow else -0.5)
        ax.set_xlim(start, 1.02)
        ax.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0\nharmless", ".25", ".5", ".75", "1\ncertainty"])
        ax.grid(axis="x", color=LINE, linewidth=0.6)
        ax.set_axisbelow(True)
        allowed = "" if bound is None else f"; the claim allows {bound.value:.3f} at most"
        return svg(figure, f"Advantage of each attack{', narrow' if narrow else ''}{allowed}")


def _line(ax: Axes, place: int, attack: Attack) -> None:
    score = attack.advantage
    ax.plot([score.low, score.high], [place, place], color=INK, linewidth=1.2)
    ax.plot([attack.naive.value], [place], "o", ms=5, mfc="none", mec=MUTED, mew=1.2)
    ax.plot([score.value], [place], "o", ms=6, color=SYNTHETIC)


def strips(schema: Schema, pictures: np.ndarray) -> tuple[str, ...]:
    """Images rebuilt by the real and by the synthetic classifier, a strip each."""
    names = ("real", "synthetic")
    found = []
    for side, name in enumerate(names):
        images = [rgba(schema.shape, image) for image in pictures[:, side]]
        gap = np.zeros((schema.shape[0], max(1, schema.shape[1] // 14), 4), np.uint8)
        sheet = np.hstack([part for image in images for part in (image, gap)])
        found.append(picture(sheet, f"images rebuilt from a classifier trained on {name} images"))
    return tuple(found)
