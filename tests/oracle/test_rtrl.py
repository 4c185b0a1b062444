"""Forward mode gives the gradients of full BPTT, without anything of a cell's backward."""

import numpy as np
import pytest

from membptt.cells import LSTM, Custom
from membptt.chains.plain import PlainChain
from membptt.oracle.differences import Direction
from membptt.oracle.full import full_bptt
from membptt.oracle.rtrl import rtrl


def same(one, other, tolerance=1e-10):
    assert one.loss == pytest.approx(other.loss, rel=1e-13)
    assert one.grads.keys() == other.grads.keys()
    for name, gradient in one.grads.items():
        scale = np.abs(other.grads[name]).max()
        assert np.abs(gradient - other.grads[name]).max() <= tolerance * scale, name
    for mine, theirs in zip(
        one.state + one.state_grad, other.state + other.state_grad, strict=True
    ):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=tolerance * np.abs(theirs).max())


@pytest.mark.parametrize("backend", ["numpy", "cython"])
@pytest.mark.parametrize(("tokens", "head"), [(True, "softmax"), (False, "linear")])
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru", "stack"])
def test_equals_full_bptt(window, cell, tokens, head, backend):
    one = window(cell, T=7, dtype="float64", backend=backend, tokens=tokens, head=head)
    found = rtrl(*one.arguments(), one.state)
    same(found, full_bptt(*one.arguments(), one.state))


def test_a_faulty_backward_does_not_matter(window, monkeypatch):
    one = window("lstm", dtype="float64", backend="numpy")
    right = full_bptt(*one.arguments(), one.state)
    monkeypatch.setattr(LSTM, "backward_step", None)
    monkeypatch.setattr(PlainChain, "backward", None)
    same(rtrl(*one.arguments(), one.state), right)


def test_a_cell_of_two_functions_with_a_state_of_two_shapes():
    def forward(params, x, state):
        h, total = state
        h = np.tanh(x * params["a"] + h * params["b"] + total[:, None])
        return (h, total + 0.1 * h.sum(axis=1)), (h,)

    def backward(params, x, state, saved, dstate, grads):
        (before, _), (h,), (dh, dtotal) = state, saved, dstate
        da = (dh + 0.1 * dtotal[:, None]) * (1 - h * h)
        grads["a"] += (da * x).sum(axis=0)
        grads["b"] += (da * before).sum(axis=0)
        return da * params["b"], dtotal + da.sum(axis=1)

    generator = np.random.default_rng(0)
    params = {name: generator.standard_normal(3) / 2 for name in "ab"}
    cell = Custom(forward, backward, params, 3, {"h": (3,), "total": ()}, {"h": (3,)})
    inputs = generator.standard_normal((6, 2, 3))
    head = Direction(generator.standard_normal((6, 2, 3)))
    state = generator.standard_normal((2, 3)), generator.standard_normal(2)
    same(rtrl(cell, inputs, head, state), full_bptt(cell, inputs, head, state))


def test_memory_does_not_depend_on_the_length(window):
    stats = [rtrl(*window("rnn", T=T, I=2, H=3, B=2).arguments()).stats for T in (2, 5)]
    P = 2 * 3 + 3 * 3 + 3
    for steps, found in zip((2, 5), stats, strict=True):
        assert found.peak_bytes == (P + 3) * 2 * 3 * 8  # S [B, H] by each parameter and by h_0
        assert found.forward_steps == steps * (1 + P + 3)


def test_float32_is_taken_to_float64(window):
    one = window("lstm", T=4)
    found = rtrl(*one.arguments(), one.state)
    assert all(gradient.dtype == np.float64 for gradient in found.grads.values())
    for name, gradient in full_bptt(*one.arguments(), one.state).grads.items():
        np.testing.assert_allclose(found.grads[name], gradient, rtol=0, atol=1e-6)
    assert one.cell.params["W_x"].dtype == np.float32


def test_refuses_what_does_not_fit(window):
    one = window("rnn", tokens=False, head="linear")
    one.inputs[2, 0, 0] = np.nan
    with pytest.raises(ValueError, match="NaN or infinity at step 3, row 0"):
        rtrl(*one.arguments())
    with pytest.raises(ValueError, match="state has shapes"):
        rtrl(*window("rnn").arguments(), state=(np.zeros((1, 1)),))
