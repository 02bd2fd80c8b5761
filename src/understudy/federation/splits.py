"""What a simulated split allows to be claimed, and what claims say of it."""

from __future__ import annotations

from understudy.errors import PrivacyError
from understudy.privacy.terms import Trust, Unit
from understudy.study import Study

__all__ = ["refuse_split", "split_notes"]


def refuse_split(study: Study, unit: Unit, trust: Trust) -> None:
    """Refuse claims about records or persons that the simulated split does not allow.

    Under local trust the server sees the update of every site. Where removing one row moves
    others, several updates change by more than the bound on that row. Under distributed trust
    each of those sites rounds its own sum, which the bound counts for one site only.
    """
    simulation = study.simulation
    seen = trust in ("local", "distributed") or (
        trust != "none" and simulation is not None and simulation.only
    )
    if simulation is not None and seen and study.split_moves_others(unit):
        central = "remove simulation.only" if trust == "central" else 'trust = "central"'
        raise PrivacyError(
            f"a split that keeps every other row at its site, to protect one {unit} "
            f'with trust = "{trust}"',
            f'split = "{simulation.split}", where removing one {unit} can move rows of others',
            f'use split = "uniform", or unit = "site", or {central}',
        )


def split_notes(study: Study) -> tuple[str, ...]:
    """What every claim on a simulated federation says about its split."""
    if study.simulation is None or study.simulation.split == "pooled":
        return ()
    if study.parties:
        return ("the parties were simulated: one table was split by columns",)
    return (
        f'the split into sites (split = "{study.simulation.split}") was simulated and is taken as '
        "given: the claim compares tables in which all other rows stay at their sites",
    )
