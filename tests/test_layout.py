"""Imports go one way, tox tests what it installed: what holds of the tree as it lies."""

import ast
import configparser
import re
from pathlib import Path

import pytest

import membptt

TOX = Path(__file__).parent.parent / "tox.ini"

# A folder imports only from those above it in this list.
ORDER = [
    "_version",
    "_moved",
    "types",
    "checks",
    "arrays",
    "memory",
    "files",
    "sequences",
    "cells",
    "heads",
    "interchange",
    "kernels",
    "solver",
    "schedules",
    "chains",
    "executor",
    "timing",
    "oracle",
    "baselines",
    "training",
    "view",
    "paper",
    "cli",
    "__init__",
    "__main__",
]
PACKAGE = Path(membptt.__file__).parent
COMPILED_IMPORT = re.compile(r"^\s*(?:from|cimport|import)\s+(membptt[\w.]*)", re.MULTILINE)


def imported(path):
    """Yield the dotted names of this package that the file imports, anywhere in it."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield from COMPILED_IMPORT.findall(text)
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or ""


def place(dotted):
    """Return the position in ORDER of the folder or module that a dotted name lies in."""
    parts = dotted.split(".")
    return ORDER.index(parts[1] if len(parts) > 1 else "__init__")


def test_imports_go_one_way():
    files = [p for p in PACKAGE.rglob("*") if p.suffix in (".py", ".pyx", ".pxd")]
    assert len(files) > 30
    for path in files:
        inside = path.relative_to(PACKAGE).with_suffix("").parts[0]
        for name in imported(path):
            if name.split(".")[0] == "membptt":
                assert place(name) <= ORDER.index(inside), f"{path} imports {name}"


@pytest.mark.skipif(not TOX.exists(), reason="no tox.ini beside the tests")
def test_tox_runs_what_it_installed():
    """`python -m pytest` looks into the current folder first: there are the sources, not built."""
    tox = configparser.RawConfigParser()
    tox.read(TOX)
    checked = 0
    for name in tox.sections():
        commands = tox[name].get("commands", "")
        if "-m pytest" in commands and "change_dir" not in tox[name]:
            assert re.search(r"python -P .*-m pytest", commands), name
            checked += 1
    assert checked > 1
