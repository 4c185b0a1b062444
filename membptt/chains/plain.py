"""A cell, a head and the inputs of one window in plain array code: what the executor drives.

A *chain* has five moves and no memory of schedules:

    restart(source, at, place)      the working hidden state becomes that after step `place`: the
                                    initial one, or one that stands in the arena at byte `at`
    forward(start, stop, at)        run the steps start+1 ... stop; the internal state of `stop`
                                    goes to the arena at byte `at`, unless at < 0
    save_hidden(at)                 the working hidden state goes to the arena
    expand(start, stop, source, at, hidden_at, internal_at)
                                    the internal states of the steps start+1 ... stop go side by
                                    side to byte `internal_at`; h_start is had as by restart, the
                                    hidden states after it stand side by side at `hidden_at` and may
                                    be written over. The working state is lost.
    backward(step, at)              the head and the backward of one step, from its internal state

PlainChain calls the methods that stand in membptt.cells; membptt.kernels has the compiled chains.
"""

from math import prod

import numpy as np

from membptt.arrays import array_module, to_host
from membptt.memory import Ledger
from membptt.sequences.feed import Feed

# Where `restart` takes the working hidden state from.
INITIAL = 0
SAVED = 1  # a hidden state in the arena
LEAVING = 2  # an internal state: the hidden state after its step
ENTERING = 3  # an internal state: the hidden state before its step


class PlainChain:
    """The readable chain; see the module's docstring for its moves.

    On a device nothing of it waits for the device before `finish`, and `ledger` says what it holds
    there.
    """

    def __init__(self, cell, bound, steps, batch, ledger=None):
        self.xp = array_module(cell.backend)
        self.ledger = Ledger() if ledger is None and self.xp is not np else ledger
        self.feed = None
        self.cell = cell
        self.batch = batch
        self.steps = steps
        self.hidden_shapes = cell.hidden_shapes(batch)
        self.internal_shapes = cell.internal_shapes(batch)
        self.sizes = cell.hidden_nbytes(batch), cell.internal_nbytes(batch)
        self.by_inputs = None  # [T, B, I] for the derivative by the inputs, if asked for
        self.sums = None  # of the hidden states (kernels/_sums.pyx), to check what is run again

    @property
    def stream(self):
        """What the steps run in, on a device."""
        return self.xp.cuda.get_current_stream()

    @property
    def workspace_nbytes(self):
        """Bytes beside NumPy's temporaries of one step: the blocks of inputs that are kept.

        On a device also a bound on the temporaries, which the pool of its memory has to hold.
        """
        if self.xp is not np:
            return self.feed.nbytes + self.temporaries
        return getattr(self.inputs, "kept_nbytes", 0)

    def begin(self, inputs, bound, state, arena):
        """Bind one window's inputs and targets; clear the loss and the gradients."""
        xp = self.xp
        self.bind(inputs)
        self.bound = bound
        self.initial = self.working = state
        self.place = 0  # the working state is that after step `place`
        self.last = None
        self.arena = arena
        self.loss = 0.0
        self.first_bad_step = 0
        params = self.cell.params | bound.params
        self.dstate = tuple(xp.zeros_like(array) for array in state)
        self.grads = {name: xp.zeros_like(value) for name, value in params.items()}
        if self.ledger is not None:
            self.temporaries = temporary_nbytes(
                self.cell, bound, self.batch, self.by_inputs is not None
            )
            nbytes = sum(value.nbytes for value in params.values())
            self.ledger.hold("arena", arena.nbytes)
            self.ledger.hold("parameters", nbytes)
            self.ledger.hold("gradients", nbytes)
            self.ledger.hold("temporaries", self.temporaries)
            if self.by_inputs is not None:
                self.ledger.hold("derivatives by inputs", self.by_inputs.nbytes)

    def bind(self, inputs):
        """Read the inputs where they lie, or have them sent to the device."""
        self.inputs = inputs
        if self.xp is not np:
            if self.feed is None:
                self.feed = Feed(inputs, self.xp)
            else:
                self.feed.bind(inputs)
            self.inputs = self.feed

    def extend(self, inputs):
        """Go on with more steps: `inputs` holds those of before too."""
        if self.feed is None:
            self.inputs = inputs
        else:
            self.feed.extend(inputs)
        self.steps = len(inputs)

    def end(self, bound):
        """Learn the targets of all steps, before the first backward."""
        self.bound = bound

    def finish(self):
        """Return loss, first step whose loss is not finite or 0, gradients, state, its gradient."""
        if self.ledger is not None:
            self.ledger.hold("inputs and targets", self.feed.nbytes + targets_nbytes(self.bound))
            self.ledger.give("temporaries")
        loss = float(to_host(self.loss))  # the first and only wait for the device
        bad_step = int(to_host(self.first_bad_step))
        return loss, bad_step, self.grads, self.last, self.dstate

    def restart(self, source, at=0, place=0):
        """Make the working hidden state that after step `place`, from what `source` names."""
        self.place = place
        if source == INITIAL:
            self.working = self.initial
        elif source == LEAVING:
            internal = self.internal(at, place)
            self.working = self.cell_at(place).state_from_internal(internal)
        elif source == ENTERING:
            internal = self.internal(at, place + 1)
            self.working = tuple(array.copy() for array in self.cell.entering(internal))
        else:
            self.working = tuple(array.copy() for array in self.hidden(at, place))

    def forward(self, start, stop, internal_at=-1):
        """Run the steps start+1 ... stop; save the internal state of `stop` unless at < 0."""
        for step in range(start + 1, stop + 1):
            cell, x = self.cell_at(step), self.input(step)
            if step == stop and internal_at >= 0:
                self.working, internal = cell.forward_step(x, self.working)
                for target, array in zip(self.internal(internal_at, step), internal, strict=True):
                    target[...] = array
            else:
                self.working = cell.advance(x, self.working)
            self.place = step
            if self.sums is not None:
                self.sums.check(step, self.working)
            self.leave(step)

    def leave(self, step):
        """Keep what a step gave that no later one reads: the state after the last."""
        if step == self.steps:
            self.last = self.working

    def save_hidden(self, at):
        """Copy the working hidden state into the arena."""
        for target, array in zip(self.hidden(at, self.place), self.working, strict=True):
            target[...] = array

    def expand(self, start, stop, source, at, hidden_at, internal_at):
        """Compute the internal states of the steps start+1 ... stop, each from the one before.

        One step after the other, since a BLAS may give other bits for a product of more rows; from
        the last to the first, so that what is written never covers what is still to be read.
        """
        hidden, internal = self.sizes
        for step in range(stop, start, -1):
            if step == start + 1:
                self.restart(source, at, start)
            else:
                self.restart(SAVED, hidden_at + (step - start - 2) * hidden, step - 1)
            self.forward(step - 1, step, internal_at + (step - start - 1) * internal)

    def backward(self, step, at):
        """Back-propagate one step from its internal state in the arena."""
        cell, internal = self.cell_at(step), self.internal(at, step)
        dh = self.run_head(step, cell.state_from_internal(internal)[0])
        dstate = (self.dstate[0] + dh, *self.dstate[1:])
        more = {} if self.by_inputs is None else {"dx": self.by_input(step)}
        self.dstate = cell.backward_step(self.input(step), internal, dstate, self.grads, **more)

    def run_head(self, step, h, *rows):
        """Add the loss of `step` to that of the window; return its derivative by h."""
        xp = self.xp
        # A copy: a user's head may keep it, and it may lie in the arena.
        loss, dh = self.bound.forward_backward(step, xp.array(h), self.grads, *rows)
        if np.shape(dh) != h.shape:
            raise ValueError(
                f"the head's dh has shape {np.shape(dh)} at step {step}; give {h.shape}"
            )
        self.loss = self.loss + loss  # on a device: reading it would wait
        self.first_bad_step = xp.where(xp.isfinite(loss), self.first_bad_step, step)
        return dh

    # What a step sees; membptt.chains.ragged has the chain whose steps see fewer and fewer rows.

    def cell_at(self, step):
        """Return the cell with the noise of `step`."""
        return self.cell.at(step)

    def input(self, step):
        """Return the input of `step`."""
        return self.inputs[step - 1]

    def by_input(self, step):
        """Return where the derivative by the input of `step` goes."""
        return self.by_inputs[step - 1]

    def internal(self, at, step):
        """Return the arrays of the internal state of `step`, at byte `at` of the arena."""
        return views(self.arena, at, self.internal_shapes, self.cell.dtype)

    def hidden(self, at, step):
        """Return the arrays of the hidden state after `step`, at byte `at` of the arena."""
        return views(self.arena, at, self.hidden_shapes, self.cell.dtype)


def views(buffer, at, shapes, dtype):
    """Return arrays of these shapes that stand side by side at byte `at` of the buffer."""
    arrays = []
    for shape in shapes:
        end = at + prod(shape) * dtype.itemsize
        arrays.append(buffer[at:end].view(dtype).reshape(shape))
        at = end
    return tuple(arrays)


def targets_nbytes(bound):
    """Return what a head's targets take on a device; 0 for a head of the user's."""
    return getattr(getattr(bound, "rows", None), "nbytes", 0)


def temporary_nbytes(cell, bound, batch, input_grads=False):
    """Return a bound on the bytes of the arrays that come and go in one step, on a device.

    What a function of the user's makes besides is not known here.
    """
    layers = getattr(cell, "layers", [cell])
    inputs = batch * prod(cell.input_shape) if input_grads else 0
    step = max(largest(cell.params), inputs)
    step += sum(temporary_numbers(layer, batch, cell.noisy) for layer in layers)
    outputs = max((value.shape[-1] for value in bound.params.values()), default=0)
    # The head works while the states of all layers wait.
    head = 6 * batch * (outputs + 2) + largest(bound.params)
    head += 4 * prod(layers[-1].hidden_shapes(batch)[0])
    head += 4 * sum(map(prod, cell.hidden_shapes(batch)))
    return (16 + max(step, head)) * cell.dtype.itemsize


def temporary_numbers(layer, batch, noisy):
    """Return about how many numbers, of the cell's dtype, the arrays of one step of a layer have.

    The factors were found by counting what the cells and heads of this package make
    (tests/gpu/test_standin.py).
    """
    factor = 4 * getattr(layer, "gates", 1) + 8
    factor += len(getattr(layer, "kept", ()))  # what is unpacked
    if noisy:
        factor += 24 // layer.dtype.itemsize  # three arrays of 64-bit words: a mask is made
    numbers = factor * prod(layer.hidden_shapes(batch)[0])
    normalised = getattr(layer, "normalised_names", ())
    if normalised:  # of each gate its v and the derivative by it, and s of all twice
        numbers += 2 * len(normalised) * prod(layer.hidden_shapes(batch)[0])
        numbers += 2 * prod(layer.internal_shapes(batch)[-1])
    return numbers


def largest(params):
    """Return how many numbers the largest of the parameters has."""
    return max((value.size for value in params.values()), default=0)
