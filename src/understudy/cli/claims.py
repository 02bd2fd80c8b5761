"""Privacy claims as the terminal shows them."""

from __future__ import annotations

from collections.abc import Sequence

from rich.markup import escape
from rich.panel import Panel
from rich.table import Table

from understudy.privacy.claim import Claim, round_up
from understudy.release.card import added_up

__all__ = ["claims_panel"]


def _price(value: float | None) -> str:
    if value is None:
        return "[red]∞ (nothing promised)[/]"
    return f"[bold]{round_up(value, 4)}[/]"


def _check(claim: Claim) -> str:
    """ε by the second accountant; pure ε is a sum, which has none."""
    if claim.epsilon_rdp is None:
        return ""
    return "added up" if added_up([claim]) else round_up(claim.epsilon_rdp, 4)


def _claims_table(claims: Sequence[Claim]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    price = ("ε, added up", "δ") if added_up(claims) else ("ε", "δ", "check: ε by RDP")
    headings = ("against", "unit", "relation", *price)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for claim in claims:
        said = (claim.adversary, claim.unit, claim.relation, _price(claim.epsilon))
        cells = (*said, round_up(claim.delta, 2), _check(claim))
        table.add_row(*cells[: len(headings)])
    return table


def claims_panel(claims: Sequence[Claim]) -> Panel:
    """Every claim as a table, under the first in words."""
    lines = Table.grid(padding=(0, 0))
    lines.add_row(claims[0].words)
    lines.add_row("")
    lines.add_row(_claims_table(claims))
    caveats = Table.grid(padding=(0, 1))
    for caveat in dict.fromkeys(caveat for claim in claims for caveat in claim.caveats):
        caveats.add_row("[dim]•[/]", f"[dim]{escape(caveat)}[/]")
    lines.add_row(caveats)
    return Panel(lines, title="privacy claim", title_align="left", border_style="cyan")
