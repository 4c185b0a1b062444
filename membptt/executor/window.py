"""Checks one window before it runs, and names the culprit when its loss is not finite."""

from collections.abc import Iterable
from inspect import signature

import numpy as np

from membptt.arrays import all_finite, array_module, from_host
from membptt.cells import Custom
from membptt.cells.base import check_cell
from membptt.checks import check_tokens, shown
from membptt.sequences.blocks import sequence
from membptt.sequences.lengths import check_lengths


def check_inputs(cell, inputs, lengths=None):
    """Return `inputs` as an array or as Blocks, or raise unless it is a window for this cell.

    Where the rows have `lengths` (membptt.sequences.lengths.Lengths, or as a caller gave them),
    what stands behind them is not looked at.
    """
    check_cell(cell)
    inputs = sequence("inputs", inputs, cell.input_shape[0] if len(cell.input_shape) == 1 else None)
    if inputs.ndim == 2 and inputs.dtype.kind != "f" and len(cell.input_shape) == 1:
        live = None
        if lengths is not None and inputs.size > 0:
            live = check_lengths(lengths, *inputs.shape).mask(len(inputs))
        check_tokens("inputs", inputs, *cell.input_shape, live)
        return inputs
    row = ", ".join(map(str, cell.input_shape))
    wanted = (
        f"give whole numbers [steps, batch] or {cell.dtype.name} [steps, batch, {row}], "
        "neither steps nor batch 0"
    )
    if inputs.shape[2:] != cell.input_shape or inputs.ndim < 2 or inputs.size == 0:
        raise ValueError(f"inputs are {inputs.dtype} of shape {inputs.shape}; {wanted}")
    if inputs.dtype != cell.dtype:
        raise TypeError(f"inputs are {inputs.dtype}; {wanted}")
    return inputs


def room_for_input_grads(cell, inputs):
    """Return zeros like the inputs, for the derivative by them, or raise if there is none."""
    bottom = getattr(cell, "layers", [cell])[0]
    if inputs.dtype.kind != "f":
        raise ValueError(
            f"input_grads is True with tokens ({inputs.dtype}), by which there is no derivative; "
            "give dense inputs"
        )
    if isinstance(bottom, Custom):
        raise ValueError(
            "input_grads is True with a Custom, whose backward gives no derivative by its input; "
            "leave it out"
        )
    return array_module(cell.backend).zeros(inputs.shape, dtype=cell.dtype)


def check_window(cell, inputs, head, state, steps, batch, lengths=None):
    """Raise unless inputs, targets, state and lengths fit; return the state as arrays."""
    if inputs.shape[:2] != (steps, batch):
        raise ValueError(
            f"inputs have {inputs.shape[0]} steps and batch {inputs.shape[1]}; give {steps} steps "
            f"and batch {batch}, as the schedule's"
        )
    check_head(head, cell)
    targets, ends = getattr(head, "targets", None), getattr(head, "ends", None)
    if ends is not None:
        if len(ends) != batch or ends.max() > steps:
            raise ValueError(
                f"targets are for {len(ends)} rows and steps up to {ends.max()}; give {steps} "
                f"steps and batch {batch}, as inputs"
            )
    elif targets is not None and targets.shape[:2] != (steps, batch):
        raise ValueError(
            f"targets have shape {targets.shape}; give {steps} steps and batch {batch}, as inputs"
        )
    if lengths is not None:
        check_head_lengths(head, lengths)
    xp = array_module(cell.backend)
    for name, value in head.params.items():
        check_module(f"the head's {name}", value, xp)
        if value.dtype != cell.dtype:
            raise TypeError(
                f"the head's {name} is {value.dtype}; give {cell.dtype.name}, as the cell's"
            )
    shape = cell.hidden_shapes(batch)[0]
    if hasattr(head, "head") and len(shape) != 2:
        raise ValueError(
            f"{type(head.head).__name__} reads [batch, hidden_size], the cell's "
            f"{cell.hidden_names[0]} is {list(shape)}; give a head of your own"
        )
    if hasattr(head, "head") and head.head.hidden_size != cell.hidden_size:
        raise ValueError(
            f"the head's hidden_size is {head.head.hidden_size}; give {cell.hidden_size}, "
            "as the cell's"
        )
    check_params(cell)
    return cell.zero_state(batch) if state is None else check_state(cell, state, batch)


def check_state(cell, state, batch):
    """Return a hidden state in arrays of the cell's backend, or say what does not fit the cell."""
    xp = array_module(cell.backend)
    state = tuple(from_host(array, xp) for array in iterated(state))
    expected = cell.hidden_shapes(batch)
    if [array.shape for array in state] != expected:
        raise ValueError(
            f"state has shapes {[array.shape for array in state]}; give {expected} "
            f"for {', '.join(cell.hidden_names)}"
        )
    for name, array in zip(cell.hidden_names, state, strict=True):
        if array.dtype != cell.dtype:
            raise TypeError(f"state {name} is {array.dtype}; give {cell.dtype.name}")
    return state


def iterated(state):
    """Return a hidden state if it holds several arrays, or raise a TypeError."""
    if not isinstance(state, Iterable):
        raise TypeError(f"state is {shown(state)}; give a tuple of arrays, such as result.state")
    return state


def check_head(head, cell):
    """Raise unless `head` is one, its parameters fit, and compiled code may read its targets."""
    if not hasattr(head, "forward_backward"):
        raise TypeError(
            f"head is {shown(head)}; give head.with_targets(targets), or an object of yours with "
            "params and forward_backward(step, h, grads)"
        )
    shared = set(head.params) & set(cell.params)
    if shared:
        raise ValueError(f"head and cell both have a parameter {min(shared)}; give another name")
    kernel = getattr(head, "kernel", None)
    if kernel is None:
        return
    if kernel not in ("softmax", "squared_error") or not hasattr(head, "head"):
        raise ValueError(
            f"the head's kernel is {shown(kernel)}; a head of your own has kernel None"
        )
    outputs = head.head.outputs
    for name, shape in (("W_y", (head.head.hidden_size, outputs)), ("b_y", (outputs,))):
        if head.params[name].shape != shape:
            raise ValueError(f"the head's {name} has shape {head.params[name].shape}; give {shape}")
    head.check()  # again: the arrays may have been filled anew


def check_head_lengths(head, lengths):
    """Raise unless the head has no loss behind the ends of rows, and can be told which are left."""
    ends = getattr(head, "ends", None)
    if ends is not None:
        late = ends > lengths.given
        if late.any():
            row = int(late.argmax())
            raise ValueError(
                f"row {row} has its loss at step {ends[row]} and ends with step "
                f"{lengths.given[row]}; give head.at_last(targets, lengths)"
            )
    elif hasattr(head, "head"):
        if head.lengths is None:
            raise ValueError(
                "lengths are given and the head knows none; give "
                "head.with_targets(targets, lengths=lengths)"
            )
        if head.lengths != lengths:
            row = int((head.lengths.given != lengths.given).argmax())
            raise ValueError(
                f"lengths[{row}] is {lengths.given[row]}, the head's is {head.lengths.given[row]}; "
                "give both the same"
            )
    try:
        signature(head.forward_backward).bind(1, None, None, None)
    except TypeError:
        raise TypeError(
            f"{type(head).__name__}.forward_backward does not take four arguments; with lengths a "
            "head is called as forward_backward(step, h, grads, rows), rows being the numbers of "
            "the rows that h is of"
        ) from None


def check_module(name, value, xp):
    """Raise unless an array is one of the backend's."""
    if not isinstance(value, xp.ndarray):
        have = f"{type(value).__module__.partition('.')[0]}.{type(value).__name__}"
        wanted = "a NumPy array" if xp is np else "one on the device (backend='cupy')"
        raise TypeError(f"{name} is a {have}; give {wanted}, as the cell's backend needs")


def check_params(cell):
    """Raise unless the parameters have the shapes and the dtype that the cell declares."""
    unknown = set(cell.params) - set(cell.param_shapes())
    if unknown:
        raise ValueError(
            f"params hold {min(unknown)!r}; give {', '.join(cell.param_shapes())} alone"
        )
    xp = array_module(cell.backend)
    for name, shape in cell.param_shapes().items():
        value = cell.params[name]
        check_module(f"parameter {name}", value, xp)
        if value.shape != shape:
            raise ValueError(f"parameter {name} has shape {value.shape}; give {shape}")
        if value.dtype != cell.dtype:
            raise TypeError(f"parameter {name} is {value.dtype}; give {cell.dtype.name}")


def check_finite(cell, inputs, head, state, bad_step, grads, lengths=None):
    """Raise if the loss stopped being finite at `bad_step`, or a gradient is not finite."""
    if bad_step:
        begin = f"the loss stops being finite at step {bad_step}"
        raise_not_finite(cell, inputs, head, state, bad_step, begin, lengths)
    for name, gradient in grads.items():
        if not all_finite(gradient):
            begin = f"the gradient of {name} is not finite"
            bad_step = 1
            if inputs.dtype.kind == "f":
                steps = range(1, len(inputs) + 1)
                bad_step = next((t for t in steps if bad_rows(inputs, t, lengths).any()), 1)
            raise_not_finite(cell, inputs, head, state, bad_step, begin, lengths)


def bad_rows(inputs, step, lengths):
    """Return which rows of the inputs of a step hold NaN or infinity, bool [B]."""
    bad = ~np.isfinite(inputs[step - 1]).reshape(inputs.shape[1], -1).all(axis=1)
    return bad if lengths is None else bad & (lengths.given >= step)


def raise_not_finite(cell, inputs, head, state, step, begin, lengths=None):
    """Say what is not finite: a parameter, the state, the inputs or targets of `step`."""
    for name, value in (cell.params | head.params).items():
        if not all_finite(value):
            raise ValueError(f"{begin}: parameter {name} holds NaN or infinity; give finite ones")
    for name, value in zip(cell.hidden_names, state, strict=True):
        if not all_finite(value):
            raise ValueError(f"{begin}: state {name} holds NaN or infinity; give finite numbers")
    if inputs.dtype.kind == "f":
        bad = bad_rows(inputs, step, lengths)
        if bad.any():
            raise ValueError(
                f"{begin}: inputs hold NaN or infinity at step {step}, row {bad.argmax()}; "
                "give finite numbers"
            )
    if hasattr(head, "scored_targets") and not np.isfinite(head.scored_targets(step)).all():
        raise ValueError(f"{begin}: targets hold NaN or infinity there; give finite numbers")
    raise FloatingPointError(
        f"{begin} although inputs and parameters are finite: the network diverged; lower the "
        "learning rate or clip the gradients"
    )
