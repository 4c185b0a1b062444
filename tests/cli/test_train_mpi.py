"""``mpirun membptt train``: the same bits for any number of processes; one failure ends all."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from membptt.cli import main
from membptt.training.checkpoint import load_checkpoint

pytestmark = [
    pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed"),
    pytest.mark.skipif(
        importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed (extra: mpi)"
    ),
]

TRAIN = "import sys; from membptt.cli import main; sys.exit(main(['train', *sys.argv[1:]]))"


@pytest.fixture(scope="module")
def common(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("".join(np.random.default_rng(0).choice(list("abcdefg "), 4000)))
    sizes = ["--steps", "40", "--hidden", "12", "--batch", "8", "--memory", "12KiB"]
    return ["--text", str(path), *sizes, "--json"]


def mpirun(processes, arguments, program=TRAIN):
    environment = os.environ | {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    command = [
        "mpirun",
        "-n",
        str(processes),
        "--oversubscribe",
        sys.executable,
        "-P",
        "-c",
        program,
    ]
    return subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=120, env=environment
    )


def report(ran):
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert len(lines) == 1, "one process speaks"
    return json.loads(lines[0])


def test_any_number_of_processes_gives_the_same_bits(common, capsys, tmp_path):
    assert main(["train", *common, "--updates", "4", "--parts", "4"]) == 0
    alone = json.loads(capsys.readouterr().out.splitlines()[-1])
    saved = str(tmp_path / "model.npz")
    two = report(mpirun(2, [*common, "--updates", "2", "--parts", "4", "--save", saved]))
    assert two["updates"] == 2
    log = tmp_path / "log.jsonl"
    four = report(mpirun(4, [*common, "--updates", "4", "--resume", saved, "--log", str(log)]))
    assert [json.loads(line)["update"] for line in log.read_text().splitlines()] == [3, 4]
    for name in ("parameters_sha256", "loss_first", "loss_last", "arena_peak_bytes"):
        assert four[name] == alone[name]
    assert four["arena_peak_bytes"] <= 12 * 1024


def test_wrong_usage_is_said_once(common):
    ran = mpirun(2, [*common, "--parts", "3"])
    assert ran.returncode == 2 and not ran.stdout
    assert ran.stderr.count("parts is 3; give a power of two") == 1
    assert "Traceback" not in ran.stderr


FAILING = """
import os, sys
from membptt.cli import main
from membptt.training.parallel import Parts
run, done = Parts.run, []
def fails(self, *window):
    if len(done) == 2 and self.rank == 1:
        raise FloatingPointError("planted")
    done.append(window)
    return run(self, *window)
Parts.run = fails
import membptt.cli.train as train
train.SAVE_SECONDS = 0
sys.exit(main(["train", *sys.argv[1:]]))
"""


def test_one_process_that_fails_ends_all_and_says_why(common, tmp_path):
    saved = tmp_path / "model.npz"
    ran = mpirun(2, [*common, "--updates", "50", "--save", str(saved)], FAILING)
    assert ran.returncode != 0
    assert "membptt train: process 1: update 3: planted" in ran.stderr
    assert [file.name for file in tmp_path.iterdir()] == [saved.name]
    _, arrays = load_checkpoint(saved)  # the one from before the failure, whole
    assert int(arrays["updates"]) == 2


def test_held_out_text_is_read_by_one_and_decides_for_all(common, capsys, tmp_path):
    held_out = ["--valid", "0.1", "--parts", "2", "--eval-every", "1", "--patience", "2"]
    best = [str(tmp_path / name) for name in ("alone.npz", "two.npz")]
    # At this rate training stops getting better soon.
    options = [*common, *held_out, "--updates", "30", "--learning-rate", "0.5", "--save-best"]
    assert main(["train", *options, best[0]]) == 0
    alone = json.loads(capsys.readouterr().out.splitlines()[-1])
    log = tmp_path / "log.jsonl"
    two = report(mpirun(2, [*options, best[1], "--log", str(log)]))
    assert alone["stopped_early"] and alone["updates"] < 30
    for name in ("parameters_sha256", "updates", *(n for n in alone if n.startswith("valid_"))):
        assert two[name] == alone[name]
    kept = [load_checkpoint(path)[1] for path in best]
    assert all((kept[0][name] == kept[1][name]).all() for name in kept[0])
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert sum("valid_loss" in line for line in lines) == two["updates"]
