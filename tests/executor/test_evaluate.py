"""The loss without gradients: that of full BPTT, in memory that does not grow with the steps."""

import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest

import membptt as mb

TOLERANCE = {"float64": 1e-12, "float32": 1e-5}


def agrees(found, cell, inputs, head, state):
    """Assert that it is the loss and the state of full BPTT."""
    loss, after = found
    full = mb.full_bptt(cell, inputs, head, state)
    assert loss == pytest.approx(full.loss, rel=TOLERANCE[cell.dtype.name])
    assert len(after) == len(full.state)
    for mine, theirs in zip(after, full.state, strict=True):
        assert np.array_equal(mine, theirs)


@pytest.mark.parametrize("backend", ["numpy", "cython"])
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    "cell, tokens, head",
    [
        ("rnn", True, "softmax"),
        ("lstm", False, "squared_error"),
        ("gru", True, "softmax"),
        ("stack", False, "softmax"),
    ],
)
def test_loss_and_state_are_those_of_full_bptt(window, backend, dtype, cell, tokens, head):
    case = window(cell, T=23, dtype=dtype, backend=backend, tokens=tokens, head=head)
    found = mb.evaluate(*case.arguments(), case.state)
    assert type(found[0]) is float
    agrees(found, *case.arguments(), case.state)


def test_windows_that_go_on_are_one_window(window):
    case = window(T=20, dtype="float64", backend="cython")
    whole, after = mb.evaluate(*case.arguments(), case.state)
    state, total = case.state, 0.0
    for start, stop in ((0, 7), (7, 20)):
        head = case.head.head.with_targets(case.head.targets[start:stop])
        loss, state = mb.evaluate(case.cell, case.inputs[start:stop], head, state)
        total += loss * (stop - start)
    assert total / 20 == pytest.approx(whole, rel=1e-12)
    assert all(np.array_equal(a, b) for a, b in zip(state, after, strict=True))


def test_losses_at_some_steps_only(window):
    case = window(T=9, dtype="float64", backend="cython")
    head, targets = case.head.head, case.head.targets
    mask = np.random.default_rng(1).random(targets.shape) < 0.4
    for bound in (head.with_targets(targets, mask), head.at_last(targets[-1], 9)):
        agrees(mb.evaluate(case.cell, case.inputs, bound), case.cell, case.inputs, bound, None)


def test_a_head_and_a_cell_of_ones_own(window):
    """A head that asks for kept states gets ones that stay as they were."""
    case = window("rnn", T=6, dtype="float64", backend="cython")
    seen = []

    def forward_backward(step, h, grads):
        seen.append(h)
        return float((h * h).sum()), 2 * h

    head = SimpleNamespace(params={}, kernel=None, forward_backward=forward_backward)
    loss, (last,) = mb.evaluate(case.cell, case.inputs, head, case.state)
    assert loss == pytest.approx(sum((h * h).sum() for h in seen), rel=1e-12)
    assert len(seen) == 6 and np.array_equal(seen[-1], last)
    assert not np.array_equal(seen[0], seen[1])


def test_no_bit_depends_on_threads(window, monkeypatch):
    case = window(T=5, B=8, H=96)
    found = []
    for threads in ("1", "3"):
        monkeypatch.setenv("MEMBPTT_NUM_THREADS", threads)
        found.append(mb.evaluate(*case.arguments(), case.state))
    assert found[0][0] == found[1][0]
    assert all(np.array_equal(a, b) for a, b in zip(found[0][1], found[1][1], strict=True))


@pytest.mark.parametrize("backend", ["numpy", "cython"])
def test_memory_does_not_grow_with_the_steps(window, backend):
    """A text that lies the other way round is read in blocks, and no state but one is kept."""
    peaks = []
    for steps in (600, 600, 6000):
        case = window(T=2, B=2, H=16, V=3, backend=backend)
        text = np.random.default_rng(0).integers(0, 3, (2, steps + 1)).astype(np.uint8)
        head = case.head.head.with_targets(text[:, 1:].T)
        tracemalloc.start()
        mb.evaluate(case.cell, text[:, :-1].T, head)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < peaks[1] + 8192 < 600 * case.cell.internal_nbytes(2)


def test_what_is_not_finite_is_named(window):
    case = window(T=8, tokens=False, backend="cython")
    case.inputs[4, 1] = np.nan
    with pytest.raises(ValueError, match="at step 5: inputs hold NaN or infinity at step 5, row 1"):
        mb.evaluate(*case.arguments())


def test_what_does_not_fit_is_refused(window):
    case = window(T=8)
    with pytest.raises(ValueError, match=r"targets have shape .*; give 7 steps and batch 2"):
        mb.evaluate(case.cell, case.inputs[:-1], case.head)
