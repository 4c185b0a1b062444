"""The loop over a schedule's actions, to read and to step through: the twin of _executor.

A Machine holds what execution adds to a schedule: where the working hidden state is, and which
states stand in the arena. It trusts nobody: an action that uses what is not there, or that comes
out of order, is an error.
"""

import numpy as np

from membptt.chains.plain import ENTERING, INITIAL, LEAVING, SAVED
from membptt.executor.arena import HIDDEN, INTERNAL
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


class Machine:
    """Executes one action after the other on a chain and an arena."""

    def __init__(self, chain, arena, spill=None):
        self.chain = chain
        self.arena = arena
        self.spill = spill  # slow storage (membptt.executor._spill), for strategy disk
        self.place = 0  # the working hidden state is that after step `place`; -1 after an expansion
        self.forward_steps = self.backward_steps = self.expanded_steps = 0

    def act(self, action):
        """Execute one action."""
        match action:
            case Advance(start, stop):
                self.forward(start, stop)
            case AdvanceSaveHidden(start, stop):
                self.forward(start, stop)
                self.chain.save_hidden(self.arena.push(HIDDEN, stop))
            case AdvanceSaveInternal(start, stop):
                self.forward(start, stop, self.arena.push(INTERNAL, stop))
            case Restore(step):
                self.chain.restart(*self.source(step), step)
                self.place = step
            case Expand(start, stop):
                self.expand(start, stop)
            case Backward(step):
                self.backward(step)
            case Free(step, internal):
                self.arena.pop(INTERNAL if internal else HIDDEN, step)
            case Store(step):
                at = self.spill.acquire(step)  # waits for a free buffer
                self.chain.save_hidden(at)
                self.spill.store(step, at)
            case Prefetch(step):
                self.spill.prefetch(step)
            case Fetch(step):
                self.chain.restart(SAVED, self.spill.fetch(step), step)  # waits until it is there
                self.place = step
            case Drop(step):
                self.spill.drop(step)

    def forward(self, start, stop, internal_at=-1):
        """Run the steps start+1 ... stop."""
        if not self.place == start < stop <= self.chain.steps:
            raise LookupError(f"the working hidden state is not that after step {start}")
        self.chain.forward(start, stop, internal_at)
        self.forward_steps += stop - start
        self.place = stop

    def expand(self, start, stop):
        """Put the internal states of a block in the places of the hidden states before its steps.

        The hidden states after `start` stand side by side on top of the stack, h_start right below
        them if the block is to take its place too.
        """
        if not start < stop or stop != self.chain.steps - self.backward_steps:
            raise LookupError(f"another step than {stop} is to be back-propagated next")
        source, at = self.source(start)
        for step in range(stop - 1, start, -1):
            self.arena.pop(HIDDEN, step)
        hidden_at = self.arena.used - self.arena.reserved
        if self.arena.stack and self.arena.stack[-1][:2] == (HIDDEN, start):
            self.arena.pop(HIDDEN, start)
        places = [self.arena.push(INTERNAL, step) for step in range(start + 1, stop + 1)]
        self.chain.expand(start, stop, source, at, hidden_at, places[0])
        self.expanded_steps += stop - start
        self.place = -1

    def backward(self, step):
        """Back-propagate `step`, whose internal state is at hand in the arena."""
        at = self.arena.find(INTERNAL, step)
        if step != self.chain.steps - self.backward_steps:
            raise LookupError(f"another step than {step} is to be back-propagated next")
        self.chain.backward(step, at)
        self.backward_steps += 1

    def source(self, step):
        """Return where h_step is to be had: the topmost state that gives it, and its offset."""
        for kind, saved, at in reversed(self.arena.stack):
            if saved == step:
                return (LEAVING if kind == INTERNAL else SAVED), at
            if kind == INTERNAL and saved == step + 1:
                return ENTERING, at
        if self.spill is not None and self.spill.find(step) >= 0:
            return SAVED, self.spill.find(step)
        if step == 0:
            return INITIAL, 0
        raise LookupError(f"no saved state gives the hidden state after step {step}")


def run(schedule, chain, arena, record=False, spill=None):
    """Execute all actions.

    Returns
    -------
    forward_steps, backward_steps, peak_bytes : int
    trace : numpy.ndarray or None
    expanded_steps : int
    """
    machine = Machine(chain, arena, spill)
    trace = []
    for index, action in enumerate(schedule):
        try:
            machine.act(action)
        except (LookupError, MemoryError) as error:
            if type(error) not in (LookupError, MemoryError):  # from a head or a reader
                raise
            raise type(error)(f"action {index + 1} ({action}): {error}") from None
        if record:
            trace.append((*action.row, arena.used))
    if machine.backward_steps != chain.steps:
        raise LookupError(
            f"the schedule ends after {machine.backward_steps} of {chain.steps} backward steps"
        )
    rows = np.array(trace, np.int64).reshape(-1, 4) if record else None
    return machine.forward_steps, machine.backward_steps, arena.peak, rows, machine.expanded_steps
