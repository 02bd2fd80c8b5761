"""Take a safeguard away: the checkers must notice. Each passes on the code as it is."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from contracts.harness import (
    added_up,
    check_cohorts,
    check_noise,
    check_order,
    check_release,
    check_replay,
    check_stack,
    neighbours,
    seeing_study,
    site_of,
    small_recipe,
    small_shards,
)
from contracts.toys import ToyStep, ToySum, engine
from understudy import rng
from understudy.errors import UnderstudyError, WireError
from understudy.federation import engine as engine_module
from understudy.federation import site as site_module
from understudy.federation import sites as sites_module
from understudy.federation.checkpoint import Checkpoint
from understudy.federation.gather import PlainSum
from understudy.federation.memory import SiteMemory
from understudy.federation.site import Site
from understudy.federation.sites import Sites
from understudy.nets.fixed import Standardise, Strokes
from understudy.privacy import claim as claim_module
from understudy.privacy.claim import claims
from understudy.privacy.clip import Bounded, Sealed, clip
from understudy.privacy.gaussian import Gaussian
from understudy.privacy.ledger import Ledger
from understudy.privacy.plan import PrivacyPlan
from understudy.privacy.respond import Response
from understudy.privacy.select import Selection
from understudy.recipes import build
from understudy.recipes import sgde as sgde_module
from understudy.recipes import two_sums as two_sums_module
from understudy.recipes.dp_fed_wae import parts
from understudy.recipes.dpd_fvae import records as records_module
from understudy.rng import Draws, NoiseSource, Streams
from understudy.runtime import wire
from understudy.runtime.participant import Participant
from understudy.runtime.store import Store

Patch = pytest.MonkeyPatch
clip_module = importlib.import_module("understudy.privacy.clip")  # its name is a function's too
CAUGHT = (AssertionError, UnderstudyError)


# Checkers that are about one safeguard only; the larger ones are in the harness.


def replayed(name: str, unit: str, trust: str, which: str) -> Callable[[Path], None]:
    """Replay against the neighbours whose name starts with ``which``."""

    def check(folder: Path) -> None:
        recipe = small_recipe(name, unit, trust)
        chosen = [n for n in neighbours(unit, trust) if n.name.startswith(which)]
        assert chosen
        for i, neighbour in enumerate(chosen):
            (folder / str(i)).mkdir(parents=True)
            check_replay(recipe, folder / str(i), neighbour)

    return check


def stacked(name: str, unit: str, trust: str) -> Callable[[Path], None]:
    return lambda folder: check_stack(small_recipe(name, unit, trust), folder, 1.0)


def seen_apart(look: str) -> Callable[[Path], None]:
    return lambda folder: check_stack(build(seeing_study(look)), folder, 0.0)


def noisy(name: str, unit: str, trust: str) -> Callable[[Path], None]:
    return lambda folder: check_noise(small_recipe(name, unit, trust).plan)


def released(name: str, unit: str, trust: str) -> Callable[[Path], None]:
    return lambda folder: check_release(name, unit, trust, folder)


def ordered(name: str, unit: str, trust: str) -> Callable[[Path], None]:
    return lambda folder: check_order(small_recipe(name, unit, trust), folder)


def divisor(folder: Path) -> None:
    """Drop-outs must not change what a reply weighs."""
    plan = small_recipe("toy-mean", "site", "central").plan.with_own(rate=0.5).with_noise(1e-9)
    value = torch.full((2, 3), 0.1)
    few, many = (total(plan, v) for v in (value[:1], value))
    assert torch.allclose(2 * few, many, atol=1e-6)


def total(plan: PrivacyPlan, value: torch.Tensor) -> torch.Tensor:
    """What a server of central trust makes of sites that send this."""
    source = NoiseSource.seeded(Streams.from_seed(0))
    found = added_up(plan, source, Sealed("entrusted", 0, {"mean": value}, ()))
    assert found is not None
    return found["mean"]


def allowance(folder: Path) -> None:
    """No site joins more rounds than the promise counts."""
    recipe = small_recipe("toy-mean", "site", "local", cohort={"joins": 1})
    made, ledger = engine(recipe, folder)
    with ledger:
        made.train()
    rounds = made.runtime.sites.memory.gather(np.arange(3))["rounds"]
    assert float(rounds.max()) <= recipe.plan.promise(amplified=False)[0].count


def cohorts(folder: Path) -> None:
    """Cohorts vary in size as coin flips do."""
    source = NoiseSource.seeded(Streams.from_seed(0))
    draws = [source.server("cohort", round) for round in range(300)]
    sizes = [len(engine_module.draw_cohort(20, 0.3, source=drawn)) for drawn in draws]
    assert abs(np.var(sizes) - 4.2) < 1.5


def fresh_entropy(folder: Path) -> None:
    """Every draw of system noise takes at least 32 bytes from the operating system."""
    taken: list[int] = []
    urandom = os.urandom
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "urandom", lambda n: (taken.append(n), urandom(n))[1])
        source = NoiseSource.system()
        for draws in (source.sites(0, [0, 1]), source.server("cohort", 0)):
            for draw in (draws.words, draws.uniform, lambda n, d=draws: d.normal((n,))):
                before = sum(taken)
                draw(3)
                assert sum(taken) - before >= 32, "noise from less than 32 fresh bytes"


def forked(folder: Path) -> None:
    """Parent and child draw different noise after a fork."""
    draws = NoiseSource.system().sites(0, [0])
    draws.words(4)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover
        os.write(write, draws.words(4).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(read, 32)
    os.close(read), os.close(write)
    assert theirs != draws.words(4).tobytes(), "a forked process repeats its parent's noise"


def batches(folder: Path) -> None:
    """A record is in as many batches as the plan's rate says."""
    recipe = small_recipe("toy-step", "record", "local")
    held = replace(site_of(recipe.plan, 3), data=small_shards())
    sizes = [len(held.sample("step")) for _ in range(300)]
    assert abs(np.mean(sizes) / 12 - recipe.plan.own.parts[0].mechanism.rate) < 0.05


def sealed_only(folder: Path) -> None:
    """The wire takes nothing that was not sealed."""
    raw = Bounded(torch.ones(1, 3), 1.0, "site")
    try:
        here = wire.Envelope(wire.Agreement("s", "s", "p", "1"), "run", "site", 0)
        wire.encode_sealed(raw, here)  # type: ignore[arg-type]
    except WireError:
        return
    raise AssertionError("something unsealed was encoded")


def rejects(folder: Path) -> None:
    """A reply above the bound is left out."""
    plan = small_recipe("toy-mean", "site", "central").plan.with_noise(1e-9)
    found = total(plan, torch.full((1, 3), 99.0))
    assert found.abs().max() < plan.own.parts[0].mechanism.bound


def finite_only(folder: Path) -> None:
    """A reply that is not finite is left out, and the others still count."""
    plan = small_recipe("toy-mean", "site", "central").plan.with_noise(1e-9)
    for bad in (np.nan, np.inf, -np.inf):
        value = torch.full((2, 3), 0.1)
        value[1, 2] = bad
        found = total(plan, value)
        assert torch.allclose(found, total(plan, value[:1])), "a reply without a number counted"


def participant(folder: Path) -> tuple[Participant, Callable[..., bytes]]:
    """A site on a network, with noise of the system, and messages to it."""
    recipe = small_recipe("toy-mean", "site", "local")
    made, ledger = engine(recipe, folder, seed=None)
    ledger.close()
    sites = made.runtime.sites.alone(0, SiteMemory(recipe.memory, ["site-1"]))
    agreement = wire.Agreement.of("study", recipe)

    def message(round: int, attempt: int = 0, **other: str) -> bytes:
        envelope = wire.Envelope(replace(agreement, **other), "run", "site-1", round, attempt)
        return wire.encode_call(envelope, recipe.task(recipe.init(rng=made.streams), round))

    return Participant(sites, agreement, Store(folder)), message


def resent(folder: Path) -> None:
    """A retry gets the same bytes, and so does a retry after the site was started again."""
    first, message = participant(folder)
    reply = first.handle(message(0))
    second, _ = participant(folder)
    assert first.handle(message(0, 1)) == reply, "fresh noise for a retry"
    assert second.handle(message(0, 2)) == reply, "fresh noise after a restart"
    assert second.sites.allowance.tolist() == first.sites.allowance.tolist()


def agreed(folder: Path) -> None:
    """A site answers nobody who follows another study, schema, plan or version."""
    site, message = participant(folder)
    for name in ("study", "schema", "plan", "version"):
        assert b'"message": "refusal"' in site.handle(message(0, **{name: "other"}))
    assert b'"message": "sealed"' in site.handle(message(0))


def in_order(folder: Path) -> None:
    """No site goes back to an earlier round, which would be a second question about it."""
    site, message = participant(folder)
    site.handle(message(1))
    assert b'"message": "refusal"' in site.handle(message(0))


def rounded_up(folder: Path) -> None:
    """No claim prints a smaller ε or δ than it has."""
    for noise in (0.7, 2.9):
        plan = small_recipe("toy-mean", "site", "local").plan.with_noise(noise)
        for claim in claims(replace(plan, delta=1.04e-5), "os"):
            said = re.search(r"ε = (\S+) at δ = (\S+?)[.,]", claim.words + ",").groups()
            assert float(said[0]) >= claim.epsilon and float(said[1]) >= claim.delta


def doubled(folder: Path) -> None:
    """Local trust at the site level is claimed at doubled sensitivity."""
    plan = small_recipe("toy-mean", "site", "local").plan
    half = plan.own.parts[0].mechanism.noise / 2
    assert claims(plan, "os")[0].events[0].noise[0] == half


def fresh(folder: Path) -> None:
    """A void round is never run again."""
    recipe = small_recipe("toy-mean", "site", "central")
    rounds: list[int] = []
    original = Gaussian.add_noise

    def noted(self, bounded, use):
        rounds.append(use.round)
        return original(self, bounded, use)

    for cut in (True, False):
        made, ledger = engine(recipe, folder, checkpoint=Checkpoint(folder), memory=folder)
        with ledger, pytest.MonkeyPatch.context() as patch:
            patch.setattr(Gaussian, "add_noise", noted)
            if cut:
                patch.setattr(type(recipe), "step", lambda *a, **k: 1 / 0)
                with pytest.raises(ZeroDivisionError):
                    made.train()
            else:
                made.train()
        made.runtime.sites.memory.close()
    assert sorted(rounds) == sorted(set(rounds)), "noise was drawn twice for one charge"


# Mutations.


def unclipped(value: torch.Tensor | Bounded, bound: float) -> Bounded:
    return Bounded(value.value if isinstance(value, Bounded) else value, bound, "site")


def no_site_clip(patch: Patch) -> None:
    patch.setattr(Gaussian, "bounded", lambda self, value, use: unclipped(value, self.bound))
    patch.setattr(site_module, "clip", lambda value, bound, blocks=1: unclipped(value, bound))


def weak_site_clip(patch: Patch) -> None:
    """Three times the bound that is declared."""

    def bounded(self, value, use):
        return replace(clip(value, 3 * self.bound, self.blocks), sensitivity=self.bound)

    patch.setattr(Gaussian, "bounded", bounded)


def no_row_clip(patch: Patch) -> None:
    patch.setattr(clip_module, "clip", lambda rows, bound: Bounded(rows, bound, "site"))


def no_moments_clip(patch: Patch) -> None:
    """Features of any length, and products that nobody clips."""
    longer_features(patch)
    patch.setattr(clip_module, "_shares", lambda z, bound, weights: torch.ones(len(z)).double())


def longer_features(patch: Patch) -> None:
    """The recipe forgets its own bound: the clip of products holds all the same."""
    patch.setattr(two_sums_module, "within", lambda z: 9 * z)


def person_as_record(patch: Patch) -> None:
    """Each row of a person gets the whole person's bound."""
    original = Site.sum

    def sum(self, part, features, group=None):
        parts = [replace(p, mechanism=replace(p.mechanism, rows=1)) for p in self.plan.own.parts]
        whole = self.plan.with_own(parts=tuple(parts))
        return original(replace(self, plan=whole), part, features, group)

    patch.setattr(Site, "sum", sum)


def coupled_rows(patch: Patch) -> None:
    """A feature that looks at the whole batch."""
    original = Site.sum

    def sum(self, part, features, group=None):
        return original(self, part, lambda x, y: features(x, y) * len(x), group)

    patch.setattr(Site, "sum", sum)
    patch.setattr(clip_module, "_SLACK", 100.0)


def whole_counts(patch: Patch) -> None:
    """A row counts in full in every column, as if it had only one."""
    original = site_module.counted

    def counted(chunks, sites, sizes, bound):
        return original(chunks, sites, sizes, bound * len(sizes) ** 0.5)

    patch.setattr(site_module, "counted", counted)


def silent_mechanism(patch: Patch) -> None:
    """An honest receipt for noise that was not added."""
    original = Gaussian.add_noise
    patch.setattr(
        Gaussian, "add_noise", lambda self, b, use: (b.value.double(), original(self, b, use)[1])
    )


def quiet_mechanism(patch: Patch) -> None:
    """Less noise, honest receipt."""
    original = Gaussian.add_noise

    def add_noise(self, bounded, use):
        own = None if use.noise is None else 0.5 * use.noise
        return original(replace(self, noise=0.5 * self.noise), bounded, replace(use, noise=own))

    patch.setattr(Gaussian, "add_noise", add_noise)


def noise_on_the_mean(patch: Patch) -> None:
    """Noise of the sum's size, divided by the cohort twice."""
    original = PlainSum.add_up

    def add_up(self, subtotals, round):
        found = original(self, subtotals, round)
        return {name: value / self.plan.at(round).cohort for name, value in found.items()}

    patch.setattr(PlainSum, "add_up", add_up)


def no_server_noise(patch: Patch) -> None:
    patch.setattr(Gaussian, "complete", lambda self, total, use: (total, ()))


def same_noise(patch: Patch) -> None:
    drawn = np.random.default_rng(0).standard_normal(4096)
    patch.setattr(Draws, "normal", lambda self, shape: np.resize(drawn, (len(self), *shape)))


def no_charge(patch: Patch) -> None:
    patch.setattr(Ledger, "charge", lambda self, receipts: None)


def charge_once(patch: Patch) -> None:
    charge = Ledger.charge
    patch.setattr(Ledger, "charge", lambda self, rs: charge(self, rs) if rs[0].round == 0 else None)


def charge_afterwards(patch: Patch) -> None:
    """Charge once the total is there."""
    charge, total, pending = Ledger.charge, PlainSum.total, []

    def late(self, *asked):
        found = total(self, *asked)
        while pending:
            charge(*pending.pop())
        return found

    patch.setattr(Ledger, "charge", lambda self, receipts: pending.append((self, receipts)))
    patch.setattr(PlainSum, "total", late)


def understated_charge(patch: Patch) -> None:
    receipts = PrivacyPlan.receipts
    patch.setattr(
        PrivacyPlan,
        "receipts",
        lambda self, *a: tuple(replace(r, std=r.std / 2) for r in receipts(self, *a)),
    )


def no_step_receipt(patch: Patch) -> None:
    original = Site.step

    def step(self, part, bounded):
        noised = original(self, part, bounded)
        self.receipts.pop()
        return noised

    patch.setattr(Site, "step", step)


def raw_steps(patch: Patch) -> None:
    """The recipe noises, and then sends something else."""
    original = ToyStep.local

    def local(self, task, site):
        update, memory = original(self, task, site)
        sums = torch.stack([site.data.rows(c)[0].sum(0) for c in range(len(site))])
        return {"step": update["step"] + sums}, memory

    patch.setattr(ToyStep, "local", local)


def an_extra_step(patch: Patch) -> None:
    original = ToyStep.local

    def local(self, task, site):
        site.step("step", Bounded(torch.zeros(len(site), 3), 1.0, "record"))
        return original(self, task, site)

    patch.setattr(ToyStep, "local", local)


def steps_by_rows(patch: Patch) -> None:
    """Control flow that depends on data: a site with few rows keeps them to itself."""
    original = ToySum.local

    def local(self, task, site):
        update, memory = original(self, task, site)
        enough = site.data.total > 3
        kept = {k: v if enough else replace(v, value=0 * v.value) for k, v in update.items()}
        return kept, memory

    patch.setattr(ToySum, "local", local)


def measured_receipts(patch: Patch) -> None:
    """A receipt that says how large the update was."""
    original = Gaussian.add_noise

    def add_noise(self, bounded, use):
        value, (receipt,) = original(self, bounded, use)
        return value, (replace(receipt, std=receipt.std + float(bounded.value.norm())),)

    patch.setattr(Gaussian, "add_noise", add_noise)


def empty_sites_speak(patch: Patch) -> None:
    """Sites without rows are taken for sites with some when they are sealed."""
    original = sites_module.seal

    def seal(site, update):
        some = replace(site.data, counts=site.data.counts.clamp(min=1))
        return original(replace(site, data=some), update)

    patch.setattr(sites_module, "seal", seal)


def mean_over_replies(patch: Patch) -> None:
    original = PlainSum.add_up

    def add_up(self, subtotals, round):
        held = list(subtotals)
        factor = self.plan.at(round).cohort / sum(each.received for each in held)
        found = original(self, held, round)
        return {name: value * factor for name, value in found.items()}

    patch.setattr(PlainSum, "add_up", add_up)


def endless_joining(patch: Patch) -> None:
    patch.setattr(Sites, "join", lambda self, clients, round: clients)


def unclipped_records(patch: Patch) -> None:
    def clipped(loss, params, pieces, bound, *, only=""):
        return replace(gradients(loss, params, pieces, 1e9, only=only), sensitivity=bound)

    gradients = records_module.clipped_gradients
    for module in (records_module, sgde_module):
        patch.setattr(module, "clipped_gradients", clipped)


def private_class_sizes(patch: Patch) -> None:
    """A class learns as fast as it has rows at a site; one without any is not trained."""
    original = sgde_module.SGDE.local

    def local(self, task, site):
        update, memory = original(self, task, site)
        vaes = update["vaes"].clone()
        for client in range(len(site)):
            held = site.data.rows(client)[1].bincount(minlength=self.members)
            vaes[client] *= held[:, None] / 2
        return {"vaes": vaes}, memory

    patch.setattr(sgde_module.SGDE, "local", local)


def every_class(patch: Patch) -> None:
    """A record teaches the VAEs of all classes, and counts as if it taught one."""
    original = sgde_module.SGDE._clipped_sum

    def clipped_sum(self, flat, site):
        one = original(self, flat, site)
        return replace(one, value=one.value.sum(1, keepdim=True).expand_as(one.value))

    patch.setattr(sgde_module.SGDE, "_clipped_sum", clipped_sum)


def whole_batches(patch: Patch) -> None:
    patch.setattr(Draws, "coins_each", lambda self, counts, rate: np.ones(sum(counts), bool))


def fixed_cohorts(patch: Patch) -> None:
    patch.setattr(
        engine_module,
        "draw_cohort",
        lambda sites, rate, *, source: np.argsort(source.uniform(sites)[0])[: int(rate * sites)],
    )


def reused_coins(patch: Patch) -> None:
    """One set of coins for all rounds: claimed 13.9, true 58.4."""
    server = NoiseSource.server
    patch.setattr(NoiseSource, "server", lambda self, purpose, round: server(self, purpose, 0))


def public_coins(patch: Patch) -> None:
    """Cohorts from streams that do not depend on the noise source."""
    public = Streams.from_seed(0)
    patch.setattr(NoiseSource, "server", lambda self, purpose, round: public.draws(purpose, round))


def short_keys(patch: Patch) -> None:
    """Eight bytes of entropy, stretched."""

    def words_each(self, counts):
        generator = rng._generator(4 * os.urandom(8))
        return generator.bit_generator.random_raw(int(np.sum(counts)))

    patch.setattr(rng._System, "words_each", words_each)


def one_key(patch: Patch) -> None:
    """A stream that is keyed once and goes on."""
    made = rng._generator(os.urandom(32))
    patch.setattr(
        rng._System,
        "words_each",
        lambda self, counts: made.bit_generator.random_raw(int(np.sum(counts))),
    )


def constant_key(patch: Patch) -> None:
    """Every process draws the same."""
    made = rng._generator(bytes(range(32)))
    patch.setattr(
        rng._System,
        "words_each",
        lambda self, counts: made.bit_generator.random_raw(int(np.sum(counts))),
    )


def open_wire(patch: Patch) -> None:
    patch.setattr(wire, "encode_sealed", lambda value, envelope: b"")


def trusting_server(patch: Patch) -> None:
    patch.setattr(Gaussian, "fits", lambda self, sent, part, unit: torch.ones(len(sent)).bool())


def accepting_server(patch: Patch) -> None:
    """Replies within the bound fit, and so do those that are no numbers."""
    original = Gaussian.fits

    def fits(self, sent, part, unit):
        return original(self, sent, part, unit) | ~torch.isfinite(sent).flatten(1).all(1)

    patch.setattr(Gaussian, "fits", fits)


def forgetful_store(patch: Patch) -> None:
    patch.setattr(Store, "save", lambda self, kept: None)


def store_without_reply(patch: Patch) -> None:
    """Rounds are counted, but what was sent is not kept."""
    save = Store.save
    patch.setattr(Store, "save", lambda self, kept: save(self, replace(kept, reply=b"")))


def store_without_rounds(patch: Patch) -> None:
    save = Store.save
    patch.setattr(Store, "save", lambda self, kept: save(self, replace(kept, round=-1)))


def careless_site(patch: Patch) -> None:
    """A site that takes a server's word for what was agreed on."""
    patch.setattr(wire, "asdict", lambda value: {})


def rounded_down(patch: Patch) -> None:
    patch.setattr(claim_module, "round_up", lambda price, digits=3: f"{price:.{digits}g}")


def single_sensitivity(patch: Patch) -> None:
    promise = PrivacyPlan.promise
    patch.setattr(
        PrivacyPlan,
        "promise",
        lambda self, *, factor=1.0, amplified=True: promise(self, amplified=amplified),
    )


def plain_selection(patch: Patch) -> None:
    """The largest coordinates as they are, with an honest receipt."""
    original = Selection.seal

    def seal(self, update, use):
        message, receipts = original(self, update, use)
        best = (update * message[:, :1]).topk(self.output, dim=1).indices
        return torch.cat((message[:, :1], best), dim=1).to(torch.int32), receipts

    patch.setattr(Selection, "seal", seal)


def generous_selection(patch: Patch) -> None:
    """At four times the ε that is receipted."""
    original = Selection.seal

    def seal(self, update, use):
        message, (receipt,) = original(replace(self, epsilon=4 * self.epsilon), update, use)
        return message, (replace(receipt, epsilon=self.epsilon),)

    patch.setattr(Selection, "seal", seal)


def ordered_selection(patch: Patch) -> None:
    """Coordinates of the top set first."""
    original = Selection.seal

    def seal(self, update, use):
        message, receipts = original(self, update, use)
        values = update.gather(1, message[:, 1:].long()) * message[:, :1]
        order = values.argsort(dim=1, descending=True)
        ranked = message[:, 1:].gather(1, order)
        return torch.cat((message[:, :1], ranked), dim=1), receipts

    patch.setattr(Selection, "seal", seal)


def plain_answers(patch: Patch) -> None:
    original = Response.seal
    patch.setattr(
        Response, "seal", lambda self, bits, use: (bits.byte(), original(self, bits, use)[1])
    )


def understated_choice(patch: Patch) -> None:
    """A rule beyond the promise, honestly receipted."""
    original = Selection.seal
    patch.setattr(
        Selection, "seal", lambda self, u, use: original(replace(self, epsilon=9.0), u, use)
    )


def peeking_selection(patch: Patch) -> None:
    """How many coordinates are chosen from depends on the update."""
    original = sites_module.seal

    def seal(site, update):
        less = int(any(bool(value.any()) for value in update.values()))
        peeked = (
            replace(p, mechanism=replace(p.mechanism, top=p.mechanism.top - less))
            for p in site.plan.own.parts
        )
        return original(replace(site, plan=site.plan.with_own(parts=tuple(peeked))), update)

    patch.setattr(sites_module, "seal", seal)


def shared_head(patch: Patch) -> None:
    """What the label depends on at one site is told by all of its stack."""
    original = parts.head

    def head(*args, **terms):
        change = original(*args, **terms)
        return change + change.sum(0)

    patch.setattr(parts, "head", head)


def shared_contrast(patch: Patch) -> None:
    """Images are seen without the brightness of all of the stack instead of their own."""
    patch.setattr(Standardise, "__call__", lambda self, params, x: x - x.mean((0, 1), keepdim=True))


def shared_strokes(patch: Patch) -> None:
    """Strokes are brought to the strength that they have in all of the stack."""
    original = Strokes.__call__

    def shared(self, params, x):
        seen = original(self, params, x)
        return seen - seen.mean((0, 1), keepdim=True)

    patch.setattr(Strokes, "__call__", shared)


def void_rounds_again(patch: Patch) -> None:
    original = engine_module.receipts_in
    patch.setattr(engine_module, "receipts_in", lambda entries: original(entries)[:0])


def case(mutate: Callable, check: Callable, name: str = "") -> object:
    return pytest.param(mutate, check, id=name or mutate.__name__)


CASES = [
    case(no_site_clip, replayed("toy-mean", "site", "central", "absent")),
    case(no_site_clip, replayed("toy-mean", "site", "local", "replaced"), "no_site_clip_local"),
    case(no_site_clip, replayed("fedvae", "site", "central", "replaced by wild"), "no_clip_fedvae"),
    case(weak_site_clip, replayed("toy-mean", "site", "central", "replaced by wild")),
    case(no_row_clip, replayed("toy-sum", "record", "central", "wild against none")),
    case(no_row_clip, replayed("toy-sum", "person", "local", "wild"), "no_row_clip_person"),
    case(no_site_clip, replayed("toy-sum", "site", "central", "replaced by wild"), "no_clip_sum"),
    case(person_as_record, replayed("toy-sum", "person", "central", "wild against none")),
    case(coupled_rows, replayed("toy-sum", "record", "central", "removed")),
    case(no_moments_clip, replayed("fedmoments", "record", "central", "removed")),
    case(no_moments_clip, replayed("fedmoments", "person", "local", "removed"), "moments_person"),
    case(whole_counts, replayed("fedmoments", "record", "central", "removed")),
    case(whole_counts, replayed("fedmoments", "person", "local", "removed"), "whole_counts_person"),
    case(silent_mechanism, noisy("fedmoments", "record", "central"), "no_noise_server"),
    case(silent_mechanism, noisy("fedmoments", "record", "local"), "no_noise_client"),
    case(silent_mechanism, noisy("toy-step", "record", "local"), "no_noise_step"),
    case(quiet_mechanism, noisy("toy-mean", "site", "central"), "half_noise_server"),
    case(quiet_mechanism, noisy("toy-mean", "site", "local"), "half_noise_client"),
    case(quiet_mechanism, released("toy-mean", "site", "local"), "half_noise_release"),
    case(
        quiet_mechanism,
        released("toy-mean", "site", "central"),
        "half_noise_central",
    ),
    case(noise_on_the_mean, noisy("toy-mean", "site", "central")),
    case(no_server_noise, noisy("toy-sum", "record", "central")),
    case(same_noise, noisy("toy-mean", "site", "central")),
    case(no_charge, released("toy-mean", "site", "central")),
    case(no_charge, released("toy-step", "record", "local"), "no_charge_step"),
    case(no_charge, ordered("toy-sum", "record", "central"), "no_charge_order"),
    case(charge_once, released("toy-mean", "site", "local")),
    case(charge_afterwards, ordered("toy-mean", "site", "central")),
    case(charge_afterwards, ordered("toy-mean", "site", "local"), "charge_afterwards_local"),
    case(understated_charge, released("toy-mean", "site", "central")),
    case(no_step_receipt, released("toy-step", "record", "local")),
    case(raw_steps, replayed("toy-step", "record", "local", "removed")),
    case(an_extra_step, released("toy-step", "record", "local")),
    case(steps_by_rows, replayed("toy-sum", "record", "central", "removed")),
    case(measured_receipts, replayed("toy-mean", "site", "local", "replaced by ones")),
    case(empty_sites_speak, replayed("toy-mean", "site", "local", "emptied")),
    case(mean_over_replies, divisor),
    case(endless_joining, allowance),
    case(unclipped_records, replayed("dpd_fvae", "record", "local", "wild against none")),
    case(
        unclipped_records,
        replayed("dpd_fvae", "record", "central", "removed"),
        "unclipped_records_central",
    ),
    case(
        unclipped_records,
        replayed("sgde", "record", "local", "wild against none"),
        "unclipped_records_by_class",
    ),
    case(unclipped_records, replayed("sgde", "person", "local", "removed"), "unclipped_persons"),
    case(every_class, replayed("sgde", "record", "local", "wild against none")),
    case(private_class_sizes, replayed("sgde", "record", "local", "removed")),
    case(whole_batches, batches),
    case(fixed_cohorts, cohorts),
    case(reused_coins, check_cohorts),
    case(public_coins, check_cohorts),
    case(short_keys, fresh_entropy),
    case(one_key, fresh_entropy),
    case(one_key, forked, "one_key_forked"),
    case(constant_key, fresh_entropy),
    case(open_wire, sealed_only),
    case(trusting_server, rejects),
    case(trusting_server, finite_only, "trusting_server_not_finite"),
    case(accepting_server, finite_only),
    case(rounded_down, rounded_up),
    case(forgetful_store, resent),
    case(store_without_reply, resent),
    case(store_without_rounds, resent),
    case(store_without_rounds, in_order, "store_without_rounds_in_order"),
    case(careless_site, agreed),
    case(single_sensitivity, doubled),
    case(void_rounds_again, fresh),
    case(plain_selection, noisy("signds", "site", "local")),
    case(plain_selection, noisy("dp_fed_wae", "site", "local"), "plain_selection_wae"),
    case(generous_selection, noisy("signds", "site", "local")),
    case(ordered_selection, noisy("signds", "site", "local")),
    case(plain_answers, noisy("fedstdg", "site", "local")),
    case(understated_choice, released("signds", "site", "local")),
    case(peeking_selection, replayed("signds", "site", "local", "replaced")),
    case(shared_contrast, seen_apart("standardised before convolutions")),
    case(shared_contrast, seen_apart("strokes"), "shared_contrast_strokes"),
    case(shared_strokes, seen_apart("strokes")),
    case(shared_head, stacked("dp_fed_wae", "site", "local")),
    case(no_charge, released("signds", "site", "local"), "no_charge_choice"),
    case(charge_afterwards, ordered("fedstdg", "site", "local"), "charge_afterwards_choice"),
]


@pytest.mark.usefixtures("toys")
@pytest.mark.parametrize("mutate, check", CASES)
def test_a_safeguard_taken_away_is_noticed(
    tmp_path: Path, monkeypatch: Patch, mutate: Callable, check: Callable
) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "mutated").mkdir()
    check(tmp_path / "whole")
    mutate(monkeypatch)
    with pytest.raises(CAUGHT):
        check(tmp_path / "mutated")


def test_moments_are_bounded_whatever_features_a_recipe_gives(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    longer_features(monkeypatch)
    replayed("fedmoments", "record", "central", "removed")(tmp_path)
