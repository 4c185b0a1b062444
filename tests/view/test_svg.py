"""The drawing is well-formed, self-contained, and has a mark for everything that happens."""

from xml.etree import ElementTree

import pytest

from membptt.memory import Units
from membptt.schedules import AdvanceSaveHidden, AdvanceSaveInternal, Backward, Restore, schedule
from membptt.view.svg import draw


def marks(drawing, kind):
    return [
        element.get("class")
        for element in ElementTree.fromstring(drawing).iter()
        if element.get("class") == kind
    ]


@pytest.mark.parametrize("steps", [1, 2, 10, 100])
@pytest.mark.parametrize("name", ["full", "hsm", "optimal"])
def test_one_mark_for_each_action(steps, name):
    made = schedule(steps, Units(3 * steps, 3), name)
    drawing = draw(made)
    count = {kind: sum(type(action) is kind for action in made) for kind in set(map(type, made))}
    in_legend = 1
    assert len(marks(drawing, "back")) == count[Backward] + in_legend
    assert len(marks(drawing, "ring")) == count.get(Restore, 0) + in_legend
    assert len(marks(drawing, "hidden")) == count.get(AdvanceSaveHidden, 0) + in_legend
    assert len(marks(drawing, "internal")) == count[AdvanceSaveInternal] + in_legend


def test_the_legend_explains_the_bars_and_the_title_says_alpha():
    drawing = draw(schedule(10, Units(6, 3)))
    assert "while kept" in drawing and "22 forward steps, α = 3, time downwards" in drawing


def test_self_contained_and_for_both_modes():
    drawing = draw(schedule(10, Units(6, 3)))
    assert drawing.count("http") == 1  # the name of the SVG namespace
    assert "prefers-color-scheme: dark" in drawing
    assert ElementTree.fromstring(drawing).find("{http://www.w3.org/2000/svg}title") is not None


def test_no_drawing_that_nobody_can_open():
    with pytest.raises(ValueError, match="actions; a drawing holds"):
        draw(schedule(10_000, Units(50), "hsm"))


def test_blocks_are_dashed_and_each_of_their_steps_is_kept():
    made = schedule(12, Units(12, 3), "expand")
    drawing = draw(made)
    assert made.expansions > 0
    assert drawing.count('stroke-dasharray="2 2"') == made.expansions
    kept = sum(type(action) is AdvanceSaveInternal for action in made) + made.expanded_steps
    assert len(marks(drawing, "internal")) == kept + 1
