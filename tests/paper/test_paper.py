"""The numbers are those of the recurrences, the report holds them, and asks for nothing else."""

import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from membptt.paper import all_costs, measure, write_report
from membptt.paper import costs as module
from membptt.paper.measured import STRATEGIES
from membptt.paper.report import FIGURES, text
from membptt.solver import recurrences


@pytest.fixture(scope="module")
def numbers():
    small = measure(hidden=8, batch=2, lengths=(80, 160), repeats=1)
    return all_costs() | {"measured": small}


def test_every_claim_holds(numbers):
    assert len(numbers["claims"]) == 4
    assert all(claim["holds"] for claim in numbers["claims"])


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
