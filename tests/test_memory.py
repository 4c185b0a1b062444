"""Amounts of memory, and the ledger of a device's."""

import doctest

import pytest

from membptt import memory
from membptt.memory import Ledger


def test_the_examples_of_the_module():
    result = doctest.testmod(memory)
    assert result.failed == 0
    assert result.attempted > 5


def test_the_ledger_adds_up_what_is_held_under_a_name():
    ledger = Ledger()
    ledger.take("grads", 300)
    ledger.take("arena", 1000)
    ledger.take("grads", 50)
    assert ledger.held == {"grads": 350, "arena": 1000}
    ledger.give("arena")
    ledger.take("blocks", 10)
    assert (ledger.total, ledger.peak, ledger.allocations) == (360, 1350, 4)
    assert str(ledger).splitlines()[-1].split() == ["peak", "1.32", "KiB"]
    with pytest.raises(KeyError, match="arena"):
        ledger.give("arena")
