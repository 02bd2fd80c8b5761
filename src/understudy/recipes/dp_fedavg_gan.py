"""DP-FedAvg-GAN (Augenstein et al. 2020; Margaritis 2021, Algorithm 3), the thesis's baseline.

Only critics need real rows, so only they are federated: every site trains the shared critic on its
rows against rows of the shared generator and sends the clipped change; its noised mean moves the
critic. The server then trains the generator against the critic, which is post-processing. With
``classes = "separate"`` there is one GAN per class, as in the thesis; its critics' changes are
clipped to S/√K each and make one event.

Correction to the thesis: cohorts are drawn by coin flips, since fixed-size draws do not earn the
amplification it accounts for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from understudy.data.schema import Schema
from understudy.federation.planning import Terms, noised_plan
from understudy.federation.recipe import State, Task, Update
from understudy.federation.site import Site
from understudy.nets import layers
from understudy.nets.gan import CRITIC, GENERATOR
from understudy.nets.layers import Params
from understudy.recipes import gan
from understudy.recipes.catalogue import CATALOGUE
from understudy.recipes.fedavg import Local, Trained
from understudy.recipes.options import DpFedAvgGANOptions
from understudy.release.generator import Generator
from understudy.rng import Streams
from understudy.study import Study
from understudy.training import batches, optim
from understudy.training.adversarial import Adversaries, train_generator
from understudy.training.loop import train
from understudy.training.optim import Turns

__all__ = ["DpFedAvgGAN", "build"]

_BATCH = 64  # of the generator's steps at the server
_AVERAGE = "average."  # prefix of the moving average in the state


@dataclass(frozen=True)
class DpFedAvgGAN(Trained[DpFedAvgGANOptions]):
    """See the module's paragraph; the methods follow Algorithm 3."""

    info = CATALOGUE["dp_fedavg_gan"]

    @cached_property
    def pair(self) -> Adversaries:
        return _pair(self.schema, self.options)

    @property
    def members(self) -> int:
        """GANs: one, or one per class."""
        return self.part.shape[0]

    def init(self, *, rng: Streams) -> State:
        made = layers.init(self.pair.generator.net, GENERATOR, rng=rng.torch("generator"))
        made = layers.stack(made, self.members)
        critic = layers.init(self.pair.critic.net, CRITIC, rng=rng.torch("critic"))
        flat = layers.flatten(self.pair.critic.net, layers.stack(critic, self.members), CRITIC)
        moments = optim.start(gan.rule(self.training), made)
        average = {_AVERAGE + name: value.clone() for name, value in made.items()}
        return {"critic": flat, **made, **moments, **average}

    def task(self, state: State, round: int) -> Task:
        """Both nets: sites make their own rows."""
        flat = layers.flatten(self.pair.generator.net, state, GENERATOR)
        return Task({"critic": state["critic"], "generator": flat})

    def local(self, task: Task, site: Site) -> tuple[Update, State]:
        """UserDiscUpdate: the critic's steps on the site's rows; send its change."""
        critic, generator = self.pair.critic.net, self.pair.generator.net
        start = task.array("critic", (self.members, layers.size(critic)))
        start = start.repeat(len(site), 1)
        made = task.array("generator", (self.members, layers.size(generator)))
        params = layers.unflatten(critic, start, CRITIC)
        params |= layers.unflatten(generator, made.repeat(len(site), 1), GENERATOR)
        trained = self._trained(params, site)
        change = layers.flatten(critic, trained, CRITIC) - start
        return {"critic": change.reshape(len(site), self.members, -1)}, {}

    def _trained(self, params: Params, site: Site) -> Params:
        """Both nets after the critic's steps; the generator stands still."""
        data = site.data
        separate = self.options.classes == "separate"
        held = batches.by_class(data, self.members) if separate else batches.Holdings.of(data)
        plan = Local(self.training, self.options.critic_steps).draw(held, rng=site.rng)
        turns = Turns(gan.rule(self.training), (CRITIC,))
        rows = (data.x, data.y)
        return train(params, self.pair.critic_loss, rows, plan, turns, rng=site.rng)[0]

    def step(self, state: State, total: State, *, rng: Streams) -> State:
        """θ_D ← θ_D + noised mean; GenUpdate against the new critic."""
        critic = state["critic"] + self.options.server_rate * total["critic"]
        made = {name: state[name] for name in layers.shapes(self.pair.generator.net, GENERATOR)}
        moments = {name: state[name] for name in optim.start(gan.rule(self.training), made)}
        params = {**made, **layers.unflatten(self.pair.critic.net, critic, CRITIC)}
        rule, size = gan.rule(self.training), (self.options.generator_steps, _BATCH)
        made, moments = train_generator(self.pair, params, moments, rule, size, rng=rng)
        return {"critic": critic, **made, **moments, **self._averaged(state, made)}

    def _averaged(self, state: State, made: Params) -> State:
        """A moving average of the generators, about as long as the share that is averaged."""
        fresh = 1 / max(1.0, self.options.average * self.plan.own.rounds)
        return {_AVERAGE + n: (1 - fresh) * state[_AVERAGE + n] + fresh * made[n] for n in made}

    def finish(self, state: State, *, rng: Streams) -> Generator:
        spec = self.pair.generator
        found = {name: state[_AVERAGE + name] for name in layers.shapes(spec.net, GENERATOR)}
        return gan.release(self.schema, spec, layers.flatten(spec.net, found, GENERATOR))


def _pair(schema: Schema, own: DpFedAvgGANOptions) -> Adversaries:
    return gan.adversaries(schema, own, joint=own.classes == "joint")


def build(study: Study, own: DpFedAvgGANOptions) -> DpFedAvgGAN:
    """The recipe of a study."""
    members = study.schema.n_classes if own.classes == "separate" else 1
    size = layers.size(_pair(study.schema, own).critic.net)
    terms = Terms(bound=0.5, blocks=members)
    plan = noised_plan(study, DpFedAvgGAN.info, {"critic": (members, size)}, terms)
    return DpFedAvgGAN(study.schema, plan, own, study.training, study.base)
