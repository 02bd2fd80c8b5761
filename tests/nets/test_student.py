from dataclasses import replace

import pytest
import torch

from understudy.nets.student import (
    Conv,
    Dense,
    Student,
    StudentTraining,
    cnn_student,
    conv_student,
    dense_student,
    features,
    fit,
    init,
    logits,
    mlp_student,
    one_thread,
    predict,
)
from understudy.rng import Streams

QUICK = StudentTraining(steps=150)


def halves(n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """8 by 8 images, bright on the left or on the right."""
    rng = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 2, (n,), generator=rng)
    x = torch.rand(n, 8, 8, generator=rng) * 0.8
    x[y == 0, :, :4] += 0.2
    x[y == 1, :, 4:] += 0.2
    return x.reshape(n, 64), y


def test_conv_student_has_the_layers_of_the_thesis() -> None:
    params = init(conv_student((28, 28), 10), rng=torch.Generator().manual_seed(0))
    shapes = {name: tuple(value.shape) for name, value in params.items()}
    assert shapes == {
        "conv0.weight": (32, 1, 3, 3),
        "conv0.bias": (32,),
        "dense0.weight": (100, 32 * 13 * 13),
        "dense0.bias": (100,),
        "dense1.weight": (10, 100),
        "dense1.bias": (10,),
    }


def test_conv_student_computes_what_torch_modules_compute() -> None:
    spec = conv_student((9, 7, 3), 4)
    params = init(spec, rng=torch.Generator().manual_seed(1))
    x = torch.rand(5, 9 * 7 * 3)
    conv = torch.nn.Conv2d(3, 32, 3)
    conv.load_state_dict({"weight": params["conv0.weight"], "bias": params["conv0.bias"]})
    h = torch.max_pool2d(conv(x.reshape(5, 9, 7, 3).permute(0, 3, 1, 2)).relu(), 2).flatten(1)
    h = (h @ params["dense0.weight"].T + params["dense0.bias"]).relu()
    expected = h @ params["dense1.weight"].T + params["dense1.bias"]
    torch.testing.assert_close(logits(spec, params, x), expected, rtol=1e-4, atol=1e-5)


def test_cnn_student_has_the_layers_of_the_paper() -> None:
    params = init(cnn_student((28, 28), 10), rng=torch.Generator().manual_seed(0))
    shapes = {name: tuple(value.shape) for name, value in params.items() if "weight" in name}
    assert shapes == {
        "conv0.weight": (32, 1, 3, 3),
        "conv1.weight": (64, 32, 3, 3),
        "conv2.weight": (128, 64, 3, 3),
        "dense0.weight": (128, 128 * 3 * 3),
        "dense1.weight": (10, 128),
    }


@pytest.mark.parametrize(("shape", "pad"), [((19, 18, 3), 0), ((9, 7, 3), 1), ((4, 5), 1)])
def test_cnn_student_computes_what_torch_modules_compute(shape: tuple[int, ...], pad: int) -> None:
    spec = cnn_student(shape, 4)
    params = init(spec, rng=torch.Generator().manual_seed(1))
    x = torch.rand(5, spec.width)
    h = x.reshape(5, *shape[:2], -1).permute(0, 3, 1, 2)
    for i, pool in enumerate((2, 2, 1)):
        weight, bias = params[f"conv{i}.weight"], params[f"conv{i}.bias"]
        h = torch.max_pool2d(torch.conv2d(h, weight, bias, padding=pad), pool).relu()
    h = (h.flatten(1) @ params["dense0.weight"].T).relu()
    torch.testing.assert_close(features(spec, params, x), h, rtol=1e-4, atol=1e-5)
    expected = h @ params["dense1.weight"].T
    torch.testing.assert_close(logits(spec, params, x), expected, rtol=1e-4, atol=1e-5)


def test_dropout_of_convolutions_takes_whole_maps_and_keeps_the_mean() -> None:
    bare = Student((8, 8), 2, hidden=(), convs=(Conv(4, padding=1),))
    spec = replace(bare, convs=(replace(bare.convs[0], dropout=0.5),))
    params = init(spec, rng=torch.Generator().manual_seed(0))
    x = torch.rand(200, 64)
    whole = features(spec, params, x).reshape(200, 4, -1)
    dropped = features(spec, params, x, rng=torch.Generator().manual_seed(0)).reshape(200, 4, -1)
    kept = dropped.sum(2, keepdim=True) > 0
    torch.testing.assert_close(dropped, 2 * whole * kept)
    assert 0.4 < (kept.float().mean() / (whole.sum(2) > 0).float().mean()) < 0.6


def test_students_use_one_thread_and_give_the_others_back() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        seen: list[int] = []
        with pytest.raises(RuntimeError, match="stop"), one_thread():
            seen.append(torch.get_num_threads())
            raise RuntimeError("stop")
        x, y = halves(60, 0)
        tick = lambda done, total: seen.append(torch.get_num_threads())  # noqa: E731
        fit(dense_student(64, 2), x, y, rng=Streams.from_seed(0), training=QUICK, progress=tick)
        assert set(seen) == {1} and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_penalty_shrinks_weights_that_the_loss_leaves_alone() -> None:
    x, y = torch.zeros(20, 4), torch.arange(20) % 2
    how = StudentTraining(steps=50, rate=1e-3, decay=0.0, penalty=1e-2)
    spec = dense_student(4, 2)
    fitted = fit(spec, x, y, rng=Streams.from_seed(0), training=how)["dense0.weight"]
    start = init(spec, rng=Streams.from_seed(0).torch("student weights"))["dense0.weight"]
    assert fitted.abs().sum() < start.abs().sum()


@pytest.mark.slow
@pytest.mark.parametrize(
    "spec",
    [conv_student((8, 8), 2), dense_student(64, 2), mlp_student(64, 2), cnn_student((8, 8), 2)],
    ids=["conv", "dense", "mlp", "cnn"],
)
def test_student_learns_what_can_be_learnt(spec: Student) -> None:
    x, y = halves(400, 0)
    unseen, truth = halves(200, 1)
    params = fit(spec, x, y, rng=Streams.from_seed(0), training=QUICK)
    right = predict(spec, params, unseen).argmax(1) == truth
    assert right.float().mean() > 0.95


def dropping(width: int) -> Student:
    return Student((width,), 2, (Dense(32, "relu", 0.25), Dense(32, "sigmoid", 0.4)))


def test_same_streams_give_the_same_weights_and_others_do_not() -> None:
    x, y = halves(50, 0)
    spec = dropping(64)
    short = StudentTraining(steps=5)
    first, again, other = (
        fit(spec, x, y, rng=Streams.from_seed(seed), training=short) for seed in (1, 1, 2)
    )
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["dense0.weight"], other["dense0.weight"])


def test_training_leaves_the_global_generator_alone() -> None:
    x, y = halves(20, 0)
    before = torch.get_rng_state()
    fit(dropping(64), x, y, rng=Streams.from_seed(0), training=StudentTraining(steps=2))
    assert torch.equal(before, torch.get_rng_state())


def test_dropout_acts_in_training_only() -> None:
    spec = dropping(6)
    params = init(spec, rng=torch.Generator().manual_seed(0))
    x = torch.rand(3, 6)
    assert torch.equal(logits(spec, params, x), logits(spec, params, x))
    dropped = logits(spec, params, x, rng=torch.Generator().manual_seed(0))
    assert not torch.equal(dropped, logits(spec, params, x))


def test_no_rows_give_initial_weights_and_empty_answers() -> None:
    spec = dense_student(4, 3)
    params = fit(
        spec, torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64), rng=Streams.from_seed(0)
    )
    assert predict(spec, params, torch.zeros(0, 4)).shape == (0, 3)


def test_images_too_small_to_convolve_get_the_dense_student() -> None:
    assert conv_student((3, 40), 2).convs == cnn_student((3, 40), 2).convs == ()


def test_progress_reaches_the_end() -> None:
    x, y = halves(20, 0)
    seen: list[tuple[int, int]] = []
    how = StudentTraining(steps=100)
    spec = dense_student(64, 2)
    fit(
        spec,
        x,
        y,
        rng=Streams.from_seed(0),
        training=how,
        progress=lambda a, b: seen.append((a, b)),
    )
    assert seen[-1] == (100, 100)
