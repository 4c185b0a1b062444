"""A cell whose internal states take fewer bytes: approximate gradients, asked for by name.

After Chakrabarti and Moseley, "Backprop with Approximate Activations for Memory-efficient Network
Training" (2019): the forward is computed exactly, and only what is kept for the backward is
rounded, so that errors do not add up from step to step in the forward. An internal state here is

    exact      the hidden state that leaves the step: h, and c of an LSTM
    reduced    all else that the backward reads: RNN   h_prev
                                                 GRU   h_prev, r, z, n, q
                                                 LSTM  h_prev, i, f, g, o

so that a schedule restarts from the state that left, and the head reads h, to the bit: the loss,
the states and every step that is run again are those of the cell itself. What is reduced acts on
the gradients alone. An LSTM's c_prev is not kept, since c is: f ∘ c_prev = c - i ∘ g.

Each internal state is rounded in one way only, so the gradients still have the same bits under
every schedule and budget: those of full BPTT with this cell.
"""

import copy
from math import prod

import numpy as np

from membptt.arrays import namespace
from membptt.cells.base import Cell, planned_part
from membptt.cells.gru import GRU
from membptt.cells.lstm import LSTM
from membptt.cells.packing import FORMATS, ROWS, SIGNED, UNIT, decode, encode, layout
from membptt.cells.rnn import RNN
from membptt.cells.stack import Stack
from membptt.checks import one_of, shown
from membptt.types import Array, Params, State

# What is kept reduced of each kind's internal state, and what is known of its values.
KEPT = {
    RNN: {"h_prev": ROWS},
    GRU: {"h_prev": ROWS, "r": UNIT, "z": UNIT, "n": SIGNED, "q": ROWS},
    LSTM: {"h_prev": ROWS, "i": UNIT, "f": UNIT, "g": SIGNED, "o": UNIT},
}

LEAST_GATE = 2.0**-24  # what a forget gate counts as at least where c_prev is had by division


class Reduced(Cell):
    """A cell that keeps for the backward pass what it can in 8 or 16 bits.

    Loss, states and recomputed steps are exact, the gradients approximate; `membptt.gradient_error`
    measures how much. It runs the cell's own array code, on backend "cython" too, so what is exact
    has the bits of the cell on backend "numpy".

    Parameters
    ----------
    cell : RNN, GRU or LSTM
        Without options that only its own code has. Layers on one another are reduced one by one:
        ``mb.Stack([mb.Reduced(layer, "int8"), ...])``.
    internal : {"float16", "bfloat16", "int8"}
        How; see `membptt.cells.packing` for the errors.

    Attributes
    ----------
    cell : Cell
        The exact one, with the same parameters.
    params : dict of array
        Those of `cell`.

    Raises
    ------
    TypeError
        If `cell` is something else.
    ValueError
        If the format is unknown, or the cell has options that only its own code has.

    Notes
    -----
    Bytes of an internal state are rounded up to whole 32nds of a hidden state (or a little less,
    where that is no whole number), so that a planner's tables, which count in the greatest common
    divisor of the two, stay small.

    Chakrabarti and Moseley, "Backprop with Approximate Activations for Memory-efficient Network
    Training" (2019).

    Examples
    --------
    >>> import membptt as mb
    >>> cell = mb.LSTM(50, 256)
    >>> [mb.Reduced(cell, name).internal_nbytes(1) for name in ("float16", "int8")]
    [4608, 3392]
    >>> cell.internal_nbytes(1)
    6144
    """

    own_code = True

    def __init__(self, cell: Cell, internal: str) -> None:
        if isinstance(cell, Stack):
            raise TypeError(
                f"cell is {shown(cell)}; reduce its layers: mb.Stack([mb.Reduced(layer, ...), ...])"
            )
        if type(cell) not in KEPT:
            raise TypeError(f"cell is {shown(cell)}; give an RNN, GRU or LSTM")
        if cell.own_code:
            raise ValueError(
                f"internal is {shown(internal)} for {shown(cell)}, whose options keep other "
                "arrays; leave one of them out"
            )
        one_of("internal", internal, FORMATS)
        self.cell = copy.copy(cell)
        self.internal = internal
        self.input_size, self.hidden_size = cell.input_size, cell.hidden_size
        self.gates, self.hidden_names = cell.gates, cell.hidden_names
        self.kept = KEPT[type(cell)]
        self.internal_names = (*cell.hidden_names, "reduced")

    def __copy__(self):
        """Return one with a cell of its own, and the same parameters."""
        return type(self)(self.cell, self.internal)

    def __repr__(self):
        return f"Reduced({self.cell!r}, {self.internal!r})"

    @property
    def kind(self):
        """The cell's kind, and the format."""
        return f"{self.cell.kind} {self.internal}"

    @property
    def params(self):
        """The arrays of the cell by name."""
        return self.cell.params

    @params.setter
    def params(self, params):
        self.cell.params = params

    @property
    def dtype(self):
        """Of the parameters and hidden states."""
        return self.cell.dtype

    @dtype.setter
    def dtype(self, value):
        self.cell.dtype = value

    @property
    def backend(self):
        """Whose arrays it computes with."""
        return self.cell.backend

    @backend.setter
    def backend(self, value):
        self.cell.backend = value

    def param_shapes(self):
        """Return the shape of each parameter by its name."""
        return self.cell.param_shapes()

    def internal_shapes(self, batch):
        """Return the shapes of the hidden state that leaves, and of one array with all else."""
        hidden = self.hidden_shapes(batch)
        exact = sum(prod(shape[1:]) for shape in hidden)  # numbers of a row
        part = planned_part(exact)
        nbytes = sum(kind.itemsize * width for kind, width in self.stored())
        return [*hidden, (batch, -(-nbytes // (part * self.dtype.itemsize)) * part)]

    def stored(self):
        """Return type and width of the arrays that stand in the last one of an internal state."""
        return layout(self.internal, self.kept.values(), self.hidden_size, self.dtype)

    def forward_step(self, x: Array, state: State) -> tuple[State, State]:
        """Return the hidden state after this step, and its internal state, reduced.

        Parameters
        ----------
        x : array
            As the cell takes it.
        state : tuple of arrays
            As `hidden_names`, each [B, H].

        Returns
        -------
        state, internal : tuple of arrays
            The cell's own state, to the bit; that state again, and one array with all else.
        """
        after, internal = self.cell.forward_step(x, state)
        return after, (*after, self.packed(internal))

    def advance(self, x: Array, state: State) -> State:
        """Return the hidden state after this step: nothing is reduced that nobody keeps."""
        return self.cell.advance(x, state)

    def backward_step(
        self, x: Array, internal: State, dstate: State, grads: Params, dx: Array | None = None
    ) -> State:
        """Return the derivative by the entering hidden state; add this step's to `grads`.

        Parameters
        ----------
        x, dstate, grads, dx
            As the cell takes them.
        internal : tuple of arrays
            As from `forward_step`.

        Returns
        -------
        tuple of arrays
            As `hidden_names`, each [B, H]; approximate.
        """
        return self.cell.backward_step(x, self.unpacked(internal), dstate, grads, dx)

    def state_from_internal(self, internal: State) -> State:
        """Return the hidden state after the step: it is a part of its internal state."""
        return tuple(internal[: len(self.hidden_names)])

    def entering(self, internal):
        """Refuse: the hidden state that entered the step is not kept exactly.

        Raises
        ------
        ValueError
            No schedule that this package plans asks for it.
        """
        raise ValueError(
            f"a restart from the state that entered a step, which {self.kind} keeps reduced; give "
            "a schedule of mb.schedule(...), or for truncated BPTT a stride as long as its window"
        )

    def packed(self, internal):
        """Return all that is reduced of the cell's internal state in one array of its dtype."""
        by_name = dict(zip(self.cell.internal_names, internal, strict=True))
        arrays = [by_name[name] for name in self.kept]
        (*_, shape) = self.internal_shapes(len(arrays[0]))
        found = namespace(arrays[0]).zeros(shape, dtype=self.dtype)
        nbytes, at = found.view(np.uint8), 0
        for code in encode(self.internal, self.kept.values(), arrays):
            code = code.view(np.uint8)
            nbytes[:, at : at + code.shape[1]] = code
            at += code.shape[1]
        return found

    def unpacked(self, internal):
        """Return the internal state that the cell's backward reads."""
        *leaving, packed = internal
        nbytes, at, stored = packed.view(np.uint8), 0, []
        for kind, width in self.stored():
            end = at + kind.itemsize * width
            stored.append(nbytes[:, at:end].copy().view(kind))
            at = end
        arrays = decode(self.internal, self.kept.values(), stored, self.dtype)
        by_name = dict(zip(self.hidden_names, leaving, strict=True))
        by_name |= zip(self.kept, arrays, strict=True)
        if "c_prev" in self.cell.internal_names:
            c, i, f, g = (by_name[name] for name in "cifg")
            # It is read as f c_prev only; where f is 0 or next to it, any finite number does.
            by_name["c_prev"] = (c - i * g) / namespace(f).clip(f, LEAST_GATE, 1)
        return tuple(by_name[name] for name in self.cell.internal_names)


def exact(cell):
    """Return the cell without reduced internal states; the parameters are the same arrays."""
    if isinstance(cell, Stack):
        other = copy.copy(cell)  # with whatever else it does between its layers
        other.layers = [exact(layer) for layer in other.layers]
        other.internal_names = other.names("internal_names")
        return other
    return cell.cell if isinstance(cell, Reduced) else cell


def is_reduced(cell):
    """Return whether the cell, or a layer of it, keeps reduced internal states."""
    return any(isinstance(layer, Reduced) for layer in getattr(cell, "layers", [cell]))
