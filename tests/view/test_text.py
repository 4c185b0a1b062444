"""The table of a schedule, line by line."""

from membptt.memory import Units
from membptt.schedules import Expand, Schedule, schedule
from membptt.view.text import saved, summary, table, words
from membptt.view.viewer import numbers


def test_a_schedule_for_three_steps_as_people_read_it():
    lines = list(table(schedule(3, Units(4, alpha=3))))
    assert len({line.rindex("  ") for line in lines}) == 1  # the last column is one
    assert [" ".join(line.split()) for line in lines] == [
        "action working in use runs of step 1...3 saved states",
        "1 run step 1, save h1 h1 1 1.. h1",
        "2 run steps 2-3, save internal [3] h3 4 111 h1 [3]",
        "3 backward of step 3 h3 4 111 h1 [3]",
        "4 free [3] h3 1 111 h1",
        "5 go back to h1 h1 1 111 h1",
        "6 free h1 h1 0 111 -",
        "7 run step 2, save internal [2] h2 3 121 [2]",
        "8 backward of step 2 h2 3 121 [2]",
        "9 free [2] h2 0 121 -",
        "10 go back to h0 h0 0 121 -",
        "11 run step 1, save internal [1] h1 3 221 [1]",
        "12 backward of step 1 h1 3 221 [1]",
        "13 free [1] h1 0 221 -",
    ]


def test_long_schedules_leave_the_counts_out_and_stream():
    lines = table(schedule(1_000_000, Units(50), "hsm"))
    assert "runs of step" not in next(lines)
    assert next(lines).split()[:3] == ["1", "run", "steps"]


def test_every_action_in_words():
    made = schedule(12, Units(9, 2), "disk", interval=4)
    said = {type(action).__name__: words(action) for action in made}
    assert said["Store"] == "store h4 on disk" and said["Prefetch"] == "begin to read h4"
    assert said["Fetch"] == "go back to h4 from disk" and said["Drop"] == "drop h4"
    assert said["Advance"] == "run steps 1-4"
    assert words(Expand(2, 5)) == "expand steps 3-5 at once"


def test_what_is_saved_is_never_all():
    made = schedule(60_000, Units(12), "hsm")
    assert saved(made) == "99.980%" and "99.980% saved" in summary(made)
    assert "99.980%" in numbers([made]) and "100" not in numbers([made])
    assert saved(schedule(10, Units(1), "ism")) == "90.0%"
    assert saved(schedule(10**9, Units(3, 3), "hsm")) == "99.999%"


def test_ten_runs_and_more_are_a_plus():
    made = schedule(12, Units(1), "ism")
    assert list(table(made))[-1].split()[-2] == "+++987654321"


def test_summary_in_units_and_in_bytes():
    in_units = schedule(1000, Units(77, alpha=3))
    assert summary(in_units).splitlines() == [
        "optimal: 1999 forward steps for 1000 steps, 1.999 per step",
        "saved states: 77 units at most, of 77 units allowed; full BPTT 3000 units; 97.4% saved",
        "time: 1.333 of full BPTT's, where a backward takes two forwards",
    ]
    in_bytes = Schedule.from_actions(
        list(schedule(3, Units(4, 3))), 3, hidden=1024, internal=3072, unit="bytes", budget=5000
    )
    assert "4.00 KiB at most, of 4.88 KiB allowed; full BPTT 9.00 KiB" in summary(in_bytes)
