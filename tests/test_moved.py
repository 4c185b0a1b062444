"""Modules of 0.1 are found by their old names, with a warning that says the new one."""

import importlib
import sys

import pytest

from membptt._moved import MOVED


@pytest.mark.parametrize("old", MOVED)
def test_an_old_name_gives_the_module_of_the_new_one(old):
    sys.modules.pop(old, None)
    with pytest.warns(DeprecationWarning, match=f"{old} is now {MOVED[old]}"):
        module = importlib.import_module(old)
    assert module is importlib.import_module(MOVED[old])
    assert module.__name__ == MOVED[old]
