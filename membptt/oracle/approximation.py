"""How far the gradients of a cell with reduced internal states are from the exact ones.

    error of a parameter  =  ‖ approximate - exact ‖ / ‖ exact ‖

with the Euclidean norm over all elements, and once more over those of all parameters together. The
head's parameters are left out: it reads exact states, so their gradients are exact.
"""

from dataclasses import dataclass

import numpy as np

from membptt.arrays import to_host
from membptt.cells.base import Cell, check_cell
from membptt.cells.reduced import exact, is_reduced
from membptt.checks import shown
from membptt.executor.executor import bptt
from membptt.executor.window import check_inputs
from membptt.oracle.full import full_bptt
from membptt.schedules import schedule
from membptt.types import Inputs, LossHead, State


@dataclass(frozen=True)
class GradientError:
    """The relative error of approximate gradients; prints as one line.

    Attributes
    ----------
    by_name : dict of float
        Of each parameter of the cell.
    total : float
        Of all of them as one vector.
    """

    by_name: dict
    total: float

    def __str__(self):
        each = ", ".join(f"{name} {error:.1e}" for name, error in self.by_name.items())
        return f"gradient error {self.total:.1e} ({each})"


def gradient_error(
    cell: Cell,
    inputs: Inputs,
    head: LossHead,
    state: State | None = None,
    memory: int | None = None,
) -> GradientError:
    """Measure the error of the gradients that reduced internal states give.

    Runs the window twice: with the cell, and with the exact one that it is made from, on the same
    backend.

    Parameters
    ----------
    cell : membptt.Reduced, or a membptt.Stack with such layers
    inputs, head, state
        As in `membptt.bptt`.
    memory : int, optional
        Bytes for the saved states of either run, at least one exact internal state; by default as
        many as full BPTT takes.

    Returns
    -------
    GradientError
        ‖approximate - exact‖ / ‖exact‖ for each parameter and for all together. 0 where both are
        zero.

    Raises
    ------
    ValueError, TypeError
        If nothing of the cell is reduced; else as from `membptt.bptt`.

    Examples
    --------
    >>> import membptt as mb
    >>> import numpy as np
    >>> cell, head = mb.Reduced(mb.LSTM(50, 32), "int8"), mb.SoftmaxHead(32, 50)
    >>> text = np.random.default_rng(0).integers(50, size=(101, 4))
    >>> found = mb.gradient_error(cell, text[:-1], head.with_targets(text[1:]))
    >>> 0.001 < found.total < 0.02
    True
    """
    check_cell(cell)
    if not is_reduced(cell):
        raise ValueError(
            f"cell is {shown(cell)}, whose gradients are exact; give a mb.Reduced(...)"
        )
    inputs = check_inputs(cell, inputs)
    reduced, wanted = (gradients(each, inputs, head, state, memory) for each in (cell, exact(cell)))
    norms = {
        name: (np.linalg.norm(reduced[name] - wanted[name]), np.linalg.norm(wanted[name]))
        for name in wanted
    }
    whole = (np.hypot.reduce(column) for column in zip(*norms.values(), strict=True))
    return GradientError({name: ratio(*pair) for name, pair in norms.items()}, ratio(*whole))


def gradients(cell, inputs, head, state, memory):
    """Return the gradients of the cell's parameters, on the host in float64."""
    if memory is None:
        found = full_bptt(cell, inputs, head, state)
    else:  # of all strategies without large tables the least steps
        plan = schedule(len(inputs), memory, "hsm", cell, inputs.shape[1])
        found = bptt(cell, inputs, head, plan, state)
    return {name: to_host(found.grads[name]).astype(np.float64) for name in cell.params}


def ratio(difference, norm):
    """Return difference / norm, and 0 where there is no difference."""
    return float(difference / norm) if difference else 0.0
