"""The report: one page that a person can read offline, print, and (mostly not) share.

`render` turns `Scores` into self-contained HTML through ``template.html``; pictures come from
`plots`, sentences about claims from `words`. The page carries a content policy that lets it
load nothing and run nothing. Whatever rests on real rows is marked; the claim does not cover it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from understudy.data.schema import Schema
from understudy.evaluation import plots, words
from understudy.evaluation.axes import axes
from understudy.evaluation.correlation import largest_differences
from understudy.evaluation.embedding import Embedding
from understudy.evaluation.fidelity import ColumnFit, Fidelity
from understudy.evaluation.forecasts import MAE, REPEATING, Forecasts
from understudy.evaluation.rows import NOUNS, Rows
from understudy.evaluation.score import INTERNAL, Compared
from understudy.evaluation.utility import COMMONEST, StudentScores, Utility

__all__ = ["Material", "render"]

MOST_COLUMNS = 36


@dataclass(frozen=True)
class Material:
    """All a report is made of."""

    schema: Schema
    claims: Sequence[Mapping[str, Any]]
    manifest: Mapping[str, Any]
    synthetic: Rows
    train: Rows
    test: Rows
    utility: Utility
    forecasts: Forecasts
    fidelity: Fidelity
    places: Embedding | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tile:
    """A headline figure."""

    what: str
    figure: str
    words: str
    beside: str = ""
    internal: bool = True


def render(material: Material, *, rng: np.random.Generator) -> str:
    """The whole page as text."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters.update(figure=figure, percent=words.percent, short=_initials)
    source = files("understudy.evaluation").joinpath("template.html").read_text(encoding="utf-8")
    context = {**_text(material), **_pictures(material, rng)}
    return environment.from_string(source).render(**context)


def figure(value: float, decimals: int = 3) -> str:
    """A score as people write it: three decimals; small errors and distances get four."""
    return f"{value:.{decimals}f}"


def _initials(name: str) -> str:
    return {"Kolmogorov-Smirnov": "KS", "total variation": "TV"}.get(name, name)


def _text(m: Material) -> dict[str, Any]:
    return {
        "name": m.manifest.get("name") or m.schema.name,
        "internal": INTERNAL,
        "lead": _lead(m),
        "headline": words.headline(m.claims),
        "claims": [words.in_words(claim) for claim in m.claims],
        "tiles": _tiles(m),
        "verdict": _verdict(m),
        "forecasts": m.forecasts,
        "repeating": REPEATING,
        "forecast_words": _forecast_words(m),
        "utility": m.utility,
        "utility_method": _method(m),
        "student_rows": _student_rows(m.utility),
        "fidelity": m.fidelity,
        "labelled": m.schema.n_classes > 1,
        "provenance": _provenance(m),
        "settings": _settings(m.manifest),
    }


def _pictures(m: Material, rng: np.random.Generator) -> dict[str, Any]:
    real = m.test
    shown = _ranked(m.fidelity)[:MOST_COLUMNS]
    by_name = {axis.name: axis for axis in axes(m.schema)}
    columns = [
        (fit, Markup(plots.column_plot(by_name[fit.column], real, m.synthetic))) for fit in shown
    ]
    measures = _measures(m.utility)
    drawn = [(_heading(m, n), Markup(plots.student_plot(m.utility.students, n))) for n in measures]
    classes = plots.class_rows(m.schema, real, m.synthetic, rng=rng)
    return {
        "students": drawn,
        "columns": columns,
        "columns_words": _columns_words(len(shown), len(m.fidelity.columns)),
        "pairs": largest_differences(m.schema, real, m.synthetic),
        "forecast_plot": Markup(plots.student_plot(m.forecasts.models, MAE, share=False)),
        "joint_plot": Markup(plots.joint_plot(m.fidelity.joints)) if m.fidelity.joints else "",
        "map": Markup(plots.map_plot(m.places)) if m.places else "",
        "mapped": len(m.places[0]) if m.places else 0,
        "coverage_words": _coverage_words(m.fidelity.coverage, NOUNS[m.schema.kind]),
        "heatmaps": _marked(plots.correlation_plots(m.schema, real, m.synthetic)),
        "examples": _marked(plots.series_examples(m.schema, real, m.synthetic, rng=rng)),
        "most_examples": plots.EXAMPLES,
        "series": _marked(plots.series_plots(m.schema, real, m.synthetic)),
        "classes": _marked(classes),
        "classes_left": max(0, m.schema.n_classes - len(classes)),
    }


def _marked(rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Captions are escaped by the template; pictures are our own markup."""
    return [(row[0], *map(Markup, row[1:])) for row in rows]


def _ranked(fidelity: Fidelity) -> list[ColumnFit]:
    return sorted(fidelity.columns, key=lambda fit: -fit.main.synthetic.value)


def _columns_words(shown: int, total: int) -> str:
    rest = f" Shown: {shown} of {total}." if shown < total else ""
    return (
        f"Held-out real and synthetic values, largest differences first.{rest} Distances are "
        "Kolmogorov-Smirnov (KS) for numbers and total variation (TV) for categories, both from "
        "0 (same) to 1 (disjoint)."
    )


def _lead(m: Material) -> str:
    noun = NOUNS[m.schema.kind]
    maker = m.manifest.get("recipe")
    by = f" by {maker}" if isinstance(maker, str) else ""
    return (
        f"{len(m.synthetic):,} synthetic {noun} made{by}, compared with {len(m.test):,} real "
        f"{noun} held out for testing."
    )


def _tiles(m: Material) -> list[Tile]:
    tiles = [_claim_tile(m.claims)]
    best = m.utility.best
    if best is not None:
        accuracy = best["accuracy"]
        beside = f"vs {words.percent(accuracy.real.value)}" if accuracy.real else ""
        said = f"of real test data predicted correctly, {best.student}: synthetic vs real"
        tiles.append(Tile("Utility", words.percent(accuracy.synthetic.value), said, beside))
    elif m.forecasts.main is not None:
        tiles.append(_forecast_tile(m.forecasts.main))
    if m.fidelity.overall:
        tiles.append(_distance_tile(m.fidelity.overall[0], m.schema))
    return tiles


def _claim_tile(claims: Sequence[Mapping[str, Any]]) -> Tile:
    if not claims:
        return Tile("Privacy", "no claim", "treat this release like the real data", internal=False)
    first = words.in_words(claims[0])
    said = f"{first.title.lower()}; unit: {claims[0].get('unit', 'record')}"
    beside = first.delta if first.private else ""
    return Tile("Privacy", first.epsilon, said, beside, internal=False)


def _distance_tile(compared: Compared, schema: Schema) -> Tile:
    what = {"table": "columns", "series": "channels"}.get(schema.kind, "measures")
    beside = f"floor {figure(compared.real.value)}" if compared.real else ""
    said = f"mean distance of {what} from the real ones: 0 is the same, 1 is disjoint"
    return Tile("Fidelity", figure(compared.synthetic.value), said, beside)


def _forecast_tile(error: Compared) -> Tile:
    beside = f"vs {figure(error.real.value, 4)}" if error.real else ""
    said = "next-step error of an LSTM trained on synthetic vs real (as a share of the range)"
    return Tile("Utility", figure(error.synthetic.value, 4), said, beside)


def _forecast_words(m: Material) -> str:
    error, naive = m.forecasts.main, m.forecasts.naive
    if error is None or naive is None:
        return ""
    real = f"; trained on real series, by {figure(error.real.value, 4)}" if error.real else ""
    off, repeated = figure(error.synthetic.value, 4), figure(naive.value, 4)
    return (
        f"An LSTM reads a series step by step and predicts the next step. Trained on synthetic "
        f"series, it is off by {off} on real ones{real}. Repeating the last step, which needs no "
        f"model, is off by {repeated}. These are absolute errors averaged over all channels, as a "
        f"share of each channel's public range; smaller is better. The forest and the two-layer "
        f"network predict only the last step."
    )


def _coverage_words(coverage: Compared | None, noun: str) -> str:
    if coverage is None:
        return ""
    real = ""
    if coverage.real is not None:
        real = f" (other real {noun}: {words.percent(coverage.real.value)})"
    return (
        f"Synthetic {noun} cover {words.percent(coverage.synthetic.value)} of the real ones"
        f"{real}. A real one is covered if a synthetic one is at least as near as its fifth "
        f"nearest real neighbour. Low coverage means that some kinds of {noun} are missing."
    )


def _verdict(m: Material) -> str:
    best = m.utility.best
    if best is None:
        return "" if m.forecasts.main else "No model was trained."
    accuracy = best["accuracy"]
    synthetic, real = accuracy.synthetic, accuracy.real
    said = (
        f"A {best.student} trained on synthetic data alone is right on "
        f"{words.percent(synthetic.value)} of the held-out real data "
        f"(95 % interval {words.percent(synthetic.low)} to {words.percent(synthetic.high)})."
    )
    if real is not None:
        said = f"{said} Trained on real data it reaches {words.percent(real.value)}."
    if m.utility.naive is None:
        return said
    naive = words.percent(m.utility.naive.value)
    return f"{said} Always predicting {COMMONEST} would be right on {naive}."


def _method(m: Material) -> str:
    f1 = "F1 is the mean over classes." if m.utility.students else ""
    if m.utility.positive is not None:
        f1 = f"F1 is for the class “{m.utility.positive}”."
    return (
        f"Each model was trained twice with the same settings, on {len(m.synthetic):,} synthetic "
        f"and on {len(m.train):,} real {NOUNS[m.schema.kind]}, and tested on the same "
        f"{len(m.test):,}. {f1} Intervals reflect the choice of test data only, not of training "
        f"data or initial weights. " + " ".join(m.notes)
    )


def _measures(utility: Utility) -> list[str]:
    """Names of the measures that any student has, in order."""
    return list(dict.fromkeys(c.name for s in utility.students for c in s.scores))


def _heading(m: Material, measure: str) -> str:
    return measure[0].upper() + measure[1:]


def _student_rows(utility: Utility) -> list[dict[str, Any]]:
    measures = _measures(utility)
    rows: list[dict[str, Any]] = [
        {"student": s.student, "cells": [_cell(s, n) for n in measures]} for s in utility.students
    ]
    if utility.naive is not None:
        naive = [utility.naive if n == utility.naive.name else None for n in measures]
        cells = [{"synthetic": None, "real": score} for score in naive]
        rows.append({"student": COMMONEST, "cells": cells})
    return rows


def _cell(student: StudentScores, name: str) -> dict[str, Any]:
    found = next((c for c in student.scores if c.name == name), None)
    if found is None:
        return {"synthetic": None, "real": None}
    return {"synthetic": found.synthetic, "real": found.real}


PROVENANCE = {
    "name": "Study",
    "recipe": "Recipe",
    "study": "Study hash",
    "schema": "Schema hash",
    "source": "Noise source",
    "versions": "Version of",
}


def _provenance(m: Material) -> list[tuple[str, str]]:
    """Where the release comes from: what a reader needs to find and check it."""
    said = {"schema": m.schema.hash} | dict(m.manifest)
    return _flat({term: said[key] for key, term in PROVENANCE.items() if key in said})


def _settings(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Everything else the manifest says."""
    return _flat({k: v for k, v in manifest.items() if k not in PROVENANCE})


def _flat(value: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for key, item in value.items():
        name = f"{prefix}{key}"
        if isinstance(item, Mapping):
            found += _flat(item, f"{name} ")
        elif item is not None:
            found.append((name.replace("_", " "), _short(item)))
    return found


def _short(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return text if len(text) <= 400 else text[:399] + "…"
