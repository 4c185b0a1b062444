"""Checks that arguments share: each says in one line what is wrong and what to give instead."""

import math
import numbers
import operator
import reprlib
import sys

import numpy as np

DTYPES = ("float32", "float64")
MOST = 2**31 - 1  # of a size, so that arrays and compiled code can count what several make
CHECKED = 2**16  # elements under a mask that are checked at a time, over a copy


class Short(reprlib.Repr):
    """The representation of a user's value in an error: one line, whatever the value is."""

    def __init__(self):
        super().__init__()
        self.maxlevel = 3
        self.maxstring = self.maxother = self.maxlong = 200

    def repr1(self, x, level):
        """Return it for any type; an array is its type and its shape."""
        shape = getattr(x, "shape", None)
        if isinstance(shape, tuple) and shape and hasattr(x, "dtype"):
            return f"<{x.dtype} array of shape {shape}>"
        return " ".join(super().repr1(x, level).split())

    def repr_int(self, x, level):
        """Return it for a whole number, whose digits Python refuses to write if they are many."""
        return super().repr_int(x, level) if x.bit_length() < 10_000 else "a very long number"


shown = Short().repr


def integer(name, value, *, minimum=None, maximum=None):
    """Return `value` as an int, or say in one line why it is not one.

    Parameters
    ----------
    name : str
        What the user calls the argument.
    value : int or numpy integer or whole float
        Booleans are refused: ``steps=True`` is a slip, not a length.
    minimum, maximum : int, optional
        The least and the largest value allowed.

    Raises
    ------
    TypeError
        If `value` is not a number.
    ValueError
        If it is not whole, below `minimum` or above `maximum`.
    """
    if isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} is {shown(value)}, a truth value; give a whole number")
    if isinstance(value, numbers.Real) and not isinstance(value, numbers.Integral):
        if not math.isfinite(value) or value != int(value):
            raise ValueError(f"{name} is {shown(value)}; give a whole number")
        value = int(value)
    try:
        whole = operator.index(value)
    except TypeError:
        raise TypeError(
            f"{name} is {shown(value)}, of type {type(value).__name__}; give a whole number"
        ) from None
    if minimum is not None and whole < minimum:
        raise ValueError(f"{name} is {shown(whole)}; give at least {minimum}")
    if maximum is not None and whole > maximum:
        raise ValueError(f"{name} is {shown(whole)}; give at most {maximum}")
    return whole


def number(name, value):
    """Return `value` as a float, or raise a TypeError that names it."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"{name} is {shown(value)}; give a number") from None


def at_least(name, value, least):
    """Return `value` as a finite float from `least` on, or say in one line why it is none."""
    found = number(name, value)
    if not least <= found < math.inf:
        raise ValueError(f"{name} is {value}; give a number of at least {least}")
    return found


def positive(name, value, largest=sys.float_info.max):
    """Return `value` as a float, or raise a ValueError unless 0 < value <= largest."""
    value = number(name, value)
    if not 0 < value <= largest:
        most = f" and at most {largest:g}" if largest < sys.float_info.max else ""
        raise ValueError(f"{name} is {value}; give a number above 0{most}")
    return value


def fraction(name, value):
    """Return `value` as a float, or raise a ValueError unless 0 <= value < 1."""
    value = number(name, value)
    if not 0 <= value < 1:
        raise ValueError(f"{name} is {value}; give a number from 0 up to, not including, 1")
    return value


def one_of(name, value, known):
    """Return `value` if it is one of the names `known`, or raise a ValueError that lists them."""
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name} is {shown(value)}; give one of {', '.join(known)}")
    return value


def check_dtype(dtype):
    """Return the numpy dtype, or raise a ValueError unless it is float32 or float64."""
    try:
        found = np.dtype(dtype)
    except TypeError:
        found = None
    if found is None or found.name not in DTYPES:
        raise ValueError(f"dtype is {shown(dtype)}; give one of {', '.join(DTYPES)}")
    return np.dtype(found.name)  # the machine's own byte order: compiled code reads no other


def check_tokens(name, tokens, count, mask=None):
    """Raise unless `tokens` are whole numbers [T, B] from 0 to count - 1.

    Those that are read block by block are checked when they are read. Where `mask` [T, B] is
    False, any number will do.
    """
    if tokens.ndim != 2 or tokens.size == 0:
        raise ValueError(f"{name} have shape {tokens.shape}; give [steps, batch], neither empty")
    if tokens.dtype.kind not in "iu":
        raise TypeError(f"{name} are {tokens.dtype}; give whole numbers, for example int64")
    if not isinstance(tokens, np.ndarray):
        return
    if mask is None:
        check_range(name, tokens, count)
        return
    block = max(1, CHECKED // tokens.shape[1])
    for start in range(0, len(tokens), block):
        part = slice(start, start + block)
        check_range(name, np.where(mask[part], tokens[part], 0), count, start)


def check_range(name, tokens, count, before=0):
    """Raise unless all of `tokens` [n, B] are from 0 to count - 1; `before`: steps before them."""
    low, high = int(tokens.min()), int(tokens.max())
    if low < 0 or high >= count:
        wrong = low if low < 0 else high
        step, row = np.argwhere(tokens == wrong)[0]
        raise ValueError(
            f"{name} hold {wrong} at step {before + step + 1}, row {row}; "
            f"give numbers from 0 to {count - 1}"
        )


def mapping(name, value, example):
    """Return `value` if it is a dict or the like, or say in one line what to give.

    Raises
    ------
    TypeError
        If it has no items.
    """
    if not hasattr(value, "items"):
        raise TypeError(f"{name} is of type {type(value).__name__}; give a dict, like {example}")
    return value


def sizes(name, value):
    """Return `value` as a tuple of sizes, or say in one line why it is none.

    Raises
    ------
    TypeError
        If it is not a sequence of numbers.
    ValueError
        If one of them is not a whole number from 1 on.
    """
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        raise TypeError(f"{name} is {shown(value)}; give a tuple of sizes, like (32,)")
    return tuple(integer(name, size, minimum=1) for size in value)
