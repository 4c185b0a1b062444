"""tanh and sigmoid of the kernels: accuracy in units of the last place, extremes, equal clones."""

import numpy as np
import pytest

from membptt.kernels import _kernels

# Largest error over the arguments below, in units of the last place of the exact value.
ULPS = {"tanh": 3.0, "sigmoid": 3.0}
WIDE = np.longdouble  # 64-bit mantissa on x86; float64 elsewhere, still enough for float32


def exact(name, x):
    x = x.astype(WIDE)
    return np.tanh(x) if name == "tanh" else 1 / (1 + np.exp(-x))


def arguments(dtype):
    generator = np.random.default_rng(1)
    small = generator.uniform(-20, 20, 200_000)
    tiny = generator.choice([-1, 1], 50_000) * 10.0 ** generator.uniform(-30, 0, 50_000)
    return np.concatenate([small, tiny, np.linspace(-3, 3, 100_001)]).astype(dtype)


@pytest.mark.parametrize("isa", _kernels.available())
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["tanh", "sigmoid"])
def test_error_is_a_few_units_of_the_last_place(name, dtype, isa):
    if dtype == "float64" and np.finfo(WIDE).nmant <= 52:
        pytest.skip("needs a long double wider than float64 as the exact value")
    x = arguments(dtype)
    y = getattr(_kernels, name)(x, isa)
    wanted = exact(name, x)
    ulp = np.spacing(np.abs(wanted).astype(dtype)).astype(WIDE)
    assert float((np.abs(y - wanted) / ulp).max()) <= ULPS[name]


@pytest.mark.parametrize("isa", _kernels.available())
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_extremes(dtype, isa):
    x = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 0.0], dtype)
    tanh, sigmoid = _kernels.tanh(x, isa), _kernels.sigmoid(x, isa)
    assert np.isnan(tanh[0]) and np.isnan(sigmoid[0])
    assert tanh[1:].tolist() == [1, -1, 1, -1, 0]
    assert sigmoid[[1, 3, 5]].tolist() == [1, 1, 0.5]
    assert (sigmoid[[2, 4]] < 1e-37).all() and (sigmoid[[2, 4]] >= 0).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["tanh", "sigmoid"])
def test_clones_that_fuse_agree_to_the_bit(name, dtype):
    fused = [isa for isa in _kernels.available() if isa != "portable"]
    if len(fused) < 2:
        pytest.skip(f"this processor has only {fused} besides the portable kernels")
    x = arguments(dtype)
    first, second = (getattr(_kernels, name)(x, isa) for isa in fused)
    assert first.tobytes() == second.tobytes()


def test_unknown_instruction_set_is_named():
    with pytest.raises(ValueError, match="isa is 'mmx'; this processor has"):
        _kernels.tanh(np.zeros(3, np.float32), "mmx")


def test_the_benchmark_of_the_product_runs_every_set():
    for isa in _kernels.available():
        for dtype in (np.float32, np.float64):
            assert _kernels.product_seconds(3, 33, 5, 2, dtype, isa) > 0
