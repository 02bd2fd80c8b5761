"""The card: one page in plain words that travels with a release."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from understudy.data.schema import Schema
from understudy.privacy.claim import Claim, round_up
from understudy.privacy.plan import PrivacyPlan

__all__ = ["added_up", "write_card"]

_NAMED = 20  # columns or classes that are named; the schema has the others


def _price(value: float | None) -> str:
    return "none promised" if value is None else round_up(value, 4)


def added_up(claims: Sequence[Claim]) -> bool:
    """Whether everything promised is pure ε (δ = 0): a plain sum, which needs no second accountant.

    Such a claim carries the one sum as ``epsilon`` and as ``epsilon_rdp``.
    """
    promised = [claim for claim in claims if claim.private]
    return bool(promised) and all(claim.delta == 0 for claim in promised)


def _row(claim: Claim, checked: bool) -> str:
    cells = [claim.adversary, claim.unit, claim.relation, _price(claim.epsilon)]
    cells.append(round_up(claim.delta, 2))
    if checked:
        cells.append("added up" if added_up([claim]) else _price(claim.epsilon_rdp))
    return f"| {' | '.join(cells)} |"


def _table(claims: Sequence[Claim]) -> str:
    """All claims, with a column for the check where there is one."""
    checked = not added_up(claims)
    price = "ε (PLD) | δ | ε (RDP, check)" if checked else "ε (added up) | δ"
    rows = [f"| against | unit | relation | {price} |", "|---" * (6 if checked else 5) + "|"]
    return "\n".join([*rows, *(_row(claim, checked) for claim in claims)])


def _many(n: int, one: str, more: str = "") -> str:
    return f"{n:,} {one if n == 1 else more or one + 's'}"


def _bullets(items: Sequence[str]) -> str:
    return "\n".join(f"- {item}" for item in items) or "- none"


def _origin(manifest: Mapping[str, Any]) -> str:
    """The recipe, and how many took part for how long."""
    plan = PrivacyPlan.from_dict(manifest["plan"])
    size = f"{_many(plan.sites, 'site')} in {_many(plan.length, 'round')}"
    return f"the recipe `{manifest['recipe']}` from the data of {size}"


def _what(manifest: Mapping[str, Any], schema: Schema) -> str:
    """What the release holds."""
    if "classifier" in manifest:
        return _what_classifier(manifest, schema)
    classes = _many(schema.n_classes, "class", "classes")
    return f"""Synthetic data ({schema.kind}, {classes}), made by
{_origin(manifest)}.

Every row of the sample was drawn from the generator. A row may resemble a real one by chance."""


def _what_classifier(manifest: Mapping[str, Any], schema: Schema) -> str:
    """What it predicts, from what, and what its figures are not."""
    target = "the class" if schema.label is None else f"`{schema.label}`"
    return f"""A classifier ({manifest["classifier"]["kind"]}), trained by
{_origin(manifest)}.

It predicts {target}, one of {schema.n_classes} classes ({_names(schema.classes)}),
from {_inputs(schema)}.

Its probabilities are not calibrated: they need not match how often it is right. How often that is,
the release does not say, because it would have to be measured on real rows. It holds no rows."""


def _inputs(schema: Schema) -> str:
    """What a row must hold to be asked about."""
    names = _names([column.name for column in schema.features])
    size = " × ".join(map(str, schema.shape))
    return {
        "table": f"{_many(len(schema.features), 'column')} ({names})",
        "image": f"images of {size}",
        "series": f"series of {size} ({names})",
    }[schema.kind]


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(f"`{name}`" for name in names[:_NAMED]) + more


def _use(manifest: Mapping[str, Any], schema: Schema) -> str:
    """The command that uses it."""
    ending = "csv" if schema.kind == "table" else "npz"
    if "classifier" in manifest:
        return f"predict RELEASE --data rows.{ending} -o predictions.csv"
    return f"sample RELEASE -n 1000 -o rows.{ending}"


def _not_covered(manifest: Mapping[str, Any], first: Claim) -> list[str]:
    """What the promise leaves out; for a classifier also the rows it is used on."""
    asked = ["rows that the classifier is asked about later, and its predictions for them"]
    return [*first.excluded, *(asked if "classifier" in manifest else [])]


def write_card(manifest: Mapping[str, Any], schema: Schema, claims: Sequence[Claim]) -> str:
    """Markdown: what this is, what is promised, what is not, how to use it."""
    first = next((claim for claim in claims if claim.private), claims[0])
    real = first.noise_source == "os"
    source = "drawn from the operating system" if real else "a simulation, drawn from a seed"
    noise = source if first.private else "none"
    version = manifest["versions"]["understudy"]
    caveats = list(dict.fromkeys(c for claim in claims for c in claim.caveats))
    return f"""# {manifest["name"]}

{_what(manifest, schema)}

## What is promised

{claims[0].words}

{_table(claims)}

- Trust: {first.trust}.
- Sampling: {first.sampling}.
- Noise: {noise}.

## What is not covered

{_bullets(_not_covered(manifest, first))}

## Caveats

{_bullets(caveats)}

## How to use it

    understudy verify RELEASE
    understudy {_use(manifest, schema)}

`verify` computes ε again from the plan and compares every file with what it should be.

Study `{manifest["study"][:16]}`, schema `{manifest["schema"][:16]}`, Understudy {version}.
"""
