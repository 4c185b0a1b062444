"""Lengths of rows: who is live, in what order, and what is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import membptt as mb
from membptt.sequences.lengths import Lengths, check_lengths


@given(st.lists(st.integers(1, 30), min_size=1, max_size=12))
def test_live_rows_are_those_that_have_not_ended(given_lengths):
    lengths = Lengths(given_lengths)
    assert lengths.steps == max(given_lengths)
    for step in range(1, lengths.steps + 3):
        running = [row for row, length in enumerate(given_lengths) if length >= step]
        live = lengths.live(step)
        assert sorted(lengths.order[:live].tolist()) == running
    assert (lengths.mask(lengths.steps).sum(axis=0) == given_lengths).all()
    assert (np.diff(lengths.falling) <= 0).all()
    rows = np.arange(len(given_lengths))
    assert lengths.restored(lengths.ordered((rows,)))[0].tolist() == rows.tolist()


def test_sizes_are_those_of_the_rows_that_go_on_and_of_those_that_ran():
    cell = mb.LSTM(2, 5)  # 20 bytes a row of h
    hidden, internal = Lengths([1, 3, 3]).sizes(cell)
    assert hidden == [2 * 40, 2 * 40, 0]
    assert internal == [3 * 120, 2 * 120, 2 * 120]


@pytest.mark.parametrize(
    "lengths, error, words",
    [
        (5, TypeError, "lengths are 5; give a list or an array of whole numbers, one for each row"),
        (iter([7, 3, 1]), TypeError, "lengths are <list_iterator .*; give a list or an array"),
        ({7, 3, 1}, TypeError, "lengths are .*; give a list or an array"),
        ({7: 1, 3: 1, 1: 1}, TypeError, "lengths are .*; give a list or an array"),
        ([7, 2**63, 1], ValueError, r"lengths\[1\] is 9223372036854775808; give at most"),
        ([7, True, 1], TypeError, r"lengths\[1\] is True, a truth value"),
        (np.array([True]), TypeError, r"lengths\[0\] is np.True_, a truth value"),
        ([[7, 3, 1]], TypeError, r"lengths\[0\] is \[7, 3, 1\]"),
        ([], ValueError, "lengths are empty"),
        ([7, 0, 1], ValueError, r"lengths\[1\] is 0"),
        ([7, -2, 1], ValueError, r"lengths\[1\] is -2"),
        ([7, 2.5, 1], ValueError, r"lengths\[1\] is 2.5"),
        ([7, 3], ValueError, "lengths have 2 entries; give 3"),
        ([7, 9, 1], ValueError, r"lengths\[1\], the largest, is 9 and inputs have 7 .* no more"),
        ([2, 5, 1], ValueError, r"lengths\[1\], the largest, is 5 and inputs have 7 .* leave out"),
    ],
)
def test_what_is_wrong_is_named(lengths, error, words):
    with pytest.raises(error, match=words):
        check_lengths(lengths, 7, 3)


@pytest.mark.parametrize("kind", [list, tuple, *("uint8", "uint64", "float32", object), Lengths])
def test_what_holds_whole_numbers_will_do(kind):
    given_lengths = [7, 3, 5]
    if isinstance(kind, str) or kind is object:
        found = Lengths(np.array(given_lengths, kind))
    else:
        found = Lengths(kind(given_lengths))
    assert found == Lengths(given_lengths)
    assert list(found) == given_lengths


def test_many_rows_are_not_all_shown():
    assert len(repr(Lengths(np.arange(1, 501)))) < 80
