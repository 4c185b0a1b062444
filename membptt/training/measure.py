"""Measures the memory that a run really takes, as tracemalloc sees it.

NumPy reports every array to tracemalloc, the executor takes its arena and its workspace from NumPy,
and Python's own objects are counted too: a promise about bytes can be held against the peak.
"""

import tracemalloc

import numpy.random  # noqa: F401  NumPy loads it at its first use, which would be under the meter


class PeakMeter:
    """The most memory in use at once from its making to `stop`, beyond what was in use before.

    It sees all that the process allocates. Tracing costs time, so stop it once the peak has been
    seen. A trace that was running already is used and left running.

    Attributes
    ----------
    peak_bytes : int or None
        What `stop` found; None before.

    Examples
    --------
    >>> import numpy as np
    >>> meter = PeakMeter()
    >>> array = np.zeros(1_000_000, np.uint8)
    >>> del array
    >>> meter.stop()
    >>> 1_000_000 <= meter.peak_bytes < 1_100_000
    True
    """

    def __init__(self):
        self.peak_bytes = None
        self.owner = not tracemalloc.is_tracing()
        if self.owner:
            tracemalloc.start()
        else:
            tracemalloc.reset_peak()
        self.baseline = tracemalloc.get_traced_memory()[0]

    def forget(self):
        """Count the peak from now on: what was in use before, and is no more, is left out."""
        if self.peak_bytes is None:
            tracemalloc.reset_peak()

    def stop(self):
        """Keep the peak and end the trace; a second call does nothing."""
        if self.peak_bytes is None:
            self.peak_bytes = tracemalloc.get_traced_memory()[1] - self.baseline
            if self.owner:
                tracemalloc.stop()
