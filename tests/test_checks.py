"""Errors show a user's value in one line, and arrays whose meaning would be lost are refused."""

import numpy as np
import pytest

import membptt as mb
from membptt.checks import one_of, shown


class Talkative:
    """A value whose representation has several lines."""

    def __repr__(self):
        return "first\n    second"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        ("a", "'a'"),
        (None, "None"),
        (np.float32(2), "np.float32(2.0)"),
        (np.ones((20, 3), np.float32), "<float32 array of shape (20, 3)>"),
        ([np.ones(2), 1], "[<float64 array of shape (2,)>, 1]"),
        (Talkative(), "first second"),
        ({"a": [[[[1]]]]}, "{'a': [[[...]]]}"),
    ],
)
def test_a_value_is_shown_in_one_line(value, text):
    assert shown(value) == text


@pytest.mark.parametrize(
    "value",
    ["a" * 10_000, list(range(10_000)), 10**1000, 10**10_000, {"a" * 9999: 1}],
    ids=["str", "list", "int", "longest int", "dict"],
)
def test_a_long_value_is_cut(value):
    assert len(shown(value)) < 500


@pytest.mark.parametrize("size", [10**10_000, -(10**10_000)], ids=["large", "small"])
def test_a_number_of_more_digits_than_python_writes_is_named(size):
    with pytest.raises(ValueError, match="input_size is a very long number; give at"):
        mb.LSTM(size, 3)


@pytest.mark.parametrize("value", [np.ones((30, 30)), Talkative(), ["C"], None, "c"])
def test_a_name_is_one_of_those_known(value):
    assert one_of("order", "C", ("C", "F")) == "C"
    with pytest.raises(ValueError, match=r"order is .*; give one of C, F$") as raised:
        one_of("order", value, ("C", "F"))
    assert "\n" not in str(raised.value)


def test_masked_arrays_are_refused_since_nothing_would_heed_the_mask():
    cell, head = mb.RNN(3, 4), mb.LinearHead(4, 2)
    inputs, targets = np.ones((5, 2, 3), np.float32), np.ones((5, 2, 2), np.float32)
    plan = mb.schedule(5, mb.Units(5))
    hidden = np.zeros((5, 2), bool)
    for bad in (np.ma.masked_array(inputs), np.ma.masked_array(inputs, inputs > 0)):
        with pytest.raises(TypeError, match="inputs are a masked array, whose mask would be lost"):
            mb.bptt(cell, bad, head.with_targets(targets), plan)
    with pytest.raises(TypeError, match="targets are a masked array, whose mask would be lost"):
        head.with_targets(np.ma.masked_array(targets, targets > 0))
    assert mb.bptt(cell, inputs, head.with_targets(targets, mask=~hidden), plan).loss
