"""The page: self-contained, and planned against executed. tests/view/test_browser.py opens it."""

import json
import re

import numpy as np
import pytest

from membptt.executor import bptt
from membptt.memory import Units
from membptt.schedules import schedule
from membptt.view import compare, page, save_page
from membptt.view.viewer import in_use


def data(text):
    return json.loads(
        re.search(r'<script type="application/json" id="data">(.*)</script>', text)[1]
    )


@pytest.fixture
def recorded(window):
    """Return a function that runs ten steps of an LSTM and returns the schedule and the trace."""

    def run(strategy="optimal", units=6, backend="cython"):
        made = window(T=10, backend=backend)
        size = made.cell.hidden_nbytes(2)
        planned = schedule(10, units * size, strategy, made.cell, 2)
        return planned, bptt(*made.arguments(), planned, record=True).trace

    return run


def test_one_file_that_asks_for_nothing_else():
    text = page(schedule(10, Units(6, 3)))
    assert text.startswith("<!doctype html>") and "{{" not in text
    assert text.count("http") == 1  # the name of the SVG namespace
    assert not re.search(r"""(src|href)=|@import|url\(|fetch\(|XMLHttp""", text)
    assert "22</td>" in text and "backward of step 10" in text and "<svg xmlns" in text


@pytest.mark.parametrize(
    "strategy", ["full", "hsm", "ism", "msm", "optimal", "lookahead", "disk", "expand"]
)
def test_the_page_gets_every_action(strategy):
    made = schedule(12, Units(40, 3), strategy)
    (planned,) = data(page(made))["schedules"]
    rows = np.array(planned["actions"]).reshape(-1, 3).tolist()
    assert rows == [list(action.row) for action in made]


def test_it_says_what_it_is_for_and_what_made_it(window):
    cell = window().cell
    made = schedule(10, 20 * cell.hidden_nbytes(2), cell=cell, batch=2)
    text = page(made, cell=cell, batch=2, command="membptt schedule --html 'a<b.html'")
    assert "α = 3: a hidden state takes 64 B, an internal state 192 B." in text
    assert "LSTM, 4 hidden units, float32, batch 2." in text
    assert "Made by <code>membptt schedule --html &#x27;a&lt;b.html&#x27;</code>" in text


def test_long_schedules_have_no_table_and_stay_small():
    text = page(schedule(10_000, Units(200, 3)))
    assert len(text) < 1_000_000 and "<svg xmlns" not in text and "Every action" not in text


def test_refusals():
    with pytest.raises(ValueError, match="actions; a page holds"):
        page(schedule(1_000_000, Units(50), "hsm"))
    with pytest.raises(ValueError, match="have steps 4 and 5; give"):
        page(schedule(4, Units(3, 3)), [schedule(5, Units(3, 3))])
    with pytest.raises(ValueError, match="internal 3 and 2; give"):
        page(schedule(4, Units(3, 3)), [schedule(4, Units(3, 2))])
    with pytest.raises(ValueError, match="trace is float64 of shape"):
        page(schedule(4, Units(3, 3)), trace=np.zeros((3, 4)))


@pytest.mark.parametrize("strategy", ["optimal", "disk", "expand"])
def test_memory_in_use_is_the_replay_machines(strategy):
    made = schedule(30, Units(9, 3), strategy)
    machine = made.machine()
    expected = []
    for action in made:
        assert machine.fault(action) is None
        expected.append(machine.used)
    assert in_use(made, np.concatenate(list(made.codes()))).tolist() == expected


@pytest.mark.parametrize("backend", ["numpy", "cython"])
@pytest.mark.parametrize(
    ("strategy", "units"),
    [("full", 30), ("hsm", 6), ("ism", 6), ("msm", 6), ("optimal", 6), ("disk", 9), ("expand", 8)],
)
def test_planned_and_executed_are_the_same(recorded, strategy, units, backend):
    planned, trace = recorded(strategy, units, backend)
    found = compare(planned, trace)
    assert found.same
    assert "the same" in str(found) and "bytes in use" in str(found)


def test_two_lanes_are_compared_one_by_one(recorded):
    planned, trace = recorded("lookahead", 14)
    found = compare(planned, trace)
    assert found.same and "two lanes" in str(found)


def test_a_run_that_did_something_else_is_told(recorded):
    planned, trace = recorded()
    swapped = trace.copy()
    swapped[4, 2] += 1
    assert compare(planned, swapped).index == 4
    assert "first at action 5:" in str(compare(planned, swapped))
    greedy = trace.copy()
    greedy[7, 3] += 8
    assert compare(planned, greedy).index == 7
    assert "bytes in use were planned" in str(compare(planned, greedy))
    assert "were planned, " in str(compare(planned, trace[:-1]))
    assert 'class="verdict differ"' in page(planned, trace=trace[:-1])


def test_a_recorded_run_on_a_page(recorded, tmp_path):
    planned, trace = recorded()
    save_page(tmp_path / "run.html", planned, trace=trace)
    text = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert "Planned and executed are the same" in text
    assert data(text)["executed"] == trace.ravel().tolist()
