"""``membptt sample`` from its arguments to its text."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from membptt.cli import main
from membptt.training.checkpoint import load_checkpoint, save_checkpoint


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model that has learnt to count from a to e, and an é it never sees afterwards."""
    folder = tmp_path_factory.mktemp("model")
    (folder / "text").write_text("é" + "abcde" * 300, encoding="utf-8")
    words = ["--steps", "20", "--batch", "3", "--hidden", "12", "--cell", "gru"]
    words += ["--updates", "150", "--learning-rate", "0.03"]
    path = str(folder / "model.npz")
    assert main(["train", "--text", str(folder / "text"), *words, "--save", path]) == 0
    return path


@pytest.fixture
def run(model, capsys):
    def run(*words, path=model):
        code = main(["sample", "--resume", path, *words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_it_goes_on_from_the_prime(run):
    code, out, err = run("--length", "13", "--prime", "cdeab", "--temperature", "0")
    assert (code, out, err) == (0, "cdeab" + "cdeabcdeabcde" + "\n", "")


def test_the_same_seed_gives_the_same_text(run):
    hot = "--length", "60", "--temperature", "5"
    found = [run(*hot, "--seed", seed)[1] for seed in ("1", "1", "2")]
    assert found[0] == found[1] != found[2]
    assert len(found[0]) == 61 and set(found[0]) <= set("abcdeé\n")
    assert len(run()[1]) == 501


def test_json_is_the_last_line(run):
    code, out, err = run("--length", "5", "--prime", "ab", "--temperature", "0", "--json")
    assert code == 0
    assert json.loads(out) == {"prime": "ab", "text": "cdeab", "temperature": 0.0, "seed": 0}
    assert err == "abcdeab\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--prime", "abxé"], "prime has 'x', which is not one of the 6 characters that the model"),
        (["--length", "0"], "length is 0; give at least 1"),
        (["--length", "x"], "--length: 'x' is not a whole number"),
        (["--temperature", "-1"], "temperature is -1.0; give a finite number from 0 on"),
        (["--temperature", "nan"], "temperature is nan"),
        (["--seed", "-2"], "seed is -2; give at least 0"),
        (["--prime", "ab", "--length", "-1"], "length is -1"),
    ],
)
def test_bad_input_is_one_line(run, words, message):
    code, out, err = run(*words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_other_files_are_refused(run, model, tmp_path, capsys):
    whole = Path(model).read_bytes()
    altered, cut = tmp_path / "altered", tmp_path / "cut"
    middle = len(whole) // 3
    altered.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    cut.write_bytes(whole[:-100])
    for path, message in (
        (altered, "cannot be read|was altered"),
        (cut, "cannot be read"),
        (tmp_path / "nowhere", "does not exist"),
        (tmp_path, "is a directory"),
        (__file__, "cannot be read"),
    ):
        code, out, err = run(path=str(path))
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert re.search(message, err)
    assert main(["sample"]) == 2
    assert "required: --resume" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("alphabet", np.array([97, 98, 99, 100, 101, 2**40])),
        ("alphabet", np.array([97, 98, 99, 100, 101, 0xD800])),  # half a character
        ("alphabet", np.array([-1, 98, 99, 100, 101, 102])),
        ("alphabet", np.array(97)),
        ("alphabet", np.array(["a"] * 6)),
        ("alphabet", np.arange(97, 102)),
        ("param/W_h", np.zeros((12, 36))),
    ],
)
def test_a_file_without_a_model_is_named(run, model, tmp_path, name, value):
    settings, arrays = load_checkpoint(model)
    path = str(tmp_path / "made")
    save_checkpoint(path, settings, arrays | {name: value})
    code, out, err = run(path=path)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"checkpoint {path!r} has no model that can be read: " in err
