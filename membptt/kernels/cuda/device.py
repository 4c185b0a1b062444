"""A device as the chain sees it: memory, kernels, graphs, and the way of inputs to it.

`Device` holds what does not depend on the library: every byte that is taken is in the ledger, and
what comes from the host goes through two fixed buffers of page-locked memory, one filled while the
other is under way. `CudaDevice` is the real one, by CuPy.
"""

import functools

import numpy as np

from membptt.arrays import array_module, on_device
from membptt.kernels.cuda import sources
from membptt.memory import Ledger

STAGE_NBYTES = 1 << 20


class Device:
    """Base of the devices. Everything that is asked of one happens later, in the order of asking.

    Parameters
    ----------
    multiprocessors : int
    ledger : membptt.memory.Ledger, optional
        Where the memory that is taken is entered, as "workspace".

    Attributes
    ----------
    ledger : membptt.memory.Ledger
    nbytes : int
        Memory taken so far.
    launches : int
        Kernels started so far, those inside of graphs included.
    calls : int
        How often the host started something: a kernel, or a graph of many.
    """

    def __init__(self, multiprocessors, ledger=None):
        self.ledger = Ledger() if ledger is None else ledger
        self.ledger.hold("workspace", 0)  # another chain's, which is gone
        self.nbytes = self.launches = self.calls = 0
        self.multiprocessors = multiprocessors
        self.stages = None
        self.marks = [None, None]  # when the device has read a stage
        self.turn = 0

    def take(self, nbytes):
        """Reserve device memory until the device object goes; return its address."""
        self.ledger.take("workspace", nbytes)
        self.nbytes += nbytes
        return self.allocate(nbytes)

    def launch(self, kernel, grid, threads, arguments):
        """Start a kernel: 64-bit arguments, addresses included."""
        self.launches += 1
        self.calls += 1
        self.start(kernel, grid, threads, arguments)

    def capture(self, launch_all):
        """Return what `launch_all` launches as a graph, without starting it."""
        before = self.launches, self.calls
        graph = self.record(launch_all)
        nodes = self.launches - before[0]
        self.launches, self.calls = before
        return graph, nodes

    def replay(self, captured):
        """Start a captured graph."""
        graph, nodes = captured
        self.launches += nodes
        self.calls += 1
        self.start_graph(graph)

    def upload(self, address, array, dtype):
        """Copy a host array to an address, as `dtype`; the array may change afterwards."""
        whole = np.ascontiguousarray(array, dtype).reshape(-1).view(np.uint8)
        if self.stages is None:
            self.stages = [self.page_locked(STAGE_NBYTES) for _ in range(2)]
        for at in range(0, whole.size, STAGE_NBYTES):
            part = whole[at : at + STAGE_NBYTES]
            if self.marks[self.turn] is not None:
                self.wait(self.marks[self.turn])
            stage = self.stages[self.turn][: part.size]
            stage[:] = part
            self.send(address + at, stage)
            self.marks[self.turn] = self.mark()
            self.turn ^= 1


class CudaDevice(Device):
    """The current CUDA device, by CuPy, with a stream of its own."""

    def __init__(self, ledger=None):
        self.cupy = cupy = array_module("cupy")
        self.runtime = cupy.cuda.runtime
        super().__init__(cupy.cuda.Device().attributes["MultiProcessorCount"], ledger)
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.buffers = []

    # -- memory -----------------------------------------------------------------------------------

    def allocate(self, nbytes):
        """Return the address of new memory."""
        with self.stream:  # the pool then gives it out again in this stream's order
            self.buffers.append(self.cupy.cuda.alloc(nbytes))
        return self.buffers[-1].ptr

    def page_locked(self, nbytes):
        """Return host memory that the device reads by itself, as bytes."""
        return np.frombuffer(self.cupy.cuda.alloc_pinned_memory(nbytes), np.uint8, nbytes)

    def address(self, array):
        """Return the address of an array on the device."""
        return array.data.ptr

    def put(self, address, array, dtype):
        """Copy an array, wherever it is, to an address, as `dtype`."""
        if not on_device(array):
            self.upload(address, array, dtype)
            return
        with self.stream:
            array = self.cupy.ascontiguousarray(array, dtype)
        self.copy(address, array.data.ptr, array.nbytes)

    def copy(self, to, from_, nbytes):
        """Copy from address to address."""
        self.runtime.memcpyAsync(
            to, from_, nbytes, self.runtime.memcpyDeviceToDevice, self.stream.ptr
        )

    def clear(self, address, nbytes):
        """Set bytes to zero."""
        self.runtime.memsetAsync(address, 0, nbytes, self.stream.ptr)

    def send(self, address, stage):
        """Copy page-locked bytes to an address; they must stay as they are until it is done."""
        self.runtime.memcpyAsync(
            address, stage.ctypes.data, stage.size, self.runtime.memcpyHostToDevice, self.stream.ptr
        )

    def fetch(self, address, shape, dtype):
        """Return a host array, when all that was asked before is done."""
        array = np.empty(shape, dtype)
        self.runtime.memcpyAsync(
            array.ctypes.data,
            address,
            array.nbytes,
            self.runtime.memcpyDeviceToHost,
            self.stream.ptr,
        )
        self.stream.synchronize()
        return array

    def empty(self, shape, dtype):
        """Return a new array on the device for the caller to keep; not in the ledger."""
        return self.cupy.empty(shape, dtype)

    # -- order ------------------------------------------------------------------------------------

    def follow(self):
        """Let what is asked from now on wait for the caller's stream."""
        self.stream.wait_event(self.cupy.cuda.get_current_stream().record())

    def mark(self):
        """Return an event: all that was asked so far."""
        return self.stream.record(self.cupy.cuda.Event(disable_timing=True))

    def wait(self, mark):
        """Wait until the device has come to a mark."""
        mark.synchronize()

    # -- kernels ----------------------------------------------------------------------------------

    def kernel(self, file, name, cell, itemsize, tile=None):
        """Return a kernel of FILE.cu, compiled for a tile."""
        code, options = sources.source(file, cell), sources.options(file, itemsize, tile)
        return module(self.cupy.RawModule, code, options).get_function(name).kernel

    def start(self, kernel, grid, threads, arguments):
        """Launch on the stream."""
        kernel(grid, (threads,), arguments, 0, self.stream)

    def record(self, launch_all):
        """Capture the stream while `launch_all` launches."""
        with self.stream:
            self.stream.begin_capture()
            try:
                launch_all()
            finally:
                graph = self.stream.end_capture()
        return graph

    def start_graph(self, graph):
        """Launch a graph on the stream."""
        graph.launch(self.stream)


@functools.cache
def module(make, code, options):
    """Return a compiled module, loaded once a process, whatever the number of chains."""
    return make(code=code, options=options)
