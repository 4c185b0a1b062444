"""The commands that README and docs show exist, and print the figures that stand beside them.

What is counted is compared; what was timed is not, only its command is there and reads its options.
"""

import json
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from membptt.cli import main, make_parser

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]

pytestmark = pytest.mark.skipif(not PAGES[0].exists(), reason="no README beside the tests")

SHOWN = re.compile(r"^```\n\$ membptt ([^\n]*)\n(.*?)^```", re.M | re.S)


def commands():
    """Return every command of the program that a page shows in code, with its page."""
    found = {}
    for page in PAGES:
        if not page.exists():
            continue
        text = page.read_text(encoding="utf-8")
        blocks = re.findall(r"^```[^\n]*\n(.*?)^```", text, re.M | re.S)
        spans = re.findall(r"`(membptt [^`\n]*)`", text)
        lines = [line for block in blocks for line in block.splitlines()]
        for line in lines + spans:
            line = re.sub(r"^(\$ |mpirun -n \d+ )", "", line).split("  #")[0].split(" # ")[0]
            if re.match(r"membptt (?!\.)[a-z]", line):
                found.setdefault(line.strip(), page.name)
    return sorted(found.items())


def shown():
    """Return each command whose output a page shows, and that output."""
    texts = [page.read_text(encoding="utf-8") for page in PAGES if page.exists()]
    return [found for text in texts for found in SHOWN.findall(text)]


def last_object(arguments, capsys):
    """Run a command with --json and return what it prints."""
    assert main([*shlex.split(arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_every_command_shown_is_one_that_the_program_reads(capsys):
    found = commands()
    assert len(found) > 20
    for line, page in found:
        arguments = shlex.split(line)[1:]
        if len(arguments) == 1:  # only named; what it needs stands elsewhere
            arguments.append("--help")
        try:
            make_parser().parse_args(arguments)
        except SystemExit as ending:
            assert not ending.code, f"{page}: {line}: {capsys.readouterr().err}"


@pytest.mark.parametrize("command, output", shown(), ids=lambda value: value[:40])
def test_the_output_shown_is_what_the_command_prints(command, output, capsys):
    assert main(shlex.split(command)) == 0
    printed = capsys.readouterr().out.splitlines()
    lines = [line for line in output.splitlines() if line and line != "..."]
    assert lines
    for line in lines:
        assert line in printed


def test_every_benchmark_named_reads_its_options():
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES if page.exists())
    named = sorted(set(re.findall(r"python (benchmarks/\w+\.py)", text)))
    assert len(named) >= 8
    ran = 0
    for path in named:
        done = subprocess.run(
            [sys.executable, ROOT / path, "--help"], cwd=ROOT, capture_output=True, text=True
        )
        if re.fullmatch(rf"{Path(path).name} needs \w+: pip install .+\n", done.stderr):
            continue  # what it compares with is not installed
        assert done.returncode == 0, f"{path}: {done.stderr}"
        assert "usage:" in done.stdout
        ran += 1
    assert ran >= 5


@pytest.mark.parametrize(
    "script, module",
    [
        ("against_pytorch", "torch"),
        ("against_checkpoint_schedules", "checkpoint_schedules"),
        ("parallel", "mpi4py"),
    ],
)
def test_what_a_benchmark_lacks_is_one_line(script, module, monkeypatch):
    path = ROOT / "benchmarks" / f"{script}.py"
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.syspath_prepend(path.parent)
    monkeypatch.setattr(sys, "argv", [str(path)])
    with pytest.raises(SystemExit, match=rf"^{path.name} needs {module}: pip install "):
        runpy.run_path(str(path), run_name="__main__")


def test_the_readme_says_what_two_mib_hold(capsys):
    readme = PAGES[0].read_text(encoding="utf-8")
    inside, whole = map(
        int, re.search(r"inside (\d+) MiB where .* save (\d+) MiB", readme).groups()
    )
    share = float(re.search(r"`optimal` \| ([\d.]+) % of full BPTT's bytes", readme).group(1))
    found = last_object(
        f"schedule --steps 1000 --memory {inside}MiB --hidden 256 --batch 16", capsys
    )
    assert found["peak_bytes"] <= inside * 2**20
    assert round(found["full_bytes"] / 2**20) == whole
    # The table's budget is that of 77 units; what 2 MiB save is a little less than the rest.
    units = last_object("schedule --steps 1000 --units 77 --alpha 3", capsys)
    assert round(100 * (1 - units["saved_fraction"]), 1) == share


def test_the_readme_says_what_its_example_saves(capsys):
    readme = PAGES[0].read_text(encoding="utf-8")
    percent = float(re.search(r"^([\d.]+) % of the memory saved", readme, re.M).group(1))
    found = last_object(
        "schedule --steps 1000 --memory 77KiB --hidden 32 --batch 4 --dtype float32", capsys
    )
    assert round(100 * found["saved_fraction"], 1) == percent
    assert found["forward_steps"] == 1999


def test_training_reports_the_same_bytes(capsys):
    arguments = "--steps 1000 --batch 16 --hidden 32 --memory 256KiB"
    planned = last_object(f"schedule {arguments}", capsys)
    trained = last_object(f"train {arguments} --updates 2", capsys)
    for one, other in (
        ("full_bytes", "full_bytes"),
        ("arena_peak_bytes", "peak_bytes"),
        ("forward_steps_per_update", "forward_steps"),
    ):
        assert trained[one] == planned[other]
