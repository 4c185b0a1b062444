"""What every cell has: parameters, the sizes of its states, and the input's projection.

A cell is one step of the chain that full BPTT runs over t = 1 ... T. Its two methods,
`forward_step` and `backward_step`, stand beside each other in the file of each cell and hold the
mathematics; the executor, the schedules and the memory model only need the sizes given here.

Letters of shapes: B batch, I inputs (or the size of the alphabet, for tokens), H hidden units,
G gates. Rows are examples: a = x W_x + h W_h + b with x [B, I], W_x [I, G H], W_h [H, G H] and
b [G H].
"""

import copy
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from membptt.arrays import add_rows, array_module, check_backend, from_host, namespace
from membptt.cells.noise import Noise
from membptt.checks import MOST, check_dtype, integer, shown
from membptt.types import Array, State


class Cell:
    """Base of the cells.

    Parameters
    ----------
    input_size : int
        I: the width of a dense input, or how many different tokens there are.
    hidden_size : int
        H.
    dtype : {"float32", "float64"}
        Of the parameters and of every state.
    seed : int
        Of the initial parameters, uniform in ±1/√H, biases included.
    backend : {"cython", "numpy", "cupy"}
        Which code the executor runs: the compiled kernels, this class, or this class on a GPU.
    recurrent_dropout, zoneout : float
        Probabilities of the noise in training; see `membptt.cells.noise`. A cell with noise runs
        its own array code on every backend.

    Attributes
    ----------
    params : dict of numpy.ndarray
        ``W_x`` [I, G H], ``W_h`` [H, G H] and ``b`` [G H], gates side by side in the order that
        the cell's own docstring gives; CuPy's arrays on backend "cupy". Change the arrays in place
        or replace them: they are read anew at every run.
    noise : membptt.cells.noise.Noise
        The probabilities, and which masks are used: see `set_noise`.

    Raises
    ------
    ValueError, TypeError
        If a size is not a positive whole number, the dtype or backend is unknown, or it is "cupy"
        and there is no device; or a probability is not in [0, 1).
    """

    gates = 1
    noise = Noise()
    hidden_names: tuple[str, ...] = ("h",)
    internal_names: tuple[str, ...] = ()
    # By the subclass; see `LSTM` for what they take and give.
    forward_step: Callable[..., tuple[State, State]]
    backward_step: Callable[..., State]
    state_from_internal: Callable[..., State]

    def __init_subclass__(cls, **options):
        """Have a class with a forward step of its own advance by that one."""
        super().__init_subclass__(**options)
        if "forward_step" in cls.__dict__ and "advance" not in cls.__dict__:
            cls.advance = Cell.advance

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        dtype: str = "float32",
        seed: int = 0,
        backend: str = "cython",
        recurrent_dropout: float = 0.0,
        zoneout: float = 0.0,
    ) -> None:
        self.input_size = integer("input_size", input_size, minimum=1, maximum=MOST)
        self.hidden_size = integer("hidden_size", hidden_size, minimum=1, maximum=MOST)
        self.dtype = check_dtype(dtype)
        self.backend = check_backend(backend)
        seed = integer("seed", seed, minimum=0)
        self.noise = Noise(recurrent_dropout=recurrent_dropout, zoneout=zoneout, seed=seed)
        generator = np.random.default_rng(seed)
        xp = array_module(backend)
        bound = 1 / math.sqrt(self.hidden_size)
        self.params = {
            name: from_host(generator.uniform(-bound, bound, shape).astype(self.dtype), xp)
            for name, shape in self.param_shapes().items()
        }

    def __repr__(self):
        options = "".join(f", {name}={p}" for name, p in self.noise.options().items())
        return (
            f"{type(self).__name__}(input_size={self.input_size}, hidden_size={self.hidden_size}, "
            f"dtype={self.dtype.name!r}, backend={self.backend!r}{options})"
        )

    @property
    def noisy(self):
        """Whether it has any noise, in training."""
        return self.noise.wanted

    @property
    def own_code(self):
        """Whether only the cell's own code computes it: no kernels have its options."""
        return self.noisy

    def set_noise(self, draw: int | None, first_row: int = 0) -> None:
        """Choose the masks of all noise from now on.

        Parameters
        ----------
        draw : int or None
            Other masks for every number, 0 at first: change it once an update. None for no noise,
            as when a network is evaluated; zoneout takes its expectation then.
        first_row : int
            Where in a larger batch the rows begin: so have parts of a batch the masks of the whole.

        Raises
        ------
        ValueError, TypeError
            If one is not a whole number from 0 on.
        """
        if draw is not None:
            draw = integer("draw", draw, minimum=0)
        first_row = integer("first_row", first_row, minimum=0)
        self.noise = replace(self.noise, draw=draw, first_row=first_row)

    def without_noise(self):
        """Return this cell without noise, as `set_noise` None gives it: itself if it has none."""
        if not self.noisy:
            return self
        other = copy.copy(self)
        other.set_noise(None)
        return other

    def reseeded(self):
        """Return this cell with masks of another seed: itself if it has no noise."""
        if not self.noisy:
            return self
        other = copy.copy(self)
        other.noise = self.noise.reseeded()
        return other

    def at(self, step, rows=None):
        """Return this cell with the noise of `step`, counted from 1: itself if it has none.

        `rows` are the numbers of the rows that run, where these are not all in their order.
        """
        if not self.noisy:
            return self
        other = copy.copy(self)
        other.noise = replace(self.noise, step=self.noise.step + step, rows=rows)
        return other

    def advance(self, x: Array, state: State) -> State:
        """Return the hidden state after this step, where nobody keeps its internal state.

        The bits of `forward_step`, for less where making the internal state takes work of its own.
        """
        return self.forward_step(x, state)[0]

    def param_shapes(self):
        """Return the shape of each parameter by its name."""
        columns = self.gates * self.hidden_size
        return {
            "W_x": (self.input_size, columns),
            "W_h": (self.hidden_size, columns),
            "b": (columns,),
        }

    @property
    def kind(self) -> str:
        """The name of the kind of cell, for people."""
        return type(self).__name__

    @property
    def input_shape(self):
        """The shape of one row of a dense input: (I,)."""
        return (self.input_size,)

    def hidden_shapes(self, batch):
        """Return the shape of each array of a hidden state: [B, H] for each of `hidden_names`."""
        return [(batch, self.hidden_size)] * len(self.hidden_names)

    def internal_shapes(self, batch):
        """Return the shape of each array of an internal state, those of the entering state first.

        [B, H] for each of `internal_names`.
        """
        return [(batch, self.hidden_size)] * len(self.internal_names)

    def entering(self, internal: State) -> State:
        """Return the hidden state that entered the step, from its internal state: it is a part."""
        return internal[: len(self.hidden_names)]

    def hidden_nbytes(self, batch: int) -> int:
        """Return the bytes of one hidden state: what a step passes to the next."""
        return sum(map(math.prod, self.hidden_shapes(batch))) * self.dtype.itemsize

    def internal_nbytes(self, batch: int) -> int:
        """Return the bytes of one internal state: all that the backward of one step reads."""
        return sum(map(math.prod, self.internal_shapes(batch))) * self.dtype.itemsize

    def zero_state(self, batch: int) -> State:
        """Return a hidden state of zeros, one array for each of `hidden_names`."""
        xp = array_module(self.backend)
        return tuple(xp.zeros(shape, dtype=self.dtype) for shape in self.hidden_shapes(batch))

    # -- what forward_step and backward_step share ------------------------------------------------

    def preactivations(self, x, h_prev):
        """Return a = x W_x + h_prev W_h + b, [B, G H]; for tokens x [B], row x of W_x."""
        p = self.params
        return self.projected(x) + self.noise.recurrent(h_prev) @ p["W_h"] + p["b"]

    def projected(self, x):
        """Return x W_x, [B, G H]; for tokens x [B], row x of W_x."""
        W_x = self.params["W_x"]
        return namespace(W_x).take(W_x, x, axis=0) if x.ndim == 1 else x @ W_x

    def add_gradients(self, grads, x, h_prev, da, da_h=None, db=None):
        """Add what this step's deltas da [B, G H] give to the gradients of W_x, W_h and b.

        `da_h` are the deltas of h_prev W_h, `db` those of b, where they are others than those of
        x W_x.
        """
        if x.ndim == 1:
            add_rows(grads["W_x"], x, da)  # row x of W_x was used: only it gets a share
        else:
            grads["W_x"] += x.T @ da
        grads["W_h"] += self.noise.recurrent(h_prev).T @ (da if da_h is None else da_h)
        grads["b"] += namespace(da).sum(da if db is None else db, axis=0)

    def add_by_input(self, dx, da):
        """Add what this step's deltas give to the derivative by x [B, I], unless that is None."""
        if dx is not None:
            dx += da @ self.params["W_x"].T


def check_cell(cell, name="cell"):
    """Raise a TypeError unless `cell`, which the user calls `name`, is one."""
    if not isinstance(cell, Cell):
        raise TypeError(f"{name} is {shown(cell)}; give a cell such as mb.LSTM(...)")


def columns(a, count):
    """Return `count` blocks of the columns of a [B, count H], each [B, H]: one for each gate."""
    width = a.shape[1] // count
    return [a[:, k * width : (k + 1) * width] for k in range(count)]


def sigmoid(a):
    """Return 1 / (1 + exp(-a)), written with tanh so that no exponential can overflow."""
    return 0.5 * (1 + namespace(a).tanh(0.5 * a))


PARTS = 32


def planned_part(numbers):
    """Return a 32nd of so many numbers, the largest whole part that is not above it.

    A planner's tables count bytes in the greatest common divisor of a hidden and an internal state.
    An internal state whose row is a whole number of such parts of a hidden row keeps them small.
    """
    return next((numbers // k for k in range(PARTS, numbers) if numbers % k == 0), 1)
