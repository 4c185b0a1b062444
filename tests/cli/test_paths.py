"""A file that is read, or written under another option, is never written over."""

import os
import re

import pytest

from membptt.cli import main
from membptt.cli.paths import check_distinct


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder to work in: two texts, settings, a checkpoint, a folder, links to the texts."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.csv").write_text("abcdef" * 50)
    (tmp_path / "valid.csv").write_text("fedcba" * 20)
    (tmp_path / "run.toml.csv").write_text("steps = 5\nbatch = 2\nhidden = 3\nupdates = 2\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "soft.csv").symlink_to("text.csv")
    os.link("text.csv", "hard.csv")
    assert main(["train", *USUAL, "--valid", "valid.csv", "--save", "state.csv"]) == 0
    return tmp_path


USUAL = "--config", "run.toml.csv", "--text", "text.csv"
LOSSES = [
    ("--save", "text.csv", "text 'text.csv'"),
    ("--save", "./sub/../text.csv", "text 'text.csv'"),
    ("--save", "soft.csv", "text 'text.csv'"),
    ("--save", "hard.csv", "text 'text.csv'"),
    ("--log", "text.csv", "text 'text.csv'"),
    ("--log", "hard.csv", "text 'text.csv'"),
    ("--save-best", "soft.csv", "text 'text.csv'"),
    ("--save", "valid.csv", "valid 'valid.csv'"),
    ("--log", "valid.csv", "valid 'valid.csv'"),
    ("--save", "run.toml.csv", "config 'run.toml.csv'"),
    ("--log", "sub/../run.toml.csv", "config 'run.toml.csv'"),
]


def content(folder):
    return {p.name: p.read_bytes() if p.is_file() else None for p in folder.iterdir()}


@pytest.mark.parametrize(("option", "path", "other"), LOSSES)
def test_what_is_read_is_not_written_over(folder, capsys, option, path, other):
    before = content(folder)
    capsys.readouterr()
    assert main(["train", *USUAL, "--valid", "valid.csv", option, path]) == 2
    out, err = capsys.readouterr()
    name = option[2:].replace("-", "_")
    assert (out, err.count("\n")) == ("", 1)
    assert f"{name} is {path!r}, the same file as {other}; give another file" in err
    assert content(folder) == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--save", "a.csv", "--save-best", "a.csv"], "save_best is 'a.csv', the same .* save"),
        (["--save", "a.csv", "--save-best", "sub/../a.csv"], "the same file as save 'a.csv'"),
        (["--save", "a.csv", "--log", "./a.csv"], "log is './a.csv', the same file as save 'a"),
        (["--save-best", "state.csv", "--log", "state.csv"], "log is 'state.csv', the same file"),
    ],
)
def test_two_outputs_are_two_files(folder, capsys, words, message):
    before = content(folder)
    capsys.readouterr()
    assert main(["train", *USUAL, "--valid", "valid.csv", *words]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert re.search(message, err)
    assert content(folder) == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--log", "state.csv"], "log is 'state.csv', the same file as resume 'state.csv'"),
        (["--save-best", "state.csv"], "save_best is 'state.csv', the same file as resume"),
        (["--save", "text.csv"], "save is 'text.csv', the same file as text 'text.csv'"),
        (["--log", "hard.csv"], "log is 'hard.csv', the same file as text 'text.csv'"),
        (["--save", "valid.csv"], "save is 'valid.csv', the same file as valid 'valid.csv'"),
    ],
)
def test_resuming_reads_what_the_settings_name(folder, capsys, words, message):
    before = content(folder)
    capsys.readouterr()
    assert main(["train", "--resume", "state.csv", "--updates", "3", *words]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert message in err
    assert content(folder) == before


def test_saving_where_it_was_resumed_is_usual(folder):
    (folder / "link").symlink_to("state.csv")
    before = (folder / "state.csv").read_bytes()
    assert main(["train", "--resume", "state.csv", "--save", "link", "--updates", "3"]) == 0
    assert (folder / "state.csv").read_bytes() != before


def test_names_alone_do_not_make_one_file(tmp_path):
    """Nor do folders that are missing, or what can be no path."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    paths = [str(tmp_path / name) for name in ("one/x", "two/x", "no/x", "nor/x")]
    check_distinct([(path, path) for path in [*paths, "a\0b", "a\0c"]], [("in", str(tmp_path))])
    (tmp_path / "two").rmdir()
    (tmp_path / "two").symlink_to("one")
    with pytest.raises(ValueError, match=r"two/x', the same file as .*one/x'"):
        check_distinct([(path, path) for path in paths], [])
