"""The actions of look-ahead, in the order of one machine that runs ahead as far as it can.

Two lanes execute them (membptt.executor._lookahead): the advances and restores in one, the backward
steps and what they give back in the other. Within a lane the order is the one here; between the
lanes it depends on their speed, but a state is saved only when there is room and used only when it
is there. States are not given back in the order of a stack.
"""

import numpy as np

from membptt.schedules.actions import (
    ADVANCE,
    BACKWARD,
    FREE,
    RESTORE,
    SAVE_HIDDEN,
    SAVE_INTERNAL,
)


def rows(segments):
    """Yield the rows (code, start, stop) of a plan as int64 arrays, segment by segment.

    Parameters
    ----------
    segments : membptt.solver.lookahead.Segments
        The plan.
    """
    begins = segments.begins.tolist()
    count = len(segments.lengths)
    yield np.array(list(sweep(begins, count)), np.int64)
    used = segments.lengths[0]  # slots
    for j in range(1, count + 1):
        chunk = []
        ahead = []
        if j < count:
            begin = begins[j + 1]
            chunk.append((RESTORE, begin, 0))
            if j + 1 < count:
                chunk.append((FREE, begin, 0))
            ahead = [(SAVE_INTERNAL, t - 1, t) for t in range(begin + 1, begins[j] + 1)]
        room = segments.slots[min(j, count - 1)]
        for step in range(begins[j - 1], begins[j], -1):
            while ahead and used < room:
                chunk.append(ahead.pop(0))
                used += 1
            chunk += [(BACKWARD, step, 0), (FREE, step, 1)]
            used -= 1
        chunk += ahead
        used += len(ahead)
        yield np.array(chunk, np.int64)


def sweep(begins, count):
    """Yield the first sweep: hidden states before segments k - 1 ... 2, then all of segment 1."""
    for j in range(count, 1, -1):
        yield (SAVE_HIDDEN if j > 2 else ADVANCE, begins[j], begins[j - 1])
    for step in range(begins[1] + 1, begins[0] + 1):
        yield (SAVE_INTERNAL, step - 1, step)
