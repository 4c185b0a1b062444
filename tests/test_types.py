"""The public signatures, read by mypy as a user's checker reads them."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import membptt

SCRIPT = Path(__file__).parent / "typed_use.py"
MISUSES = [
    ("mb.schedule(10, 2.5, cell=mb.RNN(2, 3))", "arg-type"),
    ('mb.LSTM(3, "8")', "arg-type"),
    ("mb.schedule(10, mb.Units(5)).forward_step", "attr-defined"),
    ('mb.parse_bytes("2 MiB") + "B"', "operator"),
]


def mypy(path, *options):
    """Run mypy outside the source tree; return its status and what it says."""
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", *options, path]
    done = subprocess.run(command, cwd=path.parent, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_the_marker_ships():
    assert (Path(membptt.__file__).parent / "py.typed").exists()


def test_the_script_runs():
    assert runpy.run_path(str(SCRIPT))["main"]() > 2000


def test_a_typed_script_passes_and_misuses_do_not(tmp_path):
    pytest.importorskip("mypy")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.read_text())
    assert mypy(script) == (0, "Success: no issues found in 1 source file\n")
    script.write_text("import membptt as mb\n" + "\n".join(line for line, _ in MISUSES))
    _, said = mypy(script)
    for number, (line, code) in enumerate(MISUSES, start=2):
        assert f"script.py:{number}: error" in said, line
        assert f"[{code}]" in next(row for row in said.splitlines() if f".py:{number}:" in row)
