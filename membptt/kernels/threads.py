"""How many threads the compiled chains use.

Results have the same bits for any number. By default all cores that this process may run on, its
share of them where MPI started several processes on this machine, or MEMBPTT_NUM_THREADS; a step
too small to share runs on one.
"""

import os

from membptt.checks import integer

VARIABLE = "MEMBPTT_NUM_THREADS"
# How many processes MPI started on this machine: Open MPI, MPICH and those after it, srun.
NEIGHBOURS = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE")

# Handing out a phase costs a few tenths of a microsecond; below about 1.5 µs of multiplications a
# step, sharing loses more than it gains.
SMALLEST_SHARED = 100_000


def thread_count(threads=None):
    """Return `threads`, else what MEMBPTT_NUM_THREADS says, else the cores of this process."""
    if threads is not None:
        return integer("threads", threads, minimum=1)
    stated = os.environ.get(VARIABLE)
    if stated is None:
        here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        return max(1, min(here, os.cpu_count() // most_stated(NEIGHBOURS)))
    if not stated.isdecimal() or int(stated) < 1:
        raise ValueError(f"{VARIABLE} is {stated!r}; give a whole number from 1")
    return int(stated)


def most_stated(names):
    """Return the largest number that one of these variables of the environment states, or 1."""
    known = [os.environ.get(name, "") for name in names]
    return max([1, *(int(number) for number in known if number.isdecimal())])


def useful_threads(cell, batch, threads=None):
    """Return how many threads to run: one where a step's product is too small to share."""
    layers = getattr(cell, "layers", [cell])
    work = max(2 * batch * each.hidden_size * each.gates * each.hidden_size for each in layers)
    return 1 if work < SMALLEST_SHARED else thread_count(threads)
