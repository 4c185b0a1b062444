"""``membptt train`` with dropout and zoneout: other masks every update, the same ones again."""

import json

import numpy as np
import pytest

from membptt.cli import main

SIZES = ["--steps", "12", "--batch", "4", "--hidden", "8", "--layers", "2", "--memory", "8kB"]
NOISE = ["--dropout", "0.3", "--recurrent-dropout", "0.2", "--zoneout", "0.1"]


@pytest.fixture
def report(tmp_path, capsys):
    """Return a function that trains and returns the JSON report."""
    text = tmp_path / "text"
    letters = np.random.default_rng(0).choice(list("abcde "), 2000)
    text.write_text("".join(letters))

    def report(*words):
        assert main(["train", "--text", str(text), *SIZES, *words, "--json"]) == 0
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    return report


def test_resumed_training_has_the_bits_of_one_without_a_stop(report, tmp_path):
    path = str(tmp_path / "model.npz")
    valid = ["--valid", "0.2", "--eval-every", "1"]  # without noise, and without a trace
    whole = report(*NOISE, "--updates", "4")
    report(*NOISE, *valid, "--updates", "2", "--save", path)
    evaluated = report(*valid, "--updates", "4", "--resume", path)
    report(*NOISE, "--updates", "2", "--save", path)
    resumed = report("--updates", "4", "--resume", path)
    assert resumed["parameters_sha256"] == whole["parameters_sha256"]
    assert evaluated["valid_loss_last"] is not None
    assert report("--updates", "4")["parameters_sha256"] != whole["parameters_sha256"]


def test_no_strategy_budget_or_part_changes_the_masks(report):
    found = report(*NOISE, "--updates", "3")
    for words in (["--strategy", "ism"], ["--memory", "1MB"], ["--backend", "numpy"]):
        again = report(*NOISE, "--updates", "3", *words)
        assert again["parameters_sha256"] == found["parameters_sha256"]
    parts = report(*NOISE, "--updates", "3", "--parts", "2")
    assert parts["loss_first"] == pytest.approx(found["loss_first"], rel=1e-6)


def test_a_saved_model_writes_without_noise(report, tmp_path, capsys):
    path = str(tmp_path / "model.npz")
    report(*NOISE, "--updates", "2", "--save", path)
    texts = set()
    for _ in range(2):
        assert main(["sample", "--resume", path, "--length", "50", "--temperature", "0"]) == 0
        texts.add(capsys.readouterr().out)
    assert len(texts) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--zoneout", "1"], "zoneout is 1.0; give a number from 0 up to"),
        (["--dropout", "0.5", "--layers", "1"], "dropout is 0.5 between layers, of which"),
        (["--zoneout", "0.5", "--internal", "int8"], "leave one of them out"),
    ],
)
def test_misuse_is_one_line(report, capsys, words, message):
    with pytest.raises(AssertionError):
        report("--updates", "1", *words)
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error
