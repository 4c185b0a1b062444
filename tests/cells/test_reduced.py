"""Cells with reduced internal states: bytes, exact forwards, errors of the backward."""

import copy

import numpy as np
import pytest

import membptt as mb
from membptt.cells.reduced import KEPT, ROWS, exact, is_reduced

KINDS = [mb.RNN, mb.GRU, mb.LSTM]
# Bytes of an internal state a hidden unit and row, float32: exact state, then what is reduced.
UNIT_BYTES = {
    (mb.RNN, 2): 4 + 2,
    (mb.GRU, 2): 4 + 5 * 2,
    (mb.LSTM, 2): 8 + 5 * 2,
    (mb.RNN, 1): 4 + 1,
    (mb.GRU, 1): 4 + 5,
    (mb.LSTM, 1): 8 + 5,
}
SCALES = {mb.RNN: 1, mb.GRU: 2, mb.LSTM: 1}  # a row, with int8
ERRORS = {"float16": 2e-3, "bfloat16": 2e-2, "int8": 4e-2}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name, width", [("float16", 2), ("bfloat16", 2), ("int8", 1)])
@pytest.mark.parametrize("batch, hidden", [(16, 256), (1, 64), (3, 7), (1, 1)])
def test_bytes(kind, name, width, batch, hidden):
    cell = mb.Reduced(kind(5, hidden, backend="numpy"), name)
    data = UNIT_BYTES[kind, width] * hidden + 4 * SCALES[kind] * (width == 1)  # of a row
    unit, nbytes = cell.hidden_nbytes(1), cell.internal_nbytes(1)
    assert (cell.hidden_nbytes(batch), cell.internal_nbytes(batch)) == (
        batch * unit,
        batch * nbytes,
    )
    # What is lost to whole parts is less than one.
    assert data <= nbytes < data + max(4, unit // 32)
    if hidden >= 64:
        assert nbytes == data + (-data % (unit // 32))
    _, internal = cell.forward_step(np.ones((batch, 5), np.float32), cell.zero_state(batch))
    assert [array.shape for array in internal] == cell.internal_shapes(batch)
    assert sum(array.nbytes for array in internal) == batch * nbytes
    assert {array.dtype for array in internal} == {cell.dtype}


@pytest.mark.parametrize("hidden", [32, 50, 100, 129, 200, 256, 1000])
def test_the_planner_counts_in_few_units(hidden):
    for kind in KINDS:
        cell = mb.Reduced(kind(5, hidden, backend="numpy"), "int8")
        unit = np.gcd(cell.hidden_nbytes(1), cell.internal_nbytes(1))
        assert cell.hidden_nbytes(1) <= 50 * unit


@pytest.mark.parametrize("name", ERRORS)
def test_rows_are_reduced_one_by_one(name):
    """The internal state of some rows is those rows of the internal state."""
    cell = mb.Reduced(mb.GRU(5, 9, backend="numpy"), name)
    generator = np.random.default_rng(0)
    x = generator.standard_normal((4, 5)).astype(np.float32)
    _, internal = cell.forward_step(x, (generator.standard_normal((4, 9)).astype(np.float32),))
    some = tuple(array[1:3] for array in internal)
    for mine, whole in zip(cell.unpacked(some), cell.unpacked(internal), strict=True):
        assert mine.tobytes() == whole[1:3].tobytes()


@pytest.mark.parametrize(
    "kind, alphas",
    [(mb.RNN, (1.5, 1.28125)), (mb.GRU, (3.5, 2.28125)), (mb.LSTM, (2.25, 1.65625))],
)
def test_alpha(kind, alphas):
    cell = kind(5, 256, backend="numpy")
    for name, alpha in zip(("float16", "int8"), alphas, strict=True):
        reduced = mb.Reduced(cell, name)
        assert reduced.internal_nbytes(16) / reduced.hidden_nbytes(16) == alpha
        assert reduced.hidden_nbytes(16) == cell.hidden_nbytes(16)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_step_is_exact_and_what_is_kept_is_close(kind, name, dtype):
    cell = kind(5, 40, dtype, backend="numpy")
    reduced = mb.Reduced(cell, name)
    generator = np.random.default_rng(0)
    x = generator.standard_normal((3, 5)).astype(dtype)
    state = tuple(generator.standard_normal(shape).astype(dtype) for shape in cell.hidden_shapes(3))
    after, internal = cell.forward_step(x, state)
    mine, kept = reduced.forward_step(x, state)
    for found in (mine, reduced.state_from_internal(kept)):
        assert [a.tobytes() for a in found] == [a.tobytes() for a in after]
    wanted = dict(zip(cell.internal_names, internal, strict=True))
    found = dict(zip(cell.internal_names, reduced.unpacked(kept), strict=True))
    assert set(found) == set(wanted)
    bound = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "int8": 1 / 252}[name]
    for array, known in KEPT[kind].items():
        largest = np.abs(wanted[array]).max() if known == ROWS else 1
        assert np.abs(found[array] - wanted[array]).max() <= bound * largest
    if kind is mb.LSTM:  # c_prev is not kept, and c comes out of it as before
        c = found["f"] * found["c_prev"] + found["i"] * found["g"]
        np.testing.assert_allclose(c, after[1], 1e-5, 1e-6)


def test_a_closed_forget_gate_divides_by_no_zero():
    cell = mb.LSTM(2, 3, backend="numpy")
    cell.params["b"][3:6] = -200  # f = 0, in every format
    state = tuple(np.full((2, 3), value, np.float32) for value in (0.5, 9.0))
    x = np.ones((2, 2), np.float32)
    for name in ERRORS:
        reduced = mb.Reduced(cell, name)
        _, internal = reduced.forward_step(x, state)
        grads = {key: np.zeros_like(value) for key, value in cell.params.items()}
        wanted = {key: np.zeros_like(value) for key, value in cell.params.items()}
        dstate = tuple(np.ones((2, 3), np.float32) for _ in state)
        reduced.backward_step(x, internal, dstate, grads)
        cell.backward_step(x, cell.forward_step(x, state)[1], dstate, wanted)
        for key, value in grads.items():
            np.testing.assert_allclose(value, wanted[key], 0.05, 0.02)


@pytest.mark.parametrize("kind", KINDS)
def test_errors_of_the_gradients(kind):
    """A-priori: within a few roundings of each format; float16 by far the closest."""
    generator = np.random.default_rng(0)
    cell = kind(5, 48, seed=1, backend="numpy")
    head = mb.SoftmaxHead(48, 6, backend="numpy")
    inputs, targets = generator.integers(5, size=(60, 4)), generator.integers(6, size=(60, 4))
    arguments = inputs, head.with_targets(targets)
    full = mb.full_bptt(cell, *arguments)
    totals = {}
    for name, bound in ERRORS.items():
        reduced = mb.Reduced(cell, name)
        result = mb.full_bptt(reduced, *arguments)
        assert result.loss == full.loss
        for key in head.params:
            assert result.grads[key].tobytes() == full.grads[key].tobytes()
        found = mb.gradient_error(reduced, *arguments)
        for key in cell.params:
            # The norm by a sum in float64, written out.
            difference = result.grads[key].astype(float) - full.grads[key]
            wanted = np.sqrt((difference**2).sum() / (full.grads[key].astype(float) ** 2).sum())
            assert found.by_name[key] == pytest.approx(wanted, rel=1e-6)
            assert found.by_name[key] <= bound
        totals[name] = found.total
        assert found.total > 0
        assert str(found).startswith(f"gradient error {found.total:.1e} (W_x ")
    assert 3 * totals["float16"] < min(totals["bfloat16"], totals["int8"])


def test_an_rnn_passes_deltas_back_exactly():
    """tanh' reads h, which is exact: only the gradient of W_h reads what is reduced."""
    cell = mb.RNN(5, 20, seed=1, backend="numpy")
    head = mb.SoftmaxHead(20, 6, backend="numpy")
    generator = np.random.default_rng(0)
    window = (
        generator.integers(5, size=(30, 3)),
        head.with_targets(generator.integers(6, size=(30, 3))),
    )
    error = mb.gradient_error(mb.Reduced(cell, "int8"), *window)
    assert error.by_name["W_x"] == error.by_name["b"] == 0 < error.by_name["W_h"]


def test_a_budget_changes_no_bit_of_the_error():
    cell = mb.Stack([mb.Reduced(mb.GRU(5, 12), "int8"), mb.Reduced(mb.LSTM(12, 9), "bfloat16")])
    head = mb.SoftmaxHead(9, 6)
    generator = np.random.default_rng(0)
    window = (
        generator.integers(5, size=(30, 3)),
        head.with_targets(generator.integers(6, size=(30, 3))),
    )
    memory = 3 * exact(cell).internal_nbytes(3)
    assert mb.gradient_error(cell, *window, memory=memory) == mb.gradient_error(cell, *window)


def test_layers_are_reduced_one_by_one():
    below, above = mb.GRU(5, 12, backend="numpy"), mb.LSTM(12, 9, backend="numpy")
    stack = mb.Stack([mb.Reduced(below, "int8"), above])
    assert stack.own_code and is_reduced(stack) and not is_reduced(exact(stack))
    assert stack.internal_nbytes(2) == mb.Reduced(below, "int8").internal_nbytes(
        2
    ) + above.internal_nbytes(2)
    assert repr(exact(stack)) == repr(mb.Stack([below, above]))
    assert all(exact(stack).params[key] is value for key, value in stack.params.items())
    assert exact(stack).internal_names == mb.Stack([below, above]).internal_names
    assert stack.internal_names == ("h_prev1", "c_prev1", "i1", "f1", "g1", "o1", "h0", "reduced0")
    assert stack.kind == "GRU int8 + LSTM"


def test_copies_share_parameters_until_they_are_given_others():
    cell = mb.Reduced(mb.LSTM(5, 4, backend="numpy"), "int8")
    other = copy.copy(cell)
    assert other.params is cell.params
    other.dtype, other.params = np.dtype(np.float64), {}
    assert cell.dtype == np.float32 and len(cell.params) == 3


def test_the_check_of_gradients_is_not_fooled():
    """It compares with differences, and says that the gradients are not exact."""
    cell = mb.Reduced(mb.LSTM(3, 4, backend="numpy"), "int8")
    assert not mb.check_gradients(cell).ok
    assert not mb.check_step(cell).ok
    assert mb.check_gradients(cell.cell).ok


def test_a_cell_with_options_of_its_own_is_refused(monkeypatch):
    monkeypatch.setattr(mb.LSTM, "own_code", True)
    with pytest.raises(ValueError, match=r"internal is 'int8' for LSTM.*; leave one of them out"):
        mb.Reduced(mb.LSTM(3, 4, backend="numpy"), "int8")


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda: mb.Reduced(mb.LSTM(3, 4), "float8"), ValueError, "internal is 'float8'; give one"),
        (lambda: mb.Reduced("lstm", "int8"), TypeError, "cell is 'lstm'; give an RNN, GRU or LSTM"),
        (lambda: mb.Reduced(mb.Stack([mb.RNN(3, 4)]), "int8"), TypeError, "reduce its layers"),
        (
            lambda: mb.Reduced(mb.Reduced(mb.RNN(3, 4), "int8"), "int8"),
            TypeError,
            "cell is Reduced.*give an RNN",
        ),
        (
            lambda: mb.Reduced(
                mb.Custom(None, None, {"a": np.ones(3)}, 3, hidden={"s": (3,)}), "int8"
            ),
            TypeError,
            "cell is Custom.*; give an RNN, GRU or LSTM",
        ),
        (
            lambda: mb.gradient_error(mb.RNN(3, 4), None, None),
            ValueError,
            "whose gradients are exact; give a mb.Reduced",
        ),
        (
            lambda: mb.rtrl(mb.Reduced(mb.RNN(3, 4), "int8"), None, None),
            ValueError,
            "RTRL keeps no internal states: give the exact cell",
        ),
    ],
)
def test_mistakes_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()
