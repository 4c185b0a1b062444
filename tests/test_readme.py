"""The README's Python runs and prints what it shows."""

import doctest
import re
from pathlib import Path

import pytest

from membptt.cli import main

README = Path(__file__).parent.parent / "README.md"


@pytest.mark.skipif(not README.exists(), reason="no README beside the tests")
def test_examples_in_the_readme():
    result = doctest.testfile(str(README), module_relative=False)
    assert result.attempted > 8 and result.failed == 0


@pytest.mark.skipif(not README.exists(), reason="no README beside the tests")
def test_the_figure_is_what_its_command_writes(tmp_path, capsys):
    command = re.search(r"`membptt (schedule [^`]*) docs/schedule.svg`", README.read_text())
    path = tmp_path / "schedule.svg"
    arguments = [*command.group(1).split(), str(path)]
    assert main(arguments) == 0
    assert path.read_text() == (README.parent / "docs" / "schedule.svg").read_text()
