"""Backend "cupy" from the user's call down to the kernels, with CuPy's own calls in between.

The library is the stand-in of tests/standin.py, which here also has what `CudaDevice` asks of CuPy:
streams, events, captures, raw memory and modules. Work waits in its stream until somebody waits for
it. Kernels are those of tests/emulator.py.
"""

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest
import standin

import membptt as mb
from membptt import arrays
from membptt.chains.registry import make_chain
from membptt.kernels import _kernels
from membptt.kernels.cuda import sources
from membptt.kernels.cuda.chain import CudaChain

pytestmark = pytest.mark.skipif(
    _kernels.available() == ["portable"], reason="without a fused multiply-add here: other bits"
)


class Event:
    """A mark in a stream."""

    def __init__(self, disable_timing=False):
        self.stream = None

    def record(self, stream):
        self.stream = stream

    def synchronize(self):
        if self.stream is not None:
            self.stream.synchronize()


class Stream(standin.Stream):
    """Work in its order, done when somebody waits."""

    all = {}  # noqa: RUF012 - by address, as the runtime knows them

    def __init__(self, non_blocking=False):
        super().__init__()
        self.queue, self.captured = [], None
        self.ptr = id(self)
        Stream.all[self.ptr] = self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def ask(self, work):
        assert self.captured is None, "not while a stream is captured"
        self.queue.append(work)

    def record(self, event=None):
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event):
        event.synchronize()

    def synchronize(self):
        assert self.captured is None
        super().synchronize()
        while self.queue:
            self.queue.pop(0)()

    def begin_capture(self):
        assert self.captured is None
        self.captured = []

    def end_capture(self):
        launches, self.captured = self.captured, None

        def launch(stream):
            for work in launches:
                stream.ask(work)

        return SimpleNamespace(launch=launch)


class Function:
    """A kernel of a module."""

    def __init__(self, module, name, count):
        self.module, self.count = module, count
        self.call = getattr(module, f"call_{name}")

    def __call__(self, grid, block, arguments, shared_memory, stream):
        assert {type(value) for value in (*grid, *block, *arguments)} == {int}
        assert len(arguments) == self.count and len(block) == 1 and shared_memory == 0
        words = (ctypes.c_int64 * self.count)(*arguments)
        sizes = [ctypes.c_int64(size) for size in (*(*grid, 1)[:3], block[0], 0)]

        def work():
            assert self.module.emulate(self.call, words, *sizes) == 0

        (stream.queue if stream.captured is None else stream.captured).append(work)


class Memory:
    """Raw memory of the device, which begins as NaN."""

    def __init__(self, nbytes):
        self.array = np.full(nbytes, 0xFF, np.uint8)
        self.ptr = self.array.ctypes.data


def copy(to, from_, nbytes, kind, stream):
    Stream.all[stream].ask(lambda: ctypes.memmove(to, from_, nbytes))


def fill(at, value, nbytes, stream):
    Stream.all[stream].ask(lambda: ctypes.memset(at, value, nbytes))


@pytest.fixture
def library(monkeypatch, kernel_compiler):
    """Let backend "cupy" run on the stand-in, with kernels; return the modules that were made."""
    modules = []

    class RawModule:
        def __init__(self, code, options):
            assert options[: len(sources.OPTIONS)] == sources.OPTIONS
            macros = dict(option[2:].split("=") for option in options[len(sources.OPTIONS) :])
            self.module, self.found = kernel_compiler.compiled(code, macros)
            modules.append(self)

        def get_function(self, name):
            return SimpleNamespace(kernel=Function(self.module, name, len(self.found[name])))

    current = Stream()
    cuda = SimpleNamespace(
        runtime=SimpleNamespace(
            getDeviceCount=lambda: 1,
            memcpyAsync=copy,
            memsetAsync=fill,
            memcpyHostToDevice=1,
            memcpyDeviceToHost=2,
            memcpyDeviceToDevice=3,
        ),
        Device=lambda: SimpleNamespace(attributes={"MultiProcessorCount": 1}),
        Stream=Stream,
        Event=Event,
        get_current_stream=lambda: current,
        get_elapsed_time=lambda begin, end: 0.0,
        alloc=Memory,
        alloc_pinned_memory=bytearray,
    )
    kept = []

    def ascontiguousarray(array, dtype):
        kept.append(standin.wrap(np.ascontiguousarray(array.host, dtype)))
        return kept[-1]

    monkeypatch.setattr(arrays, "device_module", standin.device_module)
    monkeypatch.setattr(standin, "cuda", cuda)
    for name, value in (("RawModule", RawModule), ("ascontiguousarray", ascontiguousarray)):
        monkeypatch.setattr(standin, name, value, raising=False)
    address = property(lambda self: SimpleNamespace(ptr=self.host.ctypes.data))
    monkeypatch.setattr(standin.ndarray, "data", address, raising=False)
    return modules


def on_device(case):
    """Return the same cell and head on the device."""
    cell, head = case.cell, case.head.head
    moved = type(cell)(cell.input_size, cell.hidden_size, cell.dtype, 0, "cupy")
    other = type(head)(head.hidden_size, head.outputs, head.dtype, 0, "cupy")
    moved.params = {name: standin.asarray(value) for name, value in cell.params.items()}
    other.params = {name: standin.asarray(value) for name, value in head.params.items()}
    return moved, other.with_targets(case.head.targets)


def host_bits(bits, result):
    """Return the result's bits, wherever its arrays are."""
    states = (tuple(map(arrays.to_host, part)) for part in (result.state, result.state_grad))
    grads = {name: arrays.to_host(value) for name, value in result.grads.items()}
    return bits(mb.Result(result.loss, grads, *states, result.stats))


@pytest.mark.parametrize("tokens, head", [(True, "softmax"), (False, "linear")])
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_an_executor_has_the_bits_of_the_compiled_backend(
    window, bits, library, cell, tokens, head
):
    case = window(cell, T=40, tokens=tokens, head=head)
    wanted = bits(mb.full_bptt(*case.arguments(), case.state))
    moved, bound = on_device(case)
    assert host_bits(bits, mb.full_bptt(moved, case.inputs, bound, case.state)) == wanted
    for strategy in ("optimal", "expand", "disk"):
        schedule = mb.schedule(40, 9 * moved.internal_nbytes(2), strategy, moved, 2)
        executor = mb.Executor(moved, schedule, 2, verify=strategy == "expand")
        for _ in range(2):
            result = executor.run(case.inputs, bound, case.state)
            assert isinstance(executor.chain, CudaChain)
            assert isinstance(result.grads["W_h"], standin.ndarray)
            assert host_bits(bits, result) == wanted
        assert (result.stats.disk_read_bytes > 0) == (strategy == "disk")
        ledger = executor.ledger
        assert ledger.held["workspace"] == result.stats.workspace_bytes
        assert ledger.held["arena"] == result.stats.arena_bytes == len(executor.arena.buffer)
        assert ledger.peak == ledger.total == result.stats.device_peak_bytes


def test_a_stream_runs_on_the_kernels(window, bits, library):
    case = window(T=20)
    wanted = bits(mb.full_bptt(*case.arguments(), case.state))
    moved, bound = on_device(case)
    items = zip(case.inputs, case.head.targets, strict=True)
    budget = 4 * moved.internal_nbytes(2)
    assert host_bits(bits, mb.bptt_stream(moved, items, bound.head, budget, case.state)) == wanted


def test_another_head_gives_the_workspace_back(window, library):
    case = window(T=9)
    moved, bound = on_device(case)
    schedule = mb.schedule(9, "1 MiB", "full", moved, 2)
    executor = mb.Executor(moved, schedule, 2)
    executor.run(case.inputs, bound, case.state)
    wider = mb.SoftmaxHead(4, 7, backend="cupy").with_targets(case.head.targets)
    result = executor.run(case.inputs, wider, case.state)
    assert executor.ledger.held["workspace"] == result.stats.workspace_bytes


def test_training_goes_through_the_kernels_and_learns_the_same(make, library):
    runs = [make(backend=backend) for backend in ("cython", "cupy")]
    losses = [[trainer.update().loss for _ in range(3)] for trainer in runs]
    assert library
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)


def test_cells_and_heads_of_the_users_run_on_their_own_code(window, library, monkeypatch):
    case = window()
    moved, bound = on_device(case)
    subclass = type("LSTM", (mb.LSTM,), {})(3, 4, backend="cupy")
    monkeypatch.setenv("MEMBPTT_CUDA_KERNELS", "1")
    assert isinstance(make_chain(moved, bound, 5, 2), CudaChain)
    assert not isinstance(make_chain(subclass, bound, 5, 2), CudaChain)
    monkeypatch.setenv("MEMBPTT_CUDA_KERNELS", "0")
    assert not isinstance(make_chain(moved, bound, 5, 2), CudaChain)
