"""Standard streams that are closed, or that know few letters."""

import os
import subprocess
import sys

import pytest

COMMAND = [sys.executable, "-P", "-m", "membptt"]
WORDS = ["explain", "--steps", "10", "--units", "6", "--alpha", "3"]


@pytest.mark.parametrize("closed", [">&-", "2>&-"])
def test_closed_streams(closed):
    line = " ".join([*COMMAND, *WORDS, closed])
    assert subprocess.run(line, shell=True, capture_output=True, check=False).returncode == 0


def test_few_letters():
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run([*COMMAND, *WORDS], capture_output=True, env=environment, check=False)
    assert done.returncode == 0 and done.stderr == b""


@pytest.mark.parametrize("option", ["--save", "--resume"])
def test_pipes_are_no_place_for_a_checkpoint(tmp_path, option):
    os.mkfifo(tmp_path / "pipe")
    words = ["train", "--updates", "1", option, str(tmp_path / "pipe")]
    done = subprocess.run(
        [*COMMAND, *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2 and "a device or a pipe; give a file" in done.stderr
    assert done.stderr.count("\n") == 1
