"""``membptt check`` passes, and fails where a gradient is wrong."""

import json
import math
from dataclasses import replace

import pytest

from membptt.cells import LSTM, RNN
from membptt.cli import check, main


def report(capsys):
    return json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.parametrize("backend", ["numpy", "cython"])
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_it_passes(cell, backend, capsys):
    words = ["--cell", cell, "--backend", backend, "--strategy", "optimal", "--json"]
    assert main(["check", *words]) == 0
    found = report(capsys)
    assert list(found) == ["ok", "cases", "failures", "max_difference"]
    assert found["ok"] is True
    assert found["failures"] == 0
    assert found["cases"] > 50
    assert 0 < found["max_difference"] < 1e-8


def test_a_line_for_each_group(capsys):
    assert main(["check", "--cell", "rnn", "--strategy", "hsm", "--backend", "numpy"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert all(line.startswith("ok   rnn") for line in lines[:3])
    assert lines[3].endswith("0 failed, largest difference " + lines[3].split()[-1])


def test_a_wrong_gradient_fails(monkeypatch, capsys):
    right = LSTM.backward_step

    def wrong(self, x, internal, dstate, grads):
        dh, dc = right(self, x, internal, dstate, grads)
        return dh * 1.001, dc

    monkeypatch.setattr(LSTM, "backward_step", wrong)
    words = ["--cell", "lstm", "--strategy", "ism", "--backend", "numpy", "--json"]
    assert main(["check", *words]) == 1
    found = report(capsys)
    assert found["ok"] is False
    assert found["failures"] == 2  # against differences; full BPTT has the same fault
    assert found["max_difference"] > 1e-6


def test_a_state_that_is_not_restored_fails(monkeypatch, capsys):
    right = RNN.state_from_internal
    calls = []

    def wrong(self, internal):  # each time a little different, as a new dropout mask would be
        calls.append(None)
        (h,) = right(self, internal)
        return (h + len(calls) * 1e-6,)

    monkeypatch.setattr(RNN, "state_from_internal", wrong)
    words = ["--cell", "rnn", "--strategy", "hsm", "--backend", "numpy", "--json"]
    assert main(["check", *words]) == 1
    assert report(capsys)["failures"] > 10


def test_nan_is_a_failure(monkeypatch, capsys):
    monkeypatch.setattr(check, "difference", lambda result, full: float("nan"))
    words = ["--cell", "rnn", "--strategy", "full", "--backend", "numpy"]
    assert main(["check", *words]) == 1
    assert "FAIL rnn" in capsys.readouterr().out


@pytest.mark.parametrize("place", ["loss", "grads", "state"])
def test_no_nan_is_hidden_by_another_number(place):
    """Wherever it is among the losses, gradients and states that are compared."""
    model, inputs, head, state = check.problem("lstm", "numpy", "float64", 3, True)
    full = check.full_bptt(model, inputs, head, state)
    assert check.difference(full, full) == 0
    if place == "loss":
        spoilt = replace(full, loss=float("nan"))
    elif place == "grads":
        spoilt = replace(full, grads=full.grads | {"b_y": full.grads["b_y"] + float("nan")})
    else:
        spoilt = replace(full, state_grad=(full.state_grad[0], full.state_grad[1] * float("nan")))
    assert math.isnan(check.difference(spoilt, full))
