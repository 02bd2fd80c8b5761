"""Rows that a study declares public: nets may be pre-trained on them, and the claim says so."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from understudy.data.encode import encode
from understudy.data.schema import Schema
from understudy.data.table import read
from understudy.errors import StudyError
from understudy.recipes.options import WAEOptions
from understudy.recipes.vae_options import NetOptions
from understudy.study import Study

__all__ = ["NOTE", "Examples", "notes", "rows"]

NOTE = "the nets were pre-trained on rows that the study declares public: not protected"

Examples = tuple[Tensor, Tensor]  # encoded rows and their classes


def notes(study: Study, own: NetOptions | WAEOptions) -> tuple[str, ...]:
    """What a claim says of public rows; reads them, so that none is missed once ε is spent."""
    if not own.public:
        return ()
    if study.declared is not None:  # a plan that is built again from a release: no file is at hand
        return (NOTE,)
    _refuse_private(study, own.public)
    rows(study.base, own, study.schema)
    return (NOTE,)


def _refuse_private(study: Study, public: str) -> None:
    """Refuse a file of "public" rows that is a site's own."""
    private = [site.data for site in study.sites if site.data]
    private += [study.simulation.data] if study.simulation else []
    if (study.base / public).resolve() in [(study.base / path).resolve() for path in private]:
        raise StudyError(
            "a file of public rows that no site holds",
            "recipe.public names a site's own rows",
            "pre-train on other rows, or leave it out",
        )


def rows(base: Path, own: NetOptions | WAEOptions, schema: Schema) -> Examples | None:
    """The rows that the study (in the folder ``base``) declares public, if any."""
    if not own.public:
        return None
    found = encode(schema, read(base / own.public, schema))
    if not len(found):
        raise StudyError("public rows to pre-train on", "none in recipe.public", "correct it")
    return torch.from_numpy(found.x), torch.from_numpy(found.y)
