"""The cells are plain array code: any library with the array API standard runs them."""

import numpy as np
import pytest

from membptt.cells import GRU, LSTM, RNN, LayerNormGRU, LayerNormLSTM, LayerNormRNN

KINDS = [RNN, LSTM, GRU, LayerNormRNN, LayerNormLSTM, LayerNormGRU]

xp = pytest.importorskip("array_api_strict")


def same(mine, numpys):
    return np.from_dlpack(mine).tobytes() == numpys.tobytes()


@pytest.mark.parametrize("tokens", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_step_on_strict_arrays_has_the_bits_of_numpy(kind, dtype, tokens):
    generator = np.random.default_rng(0)
    cell = kind(6, 5, dtype, backend="numpy")
    strict = kind(6, 5, dtype, backend="numpy")
    strict.params = {name: xp.asarray(value.copy()) for name, value in cell.params.items()}
    if tokens:
        x = np.array([4, 0, 4], np.uint8)
    else:
        x = generator.standard_normal((3, 6)).astype(dtype)
    shapes = cell.hidden_shapes(3)
    state, dstate = (
        tuple(generator.standard_normal(shape).astype(dtype) for shape in shapes) for _ in range(2)
    )

    after, internal = cell.forward_step(x, state)
    grads = {name: np.zeros_like(value) for name, value in cell.params.items()}
    entering = cell.backward_step(x, internal, dstate, grads)

    def convert(arrays):
        return tuple(xp.asarray(array) for array in arrays)

    after_, internal_ = strict.forward_step(xp.asarray(x), convert(state))
    grads_ = {name: xp.zeros_like(value) for name, value in strict.params.items()}
    entering_ = strict.backward_step(xp.asarray(x), internal_, convert(dstate), grads_)

    for mine, numpys in zip(
        (*after_, *internal_, *entering_), (*after, *internal, *entering), strict=True
    ):
        assert same(mine, numpys)
    for name, gradient in grads.items():
        assert same(grads_[name], gradient)
        assert gradient.any()
