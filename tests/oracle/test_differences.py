"""The gradient check accepts right gradients and finds every planted fault."""

import numpy as np
import pytest

from membptt import Units, check_gradients, schedule
from membptt.cells import GRU, LSTM, RNN
from membptt.oracle.differences import GradientReport, Row, check_step


@pytest.mark.parametrize("backend", ["numpy", "cython"])
@pytest.mark.parametrize("kind", [RNN, LSTM, GRU])
def test_cells_pass_far_below_the_tolerance(kind, backend):
    report = check_gradients(kind(3, 5, backend=backend))
    assert report.ok
    assert report.max_difference < 1e-8
    names = [row.name for row in report.rows]
    assert names[:3] == ["W_x", "W_h", "b"] and "h_0" in names
    assert "W_x" in str(report) and "ok" in str(report)


@pytest.mark.parametrize("backend", ["numpy", "cython"])
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru", "stack"])
@pytest.mark.parametrize("head", ["softmax", "linear"])
def test_heads_pass(window, cell, head, backend):
    case = window(cell, head=head, backend=backend)
    report = check_gradients(*case.arguments())
    assert report.ok and report.max_difference < 1e-8
    assert {"W_y", "b_y"} <= {row.name for row in report.rows}


class ForgottenCell(LSTM):
    """An LSTM whose backward forgets that c_prev was multiplied by f."""

    def backward_step(self, x, internal, dstate, grads):
        dh_prev, _ = super().backward_step(x, internal, dstate, grads)
        return dh_prev, dstate[1]


class HalfBias(RNN):
    """An RNN that adds half of the bias's gradient."""

    def add_gradients(self, grads, x, h_prev, da):
        super().add_gradients(grads, x, h_prev, da)
        grads["b"] -= da.sum(axis=0) / 2


def test_planted_faults_are_found_and_named():
    report = check_gradients(ForgottenCell(3, 4, backend="numpy"))
    assert not report.ok and "FAIL" in str(report)
    report = check_gradients(HalfBias(3, 4, backend="numpy"))
    assert [row.name for row in report.rows if not row.ok] == ["b"]


def test_samples_limit_the_work():
    report = check_gradients(LSTM(3, 8, backend="numpy"), samples=5)
    assert [row.checked for row in report.rows] == [5] * 5 and report.ok
    with pytest.raises(ValueError, match="samples is 0; give at least 1"):
        check_gradients(LSTM(3, 8), samples=0)


def test_a_number_of_samples_may_come_as_a_float():
    report = check_gradients(LSTM(3, 4, backend="numpy"), samples=2.0)
    assert [row.checked for row in report.rows] == [2] * 5


@pytest.mark.parametrize("differences", [(1e-9, np.nan), (np.nan, 1e-9)])
def test_what_is_not_a_number_is_not_hidden(differences):
    rows = [Row("b", (1,), 1, each, (0,), 0.0, 0.0) for each in differences]
    report = GradientReport(tuple(rows))
    assert np.isnan(report.max_difference) and not report.ok


def test_the_cell_is_left_as_it_was():
    cell = LSTM(3, 4)
    kept = {name: value.copy() for name, value in cell.params.items()}
    check_gradients(cell)
    assert cell.dtype == np.float32
    for name, value in kept.items():
        assert value.tobytes() == cell.params[name].tobytes()


class Own:
    """A head of a user's own: the mean over steps and rows of h_t · v, for steps of 2 rows."""

    def __init__(self, v):
        self.params = {"v": v}

    def forward_backward(self, step, h, grads):
        v = self.params["v"]
        grads["v"] += h.sum(axis=0).reshape(v.shape)
        return (h * v.reshape(-1)).sum(), h * 0 + v.reshape(-1)


@pytest.mark.parametrize(
    "v",
    [
        np.arange(6.0).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(12.0)[::2],
    ],
    ids=["C", "Fortran", "strided"],
)
def test_the_parameters_of_a_head_are_moved_where_they_lie(v):
    """A flat view of an array that is not in C order would be a copy, and nothing would move."""
    kept = v.copy()
    report = check_gradients(RNN(3, 6), head=Own(v))
    assert report.ok and "v" in [row.name for row in report.rows]
    np.testing.assert_array_equal(v, kept)


def test_a_head_that_raises_is_left_as_it_was():
    class Failing(Own):
        calls = 0

        def forward_backward(self, step, h, grads):
            self.calls += 1
            if self.calls > 300:
                raise RuntimeError("enough")
            return super().forward_backward(step, h, grads)

    head, kept = Failing(np.arange(6.0)), np.arange(6.0)
    cell = RNN(1, 6)
    wanted = 7 * (1 + 4 * sum(value.size for value in cell.params.values()))
    head.calls = 300 - wanted - 7  # in the second evaluation with an element of v moved
    with pytest.raises(RuntimeError, match="enough"):
        check_gradients(cell, head=head)
    np.testing.assert_array_equal(head.params["v"], kept)


def test_what_cannot_be_taken_to_float64_is_named():
    with pytest.raises(TypeError, match="the head's v is float32, and this runs in float64; give"):
        check_gradients(RNN(3, 6), head=Own(np.ones(6, np.float32)))
    cell = LSTM(3, 4)
    plan = schedule(7, "10 kB", cell=cell, batch=2)
    with pytest.raises(ValueError, match="those of float32, and this runs in float64; plan it for"):
        check_gradients(cell, schedule=plan)
    fits = schedule(7, Units(9, alpha=3))
    assert check_gradients(cell, schedule=fits).ok


@pytest.mark.parametrize("check", [check_gradients, check_step])
def test_arguments_that_do_not_fit_are_named(check):
    cell = LSTM(3, 4)
    wide, step = np.ones((7, 2, 5)), np.ones((2, 5))
    with pytest.raises(ValueError, match="inputs are float64 of shape"):
        check(cell, wide if check is check_gradients else step)
    tokens = np.full((7, 2), 9)
    with pytest.raises(ValueError, match="9"):
        check(cell, tokens if check is check_gradients else tokens[0])
    with pytest.raises(TypeError, match="state is 3; give a tuple of arrays"):
        check(cell, state=3)
    with pytest.raises(ValueError, match="state has shapes"):
        check(cell, state=(np.ones((2, 4)), np.ones((2, 5))))
    with pytest.raises(ValueError, match="seed is -1; give at least 0"):
        check(cell, seed=-1)
