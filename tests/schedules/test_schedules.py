"""Schedules of every strategy: legal, within budget, as cheap as predicted, and values."""

import copy
import json
import pickle
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from membptt.cells import LSTM
from membptt.memory import Units
from membptt.schedules import Advance, AdvanceSaveHidden, ReplayError, Schedule, schedule
from membptt.schedules import actions as action_types
from membptt.schedules._emit import DiskEmitter, Emitter
from membptt.schedules.disk import disk_plan
from membptt.schedules.plan import plan as readable_plan
from membptt.solver import ONE_LANE, STRATEGIES, forward_steps


class Cell:
    """Sizes and nothing else."""

    def __init__(self, hidden, internal):
        self.sizes = hidden, internal

    def hidden_nbytes(self, batch):
        return self.sizes[0] * batch

    def internal_nbytes(self, batch):
        return self.sizes[1] * batch


def planned(steps, extra, name, alpha):
    """Return the schedule with `extra` units more than the least."""
    least = next(m for m in range(steps * alpha + 5) if feasible(steps, m, name, alpha))
    return schedule(steps, Units(least + extra, alpha), name)


def feasible(steps, units, name, alpha):
    try:
        forward_steps(steps, units, name, alpha)
    except ValueError:
        return False
    return True


@settings(deadline=None, max_examples=150)
@given(
    st.sampled_from(sorted(STRATEGIES)), st.integers(1, 60), st.integers(0, 60), st.integers(1, 5)
)
def test_every_schedule_replays_to_what_was_predicted(name, steps, extra, alpha):
    made = planned(steps, extra, name, alpha)
    done = made.replay()
    assert done.forward_steps == made.forward_steps
    assert done.forward_steps == forward_steps(steps, made.units, name, alpha)
    assert done.peak == made.peak_bytes <= made.budget
    assert done.executions.min() >= 1


@settings(deadline=None, max_examples=150)
@given(
    st.sampled_from(sorted(STRATEGIES)),
    st.integers(1, 50),
    st.integers(0, 3000),
    st.integers(1, 40),
    st.integers(1, 120),
)
def test_a_budget_in_bytes_holds(name, steps, extra, hidden, internal):
    cell = Cell(hidden, internal)
    with pytest.raises(ValueError, match="needs at least") as caught:
        schedule(steps, 1, name, Cell(2, 5))
    least = int(str(caught.value).split("at least ")[1].split()[0])
    assert schedule(steps, least, name, Cell(2, 5)).peak_bytes <= least
    least = STRATEGIES[name].least_budget(steps, cell_sizes(cell))
    made = schedule(steps, least + extra, name, cell)
    done = made.replay()
    assert done.peak == made.peak_bytes <= made.budget == least + extra
    assert done.forward_steps == made.forward_steps
    if least + extra >= steps * internal:
        assert made.forward_steps == steps


def cell_sizes(cell):
    from membptt.solver.strategies import Sizes

    return Sizes(*cell.sizes)


@pytest.mark.parametrize("name", [*sorted(ONE_LANE), "expand"])
@pytest.mark.parametrize("alpha", [1, 2, 3])
def test_readable_and_compiled_emitters_agree(name, alpha):
    for steps in (1, 2, 3, 7, 20, 41):
        for extra in (0, 1, 2, 3, 7, 30):
            made = planned(steps, extra, name, alpha)
            rule = made._rule
            readable = [action.row for action in readable_plan(rule, 0, steps, rule.free)]
            for rows in (3, 4, 4096):
                chunks = list(Emitter(rule, steps, rows))
                assert np.concatenate(chunks).tolist() == [list(row) for row in readable]


@pytest.mark.parametrize("units", [6, 9, 40])
def test_readable_and_compiled_emitters_for_disk_agree(units):
    for steps in (1, 2, 3, 7, 20, 41):
        for interval in range(1, steps):
            intervals = schedule(steps, Units(units, 3), "disk", interval=interval).intervals
            if intervals is None:  # all fits into memory
                continue
            readable = [action.row for action in disk_plan(intervals)]
            for rows in (3, 4, 4096):
                chunks = list(DiskEmitter(intervals, rows))
                assert np.concatenate(chunks).tolist() == [list(row) for row in readable]


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_the_least_budget_is_stated_and_works(name):
    cell = Cell(8, 24)
    with pytest.raises(
        ValueError, match=r"memory is 23, 23 bytes; .* at least \d+ bytes"
    ) as caught:
        schedule(50, 23, name, cell)
    least = int(str(caught.value).split("at least ")[1].split()[0])
    assert schedule(50, least, name, cell).replay().peak <= least
    with pytest.raises(ValueError, match=f"at least {least} bytes"):
        schedule(50, least - 1, name, cell)


@pytest.mark.parametrize("name", ["uniform", "chen", "chen-recursive"])
@pytest.mark.parametrize(("hidden", "internal"), [(1, 1), (8, 24), (24, 8), (5, 12)])
def test_the_least_budget_of_fixed_patterns_is_exactly_what_they_take(name, hidden, internal):
    cell = Cell(hidden, internal)
    for steps in range(1, 40):
        least = STRATEGIES[name].least_budget(steps, cell_sizes(cell))
        if least < steps * internal:
            assert schedule(steps, least, name, cell).replay().peak == least


def test_budgets_in_bytes_count_the_working_internal_state_alike():
    cell = Cell(10, 30)
    units = {name: schedule(100, 130, name, cell, batch=1).units for name in ("hsm", "ism", "msm")}
    assert units == {"hsm": 11, "ism": 4, "msm": 10}
    assert schedule(100, 130, "optimal", cell).units == 13
    assert schedule(100, 260, "optimal", cell, batch=2).units == 13


def test_a_unit_that_is_of_no_use_stays_unused():
    """Four steps of hsm: with m = 4 the schedule is that of m = 3, and its peak says so."""
    three, four = (schedule(4, Units(m), "hsm") for m in (3, 4))
    assert three.forward_steps == four.forward_steps == 7
    assert three.peak_bytes == four.peak_bytes == three.budget == four.budget - 1
    assert three == four


def test_a_schedule_is_a_value(tmp_path):
    made = schedule(50, Units(9, 3))
    again = schedule(50, Units(9, 3))
    assert list(made) == list(made) == list(again)
    assert len(made) == len(list(made))
    assert made == again and hash(made) == hash(again)
    assert made != schedule(50, Units(12, 3)) and made != schedule(49, Units(9, 3))
    assert made != "schedule"
    assert "50 steps" in repr(made) and str(made.forward_steps) in repr(made)
    made.save(tmp_path / "schedule.json")
    loaded = Schedule.load(tmp_path / "schedule.json")
    assert loaded == made and loaded.units == made.units and loaded.budget == made.budget
    assert (
        np.concatenate(list(loaded.codes())).tolist() == np.concatenate(list(made.codes())).tolist()
    )


def test_sizes_of_full_bptt_and_time():
    made = schedule(1000, Units(77, 3))
    assert (made.forward_steps, made.full_bytes, made.peak_bytes) == (1999, 3000, 77)
    assert made.saved_fraction == pytest.approx(0.974, abs=1e-3)
    assert made.time_factor(2.0) == pytest.approx(1.333)
    assert schedule(1000, Units(3000, 3)).time_factor() == 1.0


def test_actions_are_frozen_comparable_and_say_how_they_are_read():
    assert Advance(0, 2) == Advance(0, 2) != AdvanceSaveHidden(0, 2)
    assert len({Advance(0, 2), Advance(0, 2), Advance(1, 2)}) == 2
    with pytest.raises(FrozenInstanceError):
        Advance(0, 2).stop = 3
    for name in (
        "Advance",
        "AdvanceSaveHidden",
        "AdvanceSaveInternal",
        "Restore",
        "Backward",
        "Free",
        "Store",
        "Prefetch",
        "Fetch",
        "Drop",
        "Expand",
    ):
        last = getattr(action_types, name).__doc__.strip().splitlines()[-1]
        assert last.strip().startswith("Read as: ")
    with pytest.raises(ValueError, match="action code is 11"):
        action_types.from_row(11, 0, 1)


def test_made_by_hand():
    actions = list(schedule(5, Units(1), "ism"))
    made = Schedule.from_actions(actions, 5, hidden=2, internal=6)
    assert made.budget == made.peak_bytes == 6
    assert made.strategy == "custom" and made.forward_steps == 15
    with pytest.raises(ReplayError, match="budget of 5"):
        Schedule.from_actions(actions, 5, hidden=2, internal=6, budget=5)
    with pytest.raises(ValueError, match="unit is 'bits'"):
        Schedule.from_actions(actions, 5, unit="bits")


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "null", '{"format": "other"}', "\x00", '{"format": "membptt schedule 1"}'],
)
def test_files_that_are_no_schedules(tmp_path, text):
    path = tmp_path / "schedule.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="is not a schedule that membptt saved"):
        Schedule.load(path)


def test_an_edited_file_is_replayed(tmp_path):
    path = tmp_path / "schedule.json"
    schedule(5, Units(2), "ism").save(path)
    path.write_text(path.read_text().replace("[4, 5, 0]", "[4, 4, 0]"))
    with pytest.raises(ReplayError, match=r"Backward\(step=4\): the next step .* is 5"):
        Schedule.load(path)


def test_a_schedule_from_tables_of_64_bits():
    made = schedule(46_340, Units(4, 3), "msm")
    assert made._rule.table.dtype == np.int64
    assert made.replay().forward_steps == made.forward_steps


@pytest.mark.parametrize("name", ["hsm", "ism"])
def test_a_million_steps_stream(name):
    made = schedule(1_000_000, Units(50), name)
    assert max(len(chunk) for chunk in made.codes()) <= 4096
    assert made.peak_bytes <= made.budget
    assert made._sums.forward_steps == made.forward_steps


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0, 100, "hsm", Cell(1, 3)), "steps is 0"),
        ((5, 0, "hsm", Cell(1, 3)), "memory in bytes is 0"),
        ((5, -3, "hsm", Cell(1, 3)), "memory in bytes is -3"),
        ((5, "2 apples", "hsm", Cell(1, 3)), "memory is '2 apples'"),
        ((5, 2, "hsm", Cell(1, 3)), "needs at least 3 bytes"),
        ((5, 100, "hsm"), "without a cell"),
        ((5, Units(3), "hsm", Cell(1, 3)), "with a cell"),
        ((5, 100, "nothing", Cell(1, 3)), "strategy is 'nothing'; give one of"),
        ((5, 100, "hsm", Cell(1, 3), 0), "batch is 0"),
        ((5, Units(-1), "hsm"), "units is -1 for 5 steps"),
        ((0, Units(3), "hsm"), "steps is 0"),
        ((7, Units(5, 2**63), "msm"), f"steps is 7 with states of size {2**63}, together"),
        ((2**62, 2**63, "hsm", Cell(5, 3)), f"steps is {2**62} with states of size 5, together"),
    ],
)
def test_bad_requests(arguments, words):
    with pytest.raises(ValueError, match=words):
        schedule(*arguments)


@pytest.mark.parametrize("strategy", ["uniform", "lookahead"])
@pytest.mark.parametrize("memory", [Units(300, alpha=3), "2 MiB"])
def test_a_length_that_a_planner_has_no_room_for_is_refused_at_once(strategy, memory):
    cell = None if isinstance(memory, Units) else LSTM(4, 8)
    with pytest.raises(ValueError, match=f"steps is 1000000000000; strategy {strategy} plans up"):
        schedule(10**12, memory, strategy, cell)


@pytest.mark.parametrize("strategy", ["optimal", "disk"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("budget", -1),
        ("budget", 3),
        ("budget", 2**70),
        ("hidden", 10**30),
        ("internal", 2**62),
        ("unit", "apples"),
    ],
)
def test_a_file_whose_numbers_do_not_fit_is_refused(tmp_path, strategy, name, value):
    path = tmp_path / "schedule"
    schedule(30, Units(20, 3), strategy).save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: value}))
    with pytest.raises(ValueError, match=r"is not a schedule that membptt saved|the budget of"):
        Schedule.load(path)


def test_a_schedule_does_not_change(tmp_path):
    planned = schedule(20, Units(7, alpha=3))
    planned.save(tmp_path / "plan.json")
    loaded = Schedule.load(tmp_path / "plan.json")
    for one in (planned, loaded, copy.copy(planned), pickle.loads(pickle.dumps(loaded))):
        kept = repr(one), one.units
        for name in ("budget", "steps", "another"):
            with pytest.raises(AttributeError, match=f"{name} cannot be set"):
                setattr(one, name, 10**9)
        with pytest.raises(AttributeError, match="budget cannot be set"):
            del one.budget
        assert (repr(one), one.units) == kept == (repr(planned), 7)
