"""The one seam to the library that holds the arrays: NumPy, or CuPy for backend "cupy".

Plain code runs on either: it takes its functions from `namespace` of an array at hand, under the
names of the Python array API standard, and its new arrays from `array_module` of a backend. What
goes to a device or comes from it goes through `from_host` and `to_host`, so that it can be counted.
"""

import functools
import sys

import numpy as np

from membptt.checks import one_of

BACKENDS = ("numpy", "cython", "cupy")


def check_backend(backend):
    """Return the backend's name, or raise a ValueError unless it is one of `BACKENDS`."""
    return one_of("backend", backend, BACKENDS)


def array_module(backend):
    """Return the module that makes this backend's arrays: numpy, or cupy for "cupy".

    Raises
    ------
    ValueError
        If it is CuPy, and that is not installed, too old, or finds no device that it can use.
    """
    return device_module() if backend == "cupy" else np


def device_module():
    """Return CuPy, or raise a ValueError that says why it cannot be used here."""
    try:
        import cupy
    except Exception as error:  # a broken installation raises more than ImportError
        reason = "is not installed" if isinstance(error, ModuleNotFoundError) else f"fails: {error}"
        raise ValueError(
            f"backend is 'cupy', but CuPy {first_line(reason)}; pip install 'membptt[cupy]', or "
            "give backend 'cython'"
        ) from None
    if not hasattr(cupy, "concat"):
        raise ValueError(
            f"backend is 'cupy', but CuPy is {cupy.__version__}; give 14 or newer: pip install "
            "'membptt[cupy]'"
        )
    try:
        reason = "there are 0 devices" if cupy.cuda.runtime.getDeviceCount() < 1 else None
    except Exception as error:  # CuPy's own types, and what loading the driver raises
        reason = first_line(error)
    if reason is not None:
        raise ValueError(
            f"backend is 'cupy', but no CUDA device can be used ({reason}); see that nvidia-smi "
            "lists one and that the driver fits, or give backend 'cython'"
        )
    return cupy


def first_line(message):
    """Return the first line of a message: others print a whole page."""
    return str(message).strip().partition("\n")[0]


def usable(backend):
    """Return whether the backend can run here."""
    try:
        array_module(backend)
    except ValueError:
        return False
    return True


def namespace(array):
    """Return the module whose functions take this array.

    That is numpy, what the array itself names by the array API standard, or the module of its type:
    CuPy's arrays follow the standard without naming anything.
    """
    if isinstance(array, np.ndarray | np.generic):
        return np
    if hasattr(array, "__array_namespace__"):
        return array.__array_namespace__()
    return sys.modules[type(array).__module__.partition(".")[0]]


def on_device(array):
    """Return whether an array's numbers are in the memory of a device."""
    return hasattr(array, "__cuda_array_interface__")


def to_host(array):
    """Return the array as one of NumPy's; copied if it is on a device, which waits for it."""
    return array.get() if on_device(array) else np.asarray(array)


def from_host(array, xp):
    """Return an array of NumPy's as one of the module's: itself, or copied to the device."""
    return xp.asarray(array)


def synchronize(xp):
    """Wait until the device has done what was asked of it; the host has always done so."""
    if xp is not np:
        xp.cuda.get_current_stream().synchronize()


def all_finite(array):
    """Return whether no element is NaN or infinite; waits for a device."""
    xp = namespace(array)
    return bool(xp.all(xp.isfinite(array)))


def add_rows(target, tokens, rows):
    """Add each of `rows` [B, N] to the row of `target` [V, N] that `tokens` [B] names, in order.

    Equal tokens add to one row, and a sum of floats depends on its order. It is b = 0 ... B - 1
    here, on every library, so that the bits do not depend on chance: CuPy's own ``add.at`` adds by
    atomic operations, in whatever order threads arrive.
    """
    xp = namespace(target)
    if xp is np:
        np.add.at(target, tokens, rows)
    elif hasattr(xp, "ElementwiseKernel"):
        kernel = add_rows_kernel(xp)
        kernel(rows, tokens, rows.shape[0], rows.shape[1], target, size=rows.shape[1])
    else:  # what the others do, in plain sight
        for b in range(rows.shape[0]):
            target[int(tokens[b]), :] += rows[b, :]


ADD_ROWS = """
    for (long long b = 0; b < batch; b++)
        target[tokens[b] * width + i] += rows[b * width + i];
"""


@functools.cache
def add_rows_kernel(xp):
    """Return the device's `add_rows`: one thread a column, which owns it and goes down the rows."""
    return xp.ElementwiseKernel(
        "raw T rows, raw I tokens, int64 batch, int64 width", "raw T target", ADD_ROWS, "add_rows"
    )
