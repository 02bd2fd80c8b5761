"""VertiGAN: a GAN for parties that hold columns of the same people (Jiang 2023 ch. 6).

Algorithms 9 and 10. The server holds a generator with common layers and a branch per party. Each
round a party takes E steps of DP-SGD on a critic of its own columns, computes from the critic how
its part of the generator should move, and sends that gradient; the server adds up and moves by
RMSprop. The label is one of some party's columns; a column that several parties hold is made by
each of their branches, and released from the first.

What is noised are the critic's steps: clipped gradients of single records, penalty included. What
travels is post-processing of them: the critic and its optimiser saw only noised steps, and the
generator's gradient is formed from the critic and made-up rows, which no record enters.

Corrections to the thesis: the server knows no batch, since the parties draw them from a secret of
their own; one person is at every party, so claims add up what all parties reveal of a batch. No
critic sees two parties, so nothing teaches what goes together across them: one noise behind all
branches relates them all the same, by accident, and misleads whoever learns from the rows. Each
branch therefore has noise of its own in the release, and parties are independent; `shared` draws
as published. Critics are shown rows as real ones are, one value drawn for each column.

With ``recipe.joint`` fedmoments for parties comes first, and the server has a critic of whole rows
that knows from it what goes together across parties (`joint_critic`): a phase and events of its
own on the claims. That critic teaches the generator alone before the first round, and in every
round beside the parties' critics.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from understudy.data.onehot import OneHot
from understudy.data.schema import Schema
from understudy.errors import ReleaseError, StudyError
from understudy.federation.phases import Then, then
from understudy.federation.planning import parties_plan, unit_and_trust
from understudy.federation.recipe import State, Task, Update
from understudy.federation.site import Site, clipping
from understudy.nets import layers
from understudy.nets.branches import BranchedNet
from understudy.nets.gan import CRITIC, Critic
from understudy.parties import Parties
from understudy.privacy.clip import Bounded
from understudy.privacy.gaussian import Gaussian, Plain
from understudy.privacy.plan import Part, PrivacyPlan
from understudy.privacy.terms import Trust
from understudy.recipes import branching, vae
from understudy.recipes.catalogue import CATALOGUE
from understudy.recipes.joint_critic import JointCritic
from understudy.recipes.options import VertiGANOptions
from understudy.recipes.vertical import Vertical, vertical
from understudy.release.generator import Generator
from understudy.rng import Streams
from understudy.study import Study, Training
from understudy.training import optim
from understudy.training.dpsgd import RecordBatch, clipped_gradients, pieces
from understudy.training.optim import Adam
from understudy.training.server import ServerOptimiser

__all__ = ["VertiGAN", "build"]

_LOG = logging.getLogger(__name__)
_BATCH, _RATE, _CLIP = 1000, 1e-3, 1.0  # the thesis's
_RARE = 0.01  # a value that fewer drawn rows have says nothing of variety
_SINGLE = (
    "gradients of records are computed in single precision and added in double: 0.1 % of the bound "
    "is set aside for rounding; that is no proof"
)


@dataclass(frozen=True)
class VertiGAN:
    """See the module's paragraph."""

    schema: Schema
    plan: PrivacyPlan
    options: VertiGANOptions
    training: Training
    parties: Parties

    info = CATALOGUE["vertigan"]

    @cached_property
    def layouts(self) -> tuple[OneHot, ...]:
        """Each party's columns as yes-or-no features."""
        return branching.layouts(self.parties, self.options.bins)

    @cached_property
    def generator(self) -> BranchedNet:
        """The generator's net."""
        return branching.generator(self.parties, self.options)

    @property
    def server(self) -> ServerOptimiser:
        """RMSprop (Adam without momentum); the generators of the last rounds are averaged."""
        rate, average = self.training.rate or _RATE, self.options.average
        rounds = self.plan.own.rounds
        return ServerOptimiser("generator", rounds, "adam", rate, 0.0, average, "none")

    @property
    def _rule(self) -> Adam:
        """RMSprop, for critics."""
        return Adam(self.options.critic_rate, 0.0, 0.9)

    @property
    def _batch(self) -> float:
        """Records that a batch is expected to hold, from public numbers only."""
        return (self.plan.own.parts[0].mechanism.rate or 1.0) * self.schema.records

    def critic(self, party: int) -> Critic:
        """A party's critic, with one hidden layer."""
        seen = self.layouts[party].width
        width = self.options.critic_width or max(2, seen // 2)
        return Critic(seen, widths=(width,), penalty=self.options.penalty)

    def init(self, *, rng: Streams) -> State:
        """A fresh generator."""
        made = layers.stack(self.generator.init(rng=rng.torch("net")), 1)
        return self.server.start(layers.concatenated(made, self.generator.shapes())[0])

    def begin(self, made: Generator, *, rng: Streams) -> State:
        """A generator that the joint critic alone has taught, and what this critic knows of rows.

        Noisy sums are all that this uses, so two steps for each round to come cost no ε.
        """
        state, known = self.init(rng=rng), self._joint.moments(made, rng=rng)
        for ahead in range(2 * self.plan.own.rounds):
            slope = self._across(state["generator"], known, rng=rng.child("ahead", ahead))
            state = self.server.step(state, -slope)
        return {**self.server.start(state["generator"]), "joint": known}

    def _across(self, flat: Tensor, known: Tensor, *, rng: Streams) -> Tensor:
        """The generator's gradient by the joint critic."""
        named = self.generator.shapes()
        params = layers.separated(flat[None], named)
        slopes = self._joint.slopes(self.generator, params, known, rng=rng)
        return layers.concatenated(slopes, named)[0]

    @cached_property
    def _joint(self) -> JointCritic:
        whole = OneHot.of(self.schema, self.options.bins)
        return JointCritic(whole, branching.places(self.parties, self.layouts, whole))

    def memory(self, site: str) -> State:
        """A party's critic from a public start, and what its optimiser remembers."""
        net = self.critic(self.parties.number(site)).net
        made = layers.init(net, CRITIC, rng=Streams.from_seed(0).torch("critic"))
        flat = {"critic": layers.flatten(net, layers.stack(made, 1), CRITIC)}
        kept = {**flat, **optim.start(self._rule, flat)}
        return {name: value[0] for name, value in kept.items()}

    def task(self, state: State, round: int) -> Task:
        """The generator."""
        return Task({"generator": state["generator"]})

    def local(self, task: Task, site: Site) -> tuple[Update, State]:
        """Algorithm 10: noised steps of the critic, then the generator's gradient."""
        party, named = site.ids[0], self.generator.shapes()
        made = layers.separated(task.array("generator", (layers.total(named),))[None], named)
        own = {name: made[name] for name in self.generator.shapes(party)}
        kept = {name: value.clone() for name, value in site.memory.items()}
        state = {name: value for name, value in kept.items() if name != "critic"}
        move = optim.stepper(self._rule, {"critic": kept["critic"]}, state)
        for _ in range(self.options.steps):
            noised = site.step(_name(party), self._clipped_sum(kept["critic"], own, site))
            move([(noised / self._batch).float()])
        gradient = self._gradient(kept["critic"], own, site)
        return {_name(party): self._largest(gradient)}, kept

    def _clipped_sum(self, flat: Tensor, own: Mapping[str, Tensor], site: Site) -> Bounded:
        """Σ over a batch, which all parties share, of clipped gradients of the critic."""
        party, part = site.ids[0], _name(site.ids[0])
        critic, layout = self.critic(party), self.layouts[party]
        members = site.sample(part)
        noise = site.normals(members, self.generator.latent + layout.width + 1)
        rows = layout.encode(site.data.x[members[:, 1]], site.data.y[members[:, 1]])
        places = torch.stack((members[:, 0], torch.arange(len(members))), dim=1)

        def losses(params: Mapping[str, Tensor], r: RecordBatch) -> Tensor:
            with torch.no_grad():
                fake = self._rows(own, r.noise[..., :-1], party)
            mix = torch.special.ndtr(r.noise[..., -1])  # normal numbers made even ones
            return critic.losses(params, r.x, fake, r.y, mix)

        labels = torch.zeros(len(members), dtype=torch.long)
        batch = pieces(rows, labels, places, 1, noise)
        params = layers.unflatten(critic.net, flat, CRITIC)
        return clipped_gradients(losses, params, batch, clipping(site.phase.part(part)).bound)

    def _gradient(self, flat: Tensor, own: Mapping[str, Tensor], site: Site) -> Tensor:
        """How common layers and own branch lower the generator's loss, ``[1, P]``.

        From the critic, which saw only noised steps, and from noise that is no secret.
        """
        party, critic = site.ids[0], self.critic(site.ids[0])
        size = (_BATCH, self.generator.latent + self.layouts[party].width)
        z = torch.from_numpy(site.rng.child("latents").normal(size)).float()
        leaves = {name: value.detach().requires_grad_() for name, value in own.items()}
        params = layers.unflatten(critic.net, flat.detach(), CRITIC)
        fake = self._rows(leaves, z, party)
        labels = torch.zeros(fake.shape[:2], dtype=torch.long)
        total = critic.generator_losses(params, fake, labels).mean()
        found = torch.autograd.grad(total, list(leaves.values()))
        return torch.cat([slope.flatten(1) for slope in found], dim=1)

    def _rows(self, own: Mapping[str, Tensor], noise: Tensor, party: int) -> Tensor:
        """Rows of a party as real ones are, with one value of each column, drawn by its chance.

        ``noise`` is latent and draws. Slopes pass as if the chances themselves were shown: chances
        would tell a critic at once that no row is real, and draws alone have no slope.
        """
        chances = self.generator.rows(own, noise[..., : self.generator.latent], party)
        level = torch.special.ndtr(noise[..., self.generator.latent :])
        drawn = self.layouts[party].draw(chances.detach(), level)
        return chances + (drawn - chances).detach()

    def _largest(self, gradient: Tensor) -> Tensor:
        """The gradient, or places and values ``[1, 2, k]`` of its largest numbers."""
        if self.options.top == 1:
            return gradient
        places = gradient.abs().topk(_kept(gradient.shape[1], self.options), dim=1).indices
        return torch.stack((places.float(), gradient.gather(1, places)), dim=1)

    def step(self, state: State, total: State, *, rng: Streams) -> State:
        """Algorithm 9: the sum of the parties' gradients, each on its own part; RMSprop."""
        named = self.generator.shapes()
        whole = {name: torch.zeros(1, *shape) for name, shape in named.items()}
        for party in range(len(self.parties)):
            own = self.generator.shapes(party)
            sent = self._restored(total[_name(party)], own)
            for name, slope in layers.separated(sent[None], own).items():
                whole[name] = whole[name] + slope
        gradient = layers.concatenated(whole, named)[0]
        if "joint" not in state:
            return self.server.step(state, -gradient)
        across = self._across(state["generator"], state["joint"], rng=rng)
        # counts as much as the critics of all parties
        moved = self.server.step(state, -(gradient + len(self.parties) * across))
        return {**moved, "joint": state["joint"]}

    def _restored(self, sent: Tensor, own: Mapping[str, tuple[int, ...]]) -> Tensor:
        """A party's whole gradient; what it did not send is zero, and a wrong place is none."""
        size = layers.total(own)
        if self.options.top == 1:
            return sent
        places, values = sent[0].long().clamp(0, size - 1), sent[1]
        return torch.zeros(size).index_put_((places,), values)

    def finish(self, state: State, *, rng: Streams) -> Generator:
        """The average of the last generators, and where each column stands in its branches."""
        config = {
            "net": self.generator.to_config(),
            "width": self.schema.width,
            "layout": self._joint.layout.to_config(),
            "places": list(self._joint.places),
            "shared": self._shared(state),
        }
        flat = self.server.released(state)[None]
        self._check_made(flat, rng)
        return Generator("branches", {"generator": flat}, config, vae.balance(self.schema))

    def _shared(self, state: State) -> bool:
        """Whether one noise is behind all branches: no critic of one party sees what that does."""
        return self.options.shared or "joint" in state

    def _check_made(self, flat: Tensor, rng: Streams) -> None:
        """Refuse rows of no numbers, and say where all are nearly alike: no record is looked at."""
        params = layers.separated(flat, self.generator.shapes())
        z = torch.randn(1, _BATCH, self.generator.latent, generator=rng.torch("collapse"))
        rows = self.generator.joint(params, z)[0]
        chances = rows.mean(0)
        if not bool(chances.isfinite().all()):
            raise ReleaseError(
                "a generator that makes rows",
                "one that training has driven beyond all numbers",
                "lower training.rate and recipe.critic_rate; what was charged cannot be recovered",
            )
        greys = torch.cat([layout.greys for layout in self.layouts])
        varied = torch.where(greys, rows.std(0) > _RARE, (chances - 0.5).abs() < 0.5 - _RARE)
        if not bool(varied.any()):
            _LOG.warning(
                "the generator has collapsed: in every column nearly all drawn rows have the same "
                "value; ask for a larger epsilon, fewer steps or a lower training.rate"
            )


def _name(party: int) -> str:
    return f"party {party + 1}"


def _kept(size: int, own: VertiGANOptions) -> int:
    return max(1, math.ceil(own.top * size))


def build(study: Study, own: VertiGANOptions) -> VertiGAN | Then:
    """The recipe of a study whose parties hold columns; with a joint critic, after fedmoments."""
    _, trust = unit_and_trust(study, VertiGAN.info)
    _check(study)
    parties = study.held
    assert parties is not None
    spec = branching.generator(parties, own)
    parts = tuple(_part(study, own, spec, party, trust) for party in range(len(parties)))
    first = _first(study, own, trust) if own.joint else None
    before = first.plan if first else None
    rounds = study.rounds or VertiGAN.info.rounds
    plan = parties_plan(study, VertiGAN.info, parts, rounds=rounds, before=before, notes=(_SINGLE,))
    made = VertiGAN(study.schema, plan, own, study.training, parties)
    return then(first, made) if first else made


def _first(study: Study, own: VertiGANOptions, trust: Trust) -> Vertical:
    """fedmoments for its share of ε, of which the joint critic learns."""
    if trust == "none":
        raise StudyError(
            "noise where recipe.joint is set: products of columns are formed under noise alone",
            'trust = "none"',
            "remove recipe.joint, or set privacy.epsilon",
        )
    epsilon = study.privacy.epsilon and study.privacy.epsilon * own.joint
    privacy = replace(study.privacy, epsilon=epsilon, clip=None)
    return vertical(replace(study, privacy=privacy, rounds=None))


def _part(study: Study, own: VertiGANOptions, spec: BranchedNet, party: int, trust: Trust) -> Part:
    """What a party sends, and the noised steps behind it."""
    size, privacy = layers.total(spec.shapes(party)), study.privacy
    shape = (size,) if own.top == 1 else (2, _kept(size, own))
    plain = Plain(privacy.clip or _CLIP, steps=own.steps, rate=batch_rate(study))
    noise = study.parties[party].noise or privacy.noise or 1.0
    how = plain if trust == "none" else Gaussian(**plain.to_dict(), noise=noise)
    return Part(_name(party), shape, "sum", "step", how, party=party)


def batch_rate(study: Study) -> float | None:
    """The public rate of batches: 1000 records, or as many as the study says; None: all."""
    rate = (study.training.batch or _BATCH) / study.schema.records
    return rate if rate < 1 else None


def _check(study: Study) -> None:
    """Refuse what has no meaning here."""
    if study.training.epochs or study.training.optimiser:
        raise StudyError(
            "recipe.steps, and RMSprop, for vertigan",
            "training.epochs or training.optimiser",
            "remove it: passes over the rows would tell how many there are",
        )
    if study.privacy.epsilon is not None and any(entry.noise for entry in study.parties):
        raise StudyError(
            "privacy.epsilon, which solves for one noise of all parties, or party.noise",
            "both",
            "remove one of them",
        )
