"""The report: one page that a person can read offline, print, and (mostly not) share.

`render` turns `Scores` into self-contained HTML through ``template.html``, which has the text;
pictures come from `plots`, sentences about claims from `words`. The page carries a content policy
that lets it load nothing and run nothing. Whatever rests on real rows is marked; the claim does
not cover it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from understudy.data.schema import Schema
from understudy.evaluation import attack_plots, gallery, plots, words
from understudy.evaluation.axes import axes
from understudy.evaluation.embedding import Embedding
from understudy.evaluation.forecasts import MAE, REPEATING
from understudy.evaluation.measures import MAE as MAE_NAME
from understudy.evaluation.pairs import PairFit
from understudy.evaluation.rows import NOUNS, Rows
from understudy.evaluation.score import INTERNAL, Score
from understudy.evaluation.verdict import EVEN, LEVELS
from understudy.evaluation.worst import excess

if TYPE_CHECKING:
    from understudy.evaluation.compare import Scores

__all__ = ["Material", "render"]

MOST_COLUMNS = 36
MOST_PAIRS = 4
SHORT = {"Kolmogorov-Smirnov": "KS", "total variation": "TV"}
TONES = dict(zip(LEVELS, ("good", "good", "good", "middle", "bad", "bad", "open"), strict=True))
PROVENANCE = {
    "name": "Study",
    "recipe": "Recipe",
    "study": "Study hash",
    "schema": "Schema hash",
    "source": "Noise source",
    "versions": "Made with",
}


@dataclass(frozen=True)
class Material:
    """All a report is made of."""

    schema: Schema
    scores: Scores
    synthetic: Rows
    train: Rows
    test: Rows
    places: Embedding | None


def render(m: Material, *, rng: np.random.Generator) -> str:
    """The whole page as text."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters.update(
        figure=words.figure,
        percent=words.percent,
        percentage=words.percentage,
        written=written,
        count=lambda rows: f"{len(rows):,}",
        short=lambda name: SHORT.get(name, name),
    )
    source = files("understudy.evaluation").joinpath("template.html").read_text(encoding="utf-8")
    context = {**_facts(m), **_overall_pictures(m), **_pictures_by_kind(m, rng)}
    return environment.from_string(source).render(**context)


def _facts(m: Material) -> dict[str, Any]:
    scores, manifest = m.scores, m.scores.manifest
    said = {"schema": m.schema.hash} | dict(manifest)
    return {
        "name": manifest.get("name") or m.schema.name,
        "kind": m.schema.kind,
        "noun": NOUNS[m.schema.kind],
        "synthetic": m.synthetic,
        "train": m.train,
        "test": m.test,
        "internal": INTERNAL,
        "claims": [words.in_words(claim) for claim in scores.claims],
        "best": scores.utility.best,
        "verdict": scores.verdict,
        "levels": TONES,
        "guesses": list(dict.fromkeys(j.guessing for j in scores.verdict.judgements)),
        "even": EVEN,
        "regression": m.schema.task == "regression",
        "repeating": REPEATING,
        "utility": scores.utility,
        "forecasts": scores.forecasts,
        "fidelity": scores.fidelity,
        "method_notes": scores.notes,
        "manifest": manifest,
        "provenance": _flat({term: said[key] for key, term in PROVENANCE.items() if key in said}),
        "attacks": scores.attacks,
        "settings": _flat({k: v for k, v in manifest.items() if k not in PROVENANCE}),
    }


def _overall_pictures(m: Material) -> dict[str, Any]:
    utility, fidelity = m.scores.utility, m.scores.fidelity
    ranked = sorted(fidelity.columns, key=lambda fit: -excess(fit))[:MOST_COLUMNS]
    by_name = {axis.name: axis for axis in axes(m.schema)}
    drawn = [gallery.column_plot(by_name[fit.column], m.test, m.synthetic) for fit in ranked]
    measures = [compared.name for compared in utility.best.scores] if utility.best else []
    students = [(n[0].upper() + n[1:], plots.student_plot(utility.students, n)) for n in measures]
    return {
        "students": _marked(students),
        "columns": list(zip(ranked, map(Markup, drawn), strict=True)),
        "joint_plot": Markup(plots.joint_plot(fidelity.joints)) if fidelity.joints else "",
        "map": Markup(plots.map_plot(m.places)) if m.places else "",
        "mapped": len(m.places[0]) if m.places else 0,
    }


def _pictures_by_kind(m: Material, rng: np.random.Generator) -> dict[str, Any]:
    sides = m.schema, m.test, m.synthetic
    classes = plots.class_rows(*sides, rng=rng)
    models = m.scores.forecasts.models
    return {
        "pairs": _pairs(m),
        "forecast_plot": Markup(plots.student_plot(models, MAE)),
        "examples": _marked(plots.series_examples(*sides, rng=rng)),
        "most_examples": plots.EXAMPLES,
        "series": _marked(plots.series_plots(*sides)),
        "classes": _marked(classes),
        "classes_left": max(0, (len(m.schema.images) or 1) * m.schema.n_classes - len(classes)),
        **_attack_pictures(m),
    }


def _attack_pictures(m: Material) -> dict[str, Any]:
    attacks = m.scores.attacks
    if attacks is None or not attacks.found:
        return {}
    shown = (attacks.found, attacks.bound)
    drawn = [Markup(attack_plots.advantage_plot(*shown, narrow=n)) for n in (False, True)]
    rebuilt = attacks.inversion
    strips = attack_plots.strips(m.schema, rebuilt.pictures) if rebuilt else ()
    return {"attack_plots": drawn, "inverted": tuple(map(Markup, strips))}


def _pairs(m: Material) -> list[tuple[PairFit, Markup]]:
    """The worst pairs, whether or not they are bad, with their pictures."""
    found = m.scores.fidelity.pairs
    if found is None or not len(m.test) or not len(m.synthetic):
        return []
    drawn = gallery.pair_plots(m.schema, found.worst[:MOST_PAIRS], m.test, m.synthetic)
    return [(pair, Markup(picture)) for pair, picture in drawn]


def written(score: Score | None, measure: str = "") -> str:
    """A score as a card shows it: shares in per cent, errors in their own units."""
    if score is None:
        return "–"
    if measure.startswith(("accuracy", "coverage")):
        return words.percent(score.value)
    if measure.startswith(MAE_NAME) and abs(score.value) >= 10:
        return words.figure(score.value, 2)
    return words.figure(score.value, 4 if measure.startswith("error") else 3)


def _marked(rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Captions are escaped by the template; pictures are our own markup."""
    return [(row[0], *map(Markup, row[1:])) for row in rows]


def _flat(value: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Names and values of nested mappings, as lines."""
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
