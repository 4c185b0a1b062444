"""Reduced numbers against formulas of their own: IEEE types, rational arithmetic, bounds."""

from fractions import Fraction

import numpy as np
import pytest

from membptt.cells.packing import (
    LARGEST,
    ROWS,
    SIGNED,
    UNIT,
    decode,
    encode,
    layout,
    to_bfloat16,
)

EDGES = [0.0, -0.0, 1.0, -1.0, 1 + 2**-9, 1 + 2**-8, 1 + 3 * 2**-9, 1e-40, -1e-45, 6e-8, 2e-8]
EDGES += [65504.0, 65519.0, 65536.0, -1e30, 3.38e38, np.finfo(np.float32).max]


def there_and_back(a, name, known=ROWS):
    stored = encode(name, [known], [a])
    wanted = layout(name, [known], a.shape[1], a.dtype)
    assert [(array.dtype, array.shape[1]) for array in stored] == wanted
    (again,) = decode(name, [known], stored, a.dtype)
    assert again.dtype == a.dtype
    return again


def numbers(dtype="float32"):
    """Return [6, 50] numbers of all sizes, those of EDGES among them."""
    generator = np.random.default_rng(0)
    spread = generator.standard_normal(300) * 10.0 ** generator.integers(-12, 12, 300)
    spread[: len(EDGES)] = EDGES
    return spread.astype(dtype).reshape(6, 50)


def nearest(value, digits, least):
    """Return the nearest number of so many significant bits, not finer than 2**least; ties: even.

    By whole numbers of any size: `round` of a Fraction goes to even.
    """
    exact = Fraction(float(value))
    exponent = least
    while abs(exact) >= Fraction(2) ** (exponent + digits):
        exponent += 1
    return float(round(exact / Fraction(2) ** exponent) * Fraction(2) ** exponent)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_float16_is_numpys_and_saturates(dtype):
    a = numbers(dtype)
    again = there_and_back(a, "float16")
    with np.errstate(over="ignore"):
        wanted = a.astype(np.float16).astype(dtype)
    wanted = np.where(np.isinf(wanted), np.sign(a) * 65504, wanted).astype(dtype)
    assert again.tobytes() == wanted.tobytes()  # signs of zeros too


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bfloat16_is_the_nearest_of_eight_bits(dtype):
    a = numbers(dtype)
    again = there_and_back(a, "bfloat16")
    for found, value in zip(again.ravel(), a.ravel().astype(np.float32), strict=True):
        limited = float(np.clip(value, -LARGEST["bfloat16"], LARGEST["bfloat16"]))
        assert found == nearest(limited, 8, -133) and np.signbit(found) == np.signbit(value)


@pytest.mark.parametrize("known", [UNIT, SIGNED, ROWS])
def test_nan_in_int8_is_no_warning_and_leaves_other_rows(known):
    a = np.array([[np.nan, 0.5], [0.25, 0.5]], np.float32)
    (_, row) = decode("int8", [known], encode("int8", [known], [a]), np.float32)[0]
    np.testing.assert_allclose(row, a[1], atol=1 / 254)


def test_bfloat16_keeps_every_nan():
    bits = np.array([0x7FC00000, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001], np.uint32)
    assert np.isnan(decode("bfloat16", [ROWS], [to_bfloat16(bits.view(np.float32))], np.float32))[
        0
    ].all()


def test_the_largest_numbers_are_finite_in_each_format():
    for name, largest in LARGEST.items():
        a = np.array([[largest, -largest, 3.4e38, -3.4e38]], np.float32)
        assert (there_and_back(a, name) == np.array([largest, -largest] * 2, np.float32)).all()


@pytest.mark.parametrize("known, steps, low", [(UNIT, 255, 0), (SIGNED, 127, -1)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gates_in_a_byte(known, steps, low, dtype):
    a = np.linspace(low, 1, 1001).reshape(7, 143).astype(dtype)
    again = there_and_back(a, "int8", known)
    assert np.abs(again - a).max() <= (0.5 + 1e-3) / steps
    # Every code is used, ends and zero are exact, and what was reduced once stays.
    assert len(np.unique(again)) == (1 - low) * steps + 1
    for value in (low, 0, 1):
        assert there_and_back(np.full((1, 1), value, dtype), "int8", known) == value
    assert there_and_back(again, "int8", known).tobytes() == again.tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_in_bytes_with_a_scale_each(dtype):
    a = numbers(dtype)
    a[2] = 0
    again = there_and_back(a, "int8")
    limit = LARGEST["int8"]
    within = np.clip(a, -limit, limit)
    largest = np.abs(within).max(axis=1, keepdims=True)
    assert (np.abs(again - within) <= largest / 253).all()
    assert (again[2] == 0).all() and np.isfinite(again).all()


def test_rows_below_the_normal_numbers_stay_close():
    """A step is a whole number of the least float there, 0 for the smallest rows."""
    for size in (1e-45, 1e-44, 1e-42, 1e-39):
        a = np.array([[size, -size, size / 2, 0]], np.float32)
        again = there_and_back(a, "int8")
        assert np.isfinite(again).all() and np.abs(again - a).max() <= size / 100 + 64 * 1.4e-45


def test_each_format_is_within_its_bound():
    a = np.random.default_rng(1).uniform(-4, 4, (5, 400)).astype(np.float32)
    for name, bound in (("float16", 2.0**-11), ("bfloat16", 2.0**-8)):
        error = np.abs(there_and_back(a, name) - a) / np.abs(a)
        assert bound / 2 < error.max() <= bound


def test_scales_come_first_one_for_each_array_without_a_known_range():
    found = layout("int8", [ROWS, UNIT, SIGNED, ROWS], 5, np.dtype(np.float64))
    assert [(kind.name, width) for kind, width in found] == [
        ("float64", 1),
        ("float64", 1),
        ("int8", 5),
        ("uint8", 5),
        ("int8", 5),
        ("int8", 5),
    ]
