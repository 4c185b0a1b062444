"""``membptt train --log``: a line as soon as it is known, gone on with after an interruption."""

import csv
import json
import math
import os
import re

import numpy as np
import pytest

from membptt.cli import log as module
from membptt.cli import main
from membptt.training.checkpoint import load_checkpoint
from membptt.training.loop import Trainer

ENDINGS = [".jsonl", ".csv"]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text"
    path.write_text("".join(np.random.default_rng(0).choice(list("abc de\n"), 3000)))
    return str(path)


@pytest.fixture
def run(text, capsys):
    """Return a function that trains on a small text and returns code, report and stderr."""

    def run(*words):
        sizes = [] if "--resume" in words else ["--text", text, "--steps", "20"]
        sizes += [] if "--resume" in words else ["--batch", "3", "--hidden", "8"]
        code = main(["train", *sizes, *map(str, words), "--json"])
        captured = capsys.readouterr()
        return code, json.loads(captured.out) if captured.out else None, captured.err

    return run


def records(path):
    """Return the records of a log, the seconds taken out."""
    if path.suffix == ".csv":
        with open(path, encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        found = [{key: number(value) for key, value in row.items() if value} for row in rows]
    else:
        found = [json.loads(line) for line in path.read_text().splitlines()]
    assert all(record.pop("seconds") > 0 for record in found)
    return found


def number(word):
    return word if word.isalpha() else float(word)


def test_a_log_that_cannot_be_begun_is_closed(tmp_path, monkeypatch):
    opened = []

    def full(self, data):
        opened.append(self.file)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.Log, "append", full)
    with pytest.raises(OSError):
        module.Log(str(tmp_path / "log.csv"))
    assert opened[0].closed


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_record_for_every_update_and_evaluation(run, tmp_path, ending):
    path = tmp_path / f"log{ending}"
    path.write_text("an older log is replaced\n")
    code, report, _ = run("--updates", 5, "--valid", 0.1, "--eval-every", 2, "--log", path)
    assert code == 0
    found = records(path)
    assert [(record["kind"], record["update"]) for record in found] == [
        ("update", 1),
        ("update", 2),
        ("evaluation", 2),
        ("update", 3),
        ("update", 4),
        ("evaluation", 4),
        ("update", 5),
    ]
    assert {key for record in found for key in record} == set(module.KEYS) - {"seconds"}
    assert (found[0]["loss"], found[-1]["loss"]) == (report["loss_first"], report["loss_last"])
    assert found[-1]["bits_per_char"] == report["bits_per_char_last"]
    assert found[5]["valid_loss"] == report["valid_loss_last"]
    assert found[5]["valid_bits_per_char"] == found[5]["valid_loss"] / math.log(2)
    assert found[0]["forward_steps"] == report["forward_steps_per_update"]
    assert found[0]["learning_rate"] == 0.02


@pytest.mark.parametrize(
    ("ending", "rest"),
    [
        (".jsonl", ""),
        (".jsonl", '{"kind": "upd'),
        (".jsonl", '{"kind": "evaluation", "update": 6, "valid_l'),
        (".csv", ""),
        (".csv", "evalu"),
        (".csv", "update,7,1.3"),
    ],
)
def test_gone_on_with_as_if_nothing_had_happened(run, tmp_path, ending, rest):
    """The log is ahead of the saved state, as after a crash, and its last line was cut."""
    whole, path, state = tmp_path / f"whole{ending}", tmp_path / f"log{ending}", tmp_path / "state"
    words = ["--valid", 0.1, "--eval-every", 2, "--log"]
    run("--updates", 7, *words, whole)
    run("--updates", 4, *words, path, "--save", state)
    ahead = tmp_path / f"ahead{ending}"
    run("--updates", 6, *words, ahead)
    path.write_text(ahead.read_text() + rest)
    code, _, err = run("--resume", state, "--updates", 7, "--log", path)
    assert code == 0, err
    assert records(path) == records(whole)
    empty = tmp_path / f"new{ending}"
    run("--resume", state, "--updates", 5, "--log", empty)
    assert [record["update"] for record in records(empty)] == [5]


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("cut", [3, 60])
def test_only_a_part_of_the_first_line(run, tmp_path, ending, cut):
    path, state = tmp_path / f"log{ending}", tmp_path / "state"
    run("--updates", 1, "--log", path, "--save", state)
    path.write_bytes(path.read_bytes()[:cut])
    assert run("--resume", state, "--updates", 2, "--log", path)[0] == 0
    assert [record["update"] for record in records(path)] == [2]


def test_every_line_is_there_when_it_is_known(run, tmp_path, monkeypatch):
    path, seen = tmp_path / "log.jsonl", []
    update = Trainer.update

    def looking(self):
        seen.append(len(records(path)))
        return update(self)

    monkeypatch.setattr(Trainer, "update", looking)
    run("--updates", 4, "--log", path)
    assert seen == [0, 1, 2, 3]


def test_what_is_learnt_is_the_same(run, tmp_path):
    digests = {
        run("--updates", 3, *words)[1]["parameters_sha256"]
        for words in ([], ["--log", tmp_path / "log.csv"])
    }
    assert len(digests) == 1


@pytest.mark.parametrize("taken", [0, 10])
def test_a_full_disk_ends_it_with_what_was_learnt(run, tmp_path, monkeypatch, taken):
    """No line, or a part of one: that part is dropped when the log is gone on with."""
    path, state = tmp_path / "log.jsonl", tmp_path / "state"

    class Full:
        def __init__(self, file):
            self.file, self.lines = file, 0

        def write(self, line):
            self.lines += 1
            if self.lines <= 2:
                return self.file.write(line)
            if taken:
                return self.file.write(line[:taken])
            raise OSError(28, "No space left on device")

        def close(self):
            self.file.close()

    init = module.Log.__init__

    def full(self, *given):
        init(self, *given)
        self.file = Full(self.file)

    with monkeypatch.context() as patch:
        patch.setattr(module.Log, "__init__", full)
        code, report, err = run("--updates", 9, "--log", path, "--save", state)
    assert (code, report["updates"]) == (2, 3)
    message = r"error: log is '.*', which cannot be written \(No space left on device\); make room"
    assert re.search(message, err.splitlines()[-1])
    assert load_checkpoint(state)[1]["updates"] == 3
    assert run("--resume", state, "--updates", 4, "--log", path)[0] == 0
    assert [record["update"] for record in records(path)] == [1, 2, 4]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("log.txt", "log is '.*'; give a name that ends in .jsonl or .csv"),
        ("log", "give a name that ends in"),
        ("no/folder/log.csv", "log is '.*', where no file can be written"),
    ],
)
def test_names_that_are_refused(run, tmp_path, name, message):
    code, report, err = run("--updates", 1, "--log", tmp_path / name)
    assert (code, report, err.count("\n")) == (2, None, 1)
    assert re.search(message, err)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("log.jsonl", "hello\n", 1),
        ("log.jsonl", '{"kind": "update", "update": 1}\n[3]\n', 2),
        ("log.jsonl", '{"loss": 1}\n', 1),
        ("log.jsonl", '{"update": 1}\n', 1),
        ("log.jsonl", '{"kind": "upload", "update": 1}\n', 1),
        ("log.jsonl", '{"kind": "update", "update": true}\n', 1),
        ("log.jsonl", 20_000 * "[" + "\n", 1),
        ("log.jsonl", "one line without an end", 1),
        ("log.jsonl", '{"kind": "update", "update": 1}\n{"kind": "upload"', 2),
        ("log.csv", "one line without an end", 1),
        ("log.csv", module.HEADER + "upload", 2),
        ("log.csv", module.HEADER + "update,1,2\n", 2),
        ("log.jsonl", '{"kind": "update", "update": 1, "more": 1}\n', 1),
        ("log.csv", module.HEADER + "upload,1,2\n", 2),
        ("log.csv", "a,b\n", 1),
        ("log.csv", module.HEADER + "update\n", 2),
        ("log.csv", module.HEADER + "update,x,3\n", 2),
        ("log.csv", module.HEADER + "update,1,2\r,,,,,,,,\n", 2),
        ("log.jsonl", '{"kind": "update",\r"update": 1}\n', 1),
    ],
)
def test_other_files_are_not_gone_on_with(run, tmp_path, name, content, line):
    path, state = tmp_path / name, tmp_path / "state"
    run("--updates", 1, "--save", state)
    path.write_text(content)
    code, report, err = run("--resume", state, "--updates", 2, "--log", path)
    assert (code, report, err.count("\n")) == (2, None, 1)
    assert f"whose line {line} is not one of a log like this; give another file" in err
    assert path.read_bytes() == content.encode()
