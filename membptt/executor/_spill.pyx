"""States on slow storage, written and read in the background: see executor/spill.h.

The buffers stand at the end of the arena and so inside the budget. One file a run: its room is
reserved before anything is written, and it has no name, so that nothing is left behind whatever
ends the process, and two runs in one folder never meet.
"""

import errno
import os
import tempfile

import numpy as np

from posix.unistd cimport close

cdef enum:
    END = 16  # bytes of spill_end


def spill_file(folder, nbytes):
    """Return a descriptor of a nameless file in `folder` with `nbytes` reserved.

    None is the folder of the system for temporary files.

    Raises
    ------
    ValueError
        If the folder is missing, not a folder, not writable, or has too little room.
    """
    folder = tempfile.gettempdir() if folder is None else os.fspath(folder)
    try:
        fd = _nameless(folder)
        try:
            os.posix_fallocate(fd, 0, nbytes)
        except BaseException:
            os.close(fd)
            raise
    except OSError as error:
        raise ValueError(f"disk is {folder!r}: {_reason(folder, nbytes, error)}") from None
    return fd


def _nameless(folder):
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
            raise
    fd, path = tempfile.mkstemp(prefix="membptt-", dir=folder)  # a file system without O_TMPFILE
    os.unlink(path)
    return fd


def _reason(folder, nbytes, error):
    if error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
        try:
            free = os.statvfs(folder)
            room = f", {free.f_bavail * free.f_frsize} are free"
        except OSError:
            room = ""
        return f"needs {nbytes} bytes{room}; give another folder or a longer interval"
    return f"{error.strerror}; give a folder that exists and can be written to"


cdef class Spill:
    """The tier of one run.

    Parameters
    ----------
    folder : path or None
        Where the file goes, as for `spill_file`.
    steps, interval : int
        A state is stored after each multiple of `interval` steps.
    nbytes : int
        Of a hidden state.
    arena : numpy.ndarray
        uint8; the buffers are its last ``buffers * nbytes`` bytes.
    buffers : int
        At least 2, so that one transfer overlaps the use of another state.
    rate : float
        Bytes a second at most, to try what slow storage does; 0 for no limit.
    record : bool
        Keep every transfer's begin and end as `events`.
    """

    def __cinit__(self):
        self.s.fd = -1  # 0 is somebody's standard input

    def __init__(self, folder, steps, interval, nbytes, arena, buffers, rate=0.0, record=False):
        cdef long records = max(1, (steps - 1) // interval)
        cdef int i
        cdef long size = nbytes
        cdef char *memory = <char *><size_t>arena.ctypes.data
        self.interval = interval
        self.arena = arena
        self.first_offset = arena.nbytes - buffers * nbytes
        self.s.nbytes = nbytes
        self.s.rate = rate
        self.s.buffers = buffers
        for i in range(buffers):
            self.s.buffer[i].memory = memory + self.first_offset + i * size
        if record:
            self.events = np.zeros((2 * records, 4))
            self.s.events = <double *><size_t>self.events.ctypes.data
            self.s.events_most = 2 * records
        self.s.fd = spill_file(folder, records * (nbytes + END))
        self.began = spill_now()
        failed = spill_start(&self.s)
        if failed:
            raise OSError(failed, os.strerror(failed))
        self.running = True

    def close(self):
        """Finish the transfers, end the thread, give the file back."""
        if self.running:
            self.running = False
            with nogil:
                spill_stop(&self.s)
        if self.s.fd >= 0:
            os.close(self.s.fd)
            self.s.fd = -1

    def __dealloc__(self):
        if self.running:
            spill_stop(&self.s)
        if self.s.fd >= 0:  # also where the thread could not be started
            close(self.s.fd)

    @property
    def fd(self):
        """The file's descriptor: for tests that damage it."""
        return self.s.fd

    def report(self):
        """Return bytes written and read, seconds of transfers and of waiting for them."""
        return {
            "disk_written_bytes": self.s.written,
            "disk_read_bytes": self.s.read,
            "disk_busy_seconds": self.s.busy,
            "disk_waited_seconds": self.s.waited,
        }

    def log(self):
        """Return the recorded transfers: 0 write or 1 read, step, begin and end in seconds."""
        if self.events is None:
            return None
        rows = self.events[:self.s.events_count].copy()
        rows[:, 2:] -= self.began
        return rows

    def raise_fault(self):
        """Raise what the background thread met."""
        step = self.s.fault_step
        if self.s.fault == SPILL_ERRNO:
            raise OSError(self.s.error, f"state of step {step} on disk: "
                                        f"{os.strerror(self.s.error)}")
        if self.s.fault == SPILL_SHORT:
            raise OSError(errno.EIO, f"state of step {step} on disk is cut short")
        if self.s.fault == SPILL_DAMAGED:
            raise OSError(
                errno.EIO, f"state of step {step} on disk was changed: its checksum fails")

    # For the compiled loop: offsets in the arena, -1 after a fault (0 and -1 where there is none).

    cdef long acquire_at(self, long step) noexcept nogil:
        cdef int number = spill_acquire(&self.s, step)
        return -1 if number < 0 else self.first_offset + number * self.s.nbytes

    cdef void store_from(self, long step, long at) noexcept nogil:
        spill_store(&self.s, (at - self.first_offset) // self.s.nbytes, step // self.interval - 1)

    cdef int prefetch_step(self, long step) noexcept nogil:
        return -1 if spill_prefetch(&self.s, step, step // self.interval - 1) < 0 else 0

    cdef long fetch_at(self, long step) noexcept nogil:
        cdef int number = spill_fetch(&self.s, step)
        return -1 if number < 0 else self.first_offset + number * self.s.nbytes

    cdef long find_at(self, long step) noexcept nogil:
        cdef int number = spill_find(&self.s, step)
        return -1 if number < 0 else self.first_offset + number * self.s.nbytes

    cdef int drop_step(self, long step) noexcept nogil:
        return spill_drop(&self.s, step)

    # For the readable loop.

    def acquire(self, long step):
        """Wait for a free buffer; return its offset in the arena."""
        cdef long at
        with nogil:
            at = self.acquire_at(step)
        if at < 0:
            self.raise_fault()
        return at

    def store(self, long step, long at):
        """Have the buffer at `at` written."""
        self.store_from(step, at)

    def prefetch(self, long step):
        """Have the state of `step` read into a free buffer."""
        cdef int failed
        with nogil:
            failed = self.prefetch_step(step)
        if failed:
            self.raise_fault()

    def fetch(self, long step):
        """Wait for the state of `step`; return its offset in the arena."""
        cdef long at
        with nogil:
            at = self.fetch_at(step)
        if at < 0:
            self.raise_fault()
        return at

    def find(self, long step):
        """Return the offset of the state of `step` if it is in a buffer, else -1."""
        return self.find_at(step)

    def drop(self, long step):
        """Give the buffer of `step` back."""
        if self.drop_step(step) < 0:
            raise LookupError(f"the state of step {step} is in no buffer")
