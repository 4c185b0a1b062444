"""What all commands share."""

import runpy
import sys

import pytest

import membptt
from membptt import cli


def test_version(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"membptt {membptt.__version__}\n"


@pytest.mark.parametrize("command", [[], *[[name] for name in cli.COMMANDS]])
def test_help(command, capsys):
    assert cli.main([*command, "--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: membptt")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "required: COMMAND; see membptt --help"),
        (["trian"], "invalid choice: 'trian'"),
        (["train", "--steps"], "--steps: expected one argument; see membptt train --help"),
        (["train", "--dropout=--"], "--dropout: '--' is no value; give another one; see"),
        (["schedule", "--steps=--"], "--steps: '--' is no value"),
    ],
)
def test_wrong_usage_is_one_line(argv, message, capsys):
    assert cli.main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert message in captured.err


def test_python_m(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["membptt", "--version"])
    with pytest.raises(SystemExit) as ending:
        runpy.run_module("membptt", run_name="__main__")
    assert ending.value.code == 0
    assert capsys.readouterr().out.startswith("membptt ")


def test_all_public_names_exist():
    for name in membptt.__all__:
        assert getattr(membptt, name) is not None
