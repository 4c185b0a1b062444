"""Executors that live long, over one network, with anything in between: always the same bits.

A state machine makes executors of all strategies, lengths, budgets and both backends over one
network, and runs them in any order between changes of parameters and masks, failures in the middle
of a run, forward sweeps and streams. Every gradient has the bits of `membptt.full_bptt` of the same
arguments, no arena is larger than its budget, and nothing that was passed is changed.
"""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, multiple, rule

import membptt as mb
from membptt.solver import STRATEGIES

I, H, V, BATCH, LONGEST = 4, 5, 3, 2, 9  # noqa: E741
NOISE = {"recurrent_dropout": 0.5, "zoneout": 0.3}


def stack(backend):
    layers = [mb.GRU(I, 3, seed=0, backend=backend), mb.LSTM(3, H, seed=1, backend=backend)]
    return mb.Stack(layers)


CELLS = {
    "rnn": lambda backend: mb.RNN(I, H, backend=backend),
    "lstm": lambda backend: mb.LSTM(I, H, backend=backend),
    "gru": lambda backend: mb.GRU(I, H, backend=backend),
    "stack": stack,
    "noise": lambda backend: mb.GRU(I, H, backend=backend, **NOISE),
    "reduced": lambda backend: mb.Reduced(mb.LSTM(I, H, backend=backend), "int8"),
}


class Reader:
    """Inputs that are read by slices alone."""

    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, array.dtype

    def __getitem__(self, steps):
        return self.array[steps]


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


LAYOUTS = {
    "plain": lambda array: array,
    "read-only": read_only,
    "columns first": np.asfortranarray,
    "strided": lambda array: np.repeat(array, 2, axis=0)[::2],
    "backwards": lambda array: array[::-1].copy()[::-1],
    "reader": Reader,
}


class Stop(Exception):
    """What a head of a user's raises."""


class Failing:
    """A head that stops the run at a step, or does something there."""

    kernel = None

    def __init__(self, bound, step, act):
        self.params, self.bound, self.step, self.act = bound.params, bound, step, act

    def forward_backward(self, step, h, grads):
        if step == self.step:
            self.act()
        return self.bound.forward_backward(step, h, grads)


def stop():
    raise Stop


class Executors(RuleBasedStateMachine):
    executors = Bundle("executors")

    @initialize(kind=st.sampled_from(sorted(CELLS)), seed=st.integers(0, 2**32 - 1))
    def begin(self, kind, seed):
        self.random = np.random.default_rng(seed)
        self.cells = {backend: CELLS[kind](backend) for backend in ("numpy", "cython")}
        self.head = mb.SoftmaxHead(H, V)
        self.replace_parameters()

    def window(self, steps, tokens, masked, from_zero):
        """Return inputs, a head with targets and a state, or None for zeros."""
        if tokens:
            inputs = self.random.integers(I, size=(steps, BATCH)).astype(np.uint8)
        else:
            inputs = self.random.standard_normal((steps, BATCH, I)).astype(np.float32)
        targets = self.random.integers(V, size=(steps, BATCH))
        mask = None
        if masked:
            mask = self.random.random((steps, BATCH)) < 0.5
            mask[-1] = True
        shapes = self.cells["numpy"].hidden_shapes(BATCH)
        state = tuple(self.random.standard_normal(shape).astype(np.float32) for shape in shapes)
        return inputs, self.head.with_targets(targets, mask), None if from_zero else state

    @rule(
        target=executors,
        backend=st.sampled_from(["numpy", "cython"]),
        strategy=st.sampled_from(sorted(STRATEGIES)),
        steps=st.integers(1, LONGEST),
        share=st.floats(0, 1.2),
        threads=st.sampled_from([None, 1, 2]),
        step_through=st.booleans(),
        verify=st.booleans(),
    )
    def make(self, backend, strategy, steps, share, threads, step_through, verify):
        cell = self.cells[backend]
        budget = max(1, int(share * steps * cell.internal_nbytes(BATCH)))
        try:
            plan = mb.schedule(steps, budget, strategy, cell, BATCH)
        except ValueError as error:
            assert "at least" in str(error)
            return multiple()
        options = {"threads": threads, "step_through": step_through, "verify": verify}
        if strategy == "lookahead":
            options["verify"] = False
        return mb.Executor(cell, plan, BATCH, **options)

    @rule(
        executor=executors,
        layout=st.sampled_from(sorted(LAYOUTS)),
        tokens=st.booleans(),
        masked=st.booleans(),
        from_zero=st.booleans(),
    )
    def run(self, executor, layout, tokens, masked, from_zero):
        inputs, head, state = self.window(executor.schedule.steps, tokens, masked, from_zero)
        wanted = mb.full_bptt(executor.cell, inputs, head, state)
        passed = [inputs, head.targets, *(() if state is None else state)]
        passed += [*executor.cell.params.values(), *head.params.values()]
        before = [array.tobytes() for array in passed]
        found = executor.run(LAYOUTS[layout](inputs), head, state)
        self.same(found, wanted)
        assert before == [array.tobytes() for array in passed]
        stats, plan = found.stats, executor.schedule
        assert stats.peak_bytes <= stats.arena_bytes == len(executor.arena.buffer) <= plan.budget
        assert stats.backward_steps == plan.steps
        if plan.lanes == 1:
            assert stats.forward_steps == plan.forward_steps
            assert stats.peak_bytes == plan.peak_bytes

    @rule(executor=executors, data=st.data(), tokens=st.booleans())
    def fail_in_the_middle(self, executor, data, tokens):
        steps = executor.schedule.steps
        inputs, head, state = self.window(steps, tokens, False, True)
        step = data.draw(st.integers(1, steps))
        with pytest.raises(Stop):
            executor.run(inputs, Failing(head, step, stop), state)

        def again():
            executor.run(inputs, head, state)

        with pytest.raises(RuntimeError, match="this Executor is running already"):
            executor.run(inputs, Failing(head, step, again), state)

    @rule(executor=executors, data=st.data())
    def be_given_what_does_not_fit(self, executor, data):
        steps = executor.schedule.steps
        inputs, head, state = self.window(steps + 1, False, False, False)
        with pytest.raises(ValueError, match=f"give {steps} steps and batch {BATCH}"):
            executor.run(inputs, head, state)
        inputs, head, state = self.window(steps, False, False, False)
        step = data.draw(st.integers(1, steps))
        inputs[step - 1, 1, 2] = np.nan
        with pytest.raises(ValueError, match="inputs hold NaN or infinity at step"):
            executor.run(inputs, head, state)
        with pytest.raises(ValueError, match="state has shapes"):
            executor.run(np.nan_to_num(inputs), head, state[:-1])

    @rule(backend=st.sampled_from(["numpy", "cython"]), steps=st.integers(1, LONGEST))
    def run_forward_only(self, backend, steps):
        cell = self.cells[backend]
        inputs, head, state = self.window(steps, True, True, False)
        loss, after = mb.evaluate(cell, inputs, head, state)
        draw = cell.noise.draw
        cell.set_noise(None)
        wanted = mb.full_bptt(cell, inputs, head, state)
        cell.set_noise(draw)
        assert loss == pytest.approx(wanted.loss, rel=1e-5, abs=1e-5)
        assert [a.tobytes() for a in after] == [a.tobytes() for a in wanted.state]

    @rule(
        backend=st.sampled_from(["numpy", "cython"]),
        steps=st.integers(1, LONGEST),
        states=st.integers(2, 5),
    )
    def stream(self, backend, steps, states):
        cell = self.cells[backend]
        inputs, head, state = self.window(steps, True, False, False)
        items = zip(inputs, head.targets, strict=True)
        found = mb.bptt_stream(cell, items, self.head, states * cell.internal_nbytes(BATCH), state)
        self.same(found, mb.full_bptt(cell, inputs, head, state))

    @rule()
    def change_parameters_in_place(self):
        for value in (self.cells["numpy"].params | self.head.params).values():
            value += self.random.standard_normal(value.shape).astype(np.float32) / 10

    @rule()
    def replace_parameters(self):
        """By other arrays, which both backends read."""
        for name, value in self.cells["numpy"].params.items():
            array = self.random.standard_normal(value.shape).astype(np.float32) / 3
            for cell in self.cells.values():
                cell.params[name] = array
        for name, value in self.head.params.items():
            self.head.params[name] = self.random.standard_normal(value.shape).astype(np.float32)

    @rule(draw=st.none() | st.integers(0, 3), first_row=st.integers(0, 2))
    def choose_masks(self, draw, first_row):
        for cell in self.cells.values():
            cell.set_noise(draw, first_row)

    def same(self, found, wanted):
        assert found.loss == wanted.loss
        assert found.grads.keys() == wanted.grads.keys()
        for name, gradient in wanted.grads.items():
            assert found.grads[name].tobytes() == gradient.tobytes(), name
        for ours, theirs in ((found.state, wanted.state), (found.state_grad, wanted.state_grad)):
            assert [a.tobytes() for a in ours] == [a.tobytes() for a in theirs]


TestExecutors = Executors.TestCase
TestExecutors.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
