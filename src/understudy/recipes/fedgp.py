"""FedGP: a federated GAN (Triastcyn & Faltings 2020, §4.1).

Every site trains a critic of its own against a generator that all share: the critic and its
optimiser's memory never leave the site, the generator's change is averaged (FedAvg). Generation is
labelled: both nets see the class. As published nothing is noised, and the claim says so. With a
trust and an ε, a site's change is clipped and noised as in any other recipe, under masks where
trust is distributed; without, the server sees each site's generator.

The paper weighs sites by their rows. Here they count alike, since the weights would tell how many
rows a site has.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from understudy.federation.planning import Terms, noised_plan, unit_and_trust
from understudy.federation.recipe import State, Task, Update
from understudy.federation.site import Site
from understudy.nets import layers
from understudy.nets.gan import CRITIC, GENERATOR
from understudy.privacy.gaussian import NO_BOUND
from understudy.recipes import gan
from understudy.recipes.catalogue import CATALOGUE
from understudy.recipes.fedavg import Local, Trained
from understudy.recipes.options import FedGPOptions
from understudy.release.generator import Generator
from understudy.rng import Streams
from understudy.study import Study
from understudy.training import batches, optim
from understudy.training.adversarial import Adversaries
from understudy.training.loop import train
from understudy.training.server import ServerOptimiser

__all__ = ["FedGP", "build"]


@dataclass(frozen=True)
class FedGP(Trained[FedGPOptions]):
    """See the module's paragraph."""

    info = CATALOGUE["fedgp"]

    @cached_property
    def pair(self) -> Adversaries:
        return gan.adversaries(self.schema, self.options)

    @property
    def turns(self) -> optim.Turns:
        """How both nets move at a site."""
        return self.pair.turns(gan.rule(self.training))

    @property
    def server(self) -> ServerOptimiser:
        """FedAvg; the generators of the last rounds are averaged."""
        rounds, average = self.plan.own.rounds, self.options.average
        return ServerOptimiser("generator", rounds, "sgd", 1.0, 0.0, average, "none")

    def init(self, *, rng: Streams) -> State:
        made = layers.init(self.pair.generator.net, GENERATOR, rng=rng.torch("net"))
        flat = layers.flatten(self.pair.generator.net, layers.stack(made, 1), GENERATOR)
        return self.server.start(flat[0])

    def memory(self, site: str) -> State:
        """A critic from a public start, and what its optimiser remembers."""
        rng = Streams.from_seed(0).torch("critic")
        critic = layers.init(self.pair.critic.net, CRITIC, rng=rng)
        state = optim.start(self.turns, layers.stack(critic, 1))
        return {**critic, **{name: value[0] for name, value in state.items()}}

    def task(self, state: State, round: int) -> Task:
        return Task({"generator": state["generator"]})

    def local(self, task: Task, site: Site) -> tuple[Update, State]:
        """Critic and generator by turns on the site's rows; send the generator's change."""
        net, memory = self.pair.generator.net, site.memory
        start = task.array("generator", (layers.size(net),)).expand(len(site), -1)
        shared = layers.unflatten(net, start, GENERATOR)
        own = {name: memory[name] for name in layers.shapes(self.pair.critic.net, CRITIC)}
        params = {**shared, **own}
        state = {**memory, **optim.start(self.turns, shared)}
        state = {name: value for name, value in state.items() if name not in own}
        trained, kept = self._train(params, state, site)
        change = layers.flatten(net, trained, GENERATOR) - start
        return {"generator": change}, {n: {**trained, **kept}[n] for n in memory}

    def _train(
        self, params: layers.Params, state: layers.Params, site: Site
    ) -> tuple[layers.Params, layers.Params]:
        """As many turns as the study says; a generator's step is the last of each."""
        data, steps = site.data, self.options.steps * len(self.turns.order)
        plan = Local(self.training, steps).draw(batches.Holdings.of(data), rng=site.rng)
        rows = (data.x, data.y)
        return train(params, self.pair.loss, rows, plan, self.turns, state, rng=site.rng)

    def step(self, state: State, total: State, *, rng: Streams) -> State:
        """θ ← θ + mean change."""
        return self.server.step(state, total["generator"])

    def finish(self, state: State, *, rng: Streams) -> Generator:
        return gan.release(self.schema, self.pair.generator, self.server.released(state)[None])


def build(study: Study, own: FedGPOptions) -> FedGP:
    """The recipe of a study; without privacy nothing is clipped unless the study says so."""
    _, trust = unit_and_trust(study, FedGP.info)
    size = layers.size(gan.adversaries(study.schema, own).generator.net)
    terms = Terms(bound=NO_BOUND if trust == "none" else 1.0)
    plan = noised_plan(study, FedGP.info, {"generator": (size,)}, terms)
    return FedGP(study.schema, plan, own, study.training, study.base)
