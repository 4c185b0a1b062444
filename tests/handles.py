"""How many threads and open files this process has."""

import os
import time


def handles():
    """Return the numbers of threads and of open files."""
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


def handles_once(wanted):
    """Return the numbers once they are those wanted, or what they are after some seconds.

    Linux lists a thread for a moment longer than joining it takes.
    """
    until = time.monotonic() + 5
    while (found := handles()) != wanted and time.monotonic() < until:
        time.sleep(0.001)
    return found
