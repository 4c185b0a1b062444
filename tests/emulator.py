"""A device that is the CPU: the same .cu files, compiled as C, behind the interface of device.py.

What is asked of it waits in a queue until something is fetched or waited for, so that a host that
changes memory too early is found out. New memory holds NaN and lies between guards.
"""

import ctypes
import re
import subprocess
from pathlib import Path

import numpy as np

from membptt.kernels.cuda import sources
from membptt.kernels.cuda.device import Device

HEADER = Path(__file__).with_name("emulator.h")
FLAGS = "-std=gnu11 -O1 -ffp-contract=off -shared -fPIC -Wall -Werror -Wno-unknown-pragmas"
GUARD = 256
KERNEL = re.compile(r"KERNEL\s+__launch_bounds__\(THREADS\)\s+(\w+)\(([^)]*)\)\s*\{")


def signatures(text):
    """Return the types of each kernel's parameters, by its name."""
    return {
        name: [re.sub(r"\w+$", "", part.strip()).strip() for part in parameters.split(",")]
        for name, parameters in KERNEL.findall(text)
    }


class Compiler:
    """Compiles the text of .cu files as C, each once.

    Parameters
    ----------
    command : list of str
        The C compiler's.
    folder : Path
        For what is compiled.
    """

    def __init__(self, command, folder):
        self.command, self.folder = command, folder
        self.builds = {}

    def compiled(self, text, macros):
        """Return the shared object, and the types of each kernel's parameters by its name."""
        key = text, tuple(macros.items())
        if key not in self.builds:
            self.builds[key] = self.build(text, macros), signatures(text)
        return self.builds[key]

    def build(self, text, macros):
        """Return the shared object: each kernel, and a call of it with its arguments as words."""
        lines = [f"#define {key} {value}" for key, value in macros.items()]
        lines += [f'#include "{HEADER}"', text]
        for name, types in signatures(text).items():
            values = ", ".join(f"({kind})a[{i}]" for i, kind in enumerate(types))
            lines.append(f"void call_{name}(const int64_t *a) {{ {name}({values}); }}")
        stem = self.folder / f"kernels{len(self.builds)}"
        source = stem.with_suffix(".c")
        source.write_text("\n".join(lines), encoding="utf-8")
        command = [*self.command, *FLAGS.split(), "-o", f"{stem}.so", str(source), "-lm"]
        subprocess.run(command, check=True)
        return ctypes.CDLL(f"{stem}.so")


class EmulatedDevice(Device):
    """The CPU as a device with one stream.

    Parameters
    ----------
    compiler : Compiler
    backwards : bool
        Run threads and blocks in reversed order.
    multiprocessors : int
        Few make the chain choose large tiles, many small ones.
    """

    def __init__(self, compiler, backwards=False, multiprocessors=4):
        super().__init__(multiprocessors)
        self.compiler, self.backwards = compiler, backwards
        self.arrays = []
        self.queue = []
        self.recording = None

    # -- memory -----------------------------------------------------------------------------------

    def guarded(self, nbytes):
        """Return an array of bytes between guards, filled with NaN."""
        whole = np.full(nbytes + 2 * GUARD, 0xFF, np.uint8)
        whole[:GUARD] = whole[GUARD + nbytes :] = 0xA5
        self.arrays.append(whole[GUARD : GUARD + nbytes])
        return self.arrays[-1]

    def check_guards(self):
        """Raise if a kernel wrote beyond what was taken."""
        for array in self.arrays:
            whole = array.base
            assert (whole[:GUARD] == 0xA5).all() and (whole[-GUARD:] == 0xA5).all()

    def allocate(self, nbytes):
        return self.guarded(nbytes).ctypes.data

    def page_locked(self, nbytes):
        return np.empty(nbytes, np.uint8)

    def address(self, array):
        return array.ctypes.data

    def put(self, address, array, dtype):
        self.upload(address, array, dtype)

    def copy(self, to, from_, nbytes):
        self.ask(lambda: ctypes.memmove(to, from_, nbytes))

    def clear(self, address, nbytes):
        self.ask(lambda: ctypes.memset(address, 0, nbytes))

    def send(self, address, stage):
        self.ask(lambda: ctypes.memmove(address, stage.ctypes.data, stage.size))

    def fetch(self, address, shape, dtype):
        self.run_queue()
        array = np.empty(shape, dtype)
        ctypes.memmove(array.ctypes.data, address, array.nbytes)
        return array

    def empty(self, shape, dtype):
        array = np.empty(shape, dtype)
        array.fill(np.nan)
        return array

    # -- order ------------------------------------------------------------------------------------

    def ask(self, work):
        """Put work on the queue; inside a graph nothing but kernels may be."""
        assert self.recording is None, "a graph cannot hold this"
        self.queue.append(work)

    def run_queue(self):
        """Do everything that was asked."""
        assert self.recording is None, "a graph cannot wait"
        for work in self.queue:
            work()
        self.queue.clear()

    def follow(self):
        assert self.recording is None, "a graph cannot hold this"

    def mark(self):
        mark = []
        self.ask(lambda: mark.append(True))
        return mark

    def wait(self, mark):
        if not mark:
            self.run_queue()

    # -- kernels ----------------------------------------------------------------------------------

    def kernel(self, file, name, cell, itemsize, tile=None):
        text, macros = sources.source(file, cell), sources.defines(file, itemsize, tile)
        module, found = self.compiler.compiled(text, macros)
        assert tuple(found) == sources.KERNELS[file]
        return name, module, len(found[name])

    def start(self, kernel, grid, threads, arguments):
        assert len(arguments) == kernel[2], f"{kernel[0]} takes {kernel[2]} arguments"
        assert min(grid) > 0 and max(grid[1:]) < 65536 and threads <= 1024
        run = kernel, (*grid, 1)[:3], threads, tuple(arguments)
        if self.recording is None:
            self.ask(lambda: self.run(*run))
        else:
            self.recording.append(run)

    def run(self, kernel, grid, threads, arguments):
        name, module, count = kernel
        words = (ctypes.c_int64 * count)(*arguments)
        sizes = map(ctypes.c_int64, (*grid, threads, self.backwards))
        if module.emulate(getattr(module, f"call_{name}"), words, *sizes):
            raise RuntimeError(f"{name}: threads wait at a barrier that others never come to")

    def record(self, launch_all):
        self.recording = []
        launch_all()
        graph, self.recording = self.recording, None
        return graph

    def start_graph(self, graph):
        for run in graph:
            self.ask(lambda run=run: self.run(*run))
