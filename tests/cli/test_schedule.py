"""``membptt schedule`` from its arguments to its output."""

import argparse
import io
import json
import shlex

import pytest

from membptt.cli import main, schedule


def run(*words):
    parser = argparse.ArgumentParser()
    schedule.add_arguments(parser.add_subparsers())
    out = io.StringIO()
    args = parser.parse_args(["schedule", *words])
    args.line = shlex.join(["membptt", "schedule", *words])
    assert schedule.run(args, out) == 0
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


def test_bytes_of_reduced_internal_states(capsys):
    words = "--steps", "1000", "--memory", "2MiB", "--internal"
    for internal, nbytes in (("float16", 18 * 256), ("int8", 13 * 256 + 64)):
        people = run(*words, internal, "--json")
        report = json.loads(capsys.readouterr().out)
        assert report["full_bytes"] == 1000 * 16 * nbytes
        assert f"{report['forward_steps']} forward steps for 1000 steps" in people
        assert report["forward_steps"] < 2306  # that of exact ones


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
        (["--steps", "5", "--units", "3", "--internal", "int8"], "--internal is int8 with --units"),
        (["--steps", "5", "--memory", "1MiB", "--alpha", "3"], "--alpha is 3 with --memory"),
        (["--steps", "5", "--memory", "1 B"], "at least 98304 bytes for 5 steps"),
        (["--steps", "5", "--memory", "2 apples"], "memory is '2 apples'"),
        (["--steps", "5", "--memory", "1MiB", "--hidden", "0"], "hidden_size is 0"),
        (["--steps", "5", "--memory", "1MiB", "--batch", "0"], "batch is 0"),
        (["--steps", "5", "--units", "3", "--html", ""], "--html is ''; give a file"),
        (
            ["--steps", "5", "--memory", "1MiB", "--cell", "ln-gru", "--internal", "int8"],
            "internal is 'int8' with cell ln-gru; it is for cell lstm, rnn, gru",
        ),
        (["--steps", "5", "--memory", "1MiB", "--layers", "1001"], "layers is 1001; .* most 1000"),
        (["--steps", "5", "--memory", "1MiB", "--hidden", "9" * 30], "hidden_size is 9+; give at"),
        (["--steps", "1000000", "--memory", "2MiB"], r"64 units makes 6e\+13 comparisons"),
    ],
)
def test_bad_use_is_a_value_error(words, message):
    with pytest.raises(ValueError, match=message):
        run(*words)


def test_a_small_case_is_proved(capsys):
    people = run("--steps", "7", "--units", "6", "--alpha", "3", "--prove", "--json")
    assert "predicted 13, executed 13, least of all schedules 13" in people
    assert "on an LSTM with 2 hidden units: executed 13, gradients with the bits of full" in people
    report = json.loads(capsys.readouterr().out)
    assert report["exhaustive"] == report["executed"] == 13
    assert report["network"] == "LSTM with 2 hidden units" and report["same_bits"] is True
    people = run("--steps", "7", "--units", "3", "--alpha", "3", "--prove", "--strategy", "msm")
    assert "predicted 14, executed 14, least of all schedules 13" in people
    people = run("--steps", "6", "--memory", "4KiB", "--hidden", "9", "--batch", "3", "--prove")
    assert "on an LSTM with 9 hidden units" in people
    price = "--strategy", "expand", "--expand-cost", "0", "0.333", "--prove"
    people = run("--steps", "4", "--units", "5", "--alpha", "2", *price)
    assert "predicted 4.32, executed 4.32, least of all schedules 4.32" in people
    assert "on an" not in run("--steps", "6", "--units", "6", "--alpha", "4", "--prove")


def test_seconds_are_measured_predicted_and_run(capsys):
    words = "--steps", "30", "--hidden", "8", "--batch", "2", "--measure", "--json"
    people = run(*words, "--memory", "3KiB")
    assert "measured on 1 thread: forward" in people
    assert "one run took" in people
    report = json.loads(capsys.readouterr().out)
    assert report["peak_bytes"] <= 3072
    assert report["planned_for"] in ("seconds", "forward_steps")
    assert 0 < report["predicted_full_seconds"] <= report["predicted_seconds"]
    assert report["run_seconds"] > 0
    assert set(report["measured"]) == {
        *("forward", "backward", "save_hidden", "save_internal", "restore", "run")
    }


def test_a_run_that_would_take_long_is_left_out(capsys, monkeypatch):
    monkeypatch.setattr(schedule, "LONGEST_RUN", 0)
    people = run("--steps", "9", "--hidden", "8", "--memory", "64KiB", "--measure", "--json")
    assert "not run: it would take more than 0 s" in people
    assert json.loads(capsys.readouterr().out)["run_seconds"] is None


def test_the_curve_as_table_json_and_drawing(tmp_path, capsys):
    people = run("--steps", "40", "--alpha", "3", "--json", "--curve", str(tmp_path / "curve.svg"))
    assert people.splitlines()[0].split()[:4] == ["memory", "of", "full", "full"]
    report = json.loads(capsys.readouterr().out)
    assert report["memory_units"] == list(range(3, 121))
    assert report["forward_steps"]["optimal"][-1] == 40
    assert report["forward_steps"]["full"][:2] == [None, None]
    assert "<polyline" in (tmp_path / "curve.svg").read_text()
    run("--steps", "40", "--hidden", "8", "--json", "--curve")
    assert json.loads(capsys.readouterr().out)["memory_bytes"][-1] == 40 * 16 * 6 * 8 * 4


def test_the_least_memory_for_a_slowdown(capsys):
    run("--steps", "1000", "--max-slowdown", "1.3334", "--alpha", "3", "--json")
    report = json.loads(capsys.readouterr().out)
    assert report["peak_units"] == 77 and report["time_factor"] <= 1.3334
    run("--steps", "100", "--max-slowdown", "1.33", "--json")
    assert json.loads(capsys.readouterr().out)["time_factor"] <= 1.33


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--steps", "9", "--units", "6", "--prove"], "--steps is 9 with --prove"),
        (["--steps", "9", "--curve", "--prove"], "--prove was given with --curve"),
        (["--steps", "9", "--curve", "--measure"], "--measure was given with --curve"),
        (["--steps", "9", "--units", "6", "--measure"], "--measure was given with --units"),
        (["--steps", "9", "--curve", "--alpha", "0"], "alpha is 0"),
        (
            ["--steps", "9", "--curve", "--alpha", "2", "--hidden", "4"],
            "--hidden is 4 with --alpha",
        ),
        (["--steps", "0", "--curve"], "steps is 0"),
        (["--steps", "9" * 30, "--curve"], "steps is 9+ with states of size"),
        (["--steps", "9", "--curve", "--alpha", str(2**63)], "steps is 9 with states of size"),
        (["--steps", "9", "--curve", "--batch", str(2**63)], "steps is 9 with states of size"),
        (["--steps", "9", "--max-slowdown", "2", "--batch", str(2**63)], "give fewer steps or"),
        (["--steps", "9", "--max-slowdown", "0.5"], "max_slowdown is 0.5"),
    ],
)
def test_bad_use_of_the_questions(words, message):
    with pytest.raises(ValueError, match=message):
        run(*words)


def test_a_page_with_strategies_side_by_side(tmp_path):
    path = tmp_path / "page.html"
    words = "--steps", "10", "--html", str(path), "--compare", "hsm", "ism"
    run(*words, "--units", "6", "--alpha", "3")
    assert "Schedules optimal, hsm, ism for 10 steps" in path.read_text(encoding="utf-8")
    run(*words, "--memory", "1MiB")
    text = path.read_text(encoding="utf-8")
    assert "1.00 MiB" in text and "LSTM, 256 hidden units, float32, batch 16." in text
    assert f"Made by <code>membptt schedule {' '.join(words)} --memory 1MiB</code>" in text
    with pytest.raises(ValueError, match="give --html"):
        run("--steps", "10", "--units", "6", "--compare", "hsm")
    with pytest.raises(ValueError, match="--compare is full, which needs 30"):
        run(
            "--steps",
            "10",
            "--units",
            "6",
            "--alpha",
            "3",
            "--html",
            str(path),
            "--compare",
            "full",
        )


@pytest.mark.parametrize(
    "words",
    [
        "--steps 9 --units 6 --actions --html .",
        "--steps 9 --units 6 --actions --compare hsm",
        "--steps 9 --units 6 --alpha 3 --actions --html page.html --compare full",
        "--steps 9 --memory 1MiB --measure --prove",
        "--steps 9 --alpha 3 --curve .",
    ],
)
def test_what_cannot_be_written_or_proved_is_said_before_all_else(capsys, words):
    assert main(["schedule", *words.split()]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(83.25, "83.2 s"), (1, "1 s"), (0.0123, "12.3 ms"), (0.00099, "990 µs"), (0, "0 µs")],
)
def test_times_have_three_digits(seconds, shown):
    assert schedule._time(seconds) == shown


def test_a_price_names_its_option():
    with pytest.raises(ValueError, match="--expand-cost: per_step is nan; give a number of at"):
        run(*"--steps 9 --memory 100000 --strategy expand --expand-cost 1 nan".split())


def test_expansions_are_reported(capsys):
    asked = "--steps 40 --memory 20KB --hidden 16 --strategy expand --json".split()
    assert main(["schedule", *asked]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["expansions"] > 0 and report["expanded_steps"] >= 2 * report["expansions"]
    assert len(report["expand_cost"]) == 2 and min(report["expand_cost"]) >= 0
