"""Measured times: priced action by action, planned for, and executed."""

import dataclasses

import numpy as np
import pytest

import membptt as mb
from membptt.schedules import chain_schedule
from membptt.solver.chains import Chain
from membptt.timing import moves as measure
from membptt.timing.moves import Times, plan_in_seconds, run_seconds

TIMES = Times(3.0, 5.0, 0.25, 0.5, 0.125, 7.0)
# Saves and restores so dear that another schedule than that of fewest steps is the fastest.
DEAR = Times(1.0, 2.0, 6.0, 12.0, 1.0, 0.0)


def priced(schedule, times):
    """Return the seconds of a schedule, one action at a time."""
    total = times.run
    for action in schedule:
        name = type(action).__name__
        if name.startswith("Advance"):
            total += times.forward * (action.stop - action.start)
        total += {
            "AdvanceSaveHidden": times.save_hidden,
            "AdvanceSaveInternal": times.save_internal,
            "Restore": times.restore,
            "Backward": times.backward,
        }.get(name, 0.0)
    return total


@pytest.mark.parametrize("backend", ["numpy", "cython"])
@pytest.mark.parametrize("kind", [mb.RNN, mb.LSTM, mb.GRU])
def test_every_move_takes_some_time(kind, backend, monkeypatch):
    monkeypatch.setattr(measure, "SECONDS", 0.02)
    cell = kind(9, 16, backend=backend)
    times = measure.measure(cell, mb.SoftmaxHead(16, 9), 2)
    for name, seconds in dataclasses.asdict(times).items():
        assert np.isfinite(seconds)
        assert seconds > 0 or name == "save_internal"


@pytest.mark.parametrize("strategy", ["full", "hsm", "ism", "optimal"])
def test_a_prediction_is_the_price_of_all_actions(strategy):
    cell = mb.LSTM(3, 4)
    budget = 40 * cell.internal_nbytes(2) // (1 if strategy == "full" else 5)
    made = mb.schedule(40, budget, strategy, cell, 2)
    assert TIMES.seconds(made) == pytest.approx(priced(made, TIMES))
    if strategy == "full":
        assert TIMES.seconds(made) == pytest.approx(TIMES.full_seconds(40))


def test_with_two_lanes_it_is_the_time_of_the_slower_one():
    cell = mb.LSTM(3, 4)
    made = mb.schedule(40, 12 * cell.internal_nbytes(2), "lookahead", cell, 2)
    factor = made.time_factor(5 / 3)
    assert TIMES.seconds(made) == pytest.approx(7 + factor * 40 * 8)


def test_planned_for_seconds():
    cell = mb.LSTM(3, 4)
    budget = 5 * cell.internal_nbytes(2)
    in_steps = mb.schedule(60, budget, "optimal", cell, 2)
    made, in_seconds = plan_in_seconds(DEAR, 60, budget, "optimal", cell, 2)
    assert in_seconds and made.strategy == "optimal-in-seconds"
    assert made.forward_steps > in_steps.forward_steps
    assert DEAR.seconds(made) < DEAR.seconds(in_steps)
    made.replay()
    assert made.peak_bytes <= made.budget == budget
    chain = DEAR.chain(60, made.hidden, made.internal)
    assert DEAR.seconds(made) == pytest.approx(chain_schedule(chain, budget).cost)


@pytest.mark.parametrize(
    ("steps", "share", "strategy", "times"),
    [
        (301, 6, "optimal", DEAR),  # too long for tables in seconds
        (60, 6, "hsm", DEAR),  # another strategy was asked for
        (60, 1, "optimal", DEAR),  # nothing is run again
        (60, 6, "optimal", Times(1.0, 2.0, 0.0, 0.0, 0.0, 0.0)),  # the fewest steps are the fastest
    ],
)
def test_planned_in_steps(steps, share, strategy, times):
    cell = mb.LSTM(3, 4)
    asked = steps, steps * cell.internal_nbytes(2) // share, strategy, cell, 2
    made, in_seconds = plan_in_seconds(times, *asked)
    assert not in_seconds
    assert made == mb.schedule(*asked)


@pytest.mark.parametrize("backend", ["numpy", "cython"])
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_the_executor_runs_chain_schedules(window, bits, cell, backend):
    case = window(cell, 40, backend=backend)
    sizes = case.cell.hidden_nbytes(2), case.cell.internal_nbytes(2)
    wanted = bits(mb.full_bptt(*case.arguments(), case.state))
    for budget in (sizes[1], 3 * sizes[1] + 5, 100 * sizes[1]):
        made = chain_schedule(DEAR.chain(40, *sizes), budget)
        result = mb.bptt(*case.arguments(), made, case.state, record=True)
        assert bits(result) == wanted
        assert result.stats.forward_steps == made.forward_steps
        assert result.stats.peak_bytes == made.peak_bytes <= budget
        assert (result.trace[:, :3] == np.concatenate(list(made.codes()))).all()


def test_chains_that_no_cell_has(window):
    case = window(T=3)
    uneven = Chain((1, 1, 1), (64, 64, 32), (192, 192, 96))
    with pytest.raises(ValueError, match="hidden states take 32 to 64 in this chain"):
        mb.bptt(*case.arguments(), chain_schedule(uneven, 400))
    with pytest.raises(ValueError, match="schedule is for states of 1 and 3 bytes, this cell"):
        mb.bptt(*case.arguments(), chain_schedule(Chain.even(3, 1, 3), 6))


def test_a_run_is_timed():
    cell, head = mb.RNN(5, 4), mb.SoftmaxHead(4, 5)
    made = mb.schedule(9, 3 * cell.internal_nbytes(2), cell=cell, batch=2)
    assert run_seconds(made, cell, head, 2) > 0
