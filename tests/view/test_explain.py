"""What is explained is what the recurrence says and what the schedule does."""

import doctest

import pytest

from membptt.schedules import AdvanceSaveHidden, AdvanceSaveInternal
from membptt.solver import recurrences
from membptt.view import explain as module
from membptt.view.explain import explain, node_lines, table_lines, why


@pytest.mark.parametrize("strategy", ["hsm", "ism", "msm", "optimal"])
@pytest.mark.parametrize("alpha", [1, 2, 3])
def test_the_chosen_term_is_the_least_and_the_runs_add_up(strategy, alpha):
    for steps in (1, 2, 3, 7, 12):
        for units in range(alpha, 3 * alpha + 4):
            found = explain(steps, units, strategy, alpha)
            for node in found.nodes:
                totals = [candidate.total for candidate in node.candidates]
                assert node.chosen.total == min(totals) == node.entry.cost
            runs = sum(node.chosen.y for node in found.nodes)
            assert runs == found.schedule.forward_steps == found.nodes[0].entry.cost


def test_every_node_is_one_saving_action():
    found = explain(15, 7, "optimal", 3)
    saving = [
        action
        for action in found.schedule
        if isinstance(action, AdvanceSaveHidden | AdvanceSaveInternal)
    ]
    assert [(node.start, node.start + node.chosen.y) for node in found.nodes] == [
        (action.start, action.stop) for action in saving
    ]
    kinds = [node.chosen.kind == "hidden" for node in found.nodes]
    assert kinds == [isinstance(action, AdvanceSaveHidden) for action in saving]


def test_the_candidates_are_all_terms_of_the_recurrence():
    table = recurrences.ism(10, 4)
    node = explain(10, 4, "ism").nodes[0]
    assert [candidate.total for candidate in node.candidates] == [
        y + table[10 - y][3] + table[y - 1][4] for y in range(1, 11)
    ]


def test_words_of_a_node():
    node = explain(7, 6, "optimal", 3).nodes[0]
    lines = list(node_lines(node))
    assert lines[0] == "steps 1-7, from h0: A(7,6) = 13"
    assert [line for line in lines if line.startswith("  >")] == [
        "  > y = 2   save h2         2 + B(5,6) = 9      + A(2,6) = 2      = 13"
    ]
    assert why(node) == (
        "Run 2 and save h2: 2 + 9 + 2 = 13 is the least. "
        "y = 1: +3 at the right, -2 for the first run and the left, 1 more in all. "
        "y = 3: -2 at the right, +3 for the first run and the left, 1 more in all."
    )


def test_the_table_has_a_star_for_each_entry_on_the_path():
    found = explain(10, 4, "hsm")
    path = {(node.entry.t, node.entry.m) for node in found.nodes}
    text = "\n".join(table_lines(found))
    assert text.count("*") == len(path)
    assert text.splitlines()[-1].split() == ["t=10", "55", "30", "25", "24*"]


def test_many_columns_are_cut_to_those_of_the_path():
    lines = list(table_lines(explain(40, 60, "optimal", 3)))
    assert max(map(len, lines)) <= 140


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((61, 4), "steps is 61; an explanation holds 60"),
        ((5, 4, "uniform"), "strategy is uniform, which is no dynamic programme"),
        ((5, 4, "best"), "strategy is 'best'; give one of"),
        ((5, 2, "optimal", 3), "units is 2 for 5 steps; .* at least 3"),
        ((0, 2), "steps is 0"),
    ],
)
def test_refusals(arguments, message):
    with pytest.raises(ValueError, match=message):
        explain(*arguments)


def test_its_examples():
    assert doctest.testmod(module).failed == 0
