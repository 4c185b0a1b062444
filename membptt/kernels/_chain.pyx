"""What an executor drives: the moves of a compiled chain, without the GIL.

The compiled twin of membptt.chains.plain.PlainChain: the same methods. States come from and go to
the arena by their offset in bytes; nothing here knows about schedules. membptt.kernels._layer has
the chains of one layer, membptt.kernels._stack that of several on one another.
"""

from membptt.kernels.kernels cimport team_close, team_open


cdef class Chain:
    """Base of the compiled chains."""

    def open_team(self, int members):
        """Start the threads of one run; fewer where the system gives fewer."""
        self.close_team()
        self.own_team = team_open(min(members, self.most_shares()))
        self.forward_team = self.backward_team = self.flush_team = self.own_team

    def close_team(self):
        """End the threads."""
        team_close(self.own_team)
        self.own_team = self.forward_team = self.backward_team = self.flush_team = NULL

    def __dealloc__(self):
        team_close(self.own_team)

    @property
    def workspace_nbytes(self):
        """Bytes of the workspace: constant, whatever the number of steps."""
        return self.room.nbytes

    # For callers in Python: the readable executor and the oracle.

    def restart(self, int source, long at=0, long place=0):
        """Make the working hidden state that after step `place`: see membptt.chains.plain."""
        self._restart(source, at, place)

    def forward(self, long start, long stop, long internal_at=-1):
        """Run the steps start+1 ... stop; save the internal state of `stop` unless at < 0."""
        self._forward(start, stop, internal_at)

    def save_hidden(self, long at):
        """Copy the working hidden state into the arena."""
        self._save_hidden(at)

    def backward(self, long step, long at):
        """Back-propagate one step from its internal state in the arena."""
        self._backward(step, at)

    def expand(self, long start, long stop, int source, long at, long hidden_at, long internal_at):
        """Compute the internal states of the steps start+1 ... stop out of those before them."""
        self._expand(start, stop, source, at, hidden_at, internal_at)

    cdef void _restart(self, int source, long at, long place) noexcept nogil:
        pass

    cdef int _forward(self, long start, long stop, long internal_at) except -1 nogil:
        return 0

    cdef void _save_hidden(self, long at) noexcept nogil:
        pass

    cdef int _backward(self, long step, long at) except -1 nogil:
        return 0

    cdef int _expand(self, long start, long stop, int source, long at, long hidden_at,
                     long internal_at) except -1 nogil:
        return 0

    cdef int expand_singly(self, long start, long stop, int source, long at, long hidden_at,
                           long internal_at) except -1 nogil:
        """Do what `_expand` does step by step, for rows of several lengths.

        The hidden states stand side by side, each of the rows that go into the step after it.
        """
        cdef long step
        for step in range(stop, start, -1):
            if step == start + 1:
                self._restart(source, at, start)
            else:
                self._restart(
                    SAVED,
                    hidden_at + self.hidden_row * self.live.rows_between(start + 1, step - 1),
                    step - 1)
            self._forward(
                step - 1, step,
                internal_at + self.internal_row * self.live.rows_between(start, step - 1))
        return 0

    cdef long most_shares(self):
        """Return among how many threads a step can be shared at most."""
        return 1
