"""The drawing and the table of the trade-off."""

from xml.etree import ElementTree

import pytest

from membptt.schedules import trade_off
from membptt.solver import ONE_LANE
from membptt.view.curve import curve_table, draw_curve, save_curve


def test_one_line_for_each_strategy_within_the_frame():
    drawing = ElementTree.fromstring(draw_curve(trade_off(60, alpha=3)))
    lines = drawing.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == len(ONE_LANE) - 1  # without near-optimal
    for line in lines:
        for pair in line.get("points").split():
            x, y = map(float, pair.split(","))
            assert 60 <= x <= 610 and 30 <= y <= 370


def test_one_step_has_one_budget():
    assert "<polyline" in draw_curve(trade_off(1, alpha=3))


def test_the_table_is_short_and_ends_at_full_bptt():
    lines = list(curve_table(trade_off(500, alpha=3, strategies=["hsm", "optimal"])))
    assert len(lines) <= 25
    assert lines[0].split() == ["memory", "of", "full", "hsm", "optimal"]
    assert lines[-1].split() == ["1500", "100.00%", "1.000", "1.000"]


def test_png(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is an extra, membptt[plot]")
    save_curve(trade_off(30, alpha=3), tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
