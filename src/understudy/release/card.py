"""The card: one page of plain words that travels with a release."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from understudy.data.schema import Schema
from understudy.privacy.claim import Claim, round_up

__all__ = ["write_card"]


def _price(value: float | None) -> str:
    return "none promised" if value is None else round_up(value, 4)


def _row(claim: Claim) -> str:
    cells = (claim.adversary, claim.unit, claim.relation, _price(claim.epsilon))
    return f"| {' | '.join(cells)} | {claim.delta:.2g} | {_price(claim.epsilon_rdp)} |"


def _rounds(plan: Mapping[str, Any]) -> int:
    return int(plan["rounds"]) + (_rounds(plan["before"]) if plan["before"] else 0)


def _bullets(items: Sequence[str]) -> str:
    return "\n".join(f"- {item}" for item in items) or "- none"


def write_card(manifest: Mapping[str, Any], schema: Schema, claims: Sequence[Claim]) -> str:
    """Markdown: what this is, what is promised, what is not, how to use it."""
    plan = manifest["plan"]
    first = next((claim for claim in claims if claim.private), claims[0])
    source = "drawn from the operating system" if first.noise_source == "os" else "a simulation"
    noise = source if first.private else "none"
    version = manifest["versions"]["understudy"]
    caveats = list(dict.fromkeys(c for claim in claims for c in claim.caveats))
    return f"""# {manifest["name"]}

Synthetic data ({schema.kind}, {schema.n_classes} class(es)) made by the recipe
`{manifest["recipe"]}` from {plan["sites"]} site(s) over {_rounds(plan)} round(s).
Every row of the sample was drawn from the generator; by chance one may resemble a real row.

## What is promised

{claims[0].words}

| against | unit | relation | ε (PLD) | δ | ε (RDP, check) |
|---|---|---|---|---|---|
{chr(10).join(_row(claim) for claim in claims)}

Trust: {first.trust}.
Sampling: {first.sampling}.
Noise: {noise}.

## What is not covered

{_bullets(first.excluded)}

Caveats:

{_bullets(caveats)}

## How to use it

    understudy verify RELEASE
    understudy sample RELEASE -n 1000 -o rows.{"csv" if schema.kind == "table" else "npz"}

Study `{manifest["study"][:16]}`, schema `{manifest["schema"][:16]}`, Understudy {version}.
"""
