"""The gradient check accepts right gradients and finds every planted fault."""

import numpy as np
import pytest

from membptt import check_gradients
from membptt.cells import GRU, LSTM, RNN
from membptt.oracle.differences import GradientReport, Row


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
