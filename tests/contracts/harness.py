"""Checkers that every recipe must pass, and that every mutation must fail.

The replay follows "grey-box" auditing: run the real engine on neighbouring data with the
outputs of all mechanisms frozen, and look at what was handed to them. Then the two runs may
differ in nothing but those queries, and in these by no more than the declared sensitivity.
It falsifies; it certifies nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from contracts.toys import MAKERS, TOYS, engine, rows, study
from understudy.audit.neighbours import VALUES, Neighbour, shorter, with_rows
from understudy.audit.neighbours import neighbours as audited
from understudy.audit.replay import compared
from understudy.audit.trace import traced
from understudy.data.encode import encode
from understudy.data.shards import Shards
from understudy.federation.gather import PlainSum
from understudy.federation.site import Site, seal
from understudy.federation.sites import Sites
from understudy.privacy.clip import Bounded, Sealed
from understudy.privacy.discrete import DiscreteGaussian
from understudy.privacy.integer import IntegerGaussian
from understudy.privacy.ledger import receipts_in
from understudy.privacy.plan import Part, PrivacyPlan
from understudy.privacy.respond import Response
from understudy.privacy.select import Selection
from understudy.recipes import RECIPES
from understudy.recipes.options import SelectionOptions
from understudy.release.verify import verify
from understudy.rng import Draws, NoiseSource, Streams
from understudy.simulation import run_apart
from understudy.study import Study

__all__ = ["VALUES", "Neighbour", "shorter", "traced", "with_rows"]  # for the tests beside it

EVERY = {**RECIPES, **TOYS}
SITES, EACH = 3, 4

# Smaller nets for speed; a recipe that is not named here runs with its own defaults.
_NETS = {"widths": [4], "decoder_widths": [4], "latent": 2}
_GAN = {"widths": [4], "critic_widths": [4], "latent": 2, "critic_steps": 1}
SMALL: dict[str, dict[str, Any]] = {
    "fedvae": {**_NETS, "steps": 2},
    "dpd_fvae": {**_NETS, "steps": 2},
    "sgde": {**_NETS, "steps": 2},
    "fedgp": {**_GAN, "steps": 1},
    "dp_fedavg_gan": {**_GAN, "generator_steps": 2},
    "signds": {"model": "nn", "hidden": 4, "outputs": 2},
    "dp_fed_wae": {"widths": [4], "latent": 2, "bins": 2, "outputs": 2},
    "fedstdg": {
        "hidden": 3,
        "latent": 2,
        "adaptive": "pooled",
        "patience": 1,
        "subset": 0.5,
        "top": 0.2,
        "pretrain_steps": 3,
    },
}
# What these sites compute does not depend on who adds the noise: one trust, and none, will do.
ONE_TRUST = {"fedgp": "central", "dp_fedavg_gan": "local", "privbayes": "central"}
HOLDING_ROWS = [name for name, kind in EVERY.items() if kind.info.supports]  # others hold columns
ROUNDS = {"dp_fed_wae": 4}  # one for each part of its model; two serve the others
FAST = {"rate": 0.3}  # a learning rate at which updates are long enough to be clipped


def cases(*, public: bool = False) -> list:
    """Every recipe with every unit and trust it supports; with ``public``, without noise too."""
    found = [(name, u, t) for name, kind in EVERY.items() for u, t in sorted(kind.info.supports)]
    found = [case for case in found if ONE_TRUST.get(case[0], case[2]) == case[2]]
    if public:
        named = [name for name in HOLDING_ROWS if name in RECIPES]
        found += [(name, RECIPES[name].info.default[0], "none") for name in named]
    return [pytest.param(*case, id="-".join(case)) for case in found]


def kind_of(name: str) -> str:
    """A table for every recipe that takes one, else series."""
    return "table" if "table" in EVERY[name].info.kinds else "series"


def chooses(name: str) -> bool:
    """Whether sites send choices under pure ε instead of noised values."""
    return issubclass(EVERY[name].info.options, SelectionOptions)


def small_study(name: str, unit: str, trust: str, **tables: Any) -> Study:
    """A study of three sites that any recipe runs in a moment."""
    price = {"epsilon_per_update": 2.0} if chooses(name) else {"noise": 1.5}
    price = {} if trust == "none" else price
    privacy = {"unit": unit, "trust": trust, **price, **tables.pop("privacy", {})}
    length = {"rounds": ROUNDS.get(name, 2)}
    tables = {"study": length, "recipe": SMALL.get(name, {}), "training": FAST, **tables}
    public, _ = MAKERS[kind_of(name)]
    return study(name, SITES, privacy=privacy, **{"schema": public(), **tables})


def small_recipe(name: str, unit: str, trust: str, **tables: Any) -> Any:
    """The recipe of `small_study`."""
    return EVERY[name].build(small_study(name, unit, trust, **tables))


LOOKS = {
    "strokes": {"model": "logistic"},
    "strokes before a hidden layer": {"model": "nn", "hidden": 4},
    "standardised before convolutions": {"model": "lenet"},
}


def seeing_study(look: str, **tables: Any) -> Study:
    """A study of images that SignDS's nets see through their fixed layers."""
    own = {"outputs": 2, **LOOKS[look]}
    public, _ = MAKERS["image"]
    return small_study("signds", "site", "local", schema=public(), recipe=own, **tables)


def small_shards(kind: str = "table") -> Shards:
    """Three sites of four rows; rows 2k and 2k+1 of a site are one person's."""
    public, make = MAKERS[kind]
    found = encode(public(), make(SITES * EACH))
    parts = [np.arange(i * EACH, (i + 1) * EACH) for i in range(SITES)]
    shards = Shards.pack(found, parts)
    return replace(shards, x=shards.x.clone(), y=shards.y.clone())


# Neighbours and replay: the product's own audit, on small data.


def neighbours(unit: str, trust: str, kind: str = "table") -> list[Neighbour]:
    """Removed and replaced units; values beyond the schema test the clip, not the encoder."""
    return audited(small_shards(kind), unit, trust, size={"person": 2}.get(unit, 1))


def check_replay(recipe: Any, folder: Path, neighbour: Neighbour, chunk: int | None = 1) -> float:
    """Fail if the two runs differ in more than they may; the largest share of it that they use."""
    one = traced(recipe, folder / "one", neighbour.base, chunk=chunk)
    two = traced(recipe, folder / "two", neighbour.data, neighbour.silent, chunk)
    findings, used = compared(recipe.plan, one, two, neighbour)
    assert not findings, findings
    return used


# A stack of sites.


def _stack(recipe: Any, folder: Path, data: Shards) -> Sites:
    made, ledger = engine(recipe, folder, data=data)
    ledger.close()
    return made.runtime.sites


def _handed(sites: Sites, task: Any, round: int) -> tuple[Sealed, list[torch.Tensor]]:
    """What a stack of all sites sends, and what it chose from: a message alone tells little."""
    seen: list[torch.Tensor] = []

    def noted(original: Callable) -> Callable:
        return lambda self, value, use: (seen.append(value), original(self, value, use))[1]

    with pytest.MonkeyPatch.context() as patch:
        for kind in (Selection, Response):
            patch.setattr(kind, "seal", noted(kind.seal))
        sealed, kept = sites.answer(task, round, np.arange(SITES))
        sites.memory.scatter(np.arange(SITES), kept)
    return sealed, [*seen, *sealed.parts.values()]


def check_stack(recipe: Any, folder: Path, value: Any) -> None:
    """Fail where the rows of one site of a stack reach another's update, in any round."""
    data = small_shards(recipe.schema.kind)
    other = with_rows(data, list(range(EACH, 2 * EACH)), value, 0)
    made = [_stack(recipe, folder, held) for held in (data, other)]
    rng, server = Streams.from_seed(0), NoiseSource.seeded(Streams.from_seed(1))
    state = recipe.init(rng=rng)
    for round in range(recipe.plan.length):  # a recipe may ask another thing every round
        task = recipe.task(state, round)
        (sealed, one), (_, two) = (_handed(sites, task, round) for sites in made)
        for a, b in zip(one, two, strict=True):
            same = torch.equal(a[[0, 2]], b[[0, 2]])
            assert same, "one site's rows changed another site's update"
        total = added_up(recipe.plan, server, sealed)
        assert total is not None
        state = recipe.step(state, total, rng=rng)


def added_up(plan: PrivacyPlan, source: NoiseSource, sealed: Sealed) -> Any:
    """The total of a stack of all sites."""
    total = PlainSum(plan, source)
    replies = [(np.arange(len(sealed)), sealed)]
    return total.add_up(total.subtotals(replies, sealed.round), sealed.round)


# Who joins is a secret of every round, drawn from the noise source.


def check_cohorts(folder: Path, rounds: int = 150, sites: int = 40) -> None:
    """Fail where the cohorts of an engine's rounds follow from each other, or from the streams."""
    rate = 0.3
    terms = {"study": {"rounds": rounds}, "cohort": {"rate": rate}, "privacy": {"noise": 1.0}}
    recipe = TOYS["toy-mean"].build(study("toy-mean", sites, **terms))
    joined = np.zeros((2, rounds, sites), bool)
    for run_, seed in enumerate((1, 2)):
        place = folder / str(seed)
        place.mkdir()
        made, ledger = engine(recipe, place, seed=0)
        made.source = NoiseSource.seeded(Streams.from_seed(seed))
        answer = made.runtime.exchange

        def noted(
            task: Any, round: int, cohort: np.ndarray, run_: int = run_, answer=answer
        ) -> Any:
            joined[run_, round, cohort] = True
            return answer(task, round, cohort)

        with ledger, pytest.MonkeyPatch.context() as patch:
            patch.setattr(made.runtime, "exchange", noted)
            made.train()
    spread = 5 * np.sqrt(rate * (1 - rate) / rounds)
    assert np.abs(joined.mean(1) - rate).max() < spread, "some sites join more often than others"
    agree = rate**2 + (1 - rate) ** 2
    enough = 5 * np.sqrt(agree * (1 - agree) / (rounds * sites))
    again = (joined[:, 1:] == joined[:, :-1]).mean((1, 2))
    assert np.abs(again - agree).max() < enough, "coins of one round tell those of the next"
    other = (joined[0] == joined[1]).mean()
    assert abs(other - agree) < enough, "cohorts do not come from the noise source"


# Noise of the planned size, in the slot of the plan.


def site_of(plan: PrivacyPlan, sites: int = 1, seed: int = 0, round: int = 0) -> Site:
    """Sites without rows or memory, for what needs neither."""
    streams = Streams.from_seed(seed)
    source, ids = NoiseSource.seeded(streams), range(sites)
    names = tuple(f"site-{i + 1}" for i in ids)
    held = Shards(
        torch.zeros(sites, 1),
        torch.zeros(sites).long(),
        torch.arange(sites),
        torch.ones(sites).long(),
    )
    own = streams.sites("local", round, ids)
    return Site(names, held, {}, plan, round, own, source.sites(round, ids))


def _draws(plan: PrivacyPlan, part: Part, round: int, seed: int) -> torch.Tensor:
    """The noise in one part of one round."""
    site, parts = site_of(plan, seed=seed, round=round), plan.at(round).parts
    zeros = {p.name: torch.zeros(1, *p.shape) for p in parts}
    bounded = {p.name: Bounded(zeros[p.name], p.mechanism.bound, plan.unit) for p in parts}
    if part.where == "server":
        source = NoiseSource.seeded(Streams.from_seed(seed))
        total = added_up(plan, source, Sealed("entrusted", round, zeros, ()))[part.name]
        return total if part.combine == "sum" else total * plan.at(round).cohort
    if part.where == "client":
        return seal(site, bounded).parts[part.name][0]
    if part.where == "distributed":
        share = seal(site, bounded).parts[part.name][0]
        return part.mechanism.complete(share, site.use(part.name))[0]
    return site.step(part.name, bounded[part.name])[0]


def check_noise(plan: PrivacyPlan) -> None:
    """Fail where a part is noised with another deviation than promised, or not at all."""
    if plan.own.update_epsilon:
        return check_choices(plan)
    starts = [plan.start(i) for i in range(len(plan.phases))]
    for round, part in ((r, part) for r in starts for part in plan.at(r).parts):
        found: list[torch.Tensor] = []
        shared, std = part.where == "distributed", _promised_std(part)
        enough, near, differ = (4000, 0.05, 0.5) if shared else (800, 0.1, 0.99)
        while sum(f.numel() for f in found) < enough:
            found.append(_draws(plan, part, round, len(found)).double().flatten())
        drawn = torch.cat(found)
        assert abs(float(drawn.std()) / std - 1) < near, f"{part.name}: {drawn.std():g}, not {std}"
        assert abs(float(drawn.mean())) < 0.15 * std, f"{part.name}: noise is not centred"
        assert len(torch.unique(drawn)) > differ * len(drawn), f"{part.name}: noise repeats"


def _promised_std(part: Part) -> float:
    """Of what `_draws` returns: of a share, what t − c of them must add up to."""
    mechanism = part.mechanism
    if isinstance(mechanism, IntegerGaussian):
        return (
            mechanism.noise * mechanism.bound / np.sqrt(mechanism.survivors - mechanism.colluders)
        )
    return mechanism.std


def check_choices(plan: PrivacyPlan, sites: int = 6000) -> None:
    """Fail where messages are not as likely as promised for a known update."""
    size = plan.own.parts[0].shape[0]
    update = {
        p.name: torch.linspace(-1, 1, size).repeat(sites, 1)
        if isinstance(p.mechanism, Selection)
        else torch.ones(sites, dtype=torch.bool)
        for p in plan.own.parts
    }
    sealed = seal(site_of(plan, sites, seed=11), update)
    for part in plan.own.parts:
        message, rule = sealed.parts[part.name], part.mechanism
        if isinstance(rule, Response):
            assert abs(float(message.double().mean()) - rule.truth) < 0.02, (
                "the bit lies too little"
            )
            continue
        assert abs(float(message[:, 0].double().mean())) < 0.05, "the sign is not a fair coin"
        _check_selected(message, rule)


def _check_selected(message: torch.Tensor, rule: Selection) -> None:
    """Against the law of ν where all coordinates are to choose from; else all are drawn."""
    signs, chosen = message[:, :1], message[:, 1:].long()
    if rule.subset is None:
        top = torch.where(signs > 0, chosen >= rule.size - rule.top, chosen < rule.top)
        counts = np.bincount(top.sum(1).numpy(), minlength=rule.output + 1) / len(message)
        assert np.abs(counts - rule.law.probability).max() < 0.03, "ν does not follow its law"
        spread = top.double().mean(0)
        assert float(spread.max() - spread.min()) < 0.05, "the order tells the groups apart"
    share = np.bincount(chosen.flatten().numpy(), minlength=rule.size)
    assert (share > 0).all(), "a coordinate that is never chosen"


# A release whose every round was charged, before its noise.


def check_release(name: str, unit: str, trust: str, folder: Path) -> None:
    """Fail where a run gives no release, or one that does not verify."""
    out = folder / f"{name}-{unit}-{trust}"
    data = rows(SITES, EACH, kind_of(name))
    run_apart(small_study(name, unit, trust), data, out=out, rows=10)
    verdict = verify(out, EVERY)
    assert not verdict.notes, "a plan is built again from what is published"
    charged = verdict.release.ledger.count('"kind": "charge"')
    assert charged == (0 if trust == "none" else verdict.release.plan.length)


def check_order(recipe: Any, folder: Path) -> None:
    """Fail where noise is drawn for a round that is not on the ledger yet."""
    kind = recipe.schema.kind
    made, ledger = engine(recipe, folder, data=small_shards(kind) if kind == "series" else None)
    original, task = Draws.normal, recipe.task
    begun: list[int] = []

    def noted(state: Any, round: int) -> Any:
        begun.append(round)
        return task(state, round)

    def check() -> None:
        charged = {receipt.round for receipt in receipts_in(ledger.entries)}
        assert begun[-1] in charged, "noise was drawn before its charge"

    def normal(self: Draws, shape: tuple[int, ...]) -> np.ndarray:
        check()
        return original(self, shape)

    def checked(original: Callable) -> Callable:
        return lambda self, value, use: (check(), original(self, value, use))[1]

    checked_draw = checked(DiscreteGaussian.draw)

    with ledger, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Draws, "normal", normal)
        patch.setattr(DiscreteGaussian, "draw", checked_draw)
        for kind in (Selection, Response):
            patch.setattr(kind, "seal", checked(kind.seal))
        patch.setattr(type(recipe), "task", lambda self, state, round: noted(state, round))
        made.train()
        recipe.plan.settles(receipts_in(ledger.entries))
