"""``membptt train --valid``: evaluation on held-out text, early stop, the best state kept."""

import json
import math
import re

import numpy as np
import pytest

from membptt.cli import main, train
from membptt.training import checkpoint
from membptt.training.validation import Validation


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    for name, seed, length in (("text", 0, 3000), ("valid", 1, 400), ("other", 2, 400)):
        letters = np.random.default_rng(seed).choice(list("abc de\n"), length)
        (folder / name).write_text("".join(letters))
    return folder


@pytest.fixture
def run(files, capsys):
    """Return a function that trains on a small text and returns code, report and stderr."""

    def run(*words):
        sizes = [] if "--resume" in words else ["--text", str(files / "text"), "--steps", "20"]
        sizes += [] if "--resume" in words else ["--batch", "3", "--hidden", "8"]
        code = main(["train", *sizes, *words, "--json"])
        captured = capsys.readouterr()
        report = json.loads(captured.out) if captured.out else None
        return code, report, captured.err

    return run


@pytest.fixture
def scripted(monkeypatch):
    """Return a function that makes the evaluations after these updates find these losses."""

    def script(losses):
        def evaluate(self, cell, head, update, parts):
            with monkeypatch.context() as patch:
                patch.setattr(
                    "membptt.training.validation.evaluate", lambda *_: (losses[update], ())
                )
                return real(self, cell, head, update, parts)

        real = Validation.evaluate
        monkeypatch.setattr(Validation, "evaluate", evaluate)

    return script


def test_keys_are_added_and_what_is_learnt_stays_the_same(run, files):
    _, plain, _ = run("--updates", "7")
    code, found, err = run("--updates", "7", "--valid", str(files / "valid"), "--eval-every", "3")
    assert code == 0
    assert list(found)[: len(plain)] == list(plain)
    assert list(found)[len(plain) :] == [
        "valid_loss_last",
        "valid_bits_per_char_last",
        "valid_loss_best",
        "valid_bits_per_char_best",
        "valid_updates_best",
        "stopped_early",
    ]
    assert found["parameters_sha256"] == plain["parameters_sha256"]
    assert found["valid_bits_per_char_best"] == found["valid_loss_best"] / math.log(2)
    lines = re.findall(r"update (\d+): (\S+) bits/char on held-out text", err)
    assert [number for number, _ in lines] == ["3", "6"]
    assert f"held out       {lines[-1][1]} bits per char; best" in err


def test_a_fraction_is_not_trained_on(run):
    _, plain, _ = run("--updates", "70")
    code, found, err = run("--updates", "70", "--valid", "0.1")
    assert code == 0
    assert "without its last 0.1: 2,700 characters, 7 distinct" in err
    assert found["valid_loss_last"] is not None  # after 20, 40 and 60 updates
    assert found["loss_first"] == pytest.approx(plain["loss_first"], rel=0.1)
    assert found["parameters_sha256"] != plain["parameters_sha256"]


def test_patience(run, files, scripted, tmp_path):
    """It stops, keeps the best state, stays stopped when resumed, and goes on with more."""
    scripted({2: 3.0, 4: 2.0, 6: 2.5, 8: 2.5, 10: 1.0, 12: 1.5})
    best, last = str(tmp_path / "best"), str(tmp_path / "last")
    words = ["--valid", str(files / "valid"), "--eval-every", "2", "--patience", "2"]
    code, found, err = run(*words, "--updates", "12", "--save-best", best, "--save", last)
    assert code == 0
    assert found["stopped_early"] and (found["updates"], found["valid_updates_best"]) == (8, 4)
    assert "stopped after update 8: 2 evaluations without improvement since update 4" in err
    assert checkpoint.load_checkpoint(best)[1]["updates"] == 4
    _, again, _ = run("--resume", last)
    assert (again["updates"], again["stopped_early"]) == (8, True)
    _, more, _ = run("--resume", last, "--patience", "3", "--save-best", best)
    assert (more["updates"], more["valid_updates_best"], more["valid_loss_last"]) == (12, 10, 1.5)
    assert checkpoint.load_checkpoint(best)[1]["updates"] == 10


def test_resumed_evaluations_are_those_of_training_that_was_not_interrupted(run, files, tmp_path):
    path = str(tmp_path / "state")
    words = ["--valid", str(files / "valid"), "--eval-every", "2"]
    _, whole, _ = run(*words, "--updates", "7")
    run(*words, "--updates", "5", "--save", path)
    _, resumed, _ = run("--resume", path, "--updates", "7")
    for name in ("valid_loss_last", "valid_loss_best", "valid_updates_best", "parameters_sha256"):
        assert resumed[name] == whole[name]
    _, other, _ = run("--resume", path, "--updates", "6", "--valid", str(files / "other"))
    assert other["valid_updates_best"] == 6  # the best on the other text is not compared with


def test_the_best_of_what_was_saved_is_what_its_report_says(run, tmp_path):
    best = str(tmp_path / "best")
    _, found, _ = run("--valid", "0.1", "--eval-every", "1", "--updates", "5", "--save-best", best)
    _, resumed, _ = run("--resume", best, "--updates", str(found["valid_updates_best"]))
    assert resumed["valid_loss_last"] == found["valid_loss_best"]


def test_a_best_state_that_cannot_be_written_ends_it(run, files, tmp_path, monkeypatch):
    """What was learnt until then is saved and reported."""
    best, last = str(tmp_path / "best"), str(tmp_path / "last")
    write = train.save_checkpoint

    def full(path, *content):
        if path == best:
            raise OSError(28, "No space left on device")
        write(path, *content)

    monkeypatch.setattr(train, "save_checkpoint", full)
    words = ["--valid", str(files / "valid"), "--eval-every", "3", "--save", last]
    code, found, err = run(*words, "--updates", "9", "--save-best", best)
    assert (code, found["updates"]) == (2, 3)
    assert re.search(
        r"error: save_best is '.*', which cannot be written \(No space left", err.splitlines()[-1]
    )
    assert checkpoint.load_checkpoint(last)[1]["updates"] == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--valid", "0"], "valid is 0.0; give a file, or a fraction of the text above 0 and"),
        (["--valid", "1.5"], "valid is 1.5; give a file"),
        (["--valid", "nan"], "valid is nan; give a file"),
        (["--valid", "no/such/file"], "valid 'no/such/file' does not exist"),
        (["--valid", __file__], "which is not one of the 7 characters of the text trained on"),
        (["--valid", "0.001"], "has 3 characters; batch 3 needs 6 to evaluate on"),
        (["--valid", "0.99"], "has 30 characters; batch 3 of steps 20 needs 63"),
        (["--eval-every", "3"], "eval_every is 3 without valid; give a held-out text"),
        (["--patience", "3"], "patience is 3 without valid"),
        (["--save-best", "x"], "save_best is 'x' without valid; give a held-out text, as --valid"),
        (["--valid", "0.1", "--patience", "0"], "patience is 0; give at least 1"),
        (["--valid", "0.1", "--eval-every", "0"], "eval_every is 0; give at least 1"),
        (["--valid", "0.1", "--eval-every", "4"], "eval_every is 4 with updates 3, nothing would"),
        (["--valid", "0.1", "--save-best", "/"], "save_best is '/', a directory"),
    ],
)
def test_bad_input_is_one_line(run, words, message):
    code, report, err = run("--updates", "3", *words)
    assert (code, report, err.count("\n")) == (2, None, 1)
    assert message in err


@pytest.mark.parametrize("saved, given", [("0.1", "0.2"), (None, "0.1")])
def test_another_fraction_is_another_text(run, tmp_path, saved, given):
    path = str(tmp_path / "state")
    run("--updates", "2", "--save", path, *(["--valid", saved] if saved else []))
    code, _, err = run("--resume", path, "--updates", "4", "--valid", given)
    assert code == 2
    assert f"valid is {given}, the checkpoint '{path}' was trained with {saved}; leave" in err
