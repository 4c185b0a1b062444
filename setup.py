"""Build the compiled twins; everything else about the package stands in pyproject.toml."""

import os

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup

# No -march=native: the kernels choose their instruction set at run time. No contraction: where a
# multiplication and an addition become one rounding is written in the source, never left to the
# compiler, so that every clone of a kernel gives the same bits.
FLAGS = ["-O3", "-ffp-contract=off", "-fno-math-errno"]

# The environment's CFLAGS stand before these on the compiler's line. Two of them say more: -g keeps
# the line numbers, for a debugger or a sanitizer, and this macro asks for code that tells
# coverage.py which lines run, which is much slower.
CFLAGS = os.environ.get("CFLAGS", "").split()
LINETRACE = "-DCYTHON_TRACE_NOGIL=1" in CFLAGS
if "-g" not in CFLAGS:
    FLAGS.append("-g0")

MODULES = {
    "membptt.kernels._kernels": ["membptt/kernels/kernels.c"],
    "membptt.kernels._room": [],
    "membptt.kernels._live": [],
    "membptt.kernels._steps": [],
    "membptt.kernels._sums": [],
    "membptt.kernels._head": [],
    "membptt.kernels._chain": [],
    "membptt.kernels._layer": [],
    "membptt.kernels._stack": [],
    "membptt.executor._executor": [],
    "membptt.executor._spill": [],
    "membptt.executor._lookahead": [],
    "membptt.solver._expand": [],
    "membptt.solver._chains": [],
    "membptt.solver._solver": [],
    "membptt.schedules._emit": [],
}

extensions = [
    Extension(
        name,
        [name.replace(".", "/") + ".pyx", *sources],
        include_dirs=[numpy.get_include()],
        define_macros=[("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION")],
        extra_compile_args=FLAGS,
    )
    for name, sources in MODULES.items()
]

setup(
    ext_modules=cythonize(
        extensions,
        force=LINETRACE,  # what is there already was generated without
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": False,
            "embedsignature": True,
            # A copy of an extension type without its C state would crash: refuse instead.
            "auto_pickle": False,
            # No module has state that runs share: what one changes is its own chain and arena, and
            # an Executor refuses a second run at once. So importing them need not bring the GIL
            # back where Python has none.
            "freethreading_compatible": True,
            "linetrace": LINETRACE,
        },
    ),
    options={"build_ext": {"parallel": os.cpu_count()}},
)
