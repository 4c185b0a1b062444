"""Truncated BPTT is the exact gradient of each window whose entering state is held fixed."""

import numpy as np
import pytest

from membptt import LSTM, Adam, SoftmaxHead, full_bptt, rtrl, truncated_bptt
from membptt.training.tasks import copy_memory

T = 11


class From:
    """A head that sees one window of a longer one, and counts losses after step `done` only."""

    kernel = None

    def __init__(self, head, begin, done):
        self.whole, self.begin, self.done, self.params = head, begin, done, head.params

    def forward_backward(self, step, h, grads):
        step += self.begin
        if step > self.done:
            return self.whole.forward_backward(step, h, grads)
        return 0.0, 0 * h


def frozen(one, window, stride):
    """Return loss, gradients and derivative by h_0, window by window in forward mode."""
    states = [one.state]
    for x in one.inputs:
        states.append(one.cell.forward_step(x, states[-1])[0])
    loss, grads, state_grad = 0.0, {}, [0 * array for array in one.state]
    for done in range(0, T, stride):
        begin, end = max(0, done + stride - window), min(T, done + stride)
        head = From(one.head, begin, done)
        found = rtrl(one.cell, one.inputs[begin:end], head, states[begin])
        loss += found.loss
        for name, gradient in found.grads.items():
            grads[name] = grads.get(name, 0) + gradient
        if begin == 0:
            state_grad = [a + b for a, b in zip(state_grad, found.state_grad, strict=True)]
    return loss, grads, state_grad


@pytest.mark.parametrize("backend", ["numpy", "cython"])
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru", "stack"])
@pytest.mark.parametrize(("back", "stride"), [(1, 1), (4, 4), (4, 1), (5, 3), (6, 2), (20, 3)])
def test_each_window_with_its_entering_state_fixed(window, cell, back, stride, backend):
    one = window(cell, T=T, dtype="float64", backend=backend)
    found = truncated_bptt(*one.arguments(), back, one.state, stride)
    loss, grads, state_grad = frozen(one, back, stride)
    assert found.loss == pytest.approx(loss, rel=1e-13)
    for name, gradient in grads.items():
        np.testing.assert_allclose(found.grads[name], gradient, rtol=0, atol=1e-12)
    for mine, theirs in zip(found.state_grad, state_grad, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("back", [T, 3 * T])
def test_one_window_for_all_is_full_bptt(window, back):
    one = window("lstm", T=T, dtype="float64")
    found, full = truncated_bptt(*one.arguments(), back), full_bptt(*one.arguments())
    for name, gradient in full.grads.items():
        np.testing.assert_allclose(found.grads[name], gradient, rtol=0, atol=1e-14)
    assert found.stats.peak_bytes == full.stats.peak_bytes


@pytest.mark.parametrize(("back", "stride", "steps"), [(4, None, T), (4, 2, 2 + 5 * 4 - 1)])
def test_the_forward_pass_is_exact_and_the_memory_one_window(window, back, stride, steps):
    one = window("lstm", T=T)
    found, full = (
        truncated_bptt(*one.arguments(), back, one.state, stride),
        full_bptt(*one.arguments(), one.state),
    )
    assert [a.tobytes() for a in found.state] == [a.tobytes() for a in full.state]
    assert found.loss == pytest.approx(full.loss, rel=1e-6)
    assert found.stats.peak_bytes == back * one.cell.internal_nbytes(2)
    assert found.stats.forward_steps == steps


class Reader:
    """Inputs that are read in blocks, as from a file."""

    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, array.dtype

    def __getitem__(self, index):
        return self.array[index]


def test_inputs_that_are_read_in_blocks(window):
    one = window("lstm", T=T, dtype="float64", tokens=False)
    blocks = Reader(one.inputs)
    for method, more in ((truncated_bptt, (4,)), (rtrl, ())):
        found = method(one.cell, blocks, one.head, *more)
        for name, gradient in method(*one.arguments(), *more).grads.items():
            assert found.grads[name].tobytes() == gradient.tobytes()


def test_bad_windows_are_refused(window):
    one = window()
    with pytest.raises(ValueError, match="window is 0; give at least 1"):
        truncated_bptt(*one.arguments(), 0)
    with pytest.raises(ValueError, match="stride is 5; give at most 4, the window"):
        truncated_bptt(*one.arguments(), 4, stride=5)
    one = window(T=T, tokens=False)
    one.inputs[7] = np.inf
    with pytest.raises(ValueError, match="inputs hold NaN or infinity at step 8"):
        truncated_bptt(*one.arguments(), 3)


@pytest.mark.parametrize(("back", "learns"), [(12, False), (21, False), (22, True)])
def test_a_dependence_beyond_the_window_is_not_learned(back, learns):
    """One of four symbols is kept for 20 steps; docs/truncated-bptt.md does the same with 60."""
    H, batch, losses = 12, 16, []
    cell, head = LSTM(6, H), SoftmaxHead(H, 4)
    cell.params["b"][: 2 * H] = np.repeat([-2.5, 2.5], H)  # forget slowly
    adam = Adam(cell.params | head.params, learning_rate=0.03)
    for update in range(150):
        example = copy_memory(20, batch, 1, 4, seed=update)
        result = truncated_bptt(
            cell, example.inputs, head.with_targets(example.targets, example.mask), back
        )
        adam.step(result.grads)
        losses.append(result.loss)
    assert (np.mean(losses[-10:]) < 0.1) == learns
    assert learns or np.mean(losses[-10:]) > 1.3  # to guess is log 4 = 1.386
