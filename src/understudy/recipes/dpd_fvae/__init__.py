"""DPD-fVAE: a federated VAE with a differentially private decoder (Pfitzner & Arnrich 2022).

A conditional β-VAE of which only the decoder is synchronised. Two algorithms:

* C-DPD-fVAE (Algorithm 1, `sites`): each site sends the clipped change of its decoder and
  keeps its encoder. Protects sites.
* L-DPD-fVAE (Algorithm 2, `records`): DP-SGD on single records. Protects records.

Correction: as published, Algorithm 2 protects no record. Its encoder is trained without
noise on all rows, and the decoder's clipped gradients pass through it, so one record moves
everybody's gradient. ``encoder = "private"`` and ``"frozen"`` are the honest ways out;
``"paper"`` is the published form (`paper`), which carries no record-level ε.
"""

from __future__ import annotations

from understudy.errors import StudyError
from understudy.federation.recipe import Recipe
from understudy.recipes.catalogue import CATALOGUE
from understudy.recipes.dpd_fvae.paper import paper_level
from understudy.recipes.dpd_fvae.records import record_level
from understudy.recipes.dpd_fvae.sites import client_level
from understudy.recipes.vae_options import DpdFVAEOptions
from understudy.study import Study

__all__ = ["build"]


def build(study: Study, own: DpdFVAEOptions) -> Recipe:
    """Algorithm 1 for sites; for records Algorithm 2, corrected or as published."""
    if (study.privacy.unit or CATALOGUE["dpd_fvae"].default[0]) == "site":
        _check_encoder(own)
        return client_level(study, own)
    return (paper_level if own.encoder == "paper" else record_level)(study, own)


def _check_encoder(own: DpdFVAEOptions) -> None:
    if own.encoder != "private":
        raise StudyError(
            "recipe.encoder only where records are protected",
            f'"{own.encoder}" for sites, whose encoders always stay with them',
            'leave it out, or set privacy.unit = "record"',
        )
