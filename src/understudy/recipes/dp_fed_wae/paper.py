"""DP-Fed-WAE as published (Jiang 2023 ch. 4, Algorithm 5): an answer is about the whole net.

Tables are one-hot (`data.onehot`) and the label is one more column; images go through
convolutions, or a dense net, with the label given to the decoder.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from understudy.data.onehot import OneHot
from understudy.data.schema import Schema
from understudy.federation.recipe import Recipe, State, Task, Update
from understudy.federation.site import Site
from understudy.nets.autoencoder import Autoencoder
from understudy.recipes import public, selection, vae
from understudy.recipes.dp_fed_wae.model import DpFedWAERecipe, nets
from understudy.recipes.options import DpFedWAEOptions
from understudy.release.generator import Generator
from understudy.rng import Streams
from understudy.study import Study

__all__ = ["PaperDpFedWAE", "as_published"]

_HIDDEN = (64,)


@dataclass(frozen=True)
class PaperDpFedWAE(DpFedWAERecipe):
    """See the module's paragraph; the methods follow Algorithm 5."""

    @cached_property
    def layout(self) -> OneHot | None:
        """How a table's rows become yes-or-no features; None for images."""
        return _layout(self.schema, self.options)

    @cached_property
    def spec(self) -> Autoencoder:
        return _nets(self.schema, self.options)

    def local(self, task: Task, site: Site) -> tuple[Update, State]:
        """Train on the site's rows; the engine chooses what is sent of the change."""
        model = task.array("model", (1, vae.size(self.spec)))
        return {"update": self.change(model, self.rows(site.data), rng=site.rng)}, {}

    def finish(self, state: State, *, rng: Streams) -> Generator:
        return self.release(self.server.released(state))


def _layout(schema: Schema, own: DpFedWAEOptions) -> OneHot | None:
    return OneHot.of(schema, own.bins) if schema.kind == "table" else None


def _nets(schema: Schema, own: DpFedWAEOptions) -> Autoencoder:
    return nets(schema, _layout(schema, own), own, _HIDDEN)


def as_published(study: Study, own: DpFedWAEOptions) -> Recipe:
    """Algorithm 5 for a study."""
    size, notes = vae.size(_nets(study.schema, own)), public.notes(study, own)
    plan = selection.selection_plan(study, PaperDpFedWAE.info, size, own, notes=notes)
    return PaperDpFedWAE(study.schema, plan, own, study.training, study.base)
