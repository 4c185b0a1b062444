"""Plans strategy disk for this machine: how fast a step runs, how fast a folder takes states.

The interval is the shortest that recomputes nothing inside it, unless a transfer would then be
waited for or the disk would hold too much: see membptt.solver.disk.
"""

import os
import time
from dataclasses import dataclass

import numpy as np

from membptt.arrays import array_module
from membptt.cells.base import Cell, check_cell
from membptt.executor._spill import Spill, spill_file
from membptt.memory import parse_bytes
from membptt.schedules import Schedule, schedule
from membptt.solver.disk import shortest_interval
from membptt.timing.moves import forward_seconds
from membptt.types import FilePath

SAMPLE = 8 * 2**20  # bytes written and read to measure a folder
TRANSFERS = 64  # written and read to measure what a transfer takes at least


@dataclass(frozen=True)
class DiskSpeed:
    """What was measured.

    Attributes
    ----------
    forward_seconds : float
        Of one forward step.
    write_rate, read_rate : float
        Bytes a second to and from the folder, past the system's cache.
    latency : float
        Seconds that a transfer takes whatever its size.
    """

    forward_seconds: float
    write_rate: float
    read_rate: float
    latency: float

    def transfer_seconds(self, nbytes):
        """Return how long the slower of writing and reading `nbytes` takes."""
        return self.latency + nbytes / min(self.write_rate, self.read_rate)


def measure(cell, batch, folder):
    """Return the `DiskSpeed` of a cell on this machine and of a folder.

    `folder` is None for that of the system for temporary files. It is not used for a cell on a
    device, whose states go to the host's memory.

    Raises
    ------
    ValueError
        If the folder cannot be used.
    """
    check_cell(cell)
    if cell.backend == "cupy":
        return DiskSpeed(forward_seconds(cell, batch), *host_rates(array_module("cupy")))
    return DiskSpeed(forward_seconds(cell, batch), *folder_rates(folder), latency(folder))


def host_rates(xp):
    """Return bytes a second from a device to page-locked memory and back, and a copy's latency."""
    stream = xp.cuda.get_current_stream()

    def seconds(nbytes, to_host):
        memory = xp.cuda.alloc_pinned_memory(nbytes)
        host, there = np.frombuffer(memory, np.uint8, nbytes), xp.zeros(nbytes, dtype=np.uint8)
        for _ in range(2):  # the first copy sets things up
            stream.synchronize()
            started = time.perf_counter()
            if to_host:
                there.get(stream=stream, out=host, blocking=False)
            else:
                there.set(host, stream=stream)
            stream.synchronize()
        return time.perf_counter() - started

    write, read = (SAMPLE / seconds(SAMPLE, to_host) for to_host in (True, False))
    return write, read, max(seconds(1, True), seconds(1, False))


def latency(folder):
    """Return what a transfer takes whatever its size: calls of the system, and waking the thread.

    States of a few bytes are written and read one by one, each waited for.
    """
    nbytes, buffers = 8, 2
    spill = Spill(folder, TRANSFERS + 1, 1, nbytes, np.zeros(buffers * nbytes, np.uint8), buffers)
    try:
        started = time.perf_counter()
        for step in range(1, TRANSFERS + 1):
            spill.store(step, spill.acquire(step))
            spill.prefetch(step)
            spill.fetch(step)
            spill.drop(step)
        ended = time.perf_counter()
    finally:
        spill.close()
    return (ended - started) / (2 * TRANSFERS)


def folder_rates(folder):
    """Return bytes a second written to and read from `folder`, synced and not from the cache."""
    data = np.random.default_rng(0).bytes(SAMPLE)
    fd = spill_file(folder, SAMPLE)
    try:
        started = time.perf_counter()
        os.pwrite(fd, data, 0)
        os.fdatasync(fd)
        written = time.perf_counter()
        os.posix_fadvise(fd, 0, SAMPLE, os.POSIX_FADV_DONTNEED)
        begun = time.perf_counter()
        os.pread(fd, SAMPLE, 0)
        ended = time.perf_counter()
    finally:
        os.close(fd)
    return SAMPLE / (written - started), SAMPLE / (ended - begun)


def disk_schedule(
    steps: int,
    memory: str | int,
    cell: Cell,
    batch: int,
    folder: FilePath | None = None,
    disk_budget: str | int | None = None,
    speed: DiskSpeed | None = None,
) -> tuple[Schedule, DiskSpeed]:
    """Plan strategy disk for a cell on this machine and a folder.

    Parameters
    ----------
    steps : int
        T.
    memory : str or int
        The budget in memory.
    cell : membptt.Cell
    batch : int
    folder : path, optional
        Where states will go: by default the system's folder for temporary files, as for
        `membptt.Executor`; for a cell on a device, the host's memory.
    disk_budget : str or int, optional
        Most bytes on disk.
    speed : DiskSpeed, optional
        By default measured now.

    Returns
    -------
    schedule : membptt.Schedule
    speed : DiskSpeed

    Raises
    ------
    ValueError
        If the folder cannot be used, or a budget is too small.
    """
    if speed is None:
        speed = measure(cell, batch, folder)
    hidden = cell.hidden_nbytes(batch)
    interval = shortest_interval(
        steps,
        parse_bytes(memory),
        hidden,
        cell.internal_nbytes(batch),
        None if disk_budget is None else parse_bytes(disk_budget, "disk_budget"),
        speed.forward_seconds,
        speed.transfer_seconds(hidden),
    )
    return schedule(steps, memory, "disk", cell, batch, interval), speed
