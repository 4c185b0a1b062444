"""Layers on one another: all of them together are one step of the chain.

    layer 0 reads x_t, layer l > 0 reads the h_t of the layer beneath; the head reads the top one's

With dropout a layer reads h_t ∘ m_t, with another mask m_t at every step and in every layer; see
membptt.cells.noise.

The states of the layers stand side by side, the top layer first, since a head reads the first array
of a state; their sizes add. Forward goes from layer 0 up; backward from the top down, where a layer
passes dx = da W_xᵀ to the dh of the layer beneath.
"""

import copy
from collections.abc import Iterable, MutableMapping, Sequence
from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from membptt.arrays import namespace
from membptt.cells.base import Cell, check_cell
from membptt.cells.custom import Custom
from membptt.cells.noise import Noise
from membptt.checks import integer, shown
from membptt.types import Array, Params, State


class Stack(Cell):
    """Several cells on one another, as one cell.

    Parameters
    ----------
    layers : sequence of Cell
        Layer 0 first: the one that reads the inputs. Of any mix of kinds; each reads as many
        numbers as the one beneath has hidden units. Only layer 0 may be a `Custom`.
    dropout : float
        Probability with which a layer does not see a unit of the layer beneath, in training.
    seed : int
        Of the masks of that.

    Attributes
    ----------
    params : dict of array
        Those of every layer, ``"0.W_x"`` for ``W_x`` of layer 0. They are the layers' own arrays.
    hidden_names : tuple of str
        ``("h1", "c1", "h0", "c0")`` for two LSTM layers: the top layer first.

    Raises
    ------
    ValueError, TypeError
        If a layer is no cell, or the sizes, dtypes or backends do not fit, or there is dropout
        with nothing between layers.

    Examples
    --------
    >>> import membptt as mb
    >>> stack = mb.Stack([mb.GRU(10, 16, seed=0), mb.LSTM(16, 8, seed=1)])
    >>> stack.hidden_names, stack.hidden_nbytes(1), stack.internal_nbytes(1)
    (('h1', 'c1', 'h0'), 128, 512)
    """

    def __init__(self, layers: Sequence[Cell], dropout: float = 0.0, seed: int = 0) -> None:
        if not isinstance(layers, Iterable):
            raise TypeError(f"layers is {shown(layers)}; give a list of cells")
        layers = list(layers)
        check_layers(layers)
        self.noise = Noise(dropout=dropout, seed=integer("seed", seed, minimum=0))
        if dropout and len(layers) == 1:
            raise ValueError(
                f"dropout is {dropout} between the layers of a stack of one; give at least two"
            )
        self.input_size = layers[0].input_size
        self.hidden_size, self.gates = layers[-1].hidden_size, layers[-1].gates
        self.whole = SimpleNamespace()
        self.params = {
            f"{number}.{name}": value
            for number, layer in enumerate(layers)
            for name, value in layer.params.items()
        }
        self.layers = layers
        self.own_layers()
        for number, layer in enumerate(self.layers):
            layer.noise = replace(layer.noise, layer=number)
        self.hidden_names = self.names("hidden_names")
        self.internal_names = self.names("internal_names")

    def own_layers(self):
        """Have copies of the layers that find their parameters in `params`."""
        self.layers = [copy.copy(layer) for layer in self.layers]
        for number, layer in enumerate(self.layers):
            layer.params = Within(self.whole, number)

    def __copy__(self):
        """Return a stack with the same `params`, and layers of its own."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.whole = SimpleNamespace(params=self.params)
        other.own_layers()
        return other

    @property
    def params(self):
        """The arrays of all layers by name.

        Layers find them through `whole` and not through the stack: that would be a cycle, and a
        device's memory would wait for Python's collector.
        """
        return self.whole.params

    @params.setter
    def params(self, params):
        self.whole.params = params

    def __repr__(self):
        options = "".join(f", {name}={p}" for name, p in self.noise.options().items())
        return f"Stack([{', '.join(map(repr, self.layers))}]{options})"

    @property
    def dtype(self):
        """Of the parameters and states of every layer."""
        return self.layers[0].dtype

    @dtype.setter
    def dtype(self, value):
        for layer in self.layers:
            layer.dtype = value

    @property
    def backend(self):
        """Which code runs every layer."""
        return self.layers[0].backend

    @backend.setter
    def backend(self, value):
        for layer in self.layers:
            layer.backend = value

    @property
    def noisy(self):
        """Whether there is any noise, in a layer or between two, in training."""
        return self.noise.wanted or any(layer.noisy for layer in self.layers)

    @property
    def own_code(self):
        """Whether any option here has no kernels: all layers run their own code then."""
        return self.noisy or any(layer.own_code for layer in self.layers)

    def set_noise(self, draw, first_row=0):
        """Choose the masks of all noise from now on; see `Cell.set_noise`."""
        for layer in self.layers:
            layer.set_noise(draw, first_row)
        super().set_noise(draw, first_row)

    def reseeded(self):
        """Return this stack with other masks in every layer and between them."""
        other = super().reseeded()
        if other is not self:
            other.layers = [layer.reseeded() for layer in other.layers]
        return other

    def at(self, step, rows=None):
        """Return this stack with the noise of `step`; see `Cell.at`."""
        if not self.noisy:
            return self
        other = copy.copy(self)
        other.noise = replace(self.noise, step=self.noise.step + step, rows=rows)
        other.layers = [layer.at(step, rows) for layer in other.layers]
        return other

    @property
    def kind(self):
        """The names of the layers' kinds, layer 0 first."""
        return " + ".join(layer.kind for layer in self.layers)

    def names(self, of):
        """Return the names of all layers' arrays, the top layer's first."""
        return tuple(
            f"{name}{number}"
            for number in reversed(range(len(self.layers)))
            for name in getattr(self.layers[number], of)
        )

    @property
    def input_shape(self):
        """The shape of one row of a dense input: layer 0's."""
        return self.layers[0].input_shape

    def param_shapes(self):
        """Return the shape of each parameter by its name."""
        return {
            f"{number}.{name}": shape
            for number, layer in enumerate(self.layers)
            for name, shape in layer.param_shapes().items()
        }

    def hidden_shapes(self, batch):
        """Return the shape of each array of a hidden state, the top layer's first."""
        return [shape for layer in self.layers[::-1] for shape in layer.hidden_shapes(batch)]

    def internal_shapes(self, batch):
        """Return the shape of each array of an internal state, the top layer's first."""
        return [shape for layer in self.layers[::-1] for shape in layer.internal_shapes(batch)]

    def forward_step(self, x: Array, state: State) -> tuple[State, State]:
        """Return the hidden state after this step, and its internal state.

        Parameters
        ----------
        x : numpy.ndarray
            As layer 0 takes it.
        state : tuple of arrays
            As `hidden_names`.

        Returns
        -------
        state, internal : tuple of arrays
            As `hidden_names` and `internal_names`.
        """
        states: list[State] = []
        internals: list[State] = []
        befores = self.parts(state, "hidden_names")
        for number, (layer, before) in enumerate(zip(self.layers, befores, strict=True)):
            if number > 0:
                x = self.noise.between(states[-1][0], number)
            after, internal = layer.forward_step(x, before)
            states.append(after)
            internals.append(internal)
        return joined(states), joined(internals)

    def advance(self, x: Array, state: State) -> State:
        """Return the hidden state after this step, where nobody keeps its internal state."""
        states: list[State] = []
        befores = self.parts(state, "hidden_names")
        for number, (layer, before) in enumerate(zip(self.layers, befores, strict=True)):
            if number > 0:
                x = self.noise.between(states[-1][0], number)
            states.append(layer.advance(x, before))
        return joined(states)

    def backward_step(
        self, x: Array, internal: State, dstate: State, grads: Params, dx: Array | None = None
    ) -> State:
        """Return the derivative by the entering hidden state; add this step's to `grads`.

        Parameters
        ----------
        x, internal, dstate : array, tuples of arrays
            As in `forward_step`; `dstate` by the hidden state after the step.
        grads : dict of array
            Like `params`; changed in place.
        dx : array, optional
            The derivative by x is added to it.

        Returns
        -------
        tuple of arrays
            As `hidden_names`.
        """
        internals = self.parts(internal, "internal_names")
        dstates = self.parts(dstate, "hidden_names")
        inputs = [x]
        for number, layer in enumerate(self.layers[:-1]):
            h = layer.state_from_internal(internals[number])[0]
            inputs.append(self.noise.between(h, number + 1))
        for number in reversed(range(len(self.layers))):
            layer, own = self.layers[number], Within(SimpleNamespace(params=grads), number)
            by_input = dx if number == 0 else namespace(dstate[0]).zeros_like(inputs[number])
            # A user's own cell gives no derivative by its input.
            more = {} if by_input is None else {"dx": by_input}
            dstates[number] = layer.backward_step(
                inputs[number], internals[number], dstates[number], own, **more
            )
            if number > 0:
                dh, *others = dstates[number - 1]
                dstates[number - 1] = (dh + self.noise.between(by_input, number), *others)
        return joined(dstates)

    def state_from_internal(self, internal: State) -> State:
        """Return the hidden state after the step, from its internal state: no product."""
        internals = self.parts(internal, "internal_names")
        return joined(
            [
                layer.state_from_internal(own)
                for layer, own in zip(self.layers, internals, strict=True)
            ]
        )

    def entering(self, internal):
        """Return the hidden state that entered the step, from its internal state."""
        internals = self.parts(internal, "internal_names")
        return joined(
            [layer.entering(own) for layer, own in zip(self.layers, internals, strict=True)]
        )

    def parts(self, arrays, of):
        """Return the arrays of each layer, layer 0 first, from those of all."""
        found, end = [], len(arrays)
        for layer in self.layers:
            begin = end - len(getattr(layer, of))
            found.append(tuple(arrays[begin:end]))
            end = begin
        return found


def joined(parts):
    """Return the arrays of all layers, the top layer's first."""
    return tuple(array for part in reversed(parts) for array in part)


class Within(MutableMapping):
    """The entries of one layer in the `params` of all layers, by the layer's own names."""

    def __init__(self, owner, number):
        self.owner, self.prefix = owner, f"{number}."

    def __getitem__(self, name):
        return self.owner.params[self.prefix + name]

    def __setitem__(self, name, value):
        self.owner.params[self.prefix + name] = value

    def __delitem__(self, name):
        del self.owner.params[self.prefix + name]

    def __iter__(self):
        size = len(self.prefix)
        return (name[size:] for name in self.owner.params if name.startswith(self.prefix))

    def __len__(self):
        return sum(1 for _ in self)


def check_layers(layers):
    """Raise unless the layers can stand on one another."""
    if not layers:
        raise ValueError("layers is empty; give at least one cell")
    for number, layer in enumerate(layers):
        check_cell(layer, f"layer {number}")
        if isinstance(layer, Stack):
            raise TypeError(f"layer {number} is a Stack; give its layers one by one")
        for name in ("dtype", "backend"):
            mine, first = getattr(layer, name), getattr(layers[0], name)
            if mine != first:
                raise ValueError(f"layer {number} has {name} {mine}, layer 0 {first}; give one")
        if number == 0:
            continue
        if isinstance(layer, Custom):
            raise ValueError(
                f"layer {number} is a Custom, whose backward gives no derivative by its input; it "
                "can only be layer 0"
            )
        width = layers[number - 1].hidden_shapes(1)[0][1:]
        if width != (layer.input_size,):
            raise ValueError(
                f"layer {number} has input_size {layer.input_size}, the layer beneath gives "
                f"{' x '.join(map(str, np.atleast_1d(width)))}; give the same"
            )
