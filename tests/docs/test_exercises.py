"""The solutions of the exercises hold: every cell of the page runs, assertions included."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "exercises.md"
CELL = re.compile(r"^```\{code-cell\}\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.mark.skipif(not PAGE.exists(), reason="no docs beside the tests")
def test_every_solution_holds():
    page = PAGE.read_text(encoding="utf-8")
    cells = CELL.findall(page)
    exercises = re.split(r"^## \d", page, flags=re.MULTILINE)[1:]
    assert all(":tags: [hide-cell]" in text and "assert" in text for text in exercises)
    names = {}
    for number, cell in enumerate(cells):
        code = "\n".join(line for line in cell.splitlines() if not line.startswith(":tags:"))
        exec(compile(code, f"{PAGE.name}, cell {number}", "exec"), names)
