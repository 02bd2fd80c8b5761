"""Model inversion: what does a classifier give away of the images it learned from?

Fredrikson et al. (2015): start from noise and follow the gradient of a class's probability. FedGP
(Triastcyn and Faltings 2020, §5.3) compares a classifier trained on real images with one trained
on synthetic ones, both with hidden layers of 1000 and 300 units. The paper counts faces by a
detector of its own; here a small network judges whose class a reconstruction shows. It learned
from controls alone, so it shares no image with what is attacked. A control measure: how often it
recognises real controls that it has not seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from understudy.data.schema import Schema
from understudy.evaluation.measures import proportion
from understudy.evaluation.rows import Rows
from understudy.evaluation.score import Score
from understudy.nets.student import (
    Dense,
    Params,
    Student,
    StudentTraining,
    conv_student,
    fit,
    logits,
    one_thread,
    predict,
)
from understudy.rng import Streams

__all__ = ["Inversion", "invert", "measure_inversion"]

HIDDEN = (Dense(1000), Dense(300))
TRAINING = StudentTraining(steps=400, rate=1e-3)
JUDGE = StudentTraining(steps=400)
MOST, EACH, STEPS, RATE = 10_000, 10, 150, 0.05
CLASSES = 10
SMOOTH = 0.02

Tick = Callable[[int, int], None]


@dataclass(frozen=True)
class Inversion:
    """Reconstructions that are recognised as the class they were made for.

    ``pictures`` ``[classes, 2, F]`` are the surest ones by the real and the synthetic classifier.
    """

    real: Score
    synthetic: Score
    seen: Score
    classes: tuple[str, ...]
    pictures: np.ndarray

    @property
    def plain(self) -> dict[str, Score]:
        """The figures alone."""
        return {"real": self.real, "synthetic": self.synthetic, "unseen controls": self.seen}


def measure_inversion(
    schema: Schema, synthetic: Rows, real: Rows, controls: Rows, *, rng: Streams, tick: Tick
) -> Inversion:
    """Attack a classifier trained on real images and one trained on synthetic ones."""
    spec = Student((schema.width,), schema.n_classes, HIDDEN)
    draw = rng.numpy("images")
    wanted = torch.arange(min(CLASSES, schema.n_classes)).repeat_interleave(EACH)
    learn, check = controls.take(draw.permutation(len(controls))), controls
    cut = max(1, len(learn) * 4 // 5)
    learn, check = learn.take(np.arange(cut)), learn.take(np.arange(cut, len(learn)))
    judge = conv_student(schema.shape, schema.n_classes)
    tick(0, 3)
    eye = _trained(judge, learn, JUDGE, rng.child("judge"))
    found = []
    for i, rows in enumerate((real, synthetic)):
        tick(i + 1, 3)
        model = _trained(spec, rows.some(MOST, draw), TRAINING, rng.child("student"))
        images = invert(spec, model, wanted, rng=rng.torch("start"))
        found.append((images, predict(judge, eye, images)))
    scores = [_recognised(sure, wanted) for _, sure in found]
    seen = predict(judge, eye, torch.from_numpy(check.x)).argmax(1).numpy() == check.y
    pictures = torch.stack([_surest(*one, wanted) for one in found], 1).numpy()
    names = schema.classes[:CLASSES]
    control = proportion("unseen controls", seen if len(seen) else np.zeros(1, bool)).score()
    return Inversion(scores[0], scores[1], control, names, pictures)


def _trained(spec: Student, rows: Rows, how: StudentTraining, rng: Streams) -> Params:
    return fit(spec, torch.from_numpy(rows.x), torch.from_numpy(rows.y), rng=rng, training=how)


@one_thread()
def invert(spec: Student, model: Params, wanted: Tensor, *, rng: torch.Generator) -> Tensor:
    """Images ``[n, F]`` that the model takes for the ``wanted`` classes, from noise near grey."""
    start = 0.1 * torch.rand(len(wanted), spec.width, generator=rng)
    image = start.requires_grad_()
    optimiser = torch.optim.Adam([image], RATE)
    for _ in range(STEPS):
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(logits(spec, model, image), wanted)
        (loss * len(wanted) + SMOOTH * image.square().sum()).backward()
        optimiser.step()
        with torch.no_grad():
            image.clamp_(0, 1)
    return image.detach()


def _recognised(sure: Tensor, wanted: Tensor) -> Score:
    score = proportion("recognised", (sure.argmax(1) == wanted).numpy()).score()
    return replace(score, n=len(wanted))


def _surest(images: Tensor, sure: Tensor, wanted: Tensor) -> Tensor:
    """For each class, the reconstruction in which the judge sees it most clearly ``[classes, F]``.

    An honest pick would be the mean or the first; the surest is what an attacker would keep.
    """
    chance = sure.gather(1, wanted[:, None]).reshape(-1, EACH)
    return images.reshape(len(chance), EACH, -1)[torch.arange(len(chance)), chance.argmax(1)]
