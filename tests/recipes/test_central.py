"""The baselines: all rows pooled, or one site alone; never private."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from understudy.data.encode import Encoded
from understudy.data.schema import Column, Schema
from understudy.data.shards import Shards
from understudy.errors import PrivacyError, StudyError
from understudy.federation.slots import Private
from understudy.recipes.central import CentralVAE
from understudy.rng import Streams
from understudy.study import Study

SCHEMA = Schema(
    "table", "t", 30, (Column("v", "numeric", 0.0, 1.0), Column("y", "boolean")), label="y"
)
NETS = {"widths": [6], "decoder_widths": [5], "latent": 2, "steps": 4}


def recipe(sites: int = 3, **own: Any) -> CentralVAE:
    privacy, cohort = own.pop("privacy", {}), own.pop("cohort", {})
    data = {
        "study": {"name": "t", "recipe": "central"},
        "privacy": privacy,
        "cohort": cohort,
        "simulation": {"data": "-", "sites": sites},
        "recipe": {**NETS, **own},
    }
    return CentralVAE.build(Study.parse(data, schema=SCHEMA))


def three_sites() -> Shards:
    x = np.linspace(0, 1, 9, dtype=np.float32)[:, None]
    parts = [np.arange(0, 2), np.arange(2, 5), np.arange(5, 9)]
    return Shards.pack(Encoded(x, np.arange(9) % 2, None), parts)


def test_the_pooled_baseline_sees_every_row_once():
    rows = recipe().rows(three_sites())
    assert len(rows) == 1
    assert torch.equal(rows.rows(0)[0], three_sites().x)


def test_the_local_baseline_sees_one_site_only():
    rows = recipe(site=1).rows(three_sites())
    assert len(rows) == 1
    assert torch.equal(rows.rows(0)[0], three_sites().x[2:5])


@pytest.mark.parametrize("site", [-2, 3])
def test_a_site_that_does_not_exist_is_refused(site):
    with pytest.raises(StudyError, match=r"recipe\.site"):
        recipe(site=site)


def test_a_baseline_claims_no_privacy():
    built = recipe()
    assert built.plan.trust == "none"
    assert built.info.supports == frozenset()
    with pytest.raises(PrivacyError):
        recipe(privacy={"trust": "central", "noise": 1.0})


def test_a_baseline_is_one_round_that_nothing_holds_back():
    built, rng = recipe(steps=200), Streams.from_seed(0)
    state = built.init(rng=rng)
    data = built.rows(three_sites())
    memory = {n: v[None] for n, v in built.memory().items()}
    private = Private(built.plan, 0, rng.sites("noise", 0, [0]))
    update, _ = built.local(built.task(state, 0), memory, data, private, rng=rng.draws("local"))
    after = built.step(state, {"decoder": update["decoder"][0]}, rng=rng)
    assert built.plan.rounds == 1
    torch.testing.assert_close(after["decoder"], state["decoder"] + update["decoder"][0])
    released = built.finish(after, rng=rng)
    torch.testing.assert_close(released.arrays["decoder"], after["decoder"])
    assert update["decoder"].norm() > 0.2  # far beyond any clip


def test_cohorts_do_not_apply_to_a_baseline():
    plan = recipe(cohort={"rate": 0.01}).plan
    assert plan.rate is None
    assert plan.cohort == 1
