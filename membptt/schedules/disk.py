"""The actions of a schedule with hidden states on disk: stores, then intervals from last to first.

The transfers go on in the background (membptt.executor._spill); the order here is the one in which
they are asked for and waited for. The state before the last interval stays in memory. Readable; the
compiled twin is membptt.schedules._emit.DiskEmitter.
"""

from membptt.schedules.actions import (
    Advance,
    AdvanceSaveHidden,
    Drop,
    Fetch,
    Free,
    Prefetch,
    Restore,
    Store,
)
from membptt.schedules.plan import plan


def disk_plan(intervals):
    """Yield the actions.

    Parameters
    ----------
    intervals : membptt.solver.disk.Intervals
        The plan.
    """
    rule, size, last = intervals.rule, intervals.interval, intervals.count - 1
    for begin in range(0, (last - 1) * size, size):
        yield Advance(begin, begin + size)
        yield Store(begin + size)
    if last:
        yield AdvanceSaveHidden((last - 1) * size, last * size)
    for i in range(last, -1, -1):
        begin = i * size
        if i < last:
            yield Fetch(begin) if i else Restore(begin)
        if i > 1:
            yield Prefetch(begin - size)
        yield from plan(rule, begin, min(intervals.steps, begin + size) - begin, rule.free)
        if i:
            yield Free(begin, internal=False) if i == last else Drop(begin)
