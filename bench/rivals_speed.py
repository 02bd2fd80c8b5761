"""A plain WAE, and other people's simulators that train it: library of `speed.py`.

FedAvg, because neither has DP-Fed-WAE: so no selection, ledger or checkpoints, which ours has. Each
simulator has one worker per core and an environment of its own; only rounds after the first are
timed, not start-up. Flower evaluates the global model after a round: here that notes the time.

    python -m venv flower && flower/bin/pip install torch==2.13.0 "flwr[simulation]==1.41.0"
    python -m venv pfl && pfl/bin/pip install torch==2.13.0 pfl==0.6.0
    export UNDERSTUDY_FLOWER=flower/bin/python UNDERSTUDY_PFL=pfl/bin/python
    python bench/speed.py --parts rivals
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

SITES, FEATURES, LATENT, ROWS, EPOCHS, RATE = 5_000, 124, 16, 2, 10, 1e-3
TOOK = "seconds: "


class PlainWae(nn.Module):
    """What anyone would write for one client."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, LATENT))
        self.decoder = nn.Sequential(nn.Linear(LATENT, 64), nn.ReLU(), nn.Linear(64, FEATURES))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and latents."""
        z = self.encoder(x)
        return self.decoder(z), z

    def loss(self, x: Tensor, prior: Tensor | None = None) -> Tensor:
        """Of one batch, with a prior that is given or drawn."""
        logits, z = self(x)
        fit = functional.binary_cross_entropy_with_logits(logits, x, reduction="sum") / len(x)
        return fit + plain_mmd(z, torch.randn_like(z) if prior is None else prior)

    def metrics(self, x: Tensor) -> dict[str, float]:
        """None; pfl asks for them."""
        return {}


def plain_mmd(z: Tensor, prior: Tensor) -> Tensor:
    """The WAE's penalty."""
    kappa, n = 2.0 * z.shape[1], len(z)

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        return kappa / (kappa + (a[:, None] - b[None]).square().sum(-1))

    apart = (1 - torch.eye(n)) / (n * (n - 1))
    same = ((kernel(z, z) + kernel(prior, prior)) * apart).sum()
    return same - 2 * kernel(z, prior).mean()


# --- the side of speed.py ----------------------------------------------------------------


PYTHONS = {name: os.environ.get(f"UNDERSTUDY_{name.upper()}") for name in ("flower", "pfl")}


def installed() -> list[str]:
    """Those whose Python was named."""
    return [name for name, python in PYTHONS.items() if python]


def ask(name: str, cohort: int, rounds: int) -> float:
    """Seconds that so many rounds take."""
    command = [str(PYTHONS[name]), __file__, name, str(cohort), str(rounds)]
    if name == "pfl":  # Flower starts its own workers
        command[1:1] = ["-m", "torch.distributed.run", f"--nproc_per_node={os.cpu_count()}"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    env.pop("PYTHONPATH", None)
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    if done.returncode:
        sys.exit(f"{name} failed:\n{done.stderr[-2000:]}")
    took = [line.split()[1] for line in done.stdout.splitlines() if line.startswith(TOOK)]
    return max(map(float, took))


# --- in a Python of their own ------------------------------------------------------------


def _rows(site: int) -> Tensor:
    rng = torch.Generator().manual_seed(site)
    return (torch.rand(ROWS, FEATURES, generator=rng) < 0.2).float()


def _flower(cohort: int, rounds: int) -> list[float]:
    """When each round ended, the start among them."""
    from flwr.app import ArrayRecord, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    site, server, stamps = ClientApp(), ServerApp(), list[float]()

    @site.train()
    def train(message: Any, context: Any) -> Any:
        from flwr.app import Message

        torch.set_num_threads(1)
        net, x = PlainWae(), _rows(context.node_config["partition-id"])
        net.load_state_dict(message.content["arrays"].to_torch_state_dict())
        optimiser = torch.optim.Adam(net.parameters(), lr=RATE)
        for _ in range(EPOCHS):
            optimiser.zero_grad()
            net.loss(x).backward()
            optimiser.step()
        told = {
            "arrays": ArrayRecord(net.state_dict()),
            "metrics": MetricRecord({"num-examples": ROWS}),
        }
        return Message(content=RecordDict(told), reply_to=message)

    @server.main()
    def main(grid: Any, context: Any) -> None:
        strategy = FedAvg(fraction_train=cohort / SITES, fraction_evaluate=0.0)
        start = ArrayRecord(PlainWae().state_dict())

        def ended(number: int, arrays: Any) -> None:
            stamps.append(time.perf_counter())

        strategy.start(grid, start, num_rounds=rounds + 1, evaluate_fn=ended)

    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server, site, SITES, backend_config=resources)
    return stamps


def _pfl(cohort: int, rounds: int) -> list[float]:
    """When each round ended, the start among them."""
    import numpy as np
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam.base import NNTrainHyperParams
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel

    stamps: list[float] = []

    class Ended(TrainingProcessCallback):
        def after_central_iteration(self, *_: Any, **__: Any) -> tuple[bool, Any]:
            stamps.append(time.perf_counter())
            return False, Metrics()

    torch.set_num_threads(1)
    rows = [_rows(site) for site in range(SITES)]
    sites = FederatedDataset(
        lambda site: Dataset((rows[site],)), get_user_sampler("random", list(np.arange(SITES)))
    )
    net = PlainWae()
    model = PyTorchModel(net, torch.optim.Adam, torch.optim.SGD(net.parameters(), lr=1.0))
    FederatedAveraging().run(
        NNAlgorithmParams(rounds + 1, 10**9, cohort, None),
        SimulatedBackend(sites, sites), model,
        NNTrainHyperParams(None, EPOCHS, RATE), callbacks=[Ended()],
    )  # fmt: skip
    return stamps


if __name__ == "__main__":
    cohort, rounds = map(int, sys.argv[2:])
    ends = {"flower": _flower, "pfl": _pfl}[sys.argv[1]](cohort, rounds)
    print(f"\n{TOOK}{ends[-1] - ends[-1 - rounds]}")
