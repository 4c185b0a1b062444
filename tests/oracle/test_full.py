"""Full BPTT against loops written out here, against differences, and against PyTorch."""

import numpy as np
import pytest

from membptt.cells import GRU, LSTM, RNN
from membptt.oracle.full import full_bptt

BACKENDS = ["numpy", "cython"]


def by_hand(window):
    """Backpropagation through time on the plain cell: two loops and nothing else."""
    cell, head, inputs = window.cell, window.head, window.inputs
    grads = {name: np.zeros_like(v) for name, v in (cell.params | head.params).items()}
    state, internals, states = window.state, [], []
    for x in inputs:
        state, internal = cell.forward_step(x, state)
        internals.append(internal)
        states.append(state)
    loss = 0.0
    dstate = tuple(np.zeros_like(array) for array in state)
    for t in range(len(inputs), 0, -1):
        step_loss, dh = head.forward_backward(t, states[t - 1][0], grads)
        loss += step_loss
        dstate = (dstate[0] + dh, *dstate[1:])
        dstate = cell.backward_step(inputs[t - 1], internals[t - 1], dstate, grads)
    return loss, grads, state, dstate


@pytest.mark.parametrize("backend, tolerance", [("numpy", 0), ("cython", 1e-12)])
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru", "stack"])
@pytest.mark.parametrize("tokens, head", [(True, "softmax"), (False, "linear")])
def test_full_bptt_is_two_loops(window, cell, tokens, head, backend, tolerance):
    case = window(cell, 11, 3, 5, 8, 7, "float64", backend, tokens, head)
    result = full_bptt(*case.arguments(), case.state)
    loss, grads, state, dstate = by_hand(case)
    assert result.loss == pytest.approx(loss, rel=tolerance, abs=0)
    for name, wanted in grads.items():
        np.testing.assert_allclose(result.grads[name], wanted, tolerance, tolerance, err_msg=name)
    for found, wanted in zip(result.state + result.state_grad, state + dstate, strict=True):
        np.testing.assert_allclose(found, wanted, tolerance, tolerance)
    assert result.stats.forward_steps == result.stats.backward_steps == 11
    assert result.stats.peak_bytes == 11 * case.cell.internal_nbytes(3)


def test_nothing_that_the_caller_passed_is_changed(window):
    for tokens in (True, False):
        case = window(T=9, tokens=tokens)
        case.inputs.flags.writeable = False
        for array in case.state:
            array.flags.writeable = False
        kept = {name: value.copy() for name, value in case.cell.params.items()}
        full_bptt(*case.arguments(), case.state)
        for name, value in kept.items():
            assert (case.cell.params[name] == value).all()


def test_inputs_may_be_strided(window):
    for tokens in (True, False):
        case = window(T=9, tokens=tokens)
        wanted = full_bptt(*case.arguments(), case.state)
        case.inputs = np.repeat(case.inputs, 2, axis=1)[:, ::2]
        assert not case.inputs.flags.c_contiguous
        assert full_bptt(*case.arguments(), case.state).loss == wanted.loss


# -- PyTorch --------------------------------------------------------------------------------------

TOLERANCE = {"float32": 2e-5, "float64": 1e-11}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", [RNN, LSTM, GRU])
def test_pytorch_has_the_same_loss_and_gradients(window, kind, dtype, backend):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra: torch)")
    T, B, I, H, V = 23, 5, 6, 19, 8  # noqa: E741
    case = window(kind.__name__.lower(), T, B, I, H, V, dtype, backend, tokens=False)
    layer = getattr(torch.nn, kind.__name__)(I, H, dtype=getattr(torch, dtype))
    p = case.cell.params
    with torch.no_grad():
        layer.weight_ih_l0.copy_(torch.from_numpy(p["W_x"].T))
        layer.weight_hh_l0.copy_(torch.from_numpy(p["W_h"].T))
        layer.bias_ih_l0.copy_(torch.from_numpy(p["b"]))
        layer.bias_hh_l0.zero_()
        if kind is GRU:
            layer.bias_hh_l0[2 * H :].copy_(torch.from_numpy(p["b_h"]))
    W_y, b_y = (torch.tensor(case.head.params[n], requires_grad=True) for n in ("W_y", "b_y"))
    state = tuple(torch.from_numpy(array)[None] for array in case.state)
    h, _ = layer(torch.from_numpy(case.inputs), state if kind is LSTM else state[0])
    loss = torch.nn.functional.cross_entropy(
        (h @ W_y + b_y).reshape(T * B, V), torch.from_numpy(case.head.targets.reshape(-1))
    )
    loss.backward()
    result = full_bptt(*case.arguments(), case.state)
    assert result.loss == pytest.approx(loss.item(), rel=TOLERANCE[dtype])
    theirs = {
        "W_x": layer.weight_ih_l0.grad.T,
        "W_h": layer.weight_hh_l0.grad.T,
        "b": layer.bias_ih_l0.grad,
        "W_y": W_y.grad,
        "b_y": b_y.grad,
    }
    if kind is GRU:
        theirs["b_h"] = layer.bias_hh_l0.grad[2 * H :]
    assert theirs.keys() == result.grads.keys()
    for name, gradient in theirs.items():
        scale = gradient.abs().max().item()
        difference = np.abs(result.grads[name] - gradient.numpy()).max() / scale
        assert difference <= TOLERANCE[dtype], name
