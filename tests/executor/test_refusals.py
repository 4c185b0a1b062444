"""Wrong windows, values that are not finite, and schedules that are not legal, each in one line."""

import numpy as np
import pytest

import membptt as mb
from membptt.chains import plain
from membptt.chains.registry import make_chain
from membptt.executor import _executor, readable
from membptt.executor.arena import Arena
from membptt.kernels.cuda import chain as cuda
from membptt.schedules import actions

BACKENDS = ["numpy", "cython"]


def full(case):
    steps, batch = case.inputs.shape[:2]
    budget = steps * case.cell.internal_nbytes(batch)
    return mb.schedule(steps, budget, "full", case.cell, batch)


@pytest.mark.parametrize(
    "change, error, message",
    [
        (lambda c: setattr(c, "inputs", c.inputs[:-1]), ValueError, "inputs have 4 steps"),
        (lambda c: setattr(c, "inputs", c.inputs[0]), ValueError, "inputs are float32 of shape"),
        (
            lambda c: setattr(c, "inputs", c.inputs[..., :2]),
            ValueError,
            r"float32 \[steps, batch, 3\]",
        ),
        (lambda c: setattr(c, "inputs", c.inputs.astype("f8")), TypeError, "inputs are float64"),
        (lambda c: setattr(c, "state", c.state[:1]), ValueError, "state has shapes"),
        (
            lambda c: setattr(c, "state", tuple(a.astype("f8") for a in c.state)),
            TypeError,
            "state h is float64; give float32",
        ),
        (
            lambda c: c.cell.params.update(W_h=c.cell.params["W_h"][:2]),
            ValueError,
            "parameter W_h has shape",
        ),
        (
            lambda c: c.cell.params.update(b=c.cell.params["b"].astype("f8")),
            TypeError,
            "parameter b is float64",
        ),
        (
            lambda c: setattr(c, "head", mb.SoftmaxHead(9, 6).with_targets(c.head.targets)),
            ValueError,
            "the head's hidden_size is 9; give 4",
        ),
        (
            lambda c: setattr(
                c, "head", mb.SoftmaxHead(4, 6, "float64").with_targets(c.head.targets)
            ),
            TypeError,
            "the head's W_y is float64; give float32",
        ),
        (
            lambda c: setattr(c, "head", c.head.head.with_targets(c.head.targets[1:])),
            ValueError,
            "targets have shape",
        ),
    ],
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_windows_that_do_not_fit(window, backend, change, error, message):
    case = window(backend=backend, tokens=False)
    schedule = full(case)
    change(case)
    with pytest.raises(error, match=message) as caught:
        mb.bptt(*case.arguments(), schedule, case.state)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("schedule", ["1MiB", 100, None])
def test_what_is_no_schedule_is_refused(window, schedule):
    case = window()
    with pytest.raises(TypeError, match=f"schedule is {schedule!r}; give one that mb.schedule"):
        mb.bptt(*case.arguments(), schedule)


@pytest.mark.parametrize("cell", ["lstm", mb.LSTM])
def test_what_is_no_cell_is_refused(window, cell):
    case = window()
    _, inputs, head = case.arguments()
    for method in (
        lambda: mb.bptt(cell, inputs, head, full(case)),
        lambda: mb.Executor(cell, full(case), 2),
        lambda: mb.full_bptt(cell, inputs, head),
        lambda: mb.truncated_bptt(cell, inputs, head, 3),
        lambda: mb.bptt_stream(cell, zip(inputs, head.targets, strict=True), head.head, "1MiB"),
        lambda: mb.check_gradients(cell, inputs, head),
        lambda: mb.check_step(cell),
        lambda: mb.rtrl(cell, inputs, head),
    ):
        with pytest.raises(TypeError, match=r"cell is .*; give a cell such as mb\.LSTM"):
            method()


@pytest.mark.parametrize("backend", BACKENDS)
def test_tokens_out_of_range_are_named_with_their_place(window, backend):
    case = window(backend=backend)
    case.inputs[3, 1] = 3
    with pytest.raises(
        ValueError, match="inputs hold 3 at step 4, row 1; give numbers from 0 to 2"
    ):
        mb.bptt(*case.arguments(), full(case))
    case = window(backend=backend)
    with pytest.raises(ValueError, match="targets hold -1"):
        case.head.head.with_targets(case.head.targets.astype(np.int64) * 0 - 1)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("strategy", ["full", "optimal"])
def test_the_step_where_the_loss_stops_being_finite_is_named(window, backend, strategy):
    case = window(T=12, backend=backend, tokens=False)
    case.inputs[6, 1, 2] = np.nan
    budget = 12 * case.cell.internal_nbytes(2) // (1 if strategy == "full" else 3)
    schedule = mb.schedule(12, budget, strategy, case.cell, 2)
    with pytest.raises(ValueError, match="at step 7: inputs hold NaN or infinity at step 7, row 1"):
        mb.bptt(*case.arguments(), schedule)
    with pytest.raises(ValueError, match="at step 7: inputs hold NaN"):
        mb.full_bptt(*case.arguments())


@pytest.mark.parametrize("backend", BACKENDS)
def test_parameters_states_and_targets_that_are_not_finite(window, backend):
    case = window(backend=backend)
    case.cell.params["W_h"][1, 2] = np.nan
    with pytest.raises(ValueError, match="at step 1: parameter W_h holds NaN or infinity"):
        mb.bptt(*case.arguments(), full(case), case.state)
    case = window(backend=backend)
    case.head.params["b_y"][0] = np.inf
    with np.errstate(invalid="ignore"), pytest.raises(ValueError, match="parameter b_y"):
        mb.bptt(*case.arguments(), full(case))
    case = window(backend=backend)
    case.state[1][0, 0] = np.nan
    with pytest.raises(ValueError, match="state c holds NaN"):
        mb.bptt(*case.arguments(), full(case), case.state)
    case = window(backend=backend, head="linear")
    case.head.targets[2, 0, 0] = np.nan
    with pytest.raises(ValueError, match="at step 3: targets hold NaN"):
        mb.bptt(*case.arguments(), full(case))


@pytest.mark.parametrize("backend", BACKENDS)
def test_divergence_without_a_culprit_is_told_apart(window, backend):
    case = window(backend=backend, head="linear")
    case.cell.params["b"][:] = 20  # every gate is open, every h near 1
    case.head.params["W_y"][:] = 3e38
    with np.errstate(all="ignore"), pytest.raises(FloatingPointError, match="diverged"):
        mb.bptt(*case.arguments(), full(case), case.state)


def test_a_schedule_for_other_sizes_is_refused(window):
    small, large = window(), window(H=8)
    with pytest.raises(ValueError, match="schedule is for states of 64 and 192 bytes, this cell"):
        mb.bptt(*large.arguments(), full(small))


# -- illegal rows: the executor is safe by itself, whatever a schedule says ------------------------


def rows(*tuples):
    return [np.array(tuples, np.int64)]


@pytest.mark.parametrize(
    "chunks, error",
    [
        (rows((actions.SAVE_INTERNAL, 0, 1), (actions.SAVE_INTERNAL, 1, 2)), MemoryError),
        (rows((actions.SAVE_INTERNAL, 0, 1), (actions.SAVE_HIDDEN, 1, 2)), MemoryError),
        (rows((actions.BACKWARD, 1, 0)), LookupError),
        (rows((actions.SAVE_HIDDEN, 0, 1), (actions.BACKWARD, 1, 0)), LookupError),
        (rows((actions.FREE, 1, 0)), LookupError),
        (rows((actions.RESTORE, 3, 0)), LookupError),
        (rows((9, 0, 1)), LookupError),
        (rows((actions.ADVANCE, 4, 9)), LookupError),
        (rows((actions.ADVANCE, 2, 1)), LookupError),
        (rows((actions.BACKWARD, 9, 0)), LookupError),
    ],
)
def test_illegal_rows_raise_and_touch_nothing_outside_the_arena(window, chunks, error):
    case = window()
    sizes = case.cell.hidden_nbytes(2), case.cell.internal_nbytes(2)
    chain = make_chain(case.cell, case.head, 5, 2)
    guarded = np.zeros(sizes[1] + 128, np.uint8)
    chain.begin(case.inputs, case.head, case.state, guarded[64:-64])
    with pytest.raises(error, match="action"):
        _executor.run(chunks, chain, *sizes)
    assert not guarded[:64].any() and not guarded[-64:].any()
    if chunks[0][0, 0] <= actions.FREE:
        arena = Arena(sizes[1], *sizes)
        chain.begin(case.inputs, case.head, case.state, arena.buffer)
        with pytest.raises(error, match="action"):
            readable.run([actions.from_row(*row) for row in chunks[0].tolist()], chain, arena)


def test_a_schedule_that_ends_early_is_an_error(window):
    case = window()
    sizes = case.cell.hidden_nbytes(2), case.cell.internal_nbytes(2)
    chain = make_chain(case.cell, case.head, 5, 2)
    arena = Arena(sizes[1], *sizes)
    for run, plan in ((_executor.run, rows((0, 0, 5))), (readable.run, [actions.Advance(0, 5)])):
        chain.begin(case.inputs, case.head, case.state, arena.buffer)
        with pytest.raises(LookupError, match="ends after 0 of 5 backward steps"):
            run(plan, chain, *(sizes if run is _executor.run else (arena,)))


# -- heads of the user's own ---------------------------------------------------------------------


class LastStep:
    """Loss on the last hidden state only: L = ½ Σ h_T², no parameters."""

    kernel = None

    def __init__(self, steps):
        self.params = {}
        self.steps = steps
        self.seen = []

    def forward_backward(self, step, h, grads):
        self.seen.append(step)
        if step < self.steps:
            return 0.0, np.zeros_like(h)
        return 0.5 * float((h * h).sum()), h


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_head_of_the_users_own_runs_once_a_step(window, bits, backend):
    case = window(T=20, backend=backend, tokens=False)
    case.head = LastStep(20)
    wanted = bits(mb.full_bptt(*case.arguments()))
    case.head.seen.clear()
    schedule = mb.schedule(20, 4 * case.cell.internal_nbytes(2), "optimal", case.cell, 2)
    assert bits(mb.bptt(*case.arguments(), schedule)) == wanted
    assert case.head.seen == list(range(20, 0, -1))
    assert mb.check_gradients(*case.arguments()).ok


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_exception_in_a_head_comes_through(window, backend):
    class Broken(LastStep):
        def forward_backward(self, step, h, grads):
            if step == 7:
                raise RuntimeError("at step 7")
            return super().forward_backward(step, h, grads)

    case = window(T=20, backend=backend, tokens=False)
    case.head = Broken(20)
    schedule = mb.schedule(20, 4 * case.cell.internal_nbytes(2), "optimal", case.cell, 2)
    with pytest.raises(RuntimeError, match="at step 7"):
        mb.bptt(*case.arguments(), schedule)
    case.head = LastStep(20)  # the next run works
    mb.bptt(*case.arguments(), schedule)


def test_sources_have_the_same_numbers_in_both_chains():
    """As the compiled executor asserts of the compiled chains'."""
    assert (plain.INITIAL, plain.SAVED, plain.LEAVING, plain.ENTERING) == (0, 1, 2, 3)
    assert (cuda.INITIAL, cuda.LEAVING) == (plain.INITIAL, plain.LEAVING)


CELL = mb.LSTM(3, 4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mb.schedule(3, 1000, cell=3), "cell is 3; give a cell"),
        (lambda: mb.expand_schedule(10, "1 MiB", None), "cell is None; give a cell"),
        (lambda: mb.disk_schedule(10, "1 MiB", None, 1), "cell is None; give a cell"),
        (lambda: mb.to_torch(None), "cell is None; give an RNN, GRU or LSTM"),
        (lambda: mb.Stack(CELL), r"layers is LSTM\(.*\); give a list of cells"),
        (lambda: mb.Adam(CELL), "params is of type LSTM; give a dict, like cell.params"),
        (lambda: mb.SGD(None), "params is of type NoneType; give a dict"),
        (lambda: mb.LSTM(3, 4, zoneout=None), "zoneout is None; give a number"),
        (lambda: mb.AdamW(CELL.params, weight_decay="x"), "weight_decay is 'x'; give a number"),
        (lambda: mb.ExpandCost("a", 1), "fixed is 'a'; give a number"),
        (lambda: mb.schedule(3, mb.Units(3)).time_factor("x"), "backward_ratio is 'x'; give a nu"),
    ],
)
def test_arguments_of_another_type_are_named(call, message):
    with pytest.raises(TypeError, match=message):
        call()


def test_an_initial_state_that_is_none(window):
    case = window(T=3)
    with pytest.raises(TypeError, match="state is 3; give a tuple of arrays"):
        mb.full_bptt(*case.arguments(), 3)


@pytest.mark.parametrize("ratio", [-1, float("nan"), float("inf")])
def test_a_time_is_predicted_for_ratios_from_0_on(ratio):
    for planned in (mb.schedule(9, mb.Units(5, 3)), mb.schedule(9, mb.Units(12, 3), "lookahead")):
        with pytest.raises(ValueError, match=f"backward_ratio is {ratio}; give a number of at"):
            planned.time_factor(ratio)
        assert planned.time_factor(0) >= 1
