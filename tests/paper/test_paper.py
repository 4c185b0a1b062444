"""The numbers are those of the recurrences, the report holds them, and asks for nothing else."""

import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from membptt.memory import Units
from membptt.paper import all_costs, disk_costs, measure, measure_disk, write_report
from membptt.paper import costs as module
from membptt.paper import disk as on_disk
from membptt.paper.measured import STRATEGIES
from membptt.paper.report import FIGURES, text
from membptt.schedules import Advance, schedule
from membptt.solver import recurrences


@pytest.fixture(scope="module")
def numbers():
    small = measure(hidden=8, batch=2, lengths=(80, 160), repeats=1)
    small_disk = measure_disk(hidden=8, batch=2, lengths=(80, 160), steps=200, repeats=1)
    disk = {"disk": disk_costs(), "disk_measured": small_disk}
    return all_costs() | {"measured": small} | disk


def test_every_claim_holds(numbers):
    assert len(numbers["claims"]) == 4
    assert all(claim["holds"] for claim in numbers["claims"])
    assert len(numbers["disk"]["claims"]) == 3
    assert all(claim["holds"] for claim in numbers["disk"]["claims"])


def test_the_headline(numbers):
    headline = numbers["headline"]
    assert headline["forward_steps"] == 1999
    assert headline["saved_fraction"] == pytest.approx(1 - 77 / 3000)
    assert headline["saved_fraction"] > headline["paper_saved_fraction"] == 0.95
    assert headline["time_factor"] <= headline["paper_time_factor"]


def test_msm_against_the_optimum_by_the_readable_tables():
    alpha, steps = 3, 8
    mixed = recurrences.msm(steps, steps * alpha, 1, alpha)
    best, _ = recurrences.optimal(steps, steps * alpha, 1, alpha)
    different = [
        (t, m)
        for t in range(1, steps + 1)
        for m in range(alpha, t * alpha + 1)
        if mixed[t][m - alpha] != best[t][m]
    ]
    found = module.msm_not_optimal(alpha)["first"]
    assert (found["steps"], found["units"]) == different[0] == (7, 6)
    assert (found["msm"], found["optimal"]) == (14, 13)
    assert module.msm_not_optimal(1)["worse"] == 0


def test_chen_by_its_formula_and_optimal_beside_it(numbers):
    for row in numbers["chen"]:
        assert row["optimal_forward_steps_same_memory"] <= row["forward_steps"]
        assert row["optimal_units_same_cost"] <= row["units"]
    first = numbers["chen"][0]  # segments of 10 steps: all but the last one run twice
    assert (first["steps"], first["forward_steps"]) == (100, 190)


def test_lines_by_the_readable_tables(numbers):
    table = recurrences.hsm(60, 10)
    lengths, costs = numbers["figures"]["hsm"]["m = 10"]
    for steps, cost in zip(lengths, costs, strict=True):
        if steps <= 60:
            assert cost * steps == pytest.approx(table[steps][10])
    table = recurrences.msm(60, 20, 1, 3)
    lengths, costs = numbers["figures"]["msm"]["m = 20"]
    for steps, cost in zip(lengths, costs, strict=True):
        if steps <= 60:
            assert cost * steps == pytest.approx(table[steps][20])


def test_no_line_of_a_strategy_goes_below_the_optimum(numbers):
    for name in ("equal-memory", "equal-memory-length"):
        lines = numbers["figures"][name]
        optimal = np.array(lines["optimal"][1], float)
        for strategy, (_, costs) in lines.items():
            if strategy == "disk":  # has memory that no budget counts
                continue
            assert not (np.array(costs, float) < optimal - 1e-12).any()


def test_the_time_of_a_disk_by_counting_its_actions():
    """Transfers and steps counted one by one, each half of the run as long as its slower part."""
    steps, ratio, interval = 100, 30.0, 10
    planned = schedule(steps, Units(on_disk.UNITS, 3), "disk", interval=interval)
    begun = False
    halves = {False: [0.0, 0.0], True: [0.0, 0.0]}  # before and after the first backward's run
    for action in planned:
        begun = begun or (not isinstance(action, Advance) and action.row[1] >= steps - interval)
        kind = type(action).__name__
        halves[begun][0] += action.stop - action.start if kind.startswith("Advance") else 0
        halves[begun][0] += on_disk.BACKWARD_RATIO if kind == "Backward" else 0
        halves[begun][1] += ratio if kind in ("Store", "Fetch") else 0
    seconds = sum(map(max, halves.values()))
    assert on_disk.disk_time(steps, ratio, interval=interval)[0] == pytest.approx(seconds / 300)


def test_a_disk_costs_the_same_at_any_length_and_memory_alone_does_not(numbers):
    lines = numbers["disk"]["figures"]["disk-length"]
    for name, (lengths, times) in lines.items():
        at = dict(zip(lengths, times, strict=True))
        growth = times[-1] / at[lengths[len(lengths) // 2]]
        assert growth < 1.02 if name.startswith("disk, ρ = 1") else growth > 1, name


def test_what_is_measured_with_a_disk(numbers):
    found = numbers["disk_measured"]
    assert [row["steps"] for row in found["by_length"]] == [80, 160]
    for row in found["by_length"]:
        assert row["interval"] == 10
        assert row["disk_forward_steps"] <= row["optimal_forward_steps"]
        assert row["optimal_forward_steps"] < row["revolve_forward_steps"]
    assert [(row["ratio"], row["interval"]) for row in found["by_ratio"]] == [
        (2.5, 10), (10, 10), (40, 10), (40, 40), (80, 10), (80, 80),
    ]  # fmt: skip


def test_what_is_measured_within_its_budget(numbers):
    measured = numbers["measured"]
    assert [row["strategy"] for row in measured["rows"]] == [*STRATEGIES, *STRATEGIES]
    for row in measured["rows"]:
        if row["strategy"] != "full":
            assert row["arena_peak_bytes"] <= measured["budget_bytes"]
        assert row["seconds"] > 0 and row["measured_bytes"] > row["arena_peak_bytes"] / 2


def test_the_report(numbers, tmp_path):
    files = write_report(tmp_path / "new" / "folder", numbers)
    folder = tmp_path / "new" / "folder"
    assert sorted(path.name for path in folder.iterdir()) == files
    assert len(files) == len(FIGURES) + 2
    again = json.loads((folder / "numbers.json").read_text(encoding="utf-8"))
    assert again == json.loads(json.dumps(numbers))
    for name in FIGURES:
        drawing = ElementTree.parse(folder / f"{name}.svg").getroot()
        assert drawing.findall("{http://www.w3.org/2000/svg}polyline")
    report = (folder / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"""(src|href)=|@import|url\(""", report)
    assert "97.4% for 33.3% more" in report and "95 %" in report and "Kukreja" in report


def test_the_tables_for_a_terminal(numbers):
    lines = list(text(numbers))
    assert any("97.4%" in line for line in lines)
    assert all(len(line) < 200 for line in lines)
