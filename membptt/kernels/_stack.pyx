"""Several layers on one another as one compiled chain: the twin of membptt.cells.stack.

Every layer is a Layer with a workspace of its own; here they take their turns, from layer 0 up when
a step runs forward, from the top down when it is back-propagated. A state of the stack is the
layers' states side by side, the top layer's first.
"""

from libc.string cimport memcpy

from membptt.kernels._chain cimport INITIAL, LEAVING, SAVED
from membptt.kernels._layer cimport Layer
from membptt.kernels._live cimport Live
from membptt.kernels._room cimport Room


cdef class StackChain(Chain):
    """The chain of a `membptt.Stack`.

    Parameters
    ----------
    cell : membptt.Stack
    layers : list of Layer
        Layer 0 first, each made with the one beneath it; the top one has the head.
    """

    def __init__(self, cell, layers):
        cdef long i
        cdef Layer layer = layers[0]
        self.cell, self.layers, self.count = cell, layers, len(layers)
        self.steps, self.batch = layer.steps, layer.batch
        self.room = room = Room()
        self.pointers = <void **>room.take(self.count * sizeof(void *))
        self.hidden_at = <long *>room.take(self.count * sizeof(long))
        self.internal_at = <long *>room.take(self.count * sizeof(long))
        for i in range(self.count - 1, -1, -1):
            layer = layers[i]
            self.pointers[i] = <void *>layer
            self.hidden_at[i], self.internal_at[i] = self.hidden_row, self.internal_row
            self.hidden_row += layer.hidden_row
            self.internal_row += layer.internal_row
        self.joined = <char *>room.take(self.hidden_row * self.batch)
        self.live = Live(self.batch)

    @property
    def workspace_nbytes(self):
        """Bytes of all layers' workspaces."""
        return self.room.nbytes + sum(layer.workspace_nbytes for layer in self.layers)

    cdef long most_shares(self):
        cdef Layer layer
        most = 1
        for layer in self.layers:
            most = max(most, layer.most_shares())
        return most

    def begin(self, inputs, bound, state, arena, lengths=None):
        """Begin every layer with its part of the state; layer 0 reads the inputs."""
        cdef Layer layer
        self.live = Live(self.batch, lengths)
        parts = self.cell.parts(state, "hidden_names")
        for i, (layer, part) in enumerate(zip(self.layers, parts, strict=True)):
            head = bound if i == self.count - 1 else None
            layer.by_inputs = self.by_inputs if i == 0 else None
            layer.begin(inputs if i == 0 else None, head, part, arena, lengths)
        self.arena_array, self.horizon = arena, 0

    def extend(self, inputs):
        """Go on with more steps."""
        for layer in self.layers:
            layer.extend(inputs)
        self.steps = self.horizon = inputs.shape[0]

    def end(self, bound):
        """Learn the targets of all steps, before the first backward."""
        self.layers[self.count - 1].end(bound)

    def finish(self):
        """Return loss, first step whose loss is not finite or 0, gradients, state, its gradient."""
        cdef Layer layer, top = self.layers[self.count - 1]
        grads = {}
        for number, layer in enumerate(self.layers):
            own = layer.gradients()
            grads |= {f"{number}.{name}": own[name] for name in own}
        state_grad = ()
        for layer in reversed(self.layers):
            state_grad += layer._state_arrays(layer.dstate)
        return (top.head.loss, top.head.first_bad_step, grads | top.head.gradients(),
                self.ended(), state_grad)

    def ended(self):
        """Return the states of the rows that have ended so far; see `Layer.ended`."""
        return sum((layer.ended() for layer in reversed(self.layers)), ())

    cdef void share_team(self) noexcept nogil:
        """Let every layer use the threads that this chain has now."""
        cdef long i
        for i in range(self.count):
            (<Layer>self.pointers[i]).forward_team = self.forward_team
            (<Layer>self.pointers[i]).backward_team = self.backward_team
            (<Layer>self.pointers[i]).flush_team = self.flush_team

    cdef void _restart(self, int source, long at, long place) noexcept nogil:
        cdef long i, begin, rows = self.live.rows(place + (source != LEAVING))
        for i in range(self.count):
            # The state that entered a step is the first part of each layer's internal state.
            begin = rows * (self.hidden_at[i] if source == SAVED else self.internal_at[i])
            (<Layer>self.pointers[i])._restart(
                source, 0 if source == INITIAL else at + begin, place)

    cdef void _save_hidden(self, long at) noexcept nogil:
        cdef long i
        for i in range(self.count):
            (<Layer>self.pointers[i])._save_hidden(
                at + self.hidden_at[i] * (<Layer>self.pointers[i]).going_on)

    cdef int _forward(self, long start, long stop, long internal_at) except -1 nogil:
        cdef long step, i, rows
        self.share_team()
        if self.horizon < stop:
            self.horizon = stop
        (<Layer>self.pointers[0]).horizon = self.horizon
        for step in range(start + 1, stop + 1):
            rows = self.live.rows(step)
            for i in range(self.count):
                (<Layer>self.pointers[i]).forward_step(
                    step,
                    internal_at + self.internal_at[i] * rows
                    if step == stop and internal_at >= 0 else -1)
            if self.sums is not None:
                for i in range(self.count):
                    memcpy(self.joined + self.hidden_at[i] * rows,
                           (<Layer>self.pointers[i]).working,
                           (<Layer>self.pointers[i]).hidden_row * rows)
                self.check(step)
            for i in range(self.count):  # when the layer above has read what leaves
                (<Layer>self.pointers[i]).leave(step)
        return 0

    cdef int check(self, long step) except -1 nogil:
        return self.sums.check_at(step, self.joined, self.hidden_row * self.live.rows(step))

    cdef int _backward(self, long step, long at) except -1 nogil:
        cdef long i, rows = self.live.rows(step)
        self.share_team()
        for i in range(self.count):  # before the layer above adds to its derivative
            (<Layer>self.pointers[i]).join(step)
        for i in range(self.count - 1, -1, -1):
            (<Layer>self.pointers[i]).backward_step(step, at + self.internal_at[i] * rows)
        return 0

    cdef int _expand(self, long start, long stop, int source, long at, long hidden_at,
                     long internal_at) except -1 nogil:
        """As `Layer._expand`: all layers are gathered before the first is written."""
        cdef long begin, end = stop, i, j, k, size, begin_at, rows = self.batch
        cdef long hidden = rows * self.hidden_row, internal = rows * self.internal_row
        if self.live.lengths is not None:
            return self.expand_singly(start, stop, source, at, hidden_at, internal_at)
        self.share_team()
        while end > start:
            begin = (<Layer>self.pointers[0]).expand_from(start, end)
            for i in range(self.count):
                begin_at = rows * (self.hidden_at[i] if source == SAVED else self.internal_at[i])
                (<Layer>self.pointers[i]).gather(
                    start, begin, end, source, at + begin_at,
                    hidden_at + self.hidden_at[i] * rows, hidden)
            for i in range(self.count):
                (<Layer>self.pointers[i]).expand_gathered(begin, end)
            for i in range(self.count):
                (<Layer>self.pointers[i]).scatter(
                    begin, end,
                    internal_at + (begin - start) * internal + self.internal_at[i] * rows,
                    internal)
            if self.sums is not None:
                for k in range(end - begin):
                    for i in range(self.count):
                        size = rows * (<Layer>self.pointers[i]).hidden_row \
                            // (<Layer>self.pointers[i]).states
                        for j in range((<Layer>self.pointers[i]).states):
                            memcpy(self.joined + self.hidden_at[i] * rows + j * size,
                                   (<Layer>self.pointers[i]).leaving + (j * (end - begin) + k)
                                   * size, size)
                    self.check(begin + k + 1)
            end = begin
        return 0
