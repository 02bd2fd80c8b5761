from __future__ import annotations

import numpy as np
import torch

from understudy.recipes.projection import Aim, Start, Targets, consistent, moments, project


def aims(classes: int, width: int) -> dict[str, Aim]:
    shapes = {"classes": (classes, width, width), "pairs": (width, width)}
    shapes |= {"singles": (classes, width), "margins": (width,)}
    return {name: Aim(np.zeros(shape), np.zeros(shape)) for name, shape in shapes.items()}


def start(classes: int = 1, rows: int = 300) -> Start:
    codes = np.random.default_rng(0).integers(0, 3, (rows * classes, 2))
    sizes, balance = np.array([3, 3]), np.full(classes, 1 / classes)
    return Start(codes, np.full(classes, rows), sizes, 4, balance)


def pair(chance: torch.Tensor, rows: slice = slice(None)) -> np.ndarray:
    """The table of the two columns."""
    return (chance[rows, 0].T @ chance[rows, 1] / len(chance)).numpy()


def test_rows_come_to_agree_with_a_measured_table() -> None:
    wanted, seen = np.zeros((8, 8)), np.zeros((8, 8))
    wanted[:3, 4:7] = np.eye(3) * [0.5, 0.3, 0.2]
    seen[:3, 4:7] = 1
    aim = Aim(wanted + wanted.T, seen + seen.T)
    found = project(start(), Targets(**{**aims(1, 8), "pairs": aim}))
    assert np.abs(pair(found)[:3, :3] - wanted[:3, 4:7]).sum() / 2 < 0.1  # 0.67 at the start
    assert not found[:, :, 3].any()  # a code that the columns do not have
    torch.testing.assert_close(found.sum(-1), torch.ones(300, 2))


def test_tables_of_one_class_leave_the_other_alone() -> None:
    wanted, seen = np.zeros((2, 8, 8)), np.zeros((2, 8, 8))
    wanted[1, :3, 4:7], seen[1, :3, 4:7] = np.eye(3) / 6, 1
    aim = Aim(wanted + wanted.swapaxes(1, 2), seen + seen.swapaxes(1, 2))
    found = project(start(2), Targets(**{**aims(2, 8), "classes": aim}))
    still = project(start(2), Targets(**aims(2, 8)))
    assert np.abs(pair(found, slice(300, 600))[:3, :3] - np.eye(3) / 6).sum() / 2 < 0.02
    torch.testing.assert_close(found[:300], still[:300])


def test_margins_are_kept_where_they_alone_are_known() -> None:
    share = np.array([0.7, 0.2, 0.1, 0, 0.1, 0.1, 0.8, 0])
    found = project(start(), Targets(**{**aims(1, 8), "margins": Aim(share, np.ones(8))}))
    assert np.abs(found.mean(0).flatten().numpy() - share).max() < 0.01


def test_moments_are_the_shares_of_pairs_and_of_single_codes() -> None:
    codes, y = np.array([[0, 1], [2, 1], [0, 0]]), np.array([0, 1, 0])
    pairs, singles = moments(codes, y, 3, 2)
    assert pairs[0, 0, 4] == pairs[0, 0, 3] == pairs[1, 2, 4] == 1 / 3
    np.testing.assert_allclose(singles[0], np.array([2, 0, 0, 1, 1, 0]) / 3)


def test_a_noisy_table_is_moved_onto_its_margins_and_no_further() -> None:
    rng = np.random.default_rng(0)
    true = rng.dirichlet(np.ones(24)).reshape(2, 3, 4)
    noisy = true + 0.02 * rng.standard_normal(true.shape)
    first, second = true.sum((0, 2)), true.sum((0, 1))
    found = consistent(noisy, first, second)
    np.testing.assert_allclose(found.sum((0, 2)), first)
    np.testing.assert_allclose(found.sum((0, 1)), second)
    np.testing.assert_allclose(consistent(found, first, second), found)
    assert np.square(found - true).sum() < np.square(noisy - true).sum()
