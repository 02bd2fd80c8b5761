"""FedGP beside its paper (Triastcyn & Faltings 2020): MNIST students, μ and model inversion.

    python bench/fedgp.py [--seeds 0] [--only iid-500 …] [--rounds N] [--quick|--full] [--json F]
        [--picture FILE]

Sites hold rows of random number, uniform around the mean (some as few as 100), of all classes (iid)
or of two random ones each (non-iid). About twenty sites join a round by coin flips. A convolutional
student learns from 20,000 synthetic images alone and is tested on the official test images: our
final round beside the paper's Table 1. Nothing is noised and nothing is claimed, as in the paper.
Average-case μ (γ = 10⁻¹⁵), from 2,000 and from all synthetic images, stands beside its Table 2; it
is measured between pixels, the paper's between Inception features. Model inversion, which the paper
shows on faces, is on digits here, and once more with real images without high frequencies in place
of synthetic ones. The core grid is a mean of 1000 rows in both layouts; ``--full``
has all six cells.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import arguments, load, provenance, save, spread
from PIL import Image
from scipy.fft import dctn, idctn

from understudy import Records, Schema, Study, run
from understudy.data.encode import encode
from understudy.evaluation.attacks.inversion import measure_inversion
from understudy.evaluation.average_case import average_case
from understudy.evaluation.rows import Rows
from understudy.nets.student import StudentTraining, conv_student, fit, predict
from understudy.rng import Streams

PAPER = {
    "iid-500": 0.7945, "iid-1000": 0.9338, "iid-2000": 0.9623,
    "non-iid-500": 0.8326, "non-iid-1000": 0.9589, "non-iid-2000": 0.9688,
}  # fmt: skip
MU = {
    "iid-500": 0.0117, "iid-1000": 0.0069, "iid-2000": 0.0021,
    "non-iid-500": 0.0090, "non-iid-1000": 0.0044, "non-iid-2000": 0.0020,
}  # fmt: skip
FACES = {"real": 0.255, "synthetic": 0.012}  # Table 3: faces found in reconstructions
CORE = ("iid-1000", "non-iid-1000")
ATTACKED = ("inversion", "inversion, blurred real")
LOOKED = (2_000, 20_000)  # synthetic images behind μ: as `evaluate` looks at, and all
ROUNDS, JOINING, LEAST, ROWS = 400, 20, 100, 20_000
RECIPE = {"steps": 10, "widths": [128], "critic_widths": [128]}


def schema(rows: int) -> Schema:
    """Grey images of ten digits."""
    return Schema("image", "mnist", rows, classes=tuple("0123456789"), shape=(28, 28))


def sites(cell: str, seed: int) -> list[Records]:
    """The training images, dealt out as the cell says; none is dealt twice."""
    kind, mean = cell.rsplit("-", 1)
    x, y = load("mnist")["train"]
    rng = np.random.default_rng(seed)
    left = {k: list(rng.permutation(np.flatnonzero(y == k))) for k in range(10)}
    sizes = rng.integers(LEAST, 2 * int(mean) - LEAST + 1, len(x) // int(mean))
    found = [_deal(left, int(size), kind == "iid", rng) for size in sizes]
    return [Records(images=x[rows], labels=y[rows].astype(str)) for rows in found if len(rows)]


def _deal(
    left: dict[int, list[int]], size: int, even: bool, rng: np.random.Generator
) -> np.ndarray:
    """Rows of one site: of all classes that are left, or of two of them."""
    classes = [k for k, rows in left.items() if rows]
    if not even and len(classes) > 2:
        classes = rng.choice(classes, 2, replace=False).tolist()
    if not classes:
        return np.zeros(0, np.int64)
    each = np.bincount(rng.integers(0, len(classes), size), minlength=len(classes))
    taken = [left[k].pop() for k, n in zip(classes, each, strict=True) for _ in range(n) if left[k]]
    return np.array(taken, np.int64)


def one(cell: str, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """Student accuracy of the final round, minutes of training, μ and inversion."""
    held = sites(cell, seed)[: 4 if args.quick else None]
    tables = {
        "study": {"name": cell, "recipe": "fedgp", "rounds": 2 if args.quick else args.rounds},
        "cohort": {"rate": min(1.0, JOINING / len(held))},
        "recipe": {**RECIPE, "steps": 1} if args.quick else RECIPE,
        "simulation": {"data": "-", "sites": len(held)},
    }
    asked = Study.parse(tables, schema=schema(sum(map(len, held))))
    begun = time.perf_counter()
    made = run(asked, held, seed=seed, rows=10)
    minutes = (time.perf_counter() - begun) / 60
    rows = 500 if args.quick else ROWS
    labels = np.random.default_rng(seed).integers(0, 10, rows)
    rng = Streams.from_seed(seed).child("student")
    synthetic = Rows(made.generator.sample(labels, rng=rng).numpy(), labels)
    parts = [encode(asked.schema, some) for some in held]
    real = Rows(np.concatenate([p.x for p in parts]), np.concatenate([p.y for p in parts]))
    sides, dice = (synthetic, real), np.random.default_rng
    risk = [average_case(asked.schema, *sides, rng=dice(seed), most=m) for m in LOOKED]
    return {
        "accuracy": student(synthetic, rng, 50 if args.quick else 2000),
        "minutes": minutes,
        "sites": len(held),
        "claim": made.claims[0].words,
        "mu": {m: None if r is None else round(r.mu, 5) for m, r in zip(LOOKED, risk, strict=True)},
        "inversion": inverted(asked.schema, synthetic, real, seed, args.picture),
        "inversion, blurred real": inverted(asked.schema, blurred(real), real, seed, None),
    }


def student(synthetic: Rows, rng: Streams, steps: int) -> float:
    """Accuracy on the test images of a student that saw synthetic ones only."""
    spec, how = conv_student((28, 28), 10), StudentTraining(steps=steps)
    x, y = torch.from_numpy(synthetic.x), torch.from_numpy(synthetic.y)
    held = test_rows()
    found = predict(spec, fit(spec, x, y, rng=rng, training=how), torch.from_numpy(held.x))
    return float((found.argmax(1).numpy() == held.y).mean())


def test_rows() -> Rows:
    """The official test images, flat."""
    x, y = load("mnist")["test"]
    return Rows(x.reshape(len(x), -1).astype(np.float32) / 255, y.astype(np.int64))


def inverted(
    schema: Schema, synthetic: Rows, real: Rows, seed: int, picture: Path | None
) -> dict[str, float]:
    """Shares of rebuilt images that are detected and recognised; the surest as a picture."""
    rng = Streams.from_seed(seed).child("inversion")
    found = measure_inversion(schema, synthetic, real, test_rows(), rng=rng, tick=lambda *_: None)
    assert found is not None
    if picture is not None:
        few = np.stack([synthetic.x[synthetic.y == k][0] for k in range(10)])
        shown = np.concatenate([found.pictures.swapaxes(0, 1), few[None]])
        strips = shown.reshape(3, 10, 28, 28).transpose(0, 2, 1, 3).reshape(84, 280)
        image = Image.fromarray((255 * strips).astype(np.uint8))
        image.resize((840, 252), Image.Resampling.NEAREST).save(picture)
    return {name: round(score.value, 4) for name, score in found.plain.items()}


def blurred(real: Rows) -> Rows:
    """Real images of the frequencies that FedGP's nets make: nothing about them is protected."""
    parts = dctn(real.x.reshape(-1, 28, 28), axes=(1, 2), norm="ortho")
    parts[:, 14:] = parts[:, :, 14:] = 0
    x = idctn(parts, axes=(1, 2), norm="ortho").clip(0, 1)
    return Rows(x.reshape(len(x), -1).astype(np.float32), real.y)


def main() -> None:
    """Run the cells, print each, write them as they come."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--only", nargs="+", choices=PAPER, default=None)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--picture", type=Path, help="rebuilt and generated digits of the last run")
    args = parser.parse_args()
    cells = args.only or (list(PAPER) if args.full else list(CORE))
    cells, seeds = (cells[:1], args.seeds[:1]) if args.quick else (cells, args.seeds)
    report: dict[str, Any] = {**provenance("fedgp", args.threads), "recipe": RECIPE, "cells": []}
    for cell in cells:
        runs = [one(cell, seed, args) for seed in seeds]
        found = {name: spread([r[name] for r in runs]) for name in ("accuracy", "minutes")}
        told = {"cell": cell, "rounds": args.rounds, "seeds": seeds, "sites": runs[0]["sites"]}
        paper = {"paper": PAPER[cell], "mu of the paper": MU[cell], "faces of the paper": FACES}
        first = {name: runs[0][name] for name in ("mu", *ATTACKED, "claim")}
        report["cells"].append({**told, **found, **first, **paper})
        report["not run"] = [c for c in PAPER if c not in {r["cell"] for r in report["cells"]}]
        print(f"{cell:14} {found['accuracy']['mean']:.3f}  paper {PAPER[cell]:.3f}")
        save(report, args.json)


if __name__ == "__main__":
    main()
