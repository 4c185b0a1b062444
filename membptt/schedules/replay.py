"""A machine that replays a schedule and proves it legal; it knows no recurrence.

It keeps the sets of states that are saved, and moves through the actions one by one. A schedule
passes when no state is used that was not saved, states are given back in the reverse order of
saving, every step is back-propagated once and in the order T...1, and the budget holds at every
action. What the machine counts is what the schedule costs, whatever a solver predicted.
"""

from dataclasses import dataclass

import numpy as np

from membptt.schedules.actions import (
    Advance,
    AdvanceSaveHidden,
    AdvanceSaveInternal,
    Backward,
    Drop,
    Expand,
    Fetch,
    Free,
    Prefetch,
    Restore,
    Store,
)


class ReplayError(ValueError):
    """A schedule does what no machine can do.

    Attributes
    ----------
    index : int
        Number of the action in the schedule, from 0; one past the last for what is missing.
    reason : str
        What is wrong with it.
    """

    def __init__(self, index, action, reason):
        super().__init__(f"action {index + 1}, {action}: {reason}")
        self.index = index
        self.reason = reason


@dataclass(frozen=True)
class Replayed:
    """What a legal schedule did.

    Attributes
    ----------
    forward_steps : int
        Steps run in all.
    executions : ndarray of int64, shape [T]
        How often each step 1...T ran forward.
    peak : int
        Most memory held, in the unit of the sizes.
    expanded_steps : int
        Steps computed in blocks, from saved hidden states.
    """

    forward_steps: int
    executions: np.ndarray
    peak: int
    expanded_steps: int


class Machine:
    """A chain of `steps` steps and a stack of saved states.

    Parameters
    ----------
    steps : int
        T.
    hidden, internal : int or sequence of int, length T
        Sizes of the two kinds of states, or of those of each step.
    budget : int or None
        Most that all saved states may take.
    lanes : int
        With one, states are given back in the reverse order of saving; with two, in any order.
    buffers : int
        Rooms of one hidden state each, always taken, for states on their way to or from disk.
    """

    def __init__(self, steps, hidden, internal, budget, lanes, buffers):
        self.steps = steps
        self.stacked = lanes == 1
        self.hidden = hidden
        self.internal = internal
        self.budget = budget
        self.working = 0  # the working state is h_working; None after a block
        self.stack = []  # (step, is internal), first saved first
        self.saved = set()
        self.buffers = buffers
        self.buffered = set()  # steps whose hidden states are in a buffer, or on the way there
        self.stored = set()
        self.used = self.peak = buffers * hidden if buffers else 0
        self.next_backward = steps
        self.executions = np.zeros(steps, np.int64)
        self.expanded_steps = 0

    def size(self, state):
        """Return what a saved state takes."""
        step, internal = state
        sizes = self.internal if internal else self.hidden
        return sizes if isinstance(sizes, int) else sizes[step - 1]

    def fault(self, action):
        """Do `action`; return why it is not allowed, or None."""
        match action:
            case Advance() | AdvanceSaveHidden() | AdvanceSaveInternal():
                return self._advance(action)
            case Restore(step):
                return self._restore(step)
            case Expand(start, stop):
                return self._expand(start, stop)
            case Backward(step):
                return self._backward(step)
            case Free(step, internal):
                return self._free((step, internal))
            case Store() | Prefetch() | Fetch() | Drop():
                return self._transfer(action)
        return "this is not an action"

    def _advance(self, action):
        if action.start != self.working:
            return self._elsewhere
        if not action.start < action.stop <= self.steps:
            return f"give start < stop <= {self.steps}"
        self.executions[action.start : action.stop] += 1
        self.working = action.stop
        if isinstance(action, Advance):
            return None
        internal = isinstance(action, AdvanceSaveInternal)
        return self._push((action.stop, internal))

    def _transfer(self, action):
        step = action.step
        if isinstance(action, Store | Prefetch) and len(self.buffered) >= self.buffers:
            return f"all {self.buffers} buffers are taken"
        match action:
            case Store():
                if self.working != step or step == 0:
                    return self._elsewhere
                if step in self.stored:
                    return f"h_{step} is stored already"
                self.stored.add(step)
                return None  # the buffer is free again when the state is written
            case Prefetch():
                if step not in self.stored:
                    return f"h_{step} was not stored"
                if step in self.buffered:  # a second buffer for it would never be given back
                    return f"h_{step} is in a buffer already"
                self.buffered.add(step)
                return None
        if step not in self.buffered:
            return f"h_{step} was not prefetched"
        if isinstance(action, Fetch):
            self.working = step
        else:
            self.buffered.remove(step)
        return None

    @property
    def _elsewhere(self):
        if self.working is None:
            return "the working state was lost to a block; restore one first"
        return f"the working state is h_{self.working}"

    def _expand(self, start, stop):
        if not start < stop or stop != self.next_backward:
            return f"the next step to back-propagate is {self.next_backward}"
        if not self.stacked:
            return "blocks are for one lane"
        if self.size((stop, True)) < self.size((stop, False)):
            return "internal states must be at least as large as the hidden ones they replace"
        for step in range(stop - 1, start, -1):
            if not self._at_hand((step, False)):
                return f"h_{step} is not on top of the stack"
            self._pop()
        if self._at_hand((start, False)):
            self._pop()
        elif start != 0 and not {(start, False), (start, True)} & self.saved:
            return f"no saved state gives h_{start}"
        self.working = None
        self.expanded_steps += stop - start
        for step in range(start + 1, stop + 1):
            reason = self._push((step, True))
            if reason:
                return reason
        return None

    def _pop(self):
        state = self.stack.pop()
        self.saved.remove(state)
        self.used -= self.size(state)

    def _push(self, state):
        if state in self.saved:
            return "this state is saved already"
        self.saved.add(state)
        self.stack.append(state)
        self.used += self.size(state)
        self.peak = max(self.peak, self.used)
        if self.budget is not None and self.used > self.budget:
            return f"{self.used} in use, above the budget of {self.budget}"
        return None

    def _restore(self, step):
        givers = {(step, False), (step, True), (step + 1, True)}
        if step != 0 and not givers & self.saved and step not in self.buffered:
            return f"no saved state gives h_{step}"
        self.working = step
        return None

    def _backward(self, step):
        if step != self.next_backward:
            return f"the next step to back-propagate is {self.next_backward}"
        if not self._at_hand((step, True)):
            return f"the internal state of this step is not {self._where}"
        self.next_backward -= 1
        return None

    def _free(self, state):
        if not self._at_hand(state):
            return f"this state is not {self._where}"
        if self.stacked:
            self._pop()
            return None
        self.saved.remove(state)
        self.stack.remove(state)
        self.used -= self.size(state)
        return None

    @property
    def _where(self):
        return "on top of the stack" if self.stacked else "saved"

    def _at_hand(self, state):
        if self.stacked:
            return bool(self.stack) and self.stack[-1] == state
        return state in self.saved

    def missing(self):
        """Return what a schedule that ends here leaves undone, or None."""
        if self.next_backward > 0:
            return f"step {self.next_backward} was not back-propagated"
        if self.stack:
            return f"{len(self.stack)} saved states were not given back"
        if self.buffered:
            return f"{len(self.buffered)} buffers were not given back"
        return None


def replay(actions, steps, hidden=1, internal=1, budget=None, lanes=1, buffers=0):
    """Replay `actions` and return what they did.

    Parameters
    ----------
    actions : iterable
        Of the types in `membptt.schedules.actions`.
    steps : int
        T.
    hidden, internal : int or sequence of int, length T
        Sizes of the two kinds of states, or of those of each step.
    budget : int, optional
        Most that all saved states may take, in the same unit.
    lanes : int
        1, or 2 for look-ahead, which gives states back in any order.
    buffers : int
        Rooms for states on their way to or from disk.

    Returns
    -------
    Replayed
        Counts and peak.

    Raises
    ------
    ReplayError
        A ValueError that names the index of the first action that is not allowed, and the reason.
    """
    machine = Machine(steps, hidden, internal, budget, lanes, buffers)
    index = -1
    for index, action in enumerate(actions):
        reason = machine.fault(action)
        if reason:
            raise ReplayError(index, action, reason)
    reason = machine.missing()
    if reason:
        raise ReplayError(index + 1, "the end", reason)
    return Replayed(
        int(machine.executions.sum()), machine.executions, machine.peak, machine.expanded_steps
    )
