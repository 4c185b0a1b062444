"""Optimizers against their formulas and PyTorch, clipping against its definition."""

import math
import tracemalloc

import numpy as np
import pytest

from membptt.training import optimizers
from membptt.training.optimizers import SGD, Adam, AdamW, clip_by_norm
from membptt.training.rates import LearningRate


def params(dtype="float64"):
    generator = np.random.default_rng(0)
    return {
        "W": generator.standard_normal((5, 3)).astype(dtype),
        "b": generator.standard_normal(3).astype(dtype),
    }


@pytest.mark.parametrize("chunk", [1, 4, 2**14])
def test_adam_is_algorithm_1(chunk, monkeypatch):
    monkeypatch.setattr(optimizers, "CHUNK", chunk)
    moved = params()
    adam = Adam(moved, learning_rate=0.1, beta1=0.8, beta2=0.9, epsilon=1e-3)
    expected = params()
    m = {name: 0 for name in expected}
    v = {name: 0 for name in expected}
    generator = np.random.default_rng(1)
    for k in range(1, 6):
        grads = {name: generator.standard_normal(p.shape) for name, p in expected.items()}
        adam.step(grads)
        for name, g in grads.items():
            m[name] = 0.8 * m[name] + 0.2 * g
            v[name] = 0.9 * v[name] + 0.1 * g**2
            m_hat, v_hat = m[name] / (1 - 0.8**k), v[name] / (1 - 0.9**k)
            expected[name] = expected[name] - 0.1 * m_hat / (np.sqrt(v_hat) + 1e-3)
    for name in expected:
        np.testing.assert_allclose(moved[name], expected[name], rtol=1e-12)


def test_sgd_by_hand():
    moved = {"b": np.array([1.0, 2.0])}
    sgd = SGD(moved, learning_rate=0.5, momentum=0.5)
    sgd.step({"b": np.array([1.0, -2.0])})  # v = (1, -2)
    assert moved["b"].tolist() == [0.5, 3.0]
    sgd.step({"b": np.array([0.5, 0.0])})  # v = (1, -1)
    assert moved["b"].tolist() == [0.0, 3.5]


def test_decay_is_on_matrices_alone_and_not_in_the_moments():
    decayed, plain = params(), params()
    one, two = AdamW(decayed, 0.1, weight_decay=0.5), Adam(plain, 0.1)
    grads = {name: np.full_like(value, 2.0) for name, value in decayed.items()}
    one.step(grads)
    two.step(grads)
    np.testing.assert_allclose(plain["W"] - decayed["W"], params()["W"] * 0.1 * 0.5, rtol=1e-12)
    assert (decayed["b"] == plain["b"]).all()
    for name, moment in one.arrays().items():
        assert (moment == two.arrays()[name]).all()


KINDS = {
    "sgd": (
        lambda params: SGD(params, 0.1, momentum=0.8),
        lambda torch, groups: torch.optim.SGD([*groups[0], *groups[1]], lr=0.1, momentum=0.8),
    ),
    "adam": (
        lambda params: Adam(params, 0.1, 0.8, 0.9, 1e-3),
        lambda torch, groups: torch.optim.Adam(
            [*groups[0], *groups[1]], lr=0.1, betas=(0.8, 0.9), eps=1e-3
        ),
    ),
    "adamw": (
        lambda params: AdamW(params, 0.1, 0.3, 0.8, 0.9, 1e-3),
        lambda torch, groups: torch.optim.AdamW(
            [
                {"params": group, "weight_decay": decay}
                for group, decay in zip(groups, (0.3, 0.0), strict=True)
            ],
            lr=0.1,
            betas=(0.8, 0.9),
            eps=1e-3,
        ),
    ),
}


@pytest.mark.parametrize("kind", [SGD, Adam, AdamW])
@pytest.mark.parametrize(
    ("grads", "error", "message"),
    [
        ({"W": np.ones((5, 3))}, ValueError, "grads have no b; give one for each parameter"),
        (
            {"W": np.ones((5, 3)), "b": np.ones(4)},
            ValueError,
            r"of b has shape \(4,\); give \(3,\)",
        ),
        ({"W": np.ones((3, 5)), "b": np.ones(3)}, ValueError, r"of W has shape \(3, 5\); give"),
        ([np.ones((5, 3)), np.ones(3)], TypeError, "grads is of type list; give a dict, like"),
    ],
)
def test_gradients_that_do_not_fit_move_nothing(kind, grads, error, message):
    moved = params()
    optimizer = kind(moved)
    with pytest.raises(error, match=message):
        optimizer.step(grads)
    assert optimizer.updates == 0
    assert all((value == params()[name]).all() for name, value in moved.items())


def test_gradients_of_others_are_not_used():
    moved = {"b": np.array([1.0])}
    SGD(moved, 0.5, 0.0).step({"b": np.array([1.0]), "W": np.array([3.0])})
    assert moved["b"] == 0.5


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_as_pytorch(kind):
    torch = pytest.importorskip("torch")
    moved = params()
    theirs = {name: torch.tensor(value, requires_grad=True) for name, value in moved.items()}
    ours, make = KINDS[kind]
    optimizer = ours(moved)
    other = make(torch, [[theirs["W"]], [theirs["b"]]])
    generator = np.random.default_rng(1)
    for _ in range(5):
        grads = {name: generator.standard_normal(p.shape) for name, p in moved.items()}
        for name, gradient in grads.items():
            theirs[name].grad = torch.tensor(gradient)
        optimizer.step(grads)
        other.step()
    for name, value in moved.items():
        np.testing.assert_allclose(value, theirs[name].detach().numpy(), rtol=1e-12)


@pytest.mark.parametrize("kind", [SGD, Adam, AdamW])
def test_the_rate_may_be_a_function_of_the_update(kind):
    by_function, by_number = params(), params()
    rates = LearningRate(0.1, "exponential", decay_updates=3, decay_to=0.01)
    one, two = kind(by_function, rates), kind(by_number)
    for number in range(1, 5):
        two.learning_rate = (0.1, 0.01, 0.001, 0.001)[number - 1]
        for optimizer in (one, two):
            optimizer.step({name: np.cos(value) for name, value in optimizer.params.items()})
    for name in by_number:
        np.testing.assert_allclose(by_function[name], by_number[name], rtol=1e-12)


@pytest.mark.parametrize("kind", [SGD, Adam, AdamW])
def test_it_keeps_the_dtype_and_goes_on_from_its_arrays(kind):
    one, two = params("float32"), params("float32")
    first, second = kind(one), kind(two)
    grads = params("float32")
    first.step(grads)
    second.step(grads)
    third = kind(two)
    third.restore({name: array.copy() for name, array in second.arrays().items()})
    first.step(grads)
    third.step(grads)
    assert one["W"].dtype == np.float32
    assert all(one[name].tobytes() == two[name].tobytes() for name in one)


@pytest.mark.parametrize("kind", [SGD, Adam, AdamW])
def test_a_step_needs_no_memory_that_grows(kind):
    large = {"W": np.ones((1000, 500), np.float32)}
    optimizer = kind(large)
    grads = {"W": np.ones((1000, 500), np.float32)}
    tracemalloc.start()
    optimizer.step(grads)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * optimizers.CHUNK * 4


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_clipping(dtype):
    grads = params(dtype)
    norm = math.sqrt(sum(float((g.astype(float) ** 2).sum()) for g in grads.values()))
    kept = {name: g.copy() for name, g in grads.items()}
    assert clip_by_norm(grads, norm * 1.01) == pytest.approx(norm, rel=1e-12)
    assert all((grads[name] == kept[name]).all() for name in grads)
    clip_by_norm(grads, 0.5)
    assert clip_by_norm(grads, math.inf) == pytest.approx(0.5, rel=1e-6)
    np.testing.assert_allclose(grads["W"], kept["W"] * (0.5 / norm), rtol=1e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_norm_of_what_is_not_finite(bad):
    grads = {"b": np.array([1.0, bad])}
    assert not math.isfinite(clip_by_norm(grads, 1.0))
    assert grads["b"][0] == 1.0


def test_bad_numbers():
    with pytest.raises(ValueError, match=r"learning_rate is 0.0; give a number above 0"):
        Adam(params(), learning_rate=0)
    with pytest.raises(ValueError, match="learning_rate is nan"):
        Adam(params(), learning_rate=math.nan)
    with pytest.raises(ValueError, match=r"beta1 is 1.0"):
        Adam(params(), beta1=1)
    with pytest.raises(ValueError, match=r"momentum is 1.0"):
        SGD(params(), momentum=1)
    with pytest.raises(ValueError, match=r"weight_decay is -0.1; give a number of at least 0"):
        AdamW(params(), weight_decay=-0.1)
    with pytest.raises(ValueError, match="parameter W is not C-contiguous"):
        Adam({"W": np.ones((3, 2)).T})


def test_a_parameter_that_overflows_is_named():
    moved = {"W": np.zeros(3, np.float32)}
    with np.errstate(over="ignore"):
        with pytest.raises(FloatingPointError, match=r"parameter W stops .* rate 1e\+38; lower it"):
            Adam(moved, learning_rate=1e38).step({"W": np.ones(3, np.float32)})
