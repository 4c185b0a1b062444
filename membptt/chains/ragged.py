"""The readable chain of a ragged batch: each step runs on the rows that are live.

membptt.sequences.lengths says which those are.

    forward    after step t the rows that ended with it leave: their state is final, and the working
               state, the saved h_t and all that follows hold the others
    backward   before step t the rows that ended with it join: their derivative by h_t begins at 0

Rows stand in the order of falling length, so the live ones are always the first.
"""

from itertools import accumulate

from membptt.arrays import from_host
from membptt.chains.plain import SAVED, PlainChain, views


class RaggedChain(PlainChain):
    """A `PlainChain` whose steps have fewer and fewer rows.

    Inputs and the head's targets are in the caller's order of rows, everything else in that of
    membptt.sequences.lengths.
    """

    def begin(self, inputs, bound, state, arena, lengths=None):
        """Bind one window, whose rows are of these lengths."""
        super().begin(inputs, bound, state, arena)
        self.lengths = lengths
        self.order = from_host(lengths.order, self.xp)
        # Where in a row of saved states, one of each step, that of step t + 1 begins.
        hidden, internal = lengths.sizes(self.cell)
        self.hidden_ends = [0, *accumulate(hidden)]
        self.internal_ends = [0, *accumulate(internal)]
        self.last = tuple(self.xp.zeros_like(array) for array in state)
        self.dstate = tuple(array[:0] for array in self.dstate)
        if self.ledger is not None:
            states = sum(array.nbytes for array in (self.order, *self.last))
            self.ledger.hold("states of rows that ended", states)

    def rows(self, step):
        """Return the caller's rows that run at `step`."""
        return self.order[: self.lengths.live(step)]

    def leave(self, step):
        """Keep the state of the rows that end with `step`; the others go on."""
        live = self.lengths.live(step + 1)
        for last, array in zip(self.last, self.working, strict=True):
            last[live : len(array)] = array[live:]
        self.working = tuple(array[:live] for array in self.working)

    def ended(self):
        """Return the states of the rows that have ended so far, in arrays [B, ...] for all rows."""
        return self.last

    def restart(self, source, at=0, place=0):
        """Make the working hidden state that after step `place`, of the rows that go on."""
        super().restart(source, at, place)
        live = self.lengths.live(place + 1)
        self.working = tuple(array[:live] for array in self.working)

    def expand(self, start, stop, source, at, hidden_at, internal_at):
        """Compute the internal states of the steps start+1 ... stop; see `PlainChain.expand`."""
        hidden, internal = self.hidden_ends, self.internal_ends
        for step in range(stop, start, -1):
            if step == start + 1:
                self.restart(source, at, start)
            else:
                self.restart(SAVED, hidden_at + hidden[step - 2] - hidden[start], step - 1)
            self.forward(step - 1, step, internal_at + internal[step - 1] - internal[start])

    def backward(self, step, at):
        """Back-propagate one step: first the rows join that end with it."""
        live, xp = self.lengths.live(step), self.xp
        self.dstate = tuple(
            xp.concat([array, xp.zeros_like(first[len(array) : live])])
            for array, first in zip(self.dstate, self.initial, strict=True)
        )
        super().backward(step, at)

    def run_head(self, step, h):
        """Have the head told which rows these are."""
        return super().run_head(step, h, self.rows(step))

    def cell_at(self, step):
        """Return the cell with the noise of `step`, that of these rows."""
        return self.cell.at(step, self.lengths.order[: self.lengths.live(step)])

    def input(self, step):
        """Return the input of `step`, its live rows."""
        return self.inputs[step - 1][self.rows(step)]

    def by_input(self, step):
        """Return where the derivative by the input of `step` goes, in the order inside."""
        return self.by_inputs[step - 1][: self.lengths.live(step)]

    def internal(self, at, step):
        """Return the arrays of the internal state of `step`: of the rows that ran in it."""
        shapes = self.cell.internal_shapes(self.lengths.live(step))
        return views(self.arena, at, shapes, self.cell.dtype)

    def hidden(self, at, step):
        """Return the arrays of the hidden state after `step`: of the rows that go on."""
        shapes = self.cell.hidden_shapes(self.lengths.live(step + 1))
        return views(self.arena, at, shapes, self.cell.dtype)
