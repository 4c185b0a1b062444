"""Reduced internal states under every strategy and budget: one set of bits, exact forwards."""

import itertools

import numpy as np
import pytest

import membptt as mb
from membptt.schedules import AdvanceSaveInternal, Backward, Free, Restore
from membptt.solver import STRATEGIES

FORMATS = ["float16", "bfloat16", "int8"]


def reduced(case, name):
    """Return the window with every layer's internal states reduced."""
    if isinstance(case.cell, mb.Stack):
        case.cell = mb.Stack([mb.Reduced(layer, name) for layer in case.cell.layers])
    else:
        case.cell = mb.Reduced(case.cell, name)
    return case


def plans(cell, batch, steps):
    """Yield schedules of every strategy at several budgets."""
    hidden, internal = cell.hidden_nbytes(batch), cell.internal_nbytes(batch)
    amounts = {internal, internal + hidden, 2 * internal + 1, internal + 5 * hidden}
    amounts |= {steps * internal // 3, steps * internal, 2 * steps * internal}
    for strategy in STRATEGIES:
        for amount in sorted(amounts):
            try:
                yield mb.schedule(steps, amount, strategy, cell, batch)
            except ValueError as error:
                assert "at least" in str(error) or "minimum" in str(error)


@pytest.mark.parametrize(
    "cell, name, backend",
    [
        *itertools.product(["rnn", "lstm", "gru"], FORMATS, ["numpy"]),
        ("stack", "int8", "numpy"),
        ("stack", "bfloat16", "cython"),
        ("lstm", "int8", "cython"),
    ],
)
def test_bits_do_not_depend_on_strategy_or_budget(window, bits, cell, name, backend):
    dtype = "float64" if (cell, name) == ("lstm", "int8") else "float32"
    case = reduced(window(cell, 13, 3, 5, 9, dtype=dtype, backend=backend), name)
    wanted = bits(mb.full_bptt(*case.arguments(), case.state))
    ran = set()
    for plan in plans(case.cell, 3, 13):
        executor = mb.Executor(case.cell, plan, 3, verify=True)
        result = executor.run(case.inputs, case.head, case.state)
        assert bits(result) == wanted
        assert result.stats.forward_steps == plan.forward_steps
        assert result.stats.peak_bytes == plan.peak_bytes <= len(executor.arena.buffer)
        ran.add(plan.strategy)
    assert ran == set(STRATEGIES)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru", "stack"])
def test_loss_states_and_the_heads_gradients_are_the_cells_own(window, cell, name):
    case = window(cell, 23, 3, 5, 9, backend="numpy")
    full = mb.full_bptt(*case.arguments(), case.state)
    reduced(case, name)
    plan = mb.schedule(23, 3 * case.cell.internal_nbytes(3), cell=case.cell, batch=3)
    assert plan.forward_steps > 23
    result = mb.bptt(*case.arguments(), plan, case.state)
    assert result.loss == full.loss
    assert [a.tobytes() for a in result.state] == [a.tobytes() for a in full.state]
    for key, value in full.grads.items():
        same = result.grads[key].tobytes() == value.tobytes()
        assert same or key not in case.head.params
        scale = np.abs(value).max()
        np.testing.assert_allclose(result.grads[key], value, 0, 0.05 * scale)
    assert any((result.grads[key] != value).any() for key, value in full.grads.items())


@pytest.mark.parametrize("cell", ["lstm", "stack"])
@pytest.mark.parametrize("backend", ["numpy", "cython"])
def test_only_what_is_saved_is_reduced(window, monkeypatch, cell, backend):
    case = reduced(window(cell, 23, 3, 5, 9, backend=backend), "int8")
    plan = mb.schedule(23, 3 * case.cell.internal_nbytes(3), cell=case.cell, batch=3)
    own, packed = mb.Reduced.packed, []
    monkeypatch.setattr(mb.Reduced, "packed", lambda *given: packed.append(1) or own(*given))
    steps = mb.bptt(*case.arguments(), plan, case.state).stats.forward_steps
    saved = sum(isinstance(action, AdvanceSaveInternal) for action in plan)
    assert len(packed) == saved * len(getattr(case.cell, "layers", [1]))
    assert 23 <= saved < steps
    packed.clear()
    mb.evaluate(*case.arguments(), case.state)
    assert not packed


def test_streams_and_windows_side_by_side_run_too(window, bits):
    case = reduced(window("lstm", 40, 3, backend="numpy"), "int8")
    full = mb.full_bptt(*case.arguments(), case.state)
    items = zip(case.inputs, case.head.targets, strict=True)
    budget = 4 * case.cell.internal_nbytes(3)
    stream = mb.bptt_stream(case.cell, items, case.head.head, budget, case.state)
    assert bits(stream) == bits(full)
    whole = mb.truncated_bptt(*case.arguments(), 40, case.state)
    assert bits(whole) == bits(full)


@pytest.mark.parametrize("name", FORMATS)
def test_an_initial_state_in_another_order(window, bits, name):
    case = reduced(window("lstm", 9, 3, H=5, backend="numpy"), name)
    other = tuple(np.asfortranarray(array) for array in case.state)
    found = [bits(mb.full_bptt(*case.arguments(), state)) for state in (case.state, other)]
    assert found[0] == found[1]


def test_dense_inputs_get_their_derivative(window):
    case = window("stack", 12, 2, 5, 9, tokens=False, head="linear", backend="numpy")
    wanted = mb.full_bptt(*case.arguments(), input_grads=True).input_grads
    reduced(case, "float16")
    plan = mb.schedule(12, 3 * case.cell.internal_nbytes(2), cell=case.cell, batch=2)
    found = mb.bptt(*case.arguments(), plan, input_grads=True).input_grads
    np.testing.assert_allclose(found, wanted, 0, 0.005 * np.abs(wanted).max())


def test_a_restart_from_the_state_that_entered_is_refused(window):
    """It would be approximate. Only a schedule made by hand, or overlapping windows, ask for it."""
    case = reduced(window("gru", 3, 2, backend="numpy"), "int8")
    actions = [
        AdvanceSaveInternal(0, 2),
        AdvanceSaveInternal(2, 3),
        Backward(3),
        Free(3, internal=True),
        Restore(1),
    ]
    sizes = case.cell.hidden_nbytes(2), case.cell.internal_nbytes(2)
    rest = [Backward(2), Free(2, internal=True), Restore(0), AdvanceSaveInternal(0, 1)]
    rest += [Backward(1), Free(1, internal=True)]
    plan = mb.Schedule.from_actions(actions + rest, 3, *sizes, "bytes", 2 * sizes[1])
    with pytest.raises(ValueError, match="which GRU int8 keeps reduced; give a schedule of"):
        mb.bptt(*case.arguments(), plan, case.state)
    with pytest.raises(ValueError, match="a stride as long as its window"):
        mb.truncated_bptt(*case.arguments(), 2, stride=1)
