"""Numbers in one or two bytes: how the arrays of an internal state are stored reduced.

Three formats and their errors::

    float16    IEEE 754's, 11 significant bits; |error| <= 2⁻¹¹ |a| from 6e-5 to 65504
    bfloat16   the upper half of a float32, 8 significant bits; |error| <= 2⁻⁸ |a|
    int8       whole numbers of steps of one size; what a step is depends on the array:
               gates in [0, 1]     1/255, |error| <= 1/510
               gates in [-1, 1]    1/127, |error| <= 1/254
               all others          max |a| / 127 of each row, which is stored beside the codes

Every rounding is to nearest, a tie to the even neighbour. What is larger than the largest finite
number becomes that number: a gradient is never infinite only because it was rounded.

Array operations only, for NumPy and CuPy. Every array is [B, H], its rows reduced one by one; codes
are in C order, whatever the order of the array was.
"""

import numpy as np

from membptt.arrays import namespace

FORMATS = ("float16", "bfloat16", "int8")
LARGEST = {"float16": 65504.0, "bfloat16": 2.0**128 - 2.0**120}  # finite numbers of each
LARGEST["int8"] = LARGEST["bfloat16"]  # 127 steps of a row's scale are finite in float32

# What is known of an array's values, for int8.
UNIT = "[0, 1]"
SIGNED = "[-1, 1]"
ROWS = "a scale for each row"


def layout(name, ranges, width, dtype):
    """Return type and width of each array [B, width] that `encode` returns.

    Parameters
    ----------
    name : str
        One of `FORMATS`.
    ranges : sequence of str
        UNIT, SIGNED or ROWS for each array.
    width : int
        Of every array: H.
    dtype : numpy.dtype
        float32 or float64.
    """
    if name != "int8":
        code = np.dtype(np.float16 if name == "float16" else np.uint16)
        return [(code, width)] * len(ranges)
    scales = [(dtype, 1) for known in ranges if known == ROWS]
    return scales + [(code_type(known), width) for known in ranges]


def encode(name, ranges, arrays):
    """Return the arrays reduced, as `layout` says."""
    if name == "float16":
        return [within(a, name).astype(np.float16, order="C") for a in arrays]
    if name == "bfloat16":
        return [to_bfloat16(a) for a in arrays]
    scales, codes = [], []
    for a, known in zip(arrays, ranges, strict=True):
        code, scale = to_int8(a, known)
        codes.append(code)
        scales += [] if scale is None else [scale]
    return scales + codes


def decode(name, ranges, stored, dtype):
    """Return the arrays that `encode` was given, but for the rounding."""
    if name == "float16":
        return [code.astype(dtype) for code in stored]
    if name == "bfloat16":
        return [from_bfloat16(code, dtype) for code in stored]
    scales = iter(stored[: len(stored) - len(ranges)])
    return [
        code.astype(dtype) * next(scales) if known == ROWS else code.astype(dtype) / steps(known)
        for code, known in zip(stored[-len(ranges) :], ranges, strict=True)
    ]


def within(a, name):
    """Return the array with all numbers inside the finite ones of the format; NaN stays."""
    return namespace(a).clip(a, -LARGEST[name], LARGEST[name])


def to_bfloat16(a):
    """Return the upper 16 bits of each number as float32, rounded to nearest, as uint16."""
    xp = namespace(a)
    bits = within(a, "bfloat16").astype(np.float32).view(np.uint32)
    # Half of the last place that stays, less one unit unless that place is odd: a tie goes to even.
    rounded = (bits + (((bits >> 16) & 1) + 0x7FFF)) >> 16
    # The sum may carry a NaN away.
    return xp.where(xp.isnan(a), 0x7FC0, rounded).astype(np.uint16, order="C")


def from_bfloat16(code, dtype):
    """Return the numbers of `to_bfloat16`: the lower half is zero."""
    return (code.astype(np.uint32) << 16).view(np.float32).astype(dtype)


def to_int8(a, known):
    """Return how many steps each number is, and the step of each row [B, 1] or None.

    NaN becomes any number, and nobody is warned: the loss, which is exact, will be NaN too.
    """
    xp, scale = namespace(a), None
    if known == ROWS:
        a = within(a, "int8")
        scale = abs(a).max(axis=1, keepdims=True) / 127
        # A row of zeros has step 0, and any divisor does; one below the normal numbers is inexact.
        code = xp.clip(xp.round(a / xp.where(scale > 0, scale, 1)), -127, 127)
    else:
        code = xp.round(a * steps(known))
    with np.errstate(invalid="ignore"):
        return code.astype(code_type(known), order="C"), scale


def code_type(known):
    """Return the type of an array's codes."""
    return np.dtype(np.uint8 if known == UNIT else np.int8)


def steps(known):
    """Return how many steps there are from 0 to 1."""
    return 255 if known == UNIT else 127
