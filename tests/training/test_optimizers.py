"""Adam against its formulas, clipping against its definition."""

import math
import tracemalloc

import numpy as np
import pytest

from membptt.training import optimizers
from membptt.training.optimizers import Adam, clip_by_norm


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


def test_adam_keeps_the_dtype_and_goes_on_from_its_arrays():
    one, two = params("float32"), params("float32")
    first, second = Adam(one), Adam(two)
    grads = params("float32")
    first.step(grads)
    second.step(grads)
    third = Adam(two)
    third.restore({name: array.copy() for name, array in second.arrays().items()})
    first.step(grads)
    third.step(grads)
    assert one["W"].dtype == np.float32
    assert all(one[name].tobytes() == two[name].tobytes() for name in one)


def test_adam_needs_no_memory_that_grows():
    large = {"W": np.ones((1000, 500), np.float32)}
    adam = Adam(large)
    grads = {"W": np.ones((1000, 500), np.float32)}
    tracemalloc.start()
    adam.step(grads)
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
    with pytest.raises(ValueError, match="parameter W is not C-contiguous"):
        Adam({"W": np.ones((3, 2)).T})


def test_a_parameter_that_overflows_is_named():
    moved = {"W": np.zeros(3, np.float32)}
    with np.errstate(over="ignore"):
        with pytest.raises(FloatingPointError, match=r"parameter W stops .* rate 1e\+38; lower it"):
            Adam(moved, learning_rate=1e38).step({"W": np.ones(3, np.float32)})
