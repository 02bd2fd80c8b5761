"""What the recipes that train GANs have in common: public nets, the rule of steps, the release."""

from __future__ import annotations

from torch import Tensor

from understudy.data.encode import blocks
from understudy.data.schema import Schema
from understudy.nets.gan import Critic, GeneratorNet
from understudy.recipes import vae
from understudy.recipes.options import GANOptions
from understudy.release.generator import Generator
from understudy.study import Training
from understudy.training.adversarial import Adversaries
from understudy.training.optim import Adam, Sgd

__all__ = ["adversaries", "release", "rule"]

_RATE = 2e-3
_FLAGS = ("boolean", "missing")


def adversaries(schema: Schema, own: GANOptions, *, joint: bool = True) -> Adversaries:
    """The public nets for a schema: conditional, or blind to the label."""
    labels = schema.n_classes if joint else 0
    cosines = vae.frequencies(schema, own.cosines)
    shape = schema.shape if cosines else ()
    held = blocks(schema) if schema.kind == "table" else ()
    generator = GeneratorNet(
        schema.width,
        own.latent,
        labels,
        own.widths,
        blocks=tuple(n for b in held for n in _widths(b.kind, b.stop - b.start)),
        flags=tuple(i for b in held if b.kind in _FLAGS for i in range(b.start, b.stop)),
        shape=shape,
        cosines=cosines,
    )
    seen = (labels, own.critic_widths, own.loss, own.penalty, shape, cosines)
    return Adversaries(generator, Critic(schema.width, *seen), own.critic_steps)


def _widths(kind: str, width: int) -> tuple[int, ...]:
    """A one-hot block is one; numbers stand alone."""
    return (width,) if kind == "categorical" else (1,) * width


def rule(training: Training) -> Adam | Sgd:
    """How both nets move: Adam without momentum, or plain steps."""
    rate = training.rate or _RATE
    return Sgd(rate) if training.optimiser == "sgd" else Adam(rate, 0.0, 0.9)


def release(schema: Schema, spec: GeneratorNet, flat: Tensor) -> Generator:
    """A generator of nets ``[members, P]`` that draws classes as declared, or evenly."""
    config = {"net": spec.to_config(), "width": schema.width}
    return Generator("gan", {"generator": flat}, config, vae.balance(schema))
