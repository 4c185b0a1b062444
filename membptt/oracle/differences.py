"""Gradients by differences: a check that knows nothing of backpropagation.

Each parameter p is moved by ±h and ±2h and the loss evaluated anew:

    dL/dp ≈ ( 8 [L(p+h) - L(p-h)] - [L(p+2h) - L(p-2h)] ) / 12h        (error of order h⁴)

in float64 with h = 2⁻⁹ the truncation and the rounding error are both near 1e-12, far below the
tolerance of 1e-6 that tells a right gradient from a wrong one.
"""

import copy
from dataclasses import dataclass

import numpy as np

from membptt.arrays import array_module, from_host, namespace, to_host
from membptt.cells.base import Cell, check_cell
from membptt.checks import integer
from membptt.executor.executor import bptt
from membptt.executor.window import check_inputs, check_state, iterated
from membptt.oracle.full import full_bptt
from membptt.schedules import Schedule
from membptt.sequences.blocks import sequence
from membptt.types import Array, Inputs, LossHead, State

SHIFT = 2.0**-9
TOLERANCE = 1e-6


@dataclass(frozen=True)
class Row:
    """The comparison for one parameter (or one part of the initial state).

    Attributes
    ----------
    name : str
    shape : tuple of int
    checked : int
        How many elements were compared.
    difference : float
        The largest difference, relative to the largest gradient of this parameter.
    index : tuple of int
        Where it is.
    gradient, numeric : float
        The two values there.
    """

    name: str
    shape: tuple
    checked: int
    difference: float
    index: tuple
    gradient: float
    numeric: float

    @property
    def ok(self) -> bool:
        """Whether the difference is within the tolerance; a NaN is not."""
        return self.difference <= TOLERANCE

    def __str__(self):
        return self.line()

    def line(self, width=6):
        """Return the row as text, with `width` characters for the name."""
        where = f"{self.name}[{', '.join(map(str, self.index))}]"
        return (
            f"{'ok  ' if self.ok else 'FAIL'} {self.name:<{width}} {self.shape!s:<12} "
            f"{self.checked:>6} checked, largest difference {self.difference:.1e} "
            f"at {where}: {self.gradient:+.9e} against {self.numeric:+.9e}"
        )


@dataclass(frozen=True)
class GradientReport:
    """What `check_gradients` found: `rows`, one a parameter; prints as a table.

    Attributes
    ----------
    rows : tuple of Row
    """

    rows: tuple

    @property
    def ok(self) -> bool:
        """Whether every parameter is within the tolerance."""
        return all(row.ok for row in self.rows)

    @property
    def max_difference(self) -> float:
        """The largest relative difference of all; NaN if one is."""
        return float(np.max([row.difference for row in self.rows]))

    def __str__(self):
        width = max(6, *(len(row.name) for row in self.rows))
        return "\n".join(row.line(width) for row in self.rows)


def check_gradients(
    cell: Cell,
    inputs: Inputs | None = None,
    head: LossHead | None = None,
    schedule: Schedule | None = None,
    state: State | None = None,
    samples: int | None = None,
    seed: int = 0,
) -> GradientReport:
    """Compare a cell's gradients with central differences, in float64.

    Parameters
    ----------
    cell : membptt.Cell
        Not changed; a float32 cell is checked as a float64 copy with the same parameters.
    inputs : numpy.ndarray, optional
        [T, B, I] or tokens [T, B]; by default 7 steps of 2 random dense rows.
    head : BoundHead, optional
        By default the hidden state through a random direction (`Direction`). A head of yours, whose
        parameters are float64, is put back as it was.
    schedule : membptt.Schedule, optional
        Run the gradients under it; by default full BPTT. Planned in units, or for a float64 cell.
    state : tuple of numpy.ndarray, optional
        The initial hidden state, random by default; its derivative is checked too.
    samples : int, optional
        Check only so many elements of each parameter, chosen by `seed`; by default all.
    seed : int
        Of everything random here.

    Returns
    -------
    GradientReport
        Prints one line a parameter; ``.ok``, ``.max_difference``, ``.rows``.

    Raises
    ------
    ValueError, TypeError
        As from `membptt.bptt`.
    """
    generator = np.random.default_rng(integer("seed", seed, minimum=0))
    check_cell(cell)
    given, cell = cell, in_double(cell)
    if inputs is None:
        inputs = generator.standard_normal((7, 2, *cell.input_shape))
    window: Array = check_inputs(cell, doubled(np.asarray(sequence("inputs", inputs))))
    steps, batch = window.shape[:2]
    check_in_double(head, schedule, given, batch)
    xp = array_module(cell.backend)
    if head is None:
        u = generator.standard_normal((steps, *cell.hidden_shapes(batch)[0]))
        head = Direction(from_host(u, xp))
    elif hasattr(head, "head"):
        head = bound_in_double(head)
    if state is None:
        state = tuple(generator.standard_normal(shape) / 2 for shape in cell.hidden_shapes(batch))
    state = state_in_double(state, xp)
    if schedule is None:
        result = full_bptt(cell, window, head, state)
    else:
        result = bptt(cell, window, head, schedule, state)

    def loss():
        return full_bptt(cell, window, head, state).loss

    compared = [(name, value, result.grads[name]) for name, value in all_params(cell, head)]
    entering = (f"{name}_0" for name in cell.hidden_names)
    compared += zip(entering, state, result.state_grad, strict=True)
    return GradientReport(
        tuple(
            compare(name, value, gradient, loss, samples, generator)
            for name, value, gradient in compared
        )
    )


def check_step(
    cell: Cell, x: Array | None = None, state: State | None = None, seed: int = 0
) -> GradientReport:
    """Compare one backward step with differences, term by term, in float64.

    A fault in a long sequence spreads to everything before it. Here each array that leaves the
    step is back-propagated alone, so a row such as ``c by W_x`` names the term that is wrong.

    Parameters
    ----------
    cell : membptt.Cell
        Not changed; its own `forward_step` and `backward_step` are called, whatever its backend.
    x : numpy.ndarray, optional
        [B, I] or tokens [B]; by default 2 random dense rows.
    state : tuple of numpy.ndarray, optional
        The state that enters the step; random by default.
    seed : int
        Of everything random here.

    Returns
    -------
    GradientReport
        A row for each array that leaves the step and each parameter or array that enters it, and
        one for each array that `state_from_internal` derives.

    Raises
    ------
    ValueError, TypeError
        If `cell` is none, or `x` or `state` does not fit it.
    """
    generator = np.random.default_rng(integer("seed", seed, minimum=0))
    check_cell(cell)
    cell = in_double(cell)
    x = generator.standard_normal((2, *cell.input_shape)) if x is None else np.asarray(x)
    x = check_inputs(cell, doubled(x)[None])[0]
    xp = array_module(cell.backend)
    x = from_host(x, xp)
    if state is None:
        shapes = cell.hidden_shapes(len(x))
        state = tuple(generator.standard_normal(shape) / 2 for shape in shapes)
    state = check_state(cell, state_in_double(state, xp), len(x))
    leaving, internal = cell.forward_step(x, state)
    internal = tuple(xp.array(array) for array in internal)
    rows = []
    for k, out in enumerate(cell.hidden_names):
        direction = from_host(generator.standard_normal(leaving[k].shape), xp)
        dstate = tuple(direction if j == k else xp.zeros_like(a) for j, a in enumerate(leaving))
        grads = {name: xp.zeros_like(value) for name, value in cell.params.items()}
        entering = cell.backward_step(x, internal, dstate, grads)

        def loss(k=k, direction=direction):
            return float((cell.forward_step(x, state)[0][k] * direction).sum())

        compared = [(name, value, grads[name]) for name, value in cell.params.items()]
        names = (f"{name}_prev" for name in cell.hidden_names)
        compared += zip(names, state, entering, strict=True)
        rows += [
            compare(f"{out} by {name}", value, gradient, loss, None, generator)
            for name, value, gradient in compared
        ]
    derived = cell.state_from_internal(internal)
    for name, mine, theirs in zip(cell.hidden_names, derived, leaving, strict=True):
        rows.append(equal(f"{name} from internal", to_host(mine), to_host(theirs)))
    return GradientReport(tuple(rows))


def equal(name, value, expected):
    """Return the Row for an array that should be another one."""
    differences = np.abs(value - expected)
    worst = np.unravel_index(int(np.argmax(differences)), value.shape)
    return Row(
        name,
        value.shape,
        value.size,
        float(differences[worst]),
        tuple(int(i) for i in worst),
        float(value[worst]),
        float(expected[worst]),
    )


def compare(name, value, gradient, loss, samples, generator):
    """Return the Row for one parameter `value`, which is moved and put back in place."""
    chosen = np.arange(value.size)
    samples = None if samples is None else integer("samples", samples, minimum=1)
    if samples is not None and samples < value.size:
        chosen = np.sort(generator.choice(value.size, samples, replace=False))
    numeric = np.array([central_difference(value, at, loss) for at in chosen])
    analytic = to_host(gradient).reshape(-1)[chosen]
    scale = max(np.abs(analytic).max(), np.abs(numeric).max(), np.finfo(np.float64).tiny)
    differences = np.abs(analytic - numeric) / scale
    worst = int(np.argmax(np.where(np.isnan(differences), np.inf, differences)))
    return Row(
        name,
        value.shape,
        len(chosen),
        float(differences[worst]),
        tuple(int(i) for i in np.unravel_index(chosen[worst], value.shape)),
        float(analytic[worst]),
        float(numeric[worst]),
    )


def central_difference(value, at, loss):
    """Return the derivative of `loss` by element `at` of `value`, by four evaluations."""
    place = np.unravel_index(at, value.shape)  # of the array itself: a flat one may be a copy
    kept = float(value[place])
    losses = {}
    try:
        for shift in (-2, -1, 1, 2):
            value[place] = kept + shift * SHIFT
            losses[shift] = loss()
    finally:
        value[place] = kept
    return (8 * (losses[1] - losses[-1]) - (losses[2] - losses[-2])) / (12 * SHIFT)


class Direction:
    """The default head of the check: L = mean over steps and rows of h_t · u_t, no parameters.

    Its derivative by h_t is u_t itself, so a fault that the check finds is the cell's.
    """

    def __init__(self, u):
        self.params = {}
        self.u = u / (u.shape[0] * u.shape[1])

    def forward_backward(self, step, h, grads):
        """Return the step's share of the loss and its derivative by h."""
        u = self.u[step - 1]
        return (h * u).sum(), u


def in_double(cell):
    """Return a float64 copy of the cell with parameters of its own."""
    double = copy.copy(cell)
    double.dtype = np.dtype(np.float64)
    double.params = {
        name: namespace(value).array(value, np.float64, order="C")
        for name, value in cell.params.items()
    }
    return double


def doubled(array):
    """Return an array in float64 if it holds floats, else itself."""
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def state_in_double(state, xp):
    """Return a hidden state in float64, in arrays of its own."""
    return tuple(xp.array(array, np.float64, order="C") for array in iterated(state))


def check_in_double(head, schedule, cell, batch):
    """Raise unless what cannot be taken to float64 is there already: a head of the user's, a plan.

    `cell` is as it was given, and what runs is its float64 copy.
    """
    if head is not None and not hasattr(head, "head"):
        for name, value in getattr(head, "params", {}).items():
            if value.dtype == np.float32:
                raise TypeError(
                    f"the head's {name} is float32, and this runs in float64; give a head whose "
                    "parameters are float64"
                )
    sizes = cell.hidden_nbytes(batch), cell.internal_nbytes(batch)
    planned = getattr(schedule, "hidden", None), getattr(schedule, "internal", None)
    if cell.dtype == np.float32 and planned == sizes:
        raise ValueError(
            f"schedule is for states of {sizes[0]} and {sizes[1]} bytes, those of float32, and "
            "this runs in float64; plan it for a cell of dtype float64, or in units"
        )


def bound_in_double(bound):
    """Return a float64 copy of a bound head with parameters of its own."""
    targets = doubled(np.asarray(bound.targets))
    return type(bound)(in_double(bound.head), targets, bound.mask, bound.ends)


def all_params(cell, head):
    """Yield name and array of every parameter of the cell and the head."""
    yield from cell.params.items()
    yield from head.params.items()
