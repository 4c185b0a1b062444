"""Sequences of different lengths in one batch: which rows are live at which step.

A step runs on its live rows alone, so that what it costs and what is saved of it shrink as
sequences end. For that the rows stand in the order of falling length inside: the live ones are
always the first. Such a batch is called packed. Whoever gives a batch never sees that order.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Set

import numpy as np

from membptt.arrays import from_host, namespace
from membptt.checks import MOST, integer, shown


class Lengths:
    """How long each row of a batch is.

    Parameters
    ----------
    lengths : sequence of int
        How many steps each row has, at least 1. Lengths will do too.
    name : str, optional
        What errors call them.

    Attributes
    ----------
    given : numpy.ndarray of int64
        [B], in the caller's order.
    falling : numpy.ndarray of int64
        [B], in the order of the rows inside.
    order : numpy.ndarray of int64
        [B]: the caller's row that stands at each place inside; of equal ones the first first.
    batch, steps : int
        B, and T: how long the longest row is.

    Raises
    ------
    TypeError, ValueError
        If they are not whole numbers from 1 on; the row is named. An iterator is refused: more
        than one argument needs them.

    Examples
    --------
    >>> lengths = Lengths([1, 7, 3])
    >>> lengths.order.tolist(), [lengths.live(step) for step in range(1, 9)]
    ([1, 2, 0], [3, 2, 2, 1, 1, 1, 1, 0])
    """

    def __init__(self, lengths, name="lengths"):
        try:
            if isinstance(lengths, Iterator | Mapping | Set):
                raise TypeError
            numbers = list(lengths)
        except TypeError:
            raise TypeError(
                f"{name} are {shown(lengths)}; give a list or an array of whole numbers, one for "
                "each row"
            ) from None
        if not numbers:
            raise ValueError(f"{name} are empty; give one for each row")
        found = [
            integer(f"{name}[{row}]", each, minimum=1, maximum=MOST)
            for row, each in enumerate(numbers)
        ]
        self.given = np.array(found, np.int64)
        self.order = np.argsort(-self.given, kind="stable")
        self.falling = self.given[self.order]
        self._places = np.argsort(self.order)
        self.batch, self.steps = len(found), int(self.falling[0])
        self._rising = self.falling[::-1].tolist()

    def __iter__(self):
        return iter(self.given.tolist())

    def __repr__(self):
        shown = np.array2string(self.given, max_line_width=1000, threshold=8, separator=", ")
        return f"Lengths({shown})"

    def __eq__(self, other):
        return isinstance(other, Lengths) and np.array_equal(self.given, other.given)

    __hash__ = None  # type: ignore[assignment]

    def live(self, step):
        """Return how many rows run at `step`; 0 behind the longest."""
        return self.batch - bisect_left(self._rising, step)

    def sizes(self, cell):
        """Return the bytes of h_t, and of the internal state of step t, for t = 1 ... T.

        Of h_t that is what goes into step t + 1: nothing else is read from it again.
        """
        rows = [self.live(step) for step in range(1, self.steps + 2)]
        hidden = {count: cell.hidden_nbytes(count) for count in set(rows)}
        internal = {count: cell.internal_nbytes(count) for count in set(rows)}
        return [hidden[count] for count in rows[1:]], [internal[count] for count in rows[:-1]]

    def mask(self, steps):
        """Return where there are rows, bool [steps, B] in the caller's order."""
        return np.arange(steps)[:, None] < self.given

    def ordered(self, arrays):
        """Return arrays [B, ...] with their rows in the order inside."""
        return tuple(taken(array, self.order) for array in arrays)

    def restored(self, arrays):
        """Return arrays [B, ...] with their rows in the caller's order again."""
        return tuple(taken(array, self._places) for array in arrays)


def taken(array, rows):
    """Return these rows of an array, wherever it lies."""
    return array[from_host(rows, namespace(array))]


def check_lengths(lengths, steps, batch, what="inputs"):
    """Return `lengths` as Lengths of a window [steps, batch]; None for rows of one length.

    Raises
    ------
    TypeError, ValueError
        As `Lengths`, and unless there is one for each row, the longest of `steps`.
    """
    if lengths is None:
        return None
    if not isinstance(lengths, Lengths):
        lengths = Lengths(lengths)
    if lengths.batch != batch:
        raise ValueError(f"lengths have {lengths.batch} entries; give {batch}, one for each row")
    if lengths.steps != steps:
        row = int(lengths.given.argmax())
        fix = "give no more" if lengths.steps > steps else "leave out the steps behind it"
        raise ValueError(
            f"lengths[{row}], the largest, is {lengths.steps} and {what} have {steps} steps; {fix}"
        )
    return lengths
