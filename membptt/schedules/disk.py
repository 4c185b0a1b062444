"""The actions of a schedule with hidden states on disk: stores, then intervals from last to first.

The transfers go on in the background (membptt.executor._spill); the order here is the one in which
they are asked for and waited for. The state before the last interval stays in memory.
"""

import numpy as np

from membptt.schedules._emit import Emitter
from membptt.schedules.actions import (
    ADVANCE,
    DROP,
    FETCH,
    FREE,
    PREFETCH,
    RESTORE,
    SAVE_HIDDEN,
    SAVE_INTERNAL,
    STORE,
)


def rows(intervals):
    """Yield the rows (code, start, stop) as int64 arrays.

    Parameters
    ----------
    intervals : membptt.solver.disk.Intervals
        The plan.
    """
    last = intervals.count - 1
    yield from sweep(intervals.interval, last)
    for i in range(last, -1, -1):
        begin = i * intervals.interval
        if i < last:
            yield one(FETCH if i else RESTORE, begin)
        if i > 1:
            yield one(PREFETCH, begin - intervals.interval)
        yield from within(intervals.rule, begin, min(intervals.steps, begin + intervals.interval))
        if i:
            yield one(FREE if i == last else DROP, begin)


def sweep(interval, last):
    """Yield the first sweep: a store at the end of each interval but the last two."""
    for i in range(1, last):
        yield np.array(
            [(ADVANCE, (i - 1) * interval, i * interval), (STORE, i * interval, 0)], np.int64
        )
    if last:
        yield one(SAVE_HIDDEN, (last - 1) * interval, last * interval)


def within(rule, begin, end):
    """Yield the memory schedule of the steps begin + 1 ... end."""
    for chunk in Emitter(rule, end - begin):
        chunk[:, 1] += begin
        chunk[chunk[:, 0] <= SAVE_INTERNAL, 2] += begin
        yield chunk


def one(code, step, stop=0):
    """Return a chunk of one row."""
    return np.array([(code, step, stop)], np.int64)
