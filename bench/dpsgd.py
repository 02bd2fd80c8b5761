"""How fast a step of DP-SGD is, against Opacus on the same nets, records and parameters.

    python bench/dpsgd.py [--quick] [--json FILE] [--threads N]

One step: gradients of single records, clipped and summed, noise, an SGD update. Sides take
turns within one run and must agree on the clipped sum; ratios are medians over the turns.

* ``conv``: the whole image VAE; ``dense``: the VAE on cosines. Records per second of one
  client by batch size, and those of Opacus in each of its modes. Its noise comes from torch's
  generator (its default), ours from the operating system.
* ``stack``: 25 clients, each with parameters of its own, against one client, both ours.
* ``peak_mb``: resident memory of a process that takes three steps, by side. Opacus's includes
  loading it, which is most of the difference for the dense net.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from kernels import PlainConv, load
from torch import Tensor, nn
from torch.nn import functional
from whole import high_water

from understudy.nets import autoencoder
from understudy.nets.autoencoder import Autoencoder
from understudy.nets.fixed import Cosines
from understudy.nets.layers import Params
from understudy.privacy.gaussian import Gaussian
from understudy.privacy.mechanism import Use
from understudy.privacy.plan import Part
from understudy.rng import NoiseSource
from understudy.training.dpsgd import ROUNDING, RecordBatch, clipped_gradients, pieces

SPECS = {
    "conv": Autoencoder(784, latent=8, labels=10, net="conv", shape=(28, 28)),
    "dense": Autoencoder(
        784, latent=16, labels=10, product=True, cosines=(12, 12), shape=(28, 28), widths=(128,)
    ),
}
MODES = ("hooks", "functorch", "ghost")
BOUND, NOISE, RATE, SEED = 1.0, 1.2, 1e-3, 0
TOLERANCE = 1e-4  # of the norm of the sum


def main() -> None:
    """Run what was asked for, print it, write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer repetitions and sizes")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--threads", type=int, default=1, help="for both sides")
    parser.add_argument("--memory-of", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.memory_of:
        return print(_peak_memory(*args.memory_of))
    begun = time.perf_counter()
    found: dict[str, Any] = {}
    for name in SPECS:
        sizes = (64,) if args.quick else (64, 128)
        found[name] = {str(n): _against_opacus(name, n, 3 if args.quick else 5) for n in sizes}
        found[f"{name}_stack"] = {
            str(n): _stack(name, n, 3 if args.quick else 5)
            for n in ((20,) if args.quick else (20, 64))
        }
    found["peak_mb"] = {
        f"{name} {side}": _measured(name, side, 128) for name in SPECS for side in ("ours", *MODES)
    }
    found["minutes"] = round((time.perf_counter() - begun) / 60, 2)
    text = json.dumps({**found, "settings": _settings(args)}, indent=2)
    print(text)
    if args.json:
        args.json.write_text(text + "\n")
    return None


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    git = partial(subprocess.run, capture_output=True, text=True, check=True)
    commit = git(["git", "rev-parse", "HEAD"]).stdout.strip()
    changed = git(["git", "status", "--porcelain", "-uno", "--", "src", "bench/*.py"]).stdout
    return {
        "command": " ".join(["python", "bench/dpsgd.py", *sys.argv[1:]]),
        "quick": args.quick, "threads": args.threads, "seed": SEED, "bound": BOUND,
        "noise": NOISE, "python": platform.python_version(), "torch": torch.__version__,
        "opacus": version("opacus"), "processor": platform.machine(),
        "commit": commit + " and uncommitted changes" * bool(changed),
    }  # fmt: skip


# --- the work ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Work:
    """Parameters of every client, and their records in one pile."""

    spec: Autoencoder
    params: Params
    x: Tensor
    y: Tensor
    noise: Tensor
    members: Tensor

    @classmethod
    def of(cls, name: str, clients: int, batch: int) -> Work:
        rng = torch.Generator().manual_seed(SEED)
        spec, n = SPECS[name], clients * batch
        each = [autoencoder.init(spec, rng=rng) for _ in range(clients)]
        params = {k: torch.stack([p[k] for p in each]) for k in each[0]}
        x, draw = torch.rand(n, 784, generator=rng), torch.randn(n, spec.latent, generator=rng)
        site = torch.arange(clients).repeat_interleave(batch)
        return cls(
            spec, params, x, torch.arange(n) % 10, draw, torch.stack((site, torch.arange(n)), 1)
        )


def _ours(work: Work) -> Tensor:
    """One step; what comes back is the clipped sum, for the comparison."""

    def loss(params: Mapping[str, Tensor], batch: RecordBatch) -> Tensor:
        return autoencoder.record_losses(work.spec, params, batch.x, batch.y, batch.noise)

    clients = len(next(iter(work.params.values())))
    parts = pieces(work.x, work.y, work.members, clients, work.noise)
    bounded = clipped_gradients(loss, work.params, parts, BOUND)
    draws = NoiseSource.system().sites(0, range(clients))
    mechanism = Gaussian(BOUND, noise=NOISE)
    part = Part("step", tuple(bounded.value.shape[1:]), "mean", "step", mechanism)
    noised, _ = mechanism.add_noise(bounded, Use(part, "record", 0, draws))
    sizes = [p[0].numel() for p in work.params.values()]
    moves = noised.float().split(sizes, dim=1)  # as recipes hand it to their optimiser
    for value, move in zip(work.params.values(), moves, strict=True):
        value.sub_(move.reshape(value.shape), alpha=RATE)
    return bounded.value


class PlainDense(nn.Module):
    """The VAE on cosines as modules of one client."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(154, 128), nn.ReLU(), nn.Linear(128, 32))
        self.decoder = nn.Sequential(nn.Linear(170, 128), nn.ReLU(), nn.Linear(128, 144))

    def forward(self, x: Tensor, y: Tensor, draw: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits, means and log-variances."""
        label = functional.one_hot(y, 10).float()
        kept = Cosines((28, 28), (12, 12), analyse=True)({}, x[None])[0]
        mean, spread = self.encoder(torch.cat((kept, label), dim=1)).chunk(2, dim=-1)
        spread = 8 * torch.tanh(spread / 8)
        z = (mean + torch.exp(spread / 2) * draw).unsqueeze(-1) * label.unsqueeze(-2)
        out = self.decoder(torch.cat((z.flatten(1), label), dim=1))
        return Cosines((28, 28), (12, 12))({}, out[None])[0], mean, spread


def _losses(out: tuple[Tensor, Tensor, Tensor], x: Tensor) -> Tensor:
    logits, mean, spread = out
    fit = functional.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(1)
    return fit + 0.5 * (mean.square() + spread.exp() - spread - 1).sum(1)


class Opacus:
    """The same step as Opacus takes it, in one of its modes."""

    def __init__(self, work: Work, mode: str) -> None:
        from opacus.grad_sample.utils import prepare_module
        from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping

        ghost = mode == "ghost"
        net = PlainConv() if work.spec.net == "conv" else PlainDense()
        self.start = {name: value[0].clone() for name, value in work.params.items()}
        self.work, self.plain, self.ghost = work, net, ghost
        extra = {"max_grad_norm": BOUND} if ghost else {}
        self.net = prepare_module(net, mode, loss_reduction="sum", **extra)
        self.optimiser = (DPOptimizerFastGradientClipping if ghost else DPOptimizer)(
            torch.optim.SGD(net.parameters(), lr=RATE),
            noise_multiplier=NOISE,
            max_grad_norm=BOUND,
            expected_batch_size=None,
            loss_reduction="sum",
        )
        self.reset()

    def reset(self) -> None:
        """Back to the first parameters."""
        load(self.plain, self.start)

    def step(self) -> Tensor:
        """One step; what comes back is the clipped sum."""
        from opacus.utils.fast_gradient_clipping_utils import DPTensorFastGradientClipping

        work, optimiser = self.work, self.optimiser
        optimiser.zero_grad(set_to_none=True)
        losses = _losses(self.net(work.x, work.y, work.noise), work.x)
        if self.ghost:
            terms = (self.net, optimiser, losses, "sum")
            DPTensorFastGradientClipping(*terms).backward()
        else:
            losses.sum().backward()
        optimiser.step()
        summed = [p.summed_grad for p in self.plain.parameters()]
        if self.ghost:
            self.net.enable_hooks()
        return torch.cat([(g.T if g.ndim == 2 else g).reshape(-1) for g in summed])


# --- taking turns ------------------------------------------------------------------------

Step = Callable[[], Tensor]


def _against_opacus(name: str, batch: int, times: int) -> dict[str, float]:
    work = Work.of(name, 1, batch)
    others = {mode: Opacus(work, mode) for mode in MODES}
    kept = {n: p.clone() for n, p in work.params.items()}
    steps: dict[str, Step] = {"ours": partial(_ours, work)}
    steps |= {mode: other.step for mode, other in others.items()}

    def reset() -> None:
        for n, p in work.params.items():
            p.copy_(kept[n])
        for other in others.values():
            other.reset()

    rates, sums = _turns(steps, batch, times, reset)
    best = max(MODES, key=lambda mode: statistics.median(rates[mode]))
    found = {f"{side}_records_per_second": round(statistics.median(r)) for side, r in rates.items()}
    for mode in MODES:
        found[f"ratio_{mode}"] = _ratio(rates["ours"], rates[mode])
    found["ratio_fastest"] = found[f"ratio_{best}"]
    gap = max(_gap(sums["ours"][0], sums[mode]) for mode in MODES)
    if not gap <= TOLERANCE:
        raise SystemExit(f"the sides disagree by {gap:g} of the sum's norm")
    return {**found, "difference": gap}


def _gap(ours: Tensor, theirs: Tensor) -> float:
    """Relative distance; every record is clipped here, ours a thousandth below the bound."""
    return float((ours / (1 - ROUNDING) - theirs).norm() / theirs.norm())


def _stack(name: str, batch: int, times: int) -> dict[str, float]:
    """Records per second of 25 clients in the stack, over those of one with as large a batch."""
    works = {"stack": Work.of(name, 25, batch), "one": Work.of(name, 1, batch)}
    rates: dict[str, list[float]] = {side: [] for side in works}
    for turn in range(times + 1):
        for side, work in works.items():
            again = 25 if side == "one" else 1  # turns of equal length
            rate = _timed(lambda w=work: _ours(w), len(work.x), again)[0]
            rates[side] += [rate] * bool(turn)  # the first is for warming up
    found = {f"{side}_records_per_second": round(statistics.median(r)) for side, r in rates.items()}
    return {**found, "ratio": _ratio(rates["stack"], rates["one"])}


def _turns(
    steps: Mapping[str, Step], batch: int, times: int, reset: Callable[[], None]
) -> tuple[dict[str, list[float]], dict[str, Tensor]]:
    """Rates by side, turn after turn, and the clipped sums from equal parameters."""
    reset()
    sums = {side: step() for side, step in steps.items()}  # also warms up
    rates: dict[str, list[float]] = {side: [] for side in steps}
    for _ in range(times):
        reset()
        for side, step in steps.items():
            rates[side].append(_timed(step, batch, 3)[0])
    return rates, sums


def _timed(step: Step, records: int, again: int) -> tuple[float, Tensor]:
    begun = time.perf_counter()
    for _ in range(again):
        result = step()
    return records * again / (time.perf_counter() - begun), result


def _ratio(ours: list[float], theirs: list[float]) -> float:
    return round(statistics.median(a / b for a, b in zip(ours, theirs, strict=True)), 2)


# --- memory ------------------------------------------------------------------------------


def _measured(name: str, side: str, batch: int) -> float:
    command = [sys.executable, __file__, "--memory-of", name, side, str(batch)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return round(float(done.stdout))


def _peak_memory(name: str, side: str, batch: str) -> float:
    work = Work.of(name, 1, int(batch))
    step = partial(_ours, work) if side == "ours" else Opacus(work, side).step
    for _ in range(3):
        step()
    return high_water()


if __name__ == "__main__":
    warnings.filterwarnings("ignore", module="torch|opacus")
    main()
