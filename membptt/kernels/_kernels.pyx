"""Chooses the kernels for an element size and this processor; some of them alone, for tests."""

import time

import numpy as np

from membptt.kernels.kernels cimport membptt_kernels, membptt_select

ISAS = ("avx512", "avx2", "portable")


cdef const membptt_kernels *select(long itemsize, str isa) except NULL:
    """Return the kernels for `isa`, or the best that this processor has for None."""
    cdef const membptt_kernels *found
    cdef bytes name
    if isa is None:
        found = membptt_select(itemsize, NULL)
    else:
        name = isa.encode()
        found = membptt_select(itemsize, name)
    if found == NULL:
        raise ValueError(f"isa is {isa!r}; this processor has {', '.join(available())}")
    return found


def available():
    """Return the instruction sets that this processor has kernels for, the best first."""
    return tuple(isa for isa in ISAS if membptt_select(4, isa.encode()) != NULL)


def tanh(x, isa=None):
    """Return tanh(x) as the kernels compute it, for a contiguous float32 or float64 array."""
    return _elementwise(x, isa, False)


def sigmoid(x, isa=None):
    """Return 1/(1 + exp(-x)) as the kernels compute it."""
    return _elementwise(x, isa, True)


cdef _elementwise(x, str isa, bint is_sigmoid):
    x = np.ascontiguousarray(x)
    y = np.empty_like(x)
    cdef const membptt_kernels *k = select(x.itemsize, isa)
    cdef const void *source = <const void *><size_t>x.ctypes.data
    cdef void *target = <void *><size_t>y.ctypes.data
    cdef long size = x.size
    with nogil:
        if is_sigmoid:
            k.sigmoid_array(source, target, size)
        else:
            k.tanh_array(source, target, size)
    return y


def product_seconds(rows, terms, columns, repeats, dtype=np.float32, isa=None):
    """Return the seconds of one product of `rows` rows with packed weights, on one thread.

    For benchmarks: the rate that everything else is compared with. The product is the one of the
    backward step, [rows, terms] by [terms, columns], without anything around it.
    """
    dtype = np.dtype(dtype)
    cdef const membptt_kernels *k = select(dtype.itemsize, isa)
    cdef long width = k.width, _, r = rows, blocks = -(-terms // width), N = columns
    cdef long panels = -(-columns // width), count = repeats
    d = np.ones((blocks, r, width), dtype)
    packed = np.ones((panels, blocks * width, width), dtype)
    out = np.zeros((r, N), dtype)
    cdef const void *d_data = <const void *><size_t>d.ctypes.data
    cdef const void *packed_data = <const void *><size_t>packed.ctypes.data
    cdef void *out_data = <void *><size_t>out.ctypes.data
    started = time.perf_counter()
    with nogil:
        for _ in range(count):
            k.product_back(d_data, packed_data, out_data, r, blocks, 1, N, r, 0, False, 0, panels)
    return (time.perf_counter() - started) / repeats
