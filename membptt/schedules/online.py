"""Schedules for streams: the length is not known until the stream ends.

The dynamic checkpointing of Wang, Moin and Iaccarino (2009), after Stumm and Walther (2010): while
the stream runs, the saved hidden states carry levels; a state is dispensable when a later one has
a higher level. A new step takes a free slot, or that of a dispensable state, and begins at level 0;
where there is neither, the step just before it gives its slot and one more than its level. At the
end the steps between two saved states are back-propagated by hsm, from the last on, with the slots
that are free by then.

Whatever the end, the forward steps are at most 1.5 times those of hsm with the length known, plus
1 (tests/schedules/test_online.py). This is verified, not proven; the worst found is 1.4 times for
three steps and 1.3 times for more, for up to 50 units and 3000 steps.

Units are those of hsm: saved hidden states, the initial one included; the working internal state
comes on top. Since states are given back in the middle, memory is a set of equal slots here and not
a stack.
"""

from itertools import pairwise

import numpy as np

from membptt.checks import integer
from membptt.schedules._emit import Emitter
from membptt.schedules.actions import Advance, AdvanceSaveHidden, Free, Restore
from membptt.schedules.plan import plan
from membptt.solver._solver import HiddenRule


class OnlineSchedule:
    """A schedule that is asked for step by step.

    Parameters
    ----------
    units : int
        Saved hidden states, the initial one included; at least 1.

    Attributes
    ----------
    steps : int
        Steps seen so far.

    Examples
    --------
    >>> online = OnlineSchedule(3)
    >>> for _ in range(3):
    ...     print(online.step())
    [AdvanceSaveHidden(start=0, stop=1)]
    [AdvanceSaveHidden(start=1, stop=2)]
    [Advance(start=2, stop=3)]
    >>> len(list(online.finish()))
    14
    """

    def __init__(self, units):
        self.units = integer("units", units, minimum=1)
        self.steps = 0
        self._levels = {}  # saved step -> its level, in the order of steps
        self._level = 0  # of the working state

    def step(self):
        """Return the actions for one more step of the stream."""
        self.steps += 1
        run = self.steps - 1, self.steps
        if len(self._levels) < self.units - 1:
            freed = []
        else:
            freed = self._dispensable()[:1]
            if not freed:
                # The next step will take over from this one, a level higher.
                self._level += 1
                return [Advance(*run)]
        for step in freed:
            del self._levels[step]
        self._levels[self.steps] = self._level
        self._level = 0
        return [*(Free(step, internal=False) for step in freed), AdvanceSaveHidden(*run)]

    def _dispensable(self):
        """Return the saved steps that come before one of a higher level, the working one's too."""
        found, highest = [], self._level
        for step, level in reversed(self._levels.items()):
            if level < highest:
                found.append(step)
            highest = max(highest, level)
        return found

    def finish(self):
        """Yield the actions that back-propagate all steps seen; the schedule ends with them.

        Raises
        ------
        ValueError
            If there was no step.
        """
        free, nodes = self._nodes()
        yield from free
        for begin, steps, units in nodes:
            yield Restore(begin)
            yield from plan(HiddenRule(units), begin, steps, units - 1, held=begin > 0)

    def finish_codes(self):
        """Yield the actions of `finish` as int64 arrays [n, 3], in chunks, by the compiled twin."""
        free, nodes = self._nodes()
        if free:
            yield np.array([action.row for action in free], np.int64)
        for begin, steps, units in nodes:
            yield np.array([Restore(begin).row], np.int64)
            rule = HiddenRule(units)
            yield from Emitter(rule, steps, t0=begin, free=units - 1, held=begin > 0)

    def _nodes(self):
        """Return what to free at the end, and begin, steps and units between saved states."""
        if self.steps == 0:
            raise ValueError("the stream is empty; give at least 1 step")
        saved = [0, *self._levels]
        free = [Free(saved.pop(), internal=False)] if saved[-1] == self.steps else []
        # The states before a node stay while it is back-propagated.
        nodes = [
            (begin, end - begin, self.units - number)
            for number, (begin, end) in enumerate(pairwise([*saved, self.steps]))
        ]
        return free, nodes[::-1]


def online_actions(stream, units):
    """Yield the item and the actions for each item of a stream, then None and the last actions.

    Parameters
    ----------
    stream : iterable
        Inputs, one per step; read once, each item when its step is due.
    units : int
        As in `OnlineSchedule`.

    Yields
    ------
    item, actions
        Run the actions of step t once item t is at hand. Recomputations read items again: whoever
        runs the actions keeps them.
    """
    schedule = OnlineSchedule(units)
    for item in stream:
        yield item, schedule.step()
    yield None, schedule.finish()
