"""``membptt schedule`` from its arguments to its output."""

import argparse
import io
import json

import pytest

from membptt.cli import schedule


def run(*words):
    parser = argparse.ArgumentParser()
    schedule.add_arguments(parser.add_subparsers())
    out = io.StringIO()
    assert schedule.run(parser.parse_args(["schedule", *words]), out) == 0
    return out.getvalue()


def test_units(capsys):
    people = run("--steps", "1000", "--units", "77", "--alpha", "3", "--json")
    assert people.startswith("optimal: 1999 forward steps")
    assert json.loads(capsys.readouterr().out) == {
        "steps": 1000,
        "strategy": "optimal",
        "forward_steps": 1999,
        "forward_steps_per_step": 1.999,
        "peak_units": 77,
        "full_units": 3000,
        "saved_fraction": pytest.approx(0.97433, abs=1e-5),
        "time_factor": pytest.approx(1.333),
    }


def test_bytes_are_those_of_the_cell(capsys):
    run("--steps", "1000", "--memory", "2MiB", "--json")
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert report["peak_bytes"] <= 2 * 2**20
    assert report["full_bytes"] == 1000 * 16 * 6 * 256 * 4
    run("--steps", "1000", "--memory", "2MiB", "--json", "--batch", "8", "--dtype", "float64")
    assert json.loads(capsys.readouterr().out)["full_bytes"] == report["full_bytes"]


def test_actions_are_printed_on_request():
    words = "--steps", "5", "--units", "2", "--strategy", "hsm"
    assert "backward of step 5" not in run(*words)
    assert "backward of step 5" in run(*words, "--actions")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--steps", "0", "--units", "3"], "steps is 0"),
        (["--steps", "5", "--units", "0"], "units is 0 for 5 steps; .* at least 1"),
        (["--steps", "5", "--units", "3", "--alpha", "0"], "alpha is 0"),
        (["--steps", "5", "--units", "3", "--hidden", "9"], "--hidden is 9 with --units"),
        (["--steps", "5", "--memory", "1MiB", "--alpha", "3"], "--alpha is 3 with --memory"),
        (["--steps", "5", "--memory", "1 B"], "at least 98304 bytes for 5 steps"),
        (["--steps", "5", "--memory", "2 apples"], "memory is '2 apples'"),
        (["--steps", "5", "--memory", "1MiB", "--hidden", "0"], "hidden_size is 0"),
        (["--steps", "5", "--memory", "1MiB", "--batch", "0"], "batch is 0"),
    ],
)
def test_bad_use_is_a_value_error(words, message):
    with pytest.raises(ValueError, match=message):
        run(*words)
