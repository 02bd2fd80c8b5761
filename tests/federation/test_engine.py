from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

from contracts.toys import ToyMean, ToyStep, ToySum, engine, shards, study
from understudy.data.shards import Shards
from understudy.errors import PrivacyError, ReleaseError
from understudy.federation.checkpoint import Checkpoint
from understudy.federation.recipe import State, Task
from understudy.federation.site import Site
from understudy.federation.sites import Sites
from understudy.privacy.clip import Bounded, Receipt, Sealed
from understudy.privacy.gaussian import Gaussian
from understudy.privacy.ledger import Ledger, receipts_in
from understudy.privacy.mechanism import Use
from understudy.rng import Draws, NoiseSource


def recipe(kind=ToyMean, sites: int = 6, rounds: int = 4, trust: str = "central", **tables):
    privacy = {"trust": trust, "noise": 1.0, **tables.pop("privacy", {})}
    if trust == "none":
        privacy.pop("noise")
    return kind.build(
        study(kind.info.name, sites, study={"rounds": rounds}, privacy=privacy, **tables)
    )


def charged(folder: Path) -> list[Receipt]:
    with Ledger(folder / "ledger.jsonl") as ledger:
        return receipts_in(ledger.entries)


def trained(toy, folder: Path, **options) -> dict[str, torch.Tensor]:
    if "checkpoint" in options:
        options["memory"] = folder
    found, ledger = engine(toy, folder, **options)
    try:
        return found.train()
    finally:
        ledger.close()
        found.runtime.sites.memory.close()


@pytest.mark.parametrize("trust", ["central", "local", "none"])
def test_a_run_goes_through_and_charges_every_round_once(tmp_path: Path, trust: str) -> None:
    toy = recipe(trust=trust)
    state = trained(toy, tmp_path)
    assert torch.isfinite(state["mean"]).all()
    rounds = [receipt.round for receipt in charged(tmp_path)]
    assert rounds == ([] if trust == "none" else [0, 1, 2, 3])


def test_rounds_with_nobody_work_and_are_charged(tmp_path: Path) -> None:
    toy = recipe(cohort={"rate": 1e-9})
    state = trained(toy, tmp_path)
    assert [r.round for r in charged(tmp_path)] == [0, 1, 2, 3]
    assert (state["mean"] != 0).all(), "an empty round is told apart by its lack of noise"


def test_sites_without_rows_work(tmp_path: Path) -> None:
    for kind in (ToyMean, ToySum, ToyStep):
        (tmp_path / kind.__name__).mkdir()
        trust = "local" if kind is ToyStep else "central"
        toy = recipe(kind, sites=3, trust=trust)
        state = trained(toy, tmp_path / kind.__name__, data=shards(3, 0))
        assert all(torch.isfinite(v).all() for v in state.values())


def test_a_site_without_rows_adds_nothing_at_the_site_level(tmp_path: Path) -> None:
    # The empty-site claim rests on it: "rows or none" moves the update by S, not by 2S.
    toy = recipe(sites=2, trust="none")
    full = shards(2)
    half = Shards(full.x, full.y, full.starts, torch.tensor([4, 0]))
    found, ledger = engine(toy, tmp_path, data=half)
    with ledger:
        sites = found.runtime.sites
        sites.memory.scatter(np.arange(2), {"rounds": torch.ones(2, 1), "last": torch.zeros(2, 3)})
        sealed, _ = sites.answer(toy.task({"mean": torch.ones(3)}, 0), 0, np.arange(2))
    assert sealed.parts["mean"][0].abs().sum() > 0
    assert torch.equal(sealed.parts["mean"][1], torch.zeros(3))


def test_the_charge_comes_before_any_noise_of_the_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []

    def note(owner: type, name: str) -> None:
        original = getattr(owner, name)

        def wrapper(self, *args, **kwargs):
            log.append(name)
            return original(self, *args, **kwargs)

        monkeypatch.setattr(owner, name, wrapper)

    note(Checkpoint, "begin")
    note(Ledger, "charge")
    note(Sites, "join")
    note(Sites, "answer")
    note(Draws, "normal")
    note(Checkpoint, "save")
    for trust, order in (
        ("central", ["begin", "charge", "join", "answer", "normal", "save"]),
        ("local", ["begin", "charge", "join", "answer", "normal", "save"]),
    ):
        (tmp_path / trust).mkdir()
        log.clear()
        trained(
            recipe(trust=trust, rounds=2), tmp_path / trust, checkpoint=Checkpoint(tmp_path / trust)
        )
        assert log == order * 2


@pytest.mark.parametrize(
    "kind, trust", [(ToyMean, "central"), (ToySum, "local"), (ToyStep, "local")]
)
def test_seeded_runs_repeat_and_others_do_not(tmp_path: Path, kind, trust: str) -> None:
    toy, found = recipe(kind, trust=trust), []
    for name, seed in (("a", 1), ("b", 1), ("c", 2), ("d", None), ("e", None)):
        (tmp_path / name).mkdir()
        state = trained(toy, tmp_path / name, seed=seed)
        found.append(torch.cat([v.flatten() for v in state.values()]))
    assert torch.equal(found[0], found[1])
    assert len({tuple(f.tolist()) for f in found}) == 4
    assert {r.source for r in charged(tmp_path / "a")} == {"simulation"}
    assert {r.source for r in charged(tmp_path / "d")} == {"os"}


@pytest.mark.parametrize("trust", ["central", "local"])
def test_memory_on_disk_gives_the_same_result(tmp_path: Path, trust: str) -> None:
    toy, found = recipe(trust=trust, cohort={"rate": 0.7}), []
    for name in ("ram", "disk"):
        folder = tmp_path / name
        folder.mkdir()
        memory = {"memory": folder} if name == "disk" else {}
        made, ledger = engine(toy, folder, **memory)
        with ledger:
            found.append(made.train()["mean"])
            made.runtime.sites.memory.close()
    assert torch.equal(*found)


def test_memory_is_kept_between_rounds(tmp_path: Path) -> None:
    toy = recipe(rounds=3)
    made, ledger = engine(toy, tmp_path)
    with ledger:
        made.train()
    kept = made.runtime.sites.memory.gather(np.arange(6))
    assert torch.equal(kept["rounds"], torch.full((6, 1), 3.0))


def test_ten_thousand_small_sites_run(tmp_path: Path) -> None:
    toy = recipe(ToySum, sites=10_000, rounds=1)
    one = shards(1, 4)
    many = Shards(one.x, one.y, torch.zeros(10_000, dtype=torch.long), torch.full((10_000,), 4))
    state = trained(toy, tmp_path, data=many)
    assert float(state["count"].sum()) == pytest.approx(40_000, abs=20)


def test_a_site_joins_no_more_rounds_than_its_allowance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined: Counter[int] = Counter()
    answer = Sites.answer
    monkeypatch.setattr(
        Sites,
        "answer",
        lambda self, task, round, clients: (
            joined.update(clients.tolist()) or answer(self, task, round, clients)
        ),
    )
    trained(recipe(trust="local", rounds=6, cohort={"joins": 2}), tmp_path)
    assert joined == {site: 2 for site in range(6)}
    assert len(charged(tmp_path)) == 6


# Kills. Each point of a round at which a process may die, before and after the call.

POINTS = [
    (Checkpoint, "begin"),
    (Ledger, "charge"),
    (ToyMean, "task"),
    (Sites, "join"),
    (Sites, "answer"),
    (Draws, "normal"),
    (ToyMean, "step"),
    (Checkpoint, "save"),
]


class Killed(BaseException):
    """Stands for the end of the process."""


@contextmanager
def killed_at(owner: type, name: str, call: int, after: bool) -> Iterator[None]:
    original, calls = getattr(owner, name), []

    def wrapper(self, *args, **kwargs):
        calls.append(1)
        if len(calls) == call and not after:
            raise Killed
        result = original(self, *args, **kwargs)
        if len(calls) == call:
            raise Killed
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, wrapper)
        with pytest.raises(Killed):
            yield


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("owner, name", POINTS, ids=[name for _, name in POINTS])
@pytest.mark.parametrize("trust", ["central", "local"])
def test_a_killed_run_goes_on_and_spends_no_round_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, after: bool, trust: str
) -> None:
    toy = recipe(trust=trust, rounds=4)
    noised: list[int] = []
    draws: list[bytes] = []
    original = Gaussian.add_noise

    def add_noise(self: Gaussian, bounded: Bounded, use: Use):
        noised.append(use.round)
        value, receipts = original(self, bounded, use)
        draws.append((value - bounded.value).numpy().tobytes())
        return value, receipts

    monkeypatch.setattr(Gaussian, "add_noise", add_noise)
    with killed_at(owner, name, 2, after):
        trained(toy, tmp_path, seed=None, checkpoint=Checkpoint(tmp_path))
    state = trained(toy, tmp_path, seed=None, checkpoint=Checkpoint(tmp_path))
    assert torch.isfinite(state["mean"]).all()
    assert [r.round for r in charged(tmp_path)] == [0, 1, 2, 3], "a charge is missing or doubled"
    assert max(Counter(noised).values()) == 1, "one charge, two draws of noise"
    assert len(set(draws)) == len(draws), "noise was reused"


@pytest.mark.parametrize("begun", [True, False])
def test_a_void_round_counts_as_joined_by_its_cohort(tmp_path: Path, begun: bool) -> None:
    toy = recipe(trust="local", rounds=4, sites=200, cohort={"rate": 0.5, "joins": 2})
    checkpoint = Checkpoint(tmp_path)
    with killed_at(Sites, "answer", 2, True):
        trained(toy, tmp_path, checkpoint=checkpoint)
    cohort = checkpoint.begun()
    assert cohort is not None and cohort[0] == 1
    saved = checkpoint.load()
    assert saved is not None and saved.round == 1
    before = saved.state["runtime/allowance"].numpy()
    if not begun:
        (tmp_path / "cohort.json").unlink()
    made, ledger = engine(toy, tmp_path, checkpoint=checkpoint)
    with ledger:
        start, _ = made._resume()
    left = made.runtime.sites.allowance
    members = cohort[1] if begun else np.arange(200)
    expected = before.copy()
    expected[:, members] = np.maximum(expected[:, members] - 1, 0)
    assert start == 2
    assert np.array_equal(left, expected)


def test_a_run_that_ended_is_not_run_again(tmp_path: Path) -> None:
    toy = recipe()
    first = trained(toy, tmp_path, checkpoint=Checkpoint(tmp_path))
    size = (tmp_path / "ledger.jsonl").stat().st_size
    second = trained(toy, tmp_path, seed=99, checkpoint=Checkpoint(tmp_path))
    assert torch.equal(first["mean"], second["mean"])
    assert (tmp_path / "ledger.jsonl").stat().st_size == size


def test_a_truncated_checkpoint_voids_its_round_and_no_more(tmp_path: Path) -> None:
    toy = recipe(rounds=5)
    with killed_at(Checkpoint, "begin", 4, False):
        trained(toy, tmp_path, checkpoint=Checkpoint(tmp_path))
    path = tmp_path / "checkpoint"
    path.write_bytes(path.read_bytes()[:-5])
    trained(toy, tmp_path, checkpoint=Checkpoint(tmp_path))
    assert [r.round for r in charged(tmp_path)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("lost", ["last line", "all"])
def test_a_ledger_behind_its_checkpoint_stops_the_run(tmp_path: Path, lost: str) -> None:
    toy = recipe()
    with killed_at(Checkpoint, "begin", 4, False):
        trained(toy, tmp_path, checkpoint=Checkpoint(tmp_path))
    path = tmp_path / "ledger.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-1]) if lost == "last line" else "")
    with pytest.raises(ReleaseError, match="ledger"):
        trained(toy, tmp_path, checkpoint=Checkpoint(tmp_path))


def test_a_keyboard_interrupt_keeps_what_was_done(tmp_path: Path) -> None:
    toy = recipe()

    def press(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(toy, tmp_path, checkpoint=Checkpoint(tmp_path), progress=press)
    saved = Checkpoint(tmp_path).load()
    assert saved is not None and saved.round == 2
    assert [r.round for r in charged(tmp_path)] == [0, 1]
    trained(toy, tmp_path, checkpoint=Checkpoint(tmp_path))
    assert [r.round for r in charged(tmp_path)] == [0, 1, 2, 3]


def test_progress_tells_rounds_and_nothing_about_data(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    trained(recipe(rounds=2), tmp_path, progress=lambda *said: seen.append(said))
    assert seen == [(0, 2), (1, 2), (2, 2)]


def test_a_reply_that_is_spoiled_on_the_way_does_not_stop_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = Sites.answer

    def spoiled(self: Sites, task: Task, round: int, clients: np.ndarray) -> tuple[Sealed, State]:
        sealed, kept = answer(self, task, round, clients)
        value = sealed.parts["mean"].clone()
        value[0] = {0: torch.nan, 1: 1e6, 2: torch.inf}.get(round, 0.0)
        parts = {"mean": value if round < 3 else value[:, :1]}
        return Sealed(sealed.kind, sealed.round, parts, sealed.receipts), kept

    monkeypatch.setattr(Sites, "answer", spoiled)
    state = trained(recipe(), tmp_path)
    assert torch.isfinite(state["mean"]).all()
    assert state["mean"].abs().max() < 5


def test_a_recipe_that_sends_raw_records_is_stopped(tmp_path: Path) -> None:
    class Raw(ToySum):
        def local(self, task: Task, site: Site):
            sums = torch.zeros(len(site), 2, 3)
            return {"sum": sums, "count": sums[:, :, 0]}, site.memory

    toy = recipe(ToySum)
    with pytest.raises(PrivacyError, match="raw update"):
        trained(Raw(toy.schema, toy.plan), tmp_path)


# Cohorts by schedule: many short rounds, so checkpoints are rarer, and void rounds are known.

SCHEDULE = {"size": 3, "joins": 2}
STRADDLED = {"sites": 10, "cohort": {"size": 3, "joins": 3}}  # cohorts that end one pass


def scheduled_rounds(folder: Path, call: int, *, hard: bool, **terms: object) -> list[int]:
    """Calls of each site, in a run that is cut in its ``call``-th answer and then goes on.

    ``hard``: nothing more is written, as after kill -9.
    """
    toy = recipe(trust="local", rounds=8, **{"sites": 12, "cohort": SCHEDULE, **terms})
    answered: list[int] = []
    original = Sites.answer

    def answer(self, task, round, clients):
        answered.extend(clients.tolist())
        return original(self, task, round, clients)

    with pytest.MonkeyPatch.context() as patch:
        if hard:
            patch.setattr(Checkpoint, "save", lambda self, saved: None)
        patch.setattr(Sites, "answer", answer)
        with killed_at(Sites, "answer", call, True):
            trained(toy, folder, checkpoint=Checkpoint(folder))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sites, "answer", answer)
        trained(toy, folder, checkpoint=Checkpoint(folder))
    assert [r.round for r in charged(folder)] == list(range(8)), "a charge is missing or doubled"
    return answered


def test_a_cut_in_a_scheduled_round_costs_its_sites_one_update(tmp_path: Path) -> None:
    answered = scheduled_rounds(tmp_path, 3, hard=False)
    assert len(answered) == 24, "a later cohort refused: the void round was counted twice"
    assert max(Counter(answered).values()) == 2


def test_a_killed_schedule_calls_nobody_beyond_the_promise(tmp_path: Path) -> None:
    answered = scheduled_rounds(tmp_path, 3, hard=True)
    assert len(answered) == 24 and max(Counter(answered).values()) == 2


@pytest.mark.parametrize("hard", [True, False])
def test_a_schedule_goes_on_across_the_end_of_a_pass(tmp_path: Path, hard: bool) -> None:
    """24 calls of ten sites: two or three of each, no matter where the run is cut."""
    answered = Counter(scheduled_rounds(tmp_path, 4, hard=hard, **STRADDLED))
    assert sorted(answered.values()) == [2] * 6 + [3] * 4


def test_a_finished_schedule_is_kept_whatever_the_clock(tmp_path: Path) -> None:
    toy = recipe(trust="local", rounds=8, sites=12, cohort=SCHEDULE)
    trained(toy, tmp_path, checkpoint=Checkpoint(tmp_path))
    saved = Checkpoint(tmp_path).load()
    assert saved is not None and saved.round == 8


# Rounds without a total.


def silent(rounds: set[int], patch: pytest.MonkeyPatch) -> None:
    """Nobody joins these rounds."""
    join = Sites.join
    patch.setattr(
        Sites,
        "join",
        lambda self, clients, round: join(self, clients[: 0 if round in rounds else None], round),
    )


@pytest.mark.parametrize("trust", ["local", "none"])
def test_a_round_without_replies_is_void_charged_and_moves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trust: str
) -> None:
    seen: list[torch.Tensor] = []
    task = ToyMean.task
    monkeypatch.setattr(
        ToyMean,
        "task",
        lambda self, state, round: seen.append(state["mean"]) or task(self, state, round),
    )
    silent({1}, monkeypatch)
    trained(recipe(trust=trust), tmp_path)
    assert torch.equal(seen[1], seen[2]), "the model moved without a total"
    assert not torch.equal(seen[0], seen[1]) and not torch.equal(seen[2], seen[3])
    assert [r.round for r in charged(tmp_path)] == ([] if trust == "none" else [0, 1, 2, 3])


def test_under_central_trust_a_round_without_replies_is_noise_and_no_void(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent({0, 1, 2, 3}, monkeypatch)
    assert (trained(recipe(), tmp_path)["mean"] != 0).all()


@pytest.mark.parametrize("trust", ["local", "none"])
def test_a_run_whose_every_round_is_void_gives_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trust: str
) -> None:
    silent({0, 1, 2, 3}, monkeypatch)
    with pytest.raises(ReleaseError, match="no site answered"):
        trained(recipe(trust=trust), tmp_path)
    assert len(charged(tmp_path)) == (4 if trust == "local" else 0), "void rounds stay charged"


def test_void_rounds_are_remembered_across_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One completed round before the kill is enough; none, before and after, is not."""
    toy = recipe(trust="local")
    for name, void in (("some", {1, 2, 3}), ("none", {0, 1, 2, 3})):
        folder = tmp_path / name
        folder.mkdir()
        with pytest.MonkeyPatch.context() as patch:
            silent(void, patch)
            with killed_at(Checkpoint, "begin", 3, False):
                trained(toy, folder, checkpoint=Checkpoint(folder))
            if name == "some":
                trained(toy, folder, checkpoint=Checkpoint(folder))
                continue
            with pytest.raises(ReleaseError, match="no site answered"):
                trained(toy, folder, checkpoint=Checkpoint(folder))


# Cohorts through the engine: secret, from the noise source, and fresh in every round.


def cohorts(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    sites: int = 400,
    rounds: int = 6,
    seed: int | None = 0,
) -> np.ndarray:
    """Who was asked in each round of a run ``[rounds, sites]``."""
    asked = np.zeros((rounds, sites), bool)
    join = Sites.join

    def noted(self: Sites, clients: np.ndarray, round: int) -> np.ndarray:
        asked[round, clients] = True
        return join(self, clients, round)

    monkeypatch.setattr(Sites, "join", noted)
    trained(recipe(sites=sites, rounds=rounds, cohort={"rate": 0.5}), folder, seed=seed)
    return asked


@pytest.mark.parametrize("seed", [0, None])
def test_the_coins_of_different_rounds_are_independent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int | None
) -> None:
    """Reused coins would cost about four times the ε that is claimed."""
    asked = cohorts(tmp_path, monkeypatch, seed=seed)
    related = np.corrcoef(asked)[~np.eye(len(asked), dtype=bool)]
    assert np.abs(related).max() < 5 / np.sqrt(asked.shape[1])
    assert abs(asked.mean() - 0.5) < 5 * 0.5 / np.sqrt(asked.size)


def test_cohorts_are_drawn_from_the_noise_source_and_not_from_the_training_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training seed may be known to the sites; who was sampled may not."""
    used: list[tuple[str, int]] = []
    server = NoiseSource.server

    def noted(self: NoiseSource, purpose: str, round: int) -> Draws:
        used.append((purpose, round))
        return server(self, purpose, round)

    monkeypatch.setattr(NoiseSource, "server", noted)
    cohorts(tmp_path, monkeypatch, sites=5, rounds=3)
    assert [u for u in used if u[0] == "cohort"] == [("cohort", round) for round in range(3)]
