"""A cell made of two functions of your own.

    forward_step(params, x, state)                           -> state after the step, saved
    backward_step(params, x, state, saved, dstate, grads)    -> derivative by `state`

`state` and `saved` are tuples of arrays. `saved` is whatever the backward wants to have from the
forward besides the state that entered. Both functions take the parameters as an argument, so that
the gradient check can move them. They must be pure: a step is run again, and has to come out the
same.
"""

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from membptt.arrays import array_module
from membptt.cells.base import Cell
from membptt.checks import check_dtype, integer, mapping, shown, sizes
from membptt.types import Array, Params, State


class Custom(Cell):
    """Your own step, under every schedule and every check, on the plain backend.

    An internal state is the state that entered, then `saved`, then, unless `state_after` is
    given, the state that leaves the step.

    Parameters
    ----------
    forward_step : callable
        ``forward_step(params, x, state)`` returns ``(state, saved)``: tuples of arrays.
    backward_step : callable
        ``backward_step(params, x, state, saved, dstate, grads)`` returns the derivatives by
        `state` and adds those by the parameters to ``grads[name]``, in place. `state` is what
        entered the step, `dstate` the derivatives of the loss by what left it.
    params : dict of numpy.ndarray
        All float32 or all float64.
    input_size : int or tuple of int
        Of one row of a dense input; or how many different tokens there are.
    hidden : dict of str to tuple of int
        The arrays of the state and their shapes without the batch: ``{"h": (32,), "c": (32,)}``.
        The head reads the first one.
    saved : dict of str to tuple of int, optional
        The arrays of `saved` in the same way.
    state_after : callable, optional
        ``state_after(params, state, saved)`` returns the state that leaves the step, to the bit, at
        little cost: a smaller internal state, so less memory.
    backend : {"numpy", "cupy"}
        Whose arrays your functions are given: NumPy's, or CuPy's on a GPU.

    Raises
    ------
    ValueError
        If the parameters' dtypes differ, or the backend is another one. While running: if a
        function returns arrays of other shapes or another dtype than stated; the message names the
        array.

    Examples
    --------
    A leaky integrator, s = a s + x, with one parameter:

    >>> import membptt as mb
    >>> import numpy as np
    >>> def forward(params, x, state):
    ...     return (params["a"] * state[0] + x,), ()
    >>> def backward(params, x, state, saved, dstate, grads):
    ...     grads["a"] += (dstate[0] * state[0]).sum(axis=0)
    ...     return (dstate[0] * params["a"],)
    >>> params = {"a": np.full(3, 0.9)}
    >>> cell = mb.Custom(forward, backward, params, input_size=3, hidden={"s": (3,)})
    >>> mb.check_gradients(cell).ok
    True
    """

    def __init__(
        self,
        forward_step: Callable[..., Any],
        backward_step: Callable[..., Any],
        params: Params,
        input_size: int | tuple[int, ...],
        hidden: Mapping[str, Any],
        saved: Mapping[str, Any] | None = None,
        state_after: Callable[..., Any] | None = None,
        backend: str = "numpy",
    ) -> None:
        if backend not in ("numpy", "cupy"):
            raise ValueError(
                f"backend is {shown(backend)}; your own functions run on numpy or cupy"
            )
        self.functions = forward_step, backward_step, state_after
        self.backend = backend
        xp = array_module(backend)
        params = mapping("params", params, '{"W": ...}')
        self.params = {name: xp.asarray(value) for name, value in params.items()}
        self.dtype = common_dtype(self.params)
        if isinstance(input_size, tuple):
            self.input_size = sizes("input_size", input_size)
        else:
            self.input_size = integer("input_size", input_size, minimum=1)
        self.hidden = shapes("hidden", hidden)
        self.saved = shapes("saved", saved or {})
        if not self.hidden:
            raise ValueError('hidden is empty; give the arrays of the state, like {"h": (32,)}')
        self.hidden_names = tuple(self.hidden)
        leaving = () if state_after else (f"{name}_next" for name in self.hidden)
        self.internal_names = (*(f"{name}_prev" for name in self.hidden), *self.saved, *leaving)
        self.shapes = {name: value.shape for name, value in self.params.items()}
        self.hidden_size = prod(next(iter(self.hidden.values())))

    def __repr__(self):
        return f"Custom(hidden={self.hidden}, saved={self.saved}, dtype={self.dtype.name!r})"

    @property
    def input_shape(self):
        """The shape of one row of a dense input."""
        return self.input_size if isinstance(self.input_size, tuple) else (self.input_size,)

    def param_shapes(self):
        """Return the shape of each parameter by its name."""
        return self.shapes

    def hidden_shapes(self, batch):
        """Return the shape of each array of a hidden state."""
        return [(batch, *shape) for shape in self.hidden.values()]

    def internal_shapes(self, batch):
        """Return the shape of each array of an internal state."""
        hidden = self.hidden_shapes(batch)
        saved = [(batch, *shape) for shape in self.saved.values()]
        return hidden + saved + ([] if self.functions[2] else hidden)

    def forward_step(self, x: Array, state: State) -> tuple[State, State]:
        """Return the hidden state after this step, and its internal state; see `Cell`."""
        after, saved = self.functions[0](self.params, x, state)
        after = self.checked("forward_step", "state", after, self.hidden, len(x))
        saved = self.checked("forward_step", "saved", saved, self.saved, len(x))
        return after, (*state, *saved, *(() if self.functions[2] else after))

    def backward_step(self, x: Array, internal: State, dstate: State, grads: Params) -> State:
        """Return the derivative by the entering hidden state; add this step's to `grads`."""
        state, saved = self.parts(internal)
        mine = {name: grads[name] for name in self.params}  # not the head's
        dprev = self.functions[1](self.params, x, state, saved, dstate, mine)
        for name, array in mine.items():
            if array is not grads[name]:
                raise ValueError(
                    f"backward_step put a new array at grads[{name!r}]; add to the one there: "
                    f"grads[{name!r}] += ..."
                )
        return self.checked("backward_step", "derivative", dprev, self.hidden, len(x))

    def state_from_internal(self, internal: State) -> State:
        """Return the hidden state after the step, from its internal state."""
        state, saved = self.parts(internal)
        if self.functions[2] is None:
            return tuple(internal[len(state) + len(saved) :])
        after = self.functions[2](self.params, state, saved)
        return self.checked("state_after", "state", after, self.hidden, len(state[0]))

    def parts(self, internal):
        """Return the state that entered the step, and what the forward saved."""
        split = len(self.hidden)
        return tuple(internal[:split]), tuple(internal[split : split + len(self.saved)])

    def checked(self, function, kind, arrays, expected, batch):
        """Return the arrays as a tuple, or say which one is not as stated."""
        arrays = tuple(arrays) if isinstance(arrays, (tuple, list)) else (arrays,)
        if len(arrays) != len(expected):
            raise ValueError(
                f"{function} returned {len(arrays)} arrays as {kind}; give {len(expected)}: "
                f"{', '.join(expected) or 'none, an empty tuple'}"
            )
        for (name, shape), array in zip(expected.items(), arrays, strict=True):
            if np.shape(array) != (batch, *shape):
                raise ValueError(
                    f"{function} returned {kind} {name} of shape {np.shape(array)}; "
                    f"give {(batch, *shape)}"
                )
            if array.dtype != self.dtype:
                raise ValueError(
                    f"{function} returned {kind} {name} as {array.dtype}; give {self.dtype}, "
                    "as the parameters"
                )
        return arrays


def shapes(name, given):
    """Return the shape of each array of a row, by its name."""
    given = mapping(name, given, '{"h": (32,)}')
    return {key: sizes(f"{name}[{key!r}]", value) for key, value in given.items()}


def common_dtype(params):
    """Return the dtype that all parameters have."""
    if not params:
        raise ValueError('params is empty; give a dict of arrays, like {"W": ...}')
    dtypes = {name: value.dtype.name for name, value in params.items()}
    if len(set(dtypes.values())) > 1:
        raise ValueError(f"params are of several dtypes, {dtypes}; give one")
    return check_dtype(next(iter(dtypes.values())))
