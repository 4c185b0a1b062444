"""`membptt train --strategy disk`: the same parameters, transfers reported, clear refusals."""

import json

import pytest

from membptt.cli import main

SIZES = "--steps", "60", "--batch", "2", "--hidden", "8", "--updates", "3", "--memory", "4kB"


@pytest.fixture
def train(tmp_path, capsys, monkeypatch):
    """Return a function that trains on a small text and returns code, stdout and stderr."""
    # Sixty tiny steps are over before a thread wakes: plan as if it did so at once.
    monkeypatch.setattr("membptt.timing.disk.latency", lambda folder: 0.0)
    text = tmp_path / "text"
    text.write_text("the same words again and again, " * 40)

    def train(*words):
        code = main(["train", "--text", str(text), *SIZES, *words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return train


def test_the_parameters_are_those_of_every_strategy(train, tmp_path):
    folder = tmp_path / "spill"
    folder.mkdir()
    code, out, _ = train("--strategy", "disk", "--disk", str(folder), "--json")
    found = json.loads(out)
    assert code == 0
    assert found["arena_peak_bytes"] <= found["budget_bytes"] == 4000
    states = -(-60 // found["disk_interval"]) - 2
    assert found["disk_written_bytes_per_update"] == states * (2 * 2 * 8 * 4 + 16)
    assert 0 <= found["disk_hidden_fraction"] <= 1
    code, out, _ = train("--json")
    assert json.loads(out)["parameters_sha256"] == found["parameters_sha256"]
    assert list(folder.iterdir()) == []


def test_the_report_says_what_went_to_disk(train):
    code, out, _ = train("--strategy", "disk", "--disk-budget", "1 kB")
    assert code == 0
    assert "steps between states on disk" in out and "written an update" in out


@pytest.mark.parametrize(
    "words, message",
    [
        (("--strategy", "disk", "--disk", "missing/folder"), "disk is 'missing/folder': No such"),
        (("--disk", "/tmp"), "disk is '/tmp' with strategy optimal; it is for strategy disk"),
        (("--strategy", "disk", "--disk-budget", "2 apples"), "disk_budget is '2 apples'"),
        (("--strategy", "disk", "--memory", "700"), "strategy disk needs at least 768 bytes"),
    ],
)
def test_mistakes_are_one_line(train, words, message):
    code, out, err = train(*words)
    assert code == 2 and out == ""
    assert err.count("\n") == 1 and message in err


def test_the_check_of_recomputation_changes_nothing(train):
    shas = []
    for words in ((), ("--verify",)):
        code, out, _ = train("--json", *words)
        assert code == 0
        shas.append(json.loads(out)["parameters_sha256"])
    assert shas[0] == shas[1]
