"""A stand-in for CuPy, for machines without a GPU: NumPy behind CuPy's rules.

What CuPy refuses is refused here: to mix with NumPy's arrays, to become one without being asked, to
enter compiled code. What costs time there is counted here: copies to and from the device, and
allocations. The rest is NumPy, so that results have NumPy's bits. It shows that code keeps CuPy's
rules; it cannot show that a GPU computes the same.

Use it in place of ``membptt.arrays.device_module``; this module itself takes the place of cupy.
"""

import sys
import weakref
from types import SimpleNamespace

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin


class Counts:
    """What went over the bus, and what is allocated.

    Attributes
    ----------
    sent, fetched : int
        Copies to the device and from it.
    allocations : int
    live, peak : int
        Bytes of the arrays that there are, and at most since `begin`.
    """

    def __init__(self):
        self.live = 0
        self.roots = {}
        self.begin()

    def begin(self):
        """Count anew."""
        self.sent = self.fetched = self.allocations = 0
        self.peak = self.live

    def note(self, host):
        """Count the memory that `host` stands in, if it was not counted."""
        while isinstance(host.base, np.ndarray):
            host = host.base
        if id(host) in self.roots:
            return
        self.roots[id(host)] = weakref.finalize(host, self.forget, id(host), host.nbytes)
        self.allocations += 1
        self.live += host.nbytes
        self.peak = max(self.peak, self.live)

    def forget(self, number, nbytes):
        """Count memory as given back."""
        del self.roots[number]
        self.live -= nbytes


counts = Counts()


def wrap(result):
    """Return NumPy's result as one of the device."""
    if isinstance(result, np.ndarray | np.generic):
        host = np.asarray(result)
        counts.note(host)
        array = object.__new__(ndarray)
        array.host = host
        return array
    if isinstance(result, tuple | list):
        return type(result)(map(wrap, result))
    return result


def unwrap(value):
    """Return what NumPy is to be given, or refuse an array of the host."""
    if isinstance(value, ndarray):
        return value.host
    if isinstance(value, np.ndarray):
        raise TypeError("Unsupported type <class 'numpy.ndarray'>")
    if isinstance(value, tuple | list):
        return type(value)(map(unwrap, value))
    return value


class ndarray(NDArrayOperatorsMixin):
    """An array on the device."""

    __cuda_array_interface__ = property(lambda self: {"shape": self.shape, "version": 3})
    shape = property(lambda self: self.host.shape)
    dtype = property(lambda self: self.host.dtype)
    ndim = property(lambda self: self.host.ndim)
    size = property(lambda self: self.host.size)
    nbytes = property(lambda self: self.host.nbytes)
    itemsize = property(lambda self: self.host.itemsize)
    flags = property(lambda self: self.host.flags)
    T = property(lambda self: wrap(self.host.T))

    def __array__(self, *_, **__):
        raise TypeError("Implicit conversion to a NumPy array is not allowed; use `.get()`")

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **options):
        if method != "__call__":
            return NotImplemented
        if out is not None:
            options["out"] = tuple(map(unwrap, out))
        result = ufunc(*map(unwrap, inputs), **options)
        return out[0] if out is not None else wrap(result)

    def __array_function__(self, function, types, arguments, options):
        mine = globals().get(function.__name__)
        return NotImplemented if mine is None else mine(*arguments, **options)

    def __getitem__(self, key):
        key = unwrap(key)
        found = self.host[key]
        if not isinstance(found, np.ndarray):  # one element: a view here, as in CuPy
            found = self.host[(*key, ...) if isinstance(key, tuple) else (key, ...)]
        return wrap(found)

    def __setitem__(self, key, value):
        self.host[unwrap(key)] = unwrap(value)

    def __len__(self):
        return len(self.host)

    def __repr__(self):
        return f"standin.{self.host!r}"

    def get(self, stream=None, out=None, blocking=True):
        """Return a copy on the host, in `out` if it is given."""
        counts.fetched += 1
        if out is None:
            return self.host.copy()
        out[...] = self.host
        return out

    def __float__(self):
        return float(self.get())

    def __int__(self):
        return int(self.get())

    def __index__(self):
        return self.get().__index__()

    def __bool__(self):
        return bool(self.get())

    def set(self, source, stream=None):
        """Copy an array of the host here."""
        if not isinstance(source, np.ndarray) or source.dtype != self.dtype:
            raise TypeError(f"set takes a NumPy array of {self.dtype}")
        if source.shape != self.shape:
            raise ValueError(f"set of shape {self.shape} from {source.shape}")
        counts.sent += 1
        self.host[...] = source
        if stream is not None:
            stream.copy(source)


def method(name):
    """Return a method that is NumPy's."""

    def call(self, *arguments, **options):
        return wrap(getattr(self.host, name)(*map(unwrap, arguments), **options))

    return call


def function(name):
    """Return a function that is NumPy's."""

    def call(*arguments, **options):
        options = {key: unwrap(value) for key, value in options.items()}
        return wrap(getattr(np, name)(*map(unwrap, arguments), **options))

    return call


for _name in "sum max min all any copy reshape view astype argmax".split():
    setattr(ndarray, _name, method(_name))

for _name in (
    "all arange clip concat divide empty empty_like exp isfinite isnan log mean multiply ones "
    "round sqrt square stack sum take tanh where zeros zeros_like"
).split():
    globals()[_name] = function(_name)

float32, float64, int32, int64 = np.float32, np.float64, np.int32, np.int64
uint8, uint64 = np.uint8, np.uint64


def shape(array):
    """Return the shape."""
    return array.shape


def array(source, dtype=None, order="K", copy=True):
    """Return an array on the device, from either side."""
    if isinstance(source, ndarray):
        return wrap(np.array(source.host, dtype, order=order, copy=copy or None))
    counts.sent += 1
    return wrap(np.array(source, dtype, order="C" if order == "K" else order))


def asarray(source, dtype=None):
    """Return an array on the device; itself if it is one."""
    if isinstance(source, ndarray) and dtype in (None, source.dtype):
        return source
    return array(source, dtype)


class Stream:
    """The order of work; copies from pinned memory are under way until somebody waits."""

    def __init__(self, non_blocking=False):
        self.asked = 0  # copies so far
        self.pending = []  # number, source and what it held
        self.recorded = self.passed = 0  # events

    def synchronize(self):
        """Wait for all."""
        self.passed = self.recorded
        self.finish(self.asked)

    def wait_event(self, event):
        """What is asked from now on comes after the event; here everything is done at once."""
        assert event.marked is not None

    def finish(self, number):
        """Wait for the copies up to this number."""
        self.check()
        self.pending = [copy for copy in self.pending if copy[0] > number]

    def check(self):
        """See that no source has changed while its copy may still be under way."""
        for _, source, held in self.pending:
            assert source.tobytes() == held.tobytes(), "pinned memory changed during a copy"

    def copy(self, source):
        """Ask for a copy from `source`."""
        self.check()
        self.asked += 1
        self.pending.append((self.asked, source, source.copy()))


class Event:
    """A mark in a stream."""

    def __init__(self, disable_timing=False):
        self.marked = None
        self.timed = not disable_timing

    def record(self, stream):
        """Mark what was asked of the stream up to now."""
        stream.recorded += 1
        self.marked = stream.asked, stream
        self.number = stream.recorded

    def synchronize(self):
        """Wait for what was marked."""
        if self.marked is not None:
            number, stream = self.marked
            stream.passed = max(stream.passed, self.number)
            stream.finish(number)


def get_elapsed_time(begin, end):
    """Return milliseconds between two events, which somebody must have waited for."""
    for event in (begin, end):
        if not event.timed or event.marked is None:
            raise RuntimeError("cudaErrorInvalidResourceHandle: invalid resource handle")
        if event.number > event.marked[1].passed:
            raise RuntimeError("cudaErrorNotReady: device not ready")
    return 0.0


class ElementwiseKernel:
    """The kernels that the package writes itself, by their names: NumPy's way of the same."""

    def __init__(self, inputs, outputs, body, name):
        self.run = {"add_rows": self.add_rows}[name]

    def __call__(self, *arguments, size):
        assert size > 0
        self.run(*map(unwrap, arguments))

    @staticmethod
    def add_rows(rows, tokens, batch, width, target):
        assert rows.shape == (batch, width) and target.shape[1] == width
        for array in (rows, tokens, target):
            assert array.flags.c_contiguous
        np.add.at(target, tokens, rows)


stream = Stream()
cuda = SimpleNamespace(
    runtime=SimpleNamespace(getDeviceCount=lambda: 1),
    get_current_stream=lambda: stream,
    get_elapsed_time=get_elapsed_time,
    alloc_pinned_memory=bytearray,
    Event=Event,
    Stream=Stream,
)


def device_module():
    """Return this module: what ``membptt.arrays.device_module`` is replaced with."""
    return sys.modules[__name__]
