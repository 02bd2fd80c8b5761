"""Model inversion: what does a classifier give away of the images it learned from?

Fredrikson et al. (2015): an attacker who holds a classifier and its answer about a person looks for
an image with that answer, by gradient descent from a dark start, and prefers smooth ones. FedGP
(Triastcyn and Faltings 2020, §5.3) compares a classifier trained on real images with one trained
on synthetic ones, both with hidden layers of 1000 and 300 units, and counts in how many rebuilt
images faces are detected, and recognised. Two figures stand in for those:

* *detected*: a small network that can also answer "none of them" takes the image, as bright as it
  gets, for one of the target's class. It learned from controls and from what no image looks
  like: noise, pixels in disorder, phases in disorder, quarters of four images;
* *recognised*: of the targets of its class, the image is most alike (correlation) to its own.

An answer tells about an image whether or not the classifier learned from it. So controls are
targets too, and only what is recognised of members beyond that was learned from them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from understudy.data.schema import Schema
from understudy.evaluation.measures import proportion
from understudy.evaluation.rows import Rows
from understudy.evaluation.score import Score
from understudy.evaluation.students import Tick
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

__all__ = ["Inversion", "Rebuilt", "bright", "detector", "invert", "measure_inversion"]

HIDDEN = (Dense(1000), Dense(300))
TRAINING = StudentTraining(steps=400, rate=1e-3)
DETECTOR = StudentTraining(steps=600)
MOST, CLASSES, EACH = 10_000, 10, 10
STEPS, RATE = 200, 0.05
SCALE, SMOOTH, SMALL = 0.1, 0.003, 0.01  # weights: the answer, total variation, square


@dataclass(frozen=True)
class Rebuilt:
    """Images rebuilt from a classifier's answers about members, and about controls."""

    detected: Score
    recognised: Score
    controls: Score


@dataclass(frozen=True)
class Inversion:
    """Images rebuilt from a classifier of real and from one of synthetic images.

    ``seen``: how many real controls the detector detects. ``chance``: recognised by guessing.
    ``pictures`` ``[classes, 2, F]`` are the surest ones by the real and the synthetic classifier.
    """

    real: Rebuilt
    synthetic: Rebuilt
    seen: Score
    chance: float
    pictures: np.ndarray

    @property
    def plain(self) -> dict[str, Score]:
        """The figures alone."""
        found = {"unseen controls: detected": self.seen}
        for name, side in (("real", self.real), ("synthetic", self.synthetic)):
            found[f"{name}: detected"] = side.detected
            found[f"{name}: members recognised"] = side.recognised
            found[f"{name}: controls recognised"] = side.controls
        return found


def measure_inversion(
    schema: Schema, synthetic: Rows, real: Rows, controls: Rows, *, rng: Streams, tick: Tick
) -> Inversion | None:
    """Attack a classifier of real images and one of synthetic ones.

    None where no class has two members and two controls: nobody could be mistaken for another.
    """
    draw = rng.numpy("images")
    learned, mixed = real.some(MOST, draw), controls.take(draw.permutation(len(controls)))
    cut = len(mixed) * 3 // 5
    known, unseen = mixed.take(np.arange(cut)), mixed.take(np.arange(cut, len(mixed)))
    sides = _targets(learned, unseen, schema.n_classes)
    if sides is None:
        return None
    tick(0, 3)
    spec, eye = detector(schema, known, rng=rng.child("detector"))
    rebuilt, pictures = [], []
    for i, rows in enumerate((learned, synthetic.some(MOST, draw))):
        tick(i + 1, 3)
        found = _rebuilt(schema, rows, sides, rng.child("classifier"))
        sure = predict(spec, eye, bright(found[0]))
        rebuilt.append(_scores(found, sure, sides))
        pictures.append(_surest(found[0], sure, torch.from_numpy(sides[0].y).long()))
    told = predict(spec, eye, torch.from_numpy(unseen.x)).argmax(1).numpy()
    seen = proportion("detected", told == unseen.y).score()
    chance = len(np.unique(sides[0].y)) / len(sides[0])
    return Inversion(rebuilt[0], rebuilt[1], seen, chance, torch.stack(pictures, 1).numpy())


def _targets(members: Rows, controls: Rows, classes: int) -> tuple[Rows, Rows] | None:
    """As many members as controls of each of the first classes, at least two; in that order."""
    places: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for k in range(min(CLASSES, classes)):
        of_class = [np.flatnonzero(rows.y == k)[:EACH] for rows in (members, controls)]
        n = min(map(len, of_class))
        if n > 1:
            for place, found in zip(places, of_class, strict=True):
                place.append(found[:n])
    if not places[0]:
        return None
    return members.take(np.concatenate(places[0])), controls.take(np.concatenate(places[1]))


def detector(schema: Schema, known: Rows, *, rng: Streams) -> tuple[Student, Params]:
    """A network for the classes, and one class more for what is no image."""
    none = _no_images(schema, known, rng.numpy("no images"))
    y = np.concatenate([known.y, np.full(len(none), schema.n_classes)])
    both = Rows(np.concatenate([known.x, none]), y)
    spec = conv_student(schema.shape, schema.n_classes + 1)
    return spec, _trained(spec, both, DETECTOR, rng)


def _no_images(schema: Schema, known: Rows, rng: np.random.Generator) -> np.ndarray:
    """What no image looks like, about as many as images ``[n, F]``."""
    n, axes = max(1, len(known) // 4), (1, 2)
    drawn = [known.x[rng.integers(0, len(known), n)] for _ in range(6)]
    noise = rng.random((n, schema.width)) * rng.random((n, 1))
    pixels = rng.permuted(drawn[0], axis=1)
    image = drawn[1].reshape(n, *schema.shape)
    angle = np.angle(np.fft.fft2(rng.random(image.shape), axes=axes))
    turned = np.abs(np.fft.fft2(image, axes=axes)) * np.exp(1j * angle)
    phases = np.fft.ifft2(turned, axes=axes).real
    quarters, (h, w) = drawn[2].reshape(n, *schema.shape).copy(), schema.shape[:2]
    corners = ((0, w // 2), (h // 2, 0), (h // 2, w // 2))
    for (top, left), other in zip(corners, drawn[3:], strict=True):
        part = np.s_[:, top : top + (h + 1) // 2, left : left + (w + 1) // 2]
        quarters[part] = other.reshape(quarters.shape)[part]
    flat = [part.reshape(n, -1) for part in (noise, pixels, phases.clip(0, 1), quarters)]
    return np.concatenate(flat).astype(np.float32)


def _trained(spec: Student, rows: Rows, how: StudentTraining, rng: Streams) -> Params:
    return fit(spec, torch.from_numpy(rows.x), torch.from_numpy(rows.y), rng=rng, training=how)


def _rebuilt(
    schema: Schema, rows: Rows, sides: tuple[Rows, Rows], rng: Streams
) -> tuple[Tensor, Tensor]:
    """Images from the answers about members and about controls, of a classifier of ``rows``."""
    spec = Student((schema.width,), schema.n_classes, HIDDEN)
    model = _trained(spec, rows, TRAINING, rng)
    both = torch.from_numpy(np.concatenate([side.x for side in sides]))
    answers = torch.log_softmax(logits(spec, model, both), 1)
    found = invert(spec, model, answers, schema.shape, rng=rng.torch("start"))
    members, controls = found.chunk(2)
    return members, controls


@one_thread()
def invert(
    spec: Student, model: Params, answers: Tensor, shape: tuple[int, ...], *, rng: torch.Generator
) -> Tensor:
    """Images ``[n, F]`` about which the model answers as asked (logarithms of chances)."""
    start = 0.1 * torch.rand(len(answers), spec.width, generator=rng)
    image, answers = start.requires_grad_(), answers.detach()
    optimiser = torch.optim.Adam([image], RATE)
    for _ in range(STEPS):
        optimiser.zero_grad()
        found = torch.log_softmax(logits(spec, model, image), 1)
        away = (found - answers).square().mean(1).sum()
        rough = _variation(image.reshape(-1, *shape))
        (SCALE * away + SMOOTH * rough + SMALL * image.square().sum()).backward()
        optimiser.step()
        with torch.no_grad():
            image.clamp_(0, 1)
    return image.detach()


def _variation(images: Tensor) -> Tensor:
    """Differences between neighbours, over all images."""
    return images.diff(dim=1).abs().sum() + images.diff(dim=2).abs().sum()


def bright(images: Tensor) -> Tensor:
    """Each image as bright as it gets."""
    return images / images.amax(1, keepdim=True).clamp_min(1e-6)


def _scores(rebuilt: tuple[Tensor, Tensor], sure: Tensor, sides: tuple[Rows, Rows]) -> Rebuilt:
    own = [_own(images.numpy(), side) for images, side in zip(rebuilt, sides, strict=True)]
    detected = sure.argmax(1).numpy() == sides[0].y
    members, controls = (proportion("recognised", hits).score() for hits in own)
    return Rebuilt(proportion("detected", detected).score(), members, controls)


def _own(images: np.ndarray, side: Rows) -> np.ndarray:
    """Whether each image is more alike to its target than to all others of the class."""
    alike = _centred(images) @ _centred(side.x).T
    own = alike.diagonal().copy()
    alike[side.y[:, None] != side.y[None]] = -np.inf
    np.fill_diagonal(alike, -np.inf)
    return own > alike.max(1)


def _centred(rows: np.ndarray) -> np.ndarray:
    away = rows - rows.mean(1, keepdims=True)
    return away / np.maximum(np.linalg.norm(away, axis=1, keepdims=True), 1e-12)


def _surest(images: Tensor, sure: Tensor, wanted: Tensor) -> Tensor:
    """For each class, the image that the detector is surest of, bright ``[classes, F]``.

    An honest pick would be the mean or the first; the surest is what an attacker would keep.
    """
    chance = sure.gather(1, wanted[:, None])[:, 0]
    picked = [torch.where(wanted == k, chance, -1.0).argmax() for k in wanted.unique()]
    return bright(images[torch.stack(picked)])
