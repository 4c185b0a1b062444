"""The seam to the array library: what a missing device is called, and one order of additions."""

import ctypes
import subprocess
import sys
import types

import numpy as np
import pytest

from membptt import arrays


def fake_cupy(count=1, **given):
    """Return a module that answers what the probe asks."""

    def device_count():
        if isinstance(count, Exception):
            raise count
        return count

    module = types.ModuleType("cupy")
    module.__version__ = "14.0.0"
    module.concat = None
    module.cuda = types.SimpleNamespace(runtime=types.SimpleNamespace(getDeviceCount=device_count))
    vars(module).update(given)
    return module


def test_a_device_is_used_where_there_is_one(monkeypatch):
    module = fake_cupy()
    monkeypatch.setitem(sys.modules, "cupy", module)
    assert arrays.array_module("cupy") is module
    assert arrays.array_module("numpy") is arrays.array_module("cython") is np


@pytest.mark.parametrize(
    "module, message",
    [
        (None, r"CuPy is not installed; pip install 'membptt\[cupy\]'"),
        (fake_cupy(count=0), r"no CUDA device can be used \(there are 0 devices\)"),
        (
            fake_cupy(count=RuntimeError("cudaErrorNoDevice: none\nand a page more")),
            r"no CUDA device can be used \(cudaErrorNoDevice: none\)",
        ),
    ],
)
def test_what_is_missing_is_one_line(monkeypatch, module, message):
    monkeypatch.setitem(sys.modules, "cupy", module)
    with pytest.raises(ValueError, match=message) as caught:
        arrays.array_module("cupy")
    assert "\n" not in str(caught.value)
    assert "give backend 'cython'" in str(caught.value)


def test_an_old_cupy_is_named(monkeypatch):
    module = fake_cupy(__version__="13.6.0")
    del module.concat
    monkeypatch.setitem(sys.modules, "cupy", module)
    with pytest.raises(ValueError, match=r"CuPy is 13\.6\.0; give 14 or newer"):
        arrays.array_module("cupy")


def test_the_namespace_is_the_arrays_own():
    class Foreign:
        __module__ = "numpy.somewhere"

    class Standard:
        def __array_namespace__(self):
            return sys

    assert arrays.namespace(np.ones(2)) is np
    assert arrays.namespace(np.float32(1)) is np
    assert arrays.namespace(Standard()) is sys
    assert arrays.namespace(Foreign()) is np


def rows_with_equal_tokens(dtype):
    generator = np.random.default_rng(0)
    tokens = generator.integers(0, 3, 40).astype(dtype)  # each many times: the order matters
    rows = generator.standard_normal((40, 7)).astype(np.float32)
    target = generator.standard_normal((3, 7)).astype(np.float32)
    wanted = target.copy()
    for b, token in enumerate(tokens):
        wanted[token] += rows[b]
    assert (wanted != target + [rows[tokens == v][::-1].sum(0) for v in range(3)]).any()
    return target, tokens, rows, wanted


@pytest.mark.parametrize("dtype", ["uint8", "int64"])
@pytest.mark.parametrize("library", ["numpy", "array_api_strict"])
def test_rows_are_added_in_order(library, dtype):
    xp = pytest.importorskip(library)
    target, tokens, rows, wanted = rows_with_equal_tokens(dtype)
    target = xp.asarray(target)
    arrays.add_rows(target, xp.asarray(tokens), xp.asarray(rows))
    assert (np.from_dlpack(target) == wanted).all()


def test_the_device_adds_rows_in_order_too(tmp_path, compiler):
    """The kernel's body, compiled for the CPU: its threads are a loop here, their work is not."""
    target, tokens, rows, wanted = rows_with_equal_tokens(np.uint8)
    source = tmp_path / "add_rows.c"
    source.write_text(
        "void add_rows(const float *rows, const unsigned char *tokens, long long batch,\n"
        "              long long width, float *target) {\n"
        f"    for (long long i = width - 1; i >= 0; i--) {{ {arrays.ADD_ROWS} }}\n}}\n"
    )
    built = tmp_path / "add_rows.so"
    subprocess.run([*compiler, "-O1", "-shared", "-fPIC", source, "-o", built], check=True)
    function = ctypes.CDLL(str(built)).add_rows
    number = ctypes.c_longlong
    function(*(a.ctypes for a in (rows, tokens)), number(40), number(7), target.ctypes)
    assert (target == wanted).all()
