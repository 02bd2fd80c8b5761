"""How fast and how lean stacked training is, against a plain PyTorch loop over clients.

    python bench/speed.py [--quick] [--json FILE] [--threads N]

* ``wae_cohortC_ratio``: client updates per second of our engine over those of a loop with
  ``nn.Module`` and ``torch.optim.Adam`` per client. The WAE of 18,188 parameters, 2 rows,
  10 Adam epochs. Both sides get the same threads, take turns within one run, start from the
  same weights, see the same batches and must agree to 1e-4. Median of the repetitions.
* ``conv_ratio``: the same for the thesis's conv VAE and its plain SGD, with all cores busy.
* ``memory``: peak resident memory of a run of one round over 10³ to 10⁵ sites, rows and all, each
  in its own process.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional

from understudy import Schema, Study, run
from understudy.data.schema import Column
from understudy.nets import autoencoder, layers
from understudy.nets.autoencoder import DECODER, Autoencoder
from understudy.rng import Streams
from understudy.training import batches, loop
from understudy.training.batches import Batches, Holdings
from understudy.training.optim import Adam, Sgd

WAE = Autoencoder(features=124, latent=16, widths=(64,), variational=False)
CONV = Autoencoder(features=784, latent=8, labels=10, net="conv", shape=(28, 28))
TOLERANCE = 1e-4


def main() -> None:
    """Run what was asked for, print it, write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer repetitions and sites")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--threads", type=int, default=1, help="for both sides of the WAE")
    parser.add_argument("--memory-of", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.memory_of:
        return print(_peak_memory(args.memory_of))
    begun = time.perf_counter()
    results = {**_wae(args.threads, args.quick), **_conv(args.quick), **_memory(args.quick)}
    results["minutes"] = round((time.perf_counter() - begun) / 60, 2)
    text = json.dumps({**results, "settings": _settings(args)}, indent=2)
    print(text)
    if args.json:
        args.json.write_text(text + "\n")
    return None


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    return {
        "quick": args.quick,
        "threads": args.threads,
        "cores": torch.get_num_threads(),
        "seed": 0,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "processor": platform.machine(),
    }


# --- the WAE ---------------------------------------------------------------------------


def _wae(threads: int, quick: bool) -> dict[str, float]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    found: dict[str, float] = {}
    for cohort in (50, 250):
        rates, gap = _wae_cohort(cohort, 3 if quick else 5)
        found[f"wae_cohort{cohort}_updates_per_second"] = rates[0]
        found[f"wae_cohort{cohort}_loop_updates_per_second"] = rates[1]
        found[f"wae_cohort{cohort}_ratio"] = rates[2]
        found[f"wae_cohort{cohort}_difference"] = gap
    torch.set_num_threads(before)
    return found


def _wae_cohort(cohort: int, times: int) -> tuple[list[float], float]:
    work = _wae_work(cohort)
    sample = min(cohort, 25)  # the loop's time per client does not depend on how many
    ours = _timed(lambda: _stacked(*work), cohort, again=500 // cohort)  # turns of equal length
    theirs = _timed(lambda: _one_by_one(*work, sample), sample)
    return _take_turns(ours, theirs, times)


def _wae_work(cohort: int) -> tuple[layers.Params, Tensor, Batches, Tensor]:
    rng = Streams.from_seed(0)
    start = autoencoder.init(WAE, rng=rng.torch("weights"))
    data = (torch.rand(2 * cohort, 124, generator=rng.torch("rows")) < 0.2).float()
    rows = Holdings(None, np.arange(0, 2 * cohort, 2), np.full(cohort, 2))
    plan = batches.epochs(rows, 10, 2, rng=rng.sites("batches", 0, range(cohort)))
    return start, data, plan, torch.randn(10, cohort, 2, 16, generator=rng.torch("prior"))


def _stacked(start: layers.Params, data: Tensor, plan: Batches, prior: Tensor) -> Tensor:
    def loss(params: Any, batch: loop.Batch) -> Tensor:
        z, _ = autoencoder.encode(WAE, params, batch.x, batch.y)
        logits = autoencoder.decode(WAE, params, z, batch.y)
        fit = (batch.weight * autoencoder.reconstruction(WAE, logits, batch.x)).sum(1)
        return fit + autoencoder.mmd(z, prior[batch.step, batch.members])

    labels = torch.zeros(len(data), dtype=torch.long)
    own = Streams.from_seed(0).sites("losses", 0, range(plan.index.shape[1]))
    params = layers.stack(start, plan.index.shape[1])
    done, _ = loop.train(params, loss, (data, labels), plan, Adam(1e-3), rng=own)
    return torch.cat([p.flatten(1) for p in done.values()], dim=1)


class PlainWae(nn.Module):
    """What anyone would write for one client."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(124, 64), nn.ReLU(), nn.Linear(64, 16))
        self.decoder = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 124))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and latents."""
        z = self.encoder(x)
        return self.decoder(z), z


def _one_by_one(
    start: layers.Params, data: Tensor, plan: Batches, prior: Tensor, clients: int
) -> Tensor:
    return torch.stack([_one_client(start, data, plan, prior, c) for c in range(clients)])


def _one_client(
    start: layers.Params, data: Tensor, plan: Batches, prior: Tensor, client: int
) -> Tensor:
    net = PlainWae()
    _load(net, start)
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3)
    for step in range(10):
        x = data[plan.index[step, client]]
        optimiser.zero_grad()
        logits, z = net(x)
        fit = functional.binary_cross_entropy_with_logits(logits, x, reduction="sum") / len(x)
        (fit + _plain_mmd(z, prior[step, client])).backward()
        optimiser.step()
    return _weights(net)


def _plain_mmd(z: Tensor, prior: Tensor) -> Tensor:
    kappa, n = 2.0 * z.shape[1], len(z)

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        return kappa / (kappa + (a[:, None] - b[None]).square().sum(-1))

    apart = (1 - torch.eye(n)) / (n * (n - 1))
    same = ((kernel(z, z) + kernel(prior, prior)) * apart).sum()
    return same - 2 * kernel(z, prior).mean()


def _load(net: nn.Module, start: layers.Params) -> None:
    with torch.no_grad():
        for twin, value in zip(net.parameters(), start.values(), strict=True):
            twin.copy_(value.T if value.ndim == 2 else value)


def _weights(net: nn.Module) -> Tensor:
    flat = [(p.T if p.ndim == 2 else p).reshape(-1) for p in net.parameters()]
    return torch.cat(flat).detach()


# --- the conv VAE ----------------------------------------------------------------------


def _conv(quick: bool) -> dict[str, float]:
    """One epoch over 120 images in batches of 32; ours keeps one worker per core busy."""
    clients, each = (4, 64) if quick else (6, 120)
    rng = Streams.from_seed(0)
    start = autoencoder.init(CONV, rng=rng.torch("weights"))
    x = torch.rand(clients * each, 784, generator=rng.torch("rows"))
    y = torch.arange(clients * each) % 10
    rows = Holdings(None, np.arange(0, clients * each, each), np.full(clients, each))
    plan = batches.epochs(rows, 1, 32, rng=rng.sites("batches", 0, range(clients)))
    noise = torch.randn(len(plan.index), clients, 32, 8, generator=rng.torch("noise"))
    ours = _timed(lambda: _conv_stacked(start, x, y, plan, noise), clients)
    theirs = _timed(lambda: _conv_one_by_one(start, x, y, plan, noise, clients), clients)
    rates, gap = _take_turns(ours, theirs, 3 if quick else 5)
    names = ("conv_updates_per_second", "conv_loop_updates_per_second", "conv_ratio")
    return {**dict(zip(names, rates, strict=True)), "conv_difference": gap}


def _conv_loss(params: Any, x: Tensor, y: Tensor, weight: Tensor, draw: Tensor) -> Tensor:
    mean, spread = autoencoder.encode(CONV, params, x, y)
    logits = autoencoder.decode(CONV, params, mean + torch.exp(spread / 2) * draw, y)
    record = autoencoder.reconstruction(CONV, logits, x) + autoencoder.divergence(mean, spread)
    return (weight * record).sum(1)


def _conv_stacked(
    start: layers.Params, x: Tensor, y: Tensor, plan: Batches, noise: Tensor
) -> Tensor:
    def loss(params: Any, batch: loop.Batch) -> Tensor:
        draw = noise[batch.step, batch.members]
        return _conv_loss(params, batch.x, batch.y, batch.weight, draw)

    own = Streams.from_seed(0).sites("losses", 0, range(plan.index.shape[1]))
    params = layers.stack(start, plan.index.shape[1])
    done, _ = loop.train(params, loss, (x, y), plan, Sgd(1e-3), rng=own)
    return layers.flatten(CONV.decoder, done, DECODER)


class PlainConv(nn.Module):
    """The thesis's conv VAE as modules of one client."""

    def __init__(self) -> None:
        super().__init__()
        sizes = ((1, 32), (32, 64), (64, 64))
        convs = [m for a, b in sizes for m in (nn.Conv2d(a, b, 3, 2, 1), nn.ReLU())]
        self.encoder = nn.Sequential(*convs, nn.Flatten(), nn.Linear(1024, 16))
        self.first = nn.Linear(18, 1568)
        shapes = ((32, 32, 1), (32, 64, 1), (64, 64, 2), (64, 32, 2))
        ups = [
            m for a, b, s in shapes for m in (nn.ConvTranspose2d(a, b, 3, s, 1, s - 1), nn.ReLU())
        ]
        self.decoder = nn.Sequential(*ups, nn.ConvTranspose2d(32, 1, 3, 1, 1))

    def forward(self, x: Tensor, y: Tensor, draw: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits, means and log-variances."""
        mean, spread = self.encoder(x.reshape(-1, 1, 28, 28)).chunk(2, dim=-1)
        spread = 8 * torch.tanh(spread / 8)
        z = torch.cat((mean + torch.exp(spread / 2) * draw, functional.one_hot(y, 10)), dim=1)
        return self.decoder(self.first(z).relu().reshape(-1, 32, 7, 7)).flatten(1), mean, spread


def _conv_one_by_one(
    start: layers.Params, x: Tensor, y: Tensor, plan: Batches, noise: Tensor, clients: int
) -> Tensor:
    out = []
    for c in range(clients):
        net = PlainConv()
        _load(net, start)
        optimiser = torch.optim.SGD(net.parameters(), lr=1e-3)
        for step in range(int(plan.steps[c])):
            index, weight = plan.index[step, c], plan.weight[step, c]
            optimiser.zero_grad()
            logits, mean, spread = net(x[index], y[index], noise[step, c])
            fit = functional.binary_cross_entropy_with_logits(logits, x[index], reduction="none")
            kl = 0.5 * (mean.square() + spread.exp() - spread - 1).sum(1)
            (weight * (fit.sum(1) + kl)).sum().backward()
            optimiser.step()
        whole = [p.T if p.ndim == 2 else p for p in net.parameters()]
        out.append(torch.cat([p.reshape(-1) for p in whole[8:]]).detach())
    return torch.stack(out)


# --- taking turns ----------------------------------------------------------------------

Timed = Callable[[], tuple[float, Tensor]]


def _timed(work: Callable[[], Tensor], clients: int, again: int = 1) -> Timed:
    def once() -> tuple[float, Tensor]:
        begun = time.perf_counter()
        for _ in range(again):
            result = work()
        return clients * again / (time.perf_counter() - begun), result

    return once


def _take_turns(ours: Timed, theirs: Timed, times: int) -> tuple[list[float], float]:
    """Median rates of both, the median of the ratios of neighbouring turns, and the gap."""
    ours(), theirs()  # warm up
    pairs = [(ours(), theirs()) for _ in range(times)]
    got, wanted = pairs[-1][0][1], pairs[-1][1][1]
    gap = float((got[: len(wanted)] - wanted).abs().max())
    if not gap <= TOLERANCE:
        raise SystemExit(f"the two sides disagree by {gap:g}, more than {TOLERANCE:g}")
    rates = [statistics.median(p[side][0] for p in pairs) for side in (0, 1)]
    ratio = statistics.median(a[0] / b[0] for a, b in pairs)
    return [round(v, 2) for v in (*rates, ratio)], gap


# --- memory ----------------------------------------------------------------------------


def _memory(quick: bool) -> dict[str, Any]:
    """Peak resident MB of one round over ever more sites."""
    peaks = {n: _measured(n) for n in ((1_000, 10_000) if quick else (1_000, 10_000, 100_000))}
    low, high = min(peaks), max(peaks)
    spread = peaks[high] / peaks[low] - 1
    return {"memory_mb": {str(n): v for n, v in peaks.items()}, "memory_growth": round(spread, 3)}


def _measured(sites: int) -> float:
    command = [sys.executable, __file__, "--memory-of", str(sites)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _peak_memory(sites: int) -> float:
    """A run of one FedVAE round as a user has it; every site has two rows and an encoder."""
    torch.set_num_threads(1)
    names = [*(f"c{i}" for i in range(8)), "label"]
    schema = Schema(
        "table", "bench", 2 * sites, columns=tuple(Column(n, "boolean") for n in names),
        label="label",
    )  # fmt: skip
    bits = np.random.default_rng(0).random((2 * sites, len(names))) < 0.5
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.parquet"
        pd.DataFrame(bits, columns=names).to_parquet(rows)
        del bits
        tables = {
            "study": {"name": "bench", "recipe": "fedvae", "rounds": 1},
            "privacy": {"noise": 1.0},
            "recipe": {"widths": [32], "decoder_widths": [32], "latent": 8, "steps": 1},
            "simulation": {"data": str(rows), "sites": sites},
        }
        run(Study.parse(tables, schema=schema), seed=0, rows=10)
    return _high_water()


def _high_water() -> float:
    """Peak resident MB of this process. (``ru_maxrss`` would start at the parent's size.)"""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise SystemExit("this system does not say how much memory a process has used")


if __name__ == "__main__":
    main()
