"""States of a device in the host's memory, copied in the background: strategy disk on a GPU.

What membptt.executor._spill is to a file, this is to page-locked memory of the host. Copies run in
a stream of their own, beside the steps; events order them, and the host waits for nothing:

    store      the copy to the host begins when the step's stream has come here
    acquire    the step's stream waits until the buffer's last copy has left it
    prefetch   the copy to the device begins when the steps before are done with the buffer
    fetch      the step's stream waits until that copy has come

The buffers stand at the end of the arena and so inside the budget.
"""

from contextlib import contextmanager

import numpy as np


class HostTier:
    """The tier of one run.

    Parameters
    ----------
    steps, interval : int
        A state is stored after each multiple of `interval` steps.
    nbytes : int
        Of a hidden state.
    arena : array
        uint8, on the device; the buffers are its last ``buffers * nbytes`` bytes.
    buffers : int
        At least 2, so that one copy overlaps the use of another state.
    xp : module
        Of the device's arrays.
    stream : stream
        That the steps run in.
    """

    def __init__(self, steps, interval, nbytes, arena, buffers, xp, stream):
        self.cuda, self.stream, self.interval = xp.cuda, stream, interval
        self.side = xp.cuda.Stream(non_blocking=True)
        first = arena.nbytes - buffers * nbytes
        self.buffers = [
            Buffer(first + i * nbytes, arena[first + i * nbytes : first + (i + 1) * nbytes])
            for i in range(buffers)
        ]
        records = max(1, (steps - 1) // interval)
        self.memory = xp.cuda.alloc_pinned_memory(records * nbytes)
        self.host = np.frombuffer(self.memory, np.uint8, records * nbytes).reshape(records, nbytes)
        self.copies, self.waits = [], []  # pairs of events, to be timed in the end
        self.written = self.read = 0

    def record_of(self, step):
        """Return where the state of `step` lies on the host."""
        return self.host[step // self.interval - 1]

    def acquire(self, step):
        """Take a buffer for the state of `step`; return its offset in the arena."""
        buffer = self.free_buffer()
        buffer.step = step
        self.stream.wait_event(buffer.idle)
        return buffer.at

    def store(self, step, at):
        """Have the buffer at `at` copied to the host; it is free when that is done."""
        buffer = next(buffer for buffer in self.buffers if buffer.at == at)
        record = self.record_of(step)
        self.side.wait_event(self.mark(self.stream))
        with self.timed(self.copies, self.side):
            buffer.part.get(stream=self.side, out=record, blocking=False)
        buffer.idle, buffer.step = self.mark(self.side), None
        self.written += record.nbytes

    def prefetch(self, step):
        """Have the state of `step` copied into a free buffer."""
        buffer = self.free_buffer()
        buffer.step = step
        record = self.record_of(step)
        self.side.wait_event(buffer.idle)
        with self.timed(self.copies, self.side):
            buffer.part.set(record, stream=self.side)
        buffer.idle = self.mark(self.side)
        self.read += record.nbytes

    def fetch(self, step):
        """Have the steps wait for the state of `step`; return its offset in the arena."""
        buffer = self.of(step)
        with self.timed(self.waits, self.stream):
            self.stream.wait_event(buffer.idle)
        return buffer.at

    def find(self, step):
        """Return the offset of the state of `step` if it is in a buffer, else -1."""
        return next((buffer.at for buffer in self.buffers if buffer.step == step), -1)

    def drop(self, step):
        """Give the buffer of `step` back, once the steps asked for so far are done."""
        buffer = self.of(step)
        buffer.idle, buffer.step = self.mark(self.stream), None

    def close(self):
        """Wait for the last copy, and for the steps: their events are read then."""
        self.side.synchronize()
        self.stream.synchronize()

    def report(self):
        """Return bytes to and from the host, seconds of copies and of waiting for them."""
        return {
            "disk_written_bytes": self.written,
            "disk_read_bytes": self.read,
            "disk_busy_seconds": self.seconds(self.copies),
            "disk_waited_seconds": self.seconds(self.waits),
        }

    def log(self):
        """Return no single transfers: they are not recorded here."""

    def of(self, step):
        """Return the buffer that holds the state of `step`."""
        for buffer in self.buffers:
            if buffer.step == step:
                return buffer
        raise LookupError(f"the state of step {step} is in no buffer")

    def free_buffer(self):
        """Return a buffer that holds no state that is needed, the one that is idle longest."""
        free = [buffer for buffer in self.buffers if buffer.step is None]
        if not free:
            raise LookupError(f"all {len(self.buffers)} buffers are taken")
        self.buffers.remove(free[0])
        self.buffers.append(free[0])
        if free[0].idle is None:
            free[0].idle = self.mark(self.stream)
        return free[0]

    def mark(self, stream):
        """Return an event: all that was asked of the stream so far."""
        event = self.cuda.Event()
        event.record(stream)
        return event

    @contextmanager
    def timed(self, pairs, stream):
        """Note when the stream comes to what is asked of it inside ``with``, and past it."""
        begin = self.mark(stream)
        yield
        pairs.append((begin, self.mark(stream)))

    def seconds(self, pairs):
        """Return the time between the events of all pairs, which have passed."""
        return sum(self.cuda.get_elapsed_time(*pair) for pair in pairs) / 1000


class Buffer:
    """A room for one hidden state in the arena.

    Attributes
    ----------
    at : int
        Its offset.
    part : array
        The bytes.
    step : int or None
        Whose state it holds or is to hold; None while it may be taken.
    idle : event or None
        After it the bytes may be read, or written over.
    """

    def __init__(self, at, part):
        self.at, self.part = at, part
        self.step = self.idle = None
