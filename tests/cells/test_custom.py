"""A user's own step runs under every strategy and every check, and a fault in it is found."""

import doctest

import numpy as np
import pytest

import membptt as mb
from membptt.cells import custom
from membptt.oracle.differences import Direction
from membptt.solver import STRATEGIES
from membptt.solver.strategies import Sizes

B, I, H, T = 2, 3, 4, 9  # noqa: E741


def lstm(dtype="float64", leaving=False):
    """Return an LSTM out of plain functions, and mb.LSTM with the same parameters."""
    built_in = mb.LSTM(I, H, dtype, backend="numpy")

    def forward_step(params, x, state):
        after, internal = with_params(built_in, params).forward_step(x, state)
        return after, internal[2:]

    def backward_step(params, x, state, saved, dstate, grads):
        return with_params(built_in, params).backward_step(x, (*state, *saved), dstate, grads)

    def state_after(params, state, saved):
        return built_in.state_from_internal((*state, *saved))

    shapes = {name: (H,) for name in "ifgo"}
    cell = mb.Custom(
        forward_step,
        backward_step,
        built_in.params,
        I,
        {"h": (H,), "c": (H,)},
        shapes,
        None if leaving else state_after,
    )
    return cell, built_in


def with_params(cell, params):
    again = mb.LSTM(I, H, next(iter(params.values())).dtype.name, backend="numpy")
    again.params = params
    return again


def grid(fault=None, dtype="float64", channels=2, cells=5):
    """Return a cell whose state is [B, C, L]: s = tanh(K * s + w x), K over three neighbours."""
    generator = np.random.default_rng(1)
    params = {
        "K": generator.standard_normal(3).astype(dtype) / 2,
        "w": generator.standard_normal((channels, 1)).astype(dtype),
        "b": np.zeros(channels, dtype),
    }

    def forward_step(params, x, state):
        (s,) = state
        mixed = sum(k * np.roll(s, j - 1, axis=2) for j, k in enumerate(params["K"]))
        after = np.tanh(mixed + params["w"] * x + params["b"][:, None])
        return (after,), (after,)

    def backward_step(params, x, state, saved, dstate, grads):
        (s,), (after,), (ds,) = state, saved, dstate
        da = ds * (1 - after * after)
        for j in range(3):
            grads["K"][j] += (da * np.roll(s, j - 1, axis=2)).sum()
        grads["w"] += (da * x).sum(axis=(0, 2))[:, None] * (2 if fault == "w" else 1)
        if fault != "b":
            grads["b"] += da.sum(axis=(0, 2))
        turn = 1 if fault == "roll" else -1
        return (sum(k * np.roll(da, turn * (j - 1), axis=2) for j, k in enumerate(params["K"])),)

    shape = {"s": (channels, cells)}
    return mb.Custom(
        forward_step,
        backward_step,
        params,
        (1, cells),
        shape,
        {"after": (channels, cells)},
        lambda params, state, saved: saved,
    )


def window(cell, steps=T):
    """Return inputs, a head without parameters, and a state."""
    generator = np.random.default_rng(2)
    inputs = generator.standard_normal((steps, B, *cell.input_shape)).astype(cell.dtype)
    shapes = cell.hidden_shapes(B)
    head = Direction(generator.standard_normal((steps, *shapes[0])).astype(cell.dtype))
    state = tuple(generator.standard_normal(shape).astype(cell.dtype) for shape in shapes)
    return inputs, head, state


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("make", [lambda: lstm()[0], lambda: lstm("float32", True)[0], grid])
def test_every_strategy_gives_the_bits_of_full_bptt(make, strategy, bits):
    cell = make()
    inputs, head, state = window(cell)
    full = mb.full_bptt(cell, inputs, head, state)
    sizes = Sizes(cell.hidden_nbytes(B), cell.internal_nbytes(B))
    least = STRATEGIES[strategy].least_budget(T, sizes)
    for budget in (least, (least + T * sizes.internal) // 2, T * sizes.internal):
        planned = mb.schedule(T, budget, strategy, cell, B)
        result = mb.bptt(cell, inputs, head, planned, state, record=True)
        assert bits(result) == bits(full)
        assert result.stats.peak_bytes == planned.peak_bytes <= budget
        assert result.stats.forward_steps == planned.forward_steps


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_and_class_are_the_same_lstm(dtype, bits):
    cell, built_in = lstm(dtype)
    assert cell.internal_nbytes(B) == built_in.internal_nbytes(B)
    inputs, head, state = window(cell)
    planned = mb.schedule(T, 3 * cell.internal_nbytes(B), cell=cell, batch=B)
    mine = mb.bptt(cell, inputs, head, planned, state)
    assert bits(mine) == bits(mb.bptt(built_in, inputs, head, planned, state))


@pytest.mark.parametrize("leaving", [False, True])
def test_what_its_states_are_called(leaving):
    """Each array of an internal state has a name; what leaves the step, where it is saved too."""
    cell, _ = lstm(leaving=leaving)
    names = ("h_prev", "c_prev", "i", "f", "g", "o", *(("h_next", "c_next") if leaving else ()))
    assert cell.hidden_names == ("h", "c") and cell.internal_names == names
    inputs, _, state = window(cell)
    _, internal = cell.forward_step(inputs[0], state)
    assert [array.shape for array in internal] == cell.internal_shapes(B)
    assert len(internal) == len(names)


def test_tokens_and_the_heads_that_come_with_it():
    cell, built_in = lstm("float32")
    generator = np.random.default_rng(0)
    tokens, targets = generator.integers(I, size=(2, T, B))
    head = mb.SoftmaxHead(H, I).with_targets(targets)
    planned = mb.schedule(T, 2 * cell.internal_nbytes(B), cell=cell, batch=B)
    mine = mb.bptt(cell, tokens, head, planned)
    theirs = mb.bptt(built_in, tokens, head, planned)
    assert mine.loss == theirs.loss
    assert all((mine.grads[name] == theirs.grads[name]).all() for name in theirs.grads)


@pytest.mark.parametrize("make", [lambda: lstm()[0], grid])
def test_strategies_whose_plan_is_measured(make):
    cell = make()
    inputs, head, _ = window(cell)
    budget = 6 * cell.internal_nbytes(B)
    for planned, _ in (
        mb.expand_schedule(T, budget, cell, B),
        mb.disk_schedule(T, budget, cell, B),
    ):
        full = mb.full_bptt(cell, inputs, head)
        assert mb.bptt(cell, inputs, head, planned).loss == full.loss


def test_right_gradients_pass_both_checks():
    for cell in (lstm()[0], lstm("float32", leaving=True)[0], grid(), grid(dtype="float32")):
        assert mb.check_gradients(cell).ok
        report = mb.check_step(cell)
        assert report.ok, report
    cell = grid()
    planned = mb.schedule(7, 3 * cell.internal_nbytes(2), cell=cell, batch=2)
    assert mb.check_gradients(cell, schedule=planned).ok


def failed(report):
    return {row.name for row in report.rows if not row.ok}


def test_a_fault_is_found_and_named():
    assert failed(mb.check_gradients(grid("w"))) == {"w"}
    assert failed(mb.check_gradients(grid("b"))) == {"b"}
    assert "FAIL b " in str(mb.check_gradients(grid("b")))
    # A wrong derivative by the state spreads over all parameters, but one step shows where it is.
    assert len(failed(mb.check_gradients(grid("roll")))) > 1
    assert failed(mb.check_step(grid("roll"))) == {"s by s_prev"}


def test_one_step_names_the_term():
    class Faulty(mb.LSTM):
        def backward_step(self, x, internal, dstate, grads):
            dh, dc = dstate
            return super().backward_step(x, internal, (dh, dc * 1.5), grads)

    found = failed(mb.check_step(Faulty(I, H, backend="numpy")))
    assert found == {f"c by {name}" for name in ("W_x", "W_h", "b", "h_prev", "c_prev")}
    for cell in (mb.LSTM(I, H), mb.RNN(I, H)):
        assert mb.check_step(cell).ok
        assert mb.check_step(cell, x=np.array([0, 2, 1])).ok


def test_a_state_that_is_derived_wrongly_is_found():
    class Faulty(mb.RNN):
        def state_from_internal(self, internal):
            return (internal[0],)

    assert failed(mb.check_step(Faulty(I, H, backend="numpy"))) == {"h from internal"}


def test_a_class_of_ones_own_with_states_of_other_shapes(bits):
    class Counter(mb.RNN):
        """An RNN that also carries how much it has seen: a second array [B]."""

        hidden_names = ("h", "seen")
        internal_names = ("h_prev", "seen_prev", "h")

        def hidden_shapes(self, batch):
            return [(batch, self.hidden_size), (batch,)]

        def internal_shapes(self, batch):
            return [*self.hidden_shapes(batch), (batch, self.hidden_size)]

        def forward_step(self, x, state):
            h_prev, seen = state
            (h,), _ = super().forward_step(x, (h_prev,))
            return (h, seen + 1), (h_prev, seen, h)

        def backward_step(self, x, internal, dstate, grads):
            h_prev, _, h = internal
            (dh,) = super().backward_step(x, (h_prev, h), dstate[:1], grads)
            return dh, dstate[1]

        def state_from_internal(self, internal):
            _, seen, h = internal
            return h, seen + 1

    cell = Counter(I, H, "float64", backend="numpy")
    assert mb.check_step(cell).ok and mb.check_gradients(cell).ok
    inputs, head, state = window(cell)
    full = mb.full_bptt(cell, inputs, head, state)
    assert (full.state[1] == state[1] + T).all()
    for strategy in ("hsm", "ism", "msm", "optimal"):
        planned = mb.schedule(T, 2 * cell.internal_nbytes(B), strategy, cell, B)
        assert bits(mb.bptt(cell, inputs, head, planned, state)) == bits(full)


def step(returns, derivative=None):
    """Return a cell whose forward returns what it is told."""

    def forward_step(params, x, state):
        return returns

    def backward_step(params, x, state, saved, dstate, grads):
        grads["a"] = grads["a"] + 1
        return derivative

    return mb.Custom(forward_step, backward_step, {"a": np.zeros(3)}, 3, {"s": (3,)}, {"k": (2,)})


@pytest.mark.parametrize(
    ("returns", "message"),
    [
        (((np.zeros((2, 4)),), (np.zeros((2, 2)),)), r"state s of shape \(2, 4\); give \(2, 3\)"),
        (((np.zeros((2, 3)),), (np.zeros((1, 2)),)), r"saved k of shape \(1, 2\); give \(2, 2\)"),
        (((np.zeros((2, 3)),), ()), "0 arrays as saved; give 1: k"),
        (((np.zeros((2, 3), "f4"),), (np.zeros((2, 2)),)), "state s as float32; give float64"),
        (((np.zeros((2, 3)),), (np.zeros((2, 2)),)), r"new array at grads\['a'\]; add to the one"),
    ],
)
def test_what_a_function_must_return(returns, message):
    cell = step(returns)
    inputs, head, state = window(cell)
    with pytest.raises(ValueError, match=message):
        mb.full_bptt(cell, inputs, head, state)


def test_refusals():
    with pytest.raises(ValueError, match="params is empty"):
        mb.Custom(None, None, {}, 3, {"s": (3,)})
    with pytest.raises(ValueError, match="params are of several dtypes"):
        mb.Custom(None, None, {"a": np.zeros(1), "b": np.zeros(1, "f4")}, 3, {"s": (3,)})
    with pytest.raises(ValueError, match="hidden is empty"):
        mb.Custom(None, None, {"a": np.zeros(1)}, 3, {})
    a = {"a": np.zeros(1)}
    for arguments, error, message in [
        ((None, 3, {"s": (3,)}), TypeError, "params is of type NoneType; give a dict"),
        ((a, 0, {"s": (3,)}), ValueError, "input_size is 0; give at least 1"),
        ((a, (3, 0), {"s": (3,)}), ValueError, "input_size is 0; give at least 1"),
        ((a, "3", {"s": (3,)}), TypeError, "input_size is '3'"),
        ((a, 3, {"s": (-3,)}), ValueError, r"hidden\['s'\] is -3; give at least 1"),
        ((a, 3, {"s": 3}), TypeError, r"hidden\['s'\] is 3; give a tuple of sizes"),
        ((a, 3, [(3,)]), TypeError, "hidden is of type list; give a dict"),
        ((a, 3, {"s": (3,)}, {"x": (2.5,)}), ValueError, r"saved\['x'\] is 2.5; give a whole"),
    ]:
        with pytest.raises(error, match=message):
            mb.Custom(None, None, *arguments)
    cell = grid()
    inputs, head, state = window(cell)
    with pytest.raises(ValueError, match=r"float64 \[steps, batch, 1, 5\]"):
        mb.full_bptt(cell, inputs[..., 0], head, state)
    with pytest.raises(ValueError, match=r"give \[\(2, 2, 5\)\] for s"):
        mb.full_bptt(cell, inputs, head, (state[0][..., 0],))
    vectors = mb.LinearHead(10, 1, "float64").with_targets(np.zeros((T, B, 1)))
    with pytest.raises(ValueError, match=r"s is \[2, 2, 5\]; give a head of your own"):
        mb.full_bptt(cell, inputs, vectors, state)
    inputs[4, 1, 0, 0] = np.nan
    with pytest.raises(ValueError, match="inputs hold NaN or infinity at step 5, row 1"):
        mb.full_bptt(cell, inputs, head, state)


def test_a_subclass_does_not_get_the_kernels_of_its_base():
    class Mine(mb.LSTM):
        pass

    cell = Mine(I, H, "float64")
    with pytest.raises(ValueError, match='Mine has no compiled kernels; give "numpy"'):
        mb.full_bptt(cell, *window(cell)[:2])


def test_its_examples():
    assert doctest.testmod(custom).failed == 0
