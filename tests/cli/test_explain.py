"""``membptt explain`` from its arguments to its output."""

import json

import pytest

from membptt.cli import main


def test_people_read_splits_table_and_actions(capsys):
    assert main(["explain", "--steps", "10", "--units", "4", "--strategy", "hsm"]) == 0
    text = capsys.readouterr().out
    assert "C(t,m) = min over y of  y + C(t-y, m-1) + C(y, m)" in text
    assert "  > y = 5   save h5" in text
    assert "12 more on the way back: --all shows them" in text
    assert "t=10" in text and "backward of step 10" in text
    assert main(["explain", "--steps", "10", "--units", "4", "--strategy", "hsm", "--all"]) == 0
    assert "more on the way back" not in capsys.readouterr().out


def test_json_is_the_last_line(capsys):
    words = ["explain", "--steps", "7", "--units", "6", "--alpha", "3", "--json"]
    assert main(words) == 0
    streams = capsys.readouterr()
    assert "is the least" in streams.err
    (line,) = streams.out.splitlines()
    report = json.loads(line)
    assert report["forward_steps"] == 13 and report["strategy"] == "optimal"
    assert report["nodes"][0]["chosen"]["total"] == report["nodes"][0]["cost"] == 13
    assert len(report["actions"]) == 31


@pytest.mark.parametrize("strategy", ["optimal", "msm"])
def test_infeasible_terms_are_null_in_json(capsys, strategy):
    words = ["explain", "--steps", "5", "--units", "5", "--alpha", "3", "--strategy", strategy]
    assert main([*words, "--json"]) == 0
    json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(name))


def test_bad_use_is_one_line(capsys):
    assert main(["explain", "--steps", "100", "--units", "4"]) == 2
    assert capsys.readouterr().err == (
        "membptt explain: error: steps is 100; an explanation holds 60, give fewer\n"
    )
