"""``membptt train --config``: the options of a file are those of the command line, which wins."""

import argparse
import re
from pathlib import Path

import pytest

from membptt.cli import main, make_parser, train

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def file(tmp_path):
    """Return a function that writes a file and returns its path."""

    def write(content):
        path = tmp_path / "run.toml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


def parsed(*words):
    return vars(make_parser().parse_args(["train", *words]))


ALL = """
text = "book"
memory = "4MiB"
steps = 7
batch = 2
hidden = 3
layers = 2
parts = 2
reduction = "all-reduce"
cell = "gru"
strategy = "disk"
updates = 9
backend = "numpy"
dtype = "float64"
internal = "int8"
dropout = 0.25
recurrent-dropout = 0.5
zoneout = 0.125
seed = 5
optimizer = "sgd"
learning-rate = 1
momentum = 0.5
weight-decay = 0.25
warmup = 3
decay = "cosine"
decay-to = 0.5
decay-updates = 8
clip = inf
valid = 0.1
eval-every = 2
patience = 4
save-best = "best"
disk = "/tmp"
disk-budget = 1000000
save = "state"
resume = "before"
log = "log.csv"
verify = true
json = true
"""


def test_every_option_means_what_it_means_on_the_command_line(file):
    words = []
    for line in ALL.split("\n")[1:-1]:
        key, _, value = line.partition(" = ")
        value = value.strip('"')
        words += [f"--{key}"] if value == "true" else [f"--{key}={value}"]
    wanted = parsed(*words)
    wanted["disk_budget"] = int(wanted["disk_budget"])  # text on the command line
    path = file(ALL)
    found = parsed("--config", path)
    assert found.pop("config") == [path]
    assert found == wanted
    assert {name: type(value) for name, value in found.items()} == {
        name: type(value) for name, value in wanted.items()
    }
    parser = argparse.ArgumentParser()
    train.add_arguments(parser.add_subparsers())
    (action,) = (each for each in parser._actions if each.dest == "==SUPPRESS==")
    options = {each.dest for each in action.choices["train"]._actions} - {"help", "config"}
    assert options == set(found) - {"command"}, "the file above has every option"


@pytest.mark.parametrize("before", [True, False])
def test_the_command_line_wins(file, before):
    path = file('steps = 7\nbatch = 2\nsave = "there"\njson = false\nclip = 2')
    words = ["--steps", "9", "--save", "here", "--json"]
    config = ["--config", path]
    found = parsed(*words, *config) if before else parsed(*config, *words)
    assert (found["steps"], found["save"], found["json"]) == (9, "here", True)
    assert (found["batch"], found["clip"]) == (2, 2.0)


def test_what_nobody_gave_keeps_its_default(file):
    path = file("")
    assert parsed("--config", path, "--config", path) == parsed() | {"config": [path, path]}


def test_it_trains(file, tmp_path, capsys):
    text = tmp_path / "text"
    text.write_text("abcd" * 99)
    path = file(f'text = "{text}"\nsteps = 9\nbatch = 2\nhidden = 4\nupdates = 2\nclip = 1')
    assert main(["train", "--config", path, "--updates", "3"]) == 0
    assert "after 3 updates" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("stepps = 3", "key 'stepps' of '.*' is no option; give the long name of one"),
        ("learning_rate = 3", "key 'learning_rate' of '.*' is no option"),
        ("[train]\nsteps = 3", "key 'train' of '.*' is no option"),
        ('config = "other"', "key 'config' of '.*' is no option"),
        ("help = true", "key 'help' of '.*' is no option"),
        ('steps = "3"', "key 'steps' of '.*' is '3'; give a whole number"),
        ("steps = 3.0", "key 'steps' of '.*' is 3.0; give a whole number"),
        ("steps = true", "key 'steps' of '.*' is True; give a whole number"),
        ("steps = [3]", r"key 'steps' of '.*' is \[3\]; give a whole number"),
        ('clip = "1"', "key 'clip' of '.*' is '1'; give a number"),
        ("clip = false", "key 'clip' of '.*' is False; give a number"),
        ("text = 3", "key 'text' of '.*' is 3; give text in quotes"),
        ("text.name = 'a'", "key 'text' of '.*' is {'name': 'a'}; give text in quotes"),
        ("memory = 2.5", "key 'memory' of '.*' is 2.5; give a whole number, or text in quotes"),
        ("valid = 1", "key 'valid' of '.*' is 1; give a fraction, or the path of a file"),
        ("json = 1", "key 'json' of '.*' is 1; give true or false"),
        ("cell = 'gnu'", "key 'cell' of '.*' is 'gnu'; give one of lstm, rnn, gru"),
        ("cell = ['rnn']", r"key 'cell' of '.*' is \['rnn'\]; give one of lstm"),
        ("steps = ", "'.*' is not TOML: Invalid value"),
        ("steps = 3\nsteps = 4", "'.*' is not TOML: Cannot overwrite"),
        (b"text = '\xe9'", "'.*' is not UTF-8; give a file in TOML"),
        ("steps = 0", "steps is 0; give at least 1"),
        pytest.param("steps = " + 20_000 * "[", "'.*' is nested too deeply", id="deep"),
    ],
)
def test_bad_files_are_one_line_that_names_the_key(file, capsys, content, message):
    assert main(["train", "--config", file(content)]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert captured.err.startswith("membptt train: error: ")
    assert re.search(message, captured.err), captured.err


@pytest.mark.parametrize("path", ["no/such/file", "/", "a\0b", "/dev/zero"])
def test_files_that_cannot_be_read(capsys, path):
    assert main(["train", "--config", path]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert "argument --config: " in captured.err


@pytest.mark.skipif(not DOCS.exists(), reason="no docs beside the tests")
def test_the_example_in_the_docs(file):
    page = (DOCS / "training.md").read_text(encoding="utf-8")
    example = re.search(r"```toml\n(.*?)```", page, re.DOTALL)[1]
    found = parsed("--config", file(example))
    assert (found["memory"], found["patience"], found["save"]) == ("4MiB", 5, "run.npz")
