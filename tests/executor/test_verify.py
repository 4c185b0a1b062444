"""The recomputation check: a step that is run again and differs is an error that names it."""

import tracemalloc

import numpy as np
import pytest

import membptt as mb

T, B = 30, 2
STRATEGIES = ["hsm", "ism", "msm", "optimal", "expand", "lookahead", "disk"]


def plan(cell, strategy, steps=T):
    budget = 4 * cell.internal_nbytes(B) + 3 * cell.hidden_nbytes(B)
    if strategy == "lookahead":
        budget = 30 * cell.internal_nbytes(B)
    return mb.schedule(steps, budget, strategy, cell, B)


def first_repeated(schedule):
    """Return the first step that the schedule runs a second time, and its run number."""
    seen = set()
    for action in schedule:
        code, start, stop = action.row
        if code <= 2:
            for step in range(start + 1, stop + 1):
                if step in seen:
                    return step
                seen.add(step)
    raise AssertionError("nothing is run again")


class Own:
    """A head without parameters: half the mean square of h, and something done at one step."""

    kernel = None

    def __init__(self, step=0, act=None):
        self.params = {}
        self.step, self.act = step, act

    def forward_backward(self, step, h, grads):
        if step == self.step:
            self.act()
        return float((h * h).sum()) / 2, h


def custom(step):
    """Return a cell s = a s_prev + x + step(), whose backward knows nothing of step()."""

    def forward(params, x, state):
        return (params["a"] * state[0] + x + step(),), ()

    def backward(params, x, state, saved, dstate, grads):
        grads["a"] += (dstate[0] * state[0]).sum(axis=0)
        return (dstate[0] * params["a"],)

    return mb.Custom(forward, backward, {"a": np.full(3, 0.9)}, 3, {"s": (3,)})


@pytest.mark.parametrize("strategy", ["hsm", "optimal", "disk"])
def test_random_steps_are_named(strategy):
    cell = custom(np.random.default_rng(0).standard_normal)
    schedule = plan(cell, strategy)
    x = np.zeros((T, B, 3))
    mb.bptt(cell, x, Own(), schedule)  # in silence
    step = first_repeated(schedule)
    with pytest.raises(ValueError, match=f"step {step} gave another hidden state when it was run"):
        mb.bptt(cell, x, Own(), schedule, verify=True)


@pytest.mark.parametrize("strategy", ["hsm", "optimal", "disk"])
def test_steps_that_bind_late_are_named(strategy):
    shift = [0.0]
    cell = custom(lambda: shift[0])
    schedule = plan(cell, strategy)

    def change():
        shift[0] += 1

    executor = mb.Executor(cell, schedule, B, verify=True)
    with pytest.raises(ValueError, match=r"step \d+ gave another hidden state"):
        executor.run(np.zeros((T, B, 3)), Own(20, change))
    executor.run(np.zeros((T, B, 3)), Own())  # a run compares with itself alone


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("tokens", [True, False])
@pytest.mark.parametrize("backend, slow", [("numpy", False), ("cython", False), ("cython", True)])
@pytest.mark.parametrize("cell", ["rnn", "lstm"])
def test_steps_that_repeat_themselves_pass(window, bits, cell, backend, slow, tokens, strategy):
    case = window(cell, T, B, backend=backend, tokens=tokens)
    schedule = plan(case.cell, strategy)
    executor = mb.Executor(case.cell, schedule, B, step_through=slow, verify=True)
    assert bits(executor.run(case.inputs, case.head)) == bits(mb.full_bptt(*case.arguments()))


class Changing:
    """A reader that gives other inputs from some moment on."""

    def __init__(self, array):
        self.array = array
        self.shape, self.dtype = array.shape, array.dtype

    def __getitem__(self, steps):
        return self.array[steps]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("tokens", [True, False])
@pytest.mark.parametrize("backend, slow", [("numpy", False), ("cython", False), ("cython", True)])
def test_inputs_that_change_are_found(window, backend, slow, tokens, strategy):
    case = window("lstm", 900, B, backend=backend, tokens=tokens)
    inputs = Changing(case.inputs.copy())
    schedule = plan(case.cell, strategy, 900)

    def change():
        inputs.array[300:] = inputs.array[300:][::-1].copy()

    executor = mb.Executor(case.cell, schedule, B, step_through=slow, verify=True)
    with pytest.raises(ValueError, match=r"step (3\d\d|[4-7]\d\d) gave another hidden state"):
        executor.run(inputs, Own(880, change))


def test_parameters_that_change_are_found(window):
    case = window("rnn", T, B, backend="numpy")

    def change():
        case.cell.params["W_h"] += 1

    with pytest.raises(ValueError, match=r"step \d+ gave another"):
        mb.bptt(case.cell, case.inputs, Own(20, change), plan(case.cell, "hsm"), verify=True)


def test_it_takes_eight_bytes_a_step():
    steps = 50_000
    cell = mb.RNN(2, 2)
    x = np.zeros((steps, 1), np.uint8)
    head = mb.SoftmaxHead(2, 2).with_targets(x)
    peaks = []
    for verify in (False, True):
        schedule = mb.schedule(steps, 4000, "near-optimal", cell, 1)
        executor = mb.Executor(cell, schedule, 1, threads=1, verify=verify)
        executor.run(x, head)
        tracemalloc.start()
        executor.run(x, head)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert (executor.chain.sums is None) is not verify
    assert 0.9 * 8 * steps < peaks[1] - peaks[0] < 1.1 * 8 * steps
