"""Time and memory against the length of the sequence, measured on this machine.

An LSTM under the paper's strategies and `optimal`, within one budget, beside full BPTT. Seconds are
medians of interleaved repeats; bytes are the peak of everything that Python allocates while an
executor is made and run (tracemalloc sees NumPy), the parameters and the inputs excepted.
"""

import os
import platform
import statistics

import numpy as np

from membptt._version import __version__
from membptt.cells import LSTM
from membptt.executor import Executor
from membptt.heads import SoftmaxHead
from membptt.kernels.threads import thread_count
from membptt.paper.costs import HEADLINE_UNITS, PAPERS
from membptt.schedules import schedule
from membptt.training.measure import PeakMeter

LENGTHS = (125, 250, 500, 1000, 2000)
STRATEGIES = ("full", *PAPERS, "optimal")
ALPHABET = 64


def measure(hidden=128, batch=16, lengths=LENGTHS, repeats=3, progress=None):
    """Return what was measured, as plain values.

    Parameters
    ----------
    hidden, batch : int
        H and B of the LSTM, float32, tokens of an alphabet of 64.
    lengths : sequence of int
    repeats : int
        Runs that the median is taken of, after one that is not timed.
    progress : callable, optional
        Told one line after each length.
    """
    cell = LSTM(ALPHABET, hidden)
    budget = HEADLINE_UNITS * cell.hidden_nbytes(batch)
    rows = []
    for steps in lengths:
        rows += measure_length(cell, batch, steps, budget, repeats)
        if progress:
            full, best = rows[-len(STRATEGIES)], rows[-1]
            progress(
                f"T = {steps}: full {full['seconds']:.3f} s, {full['measured_bytes']:,} bytes; "
                f"optimal {best['seconds']:.3f} s, {best['measured_bytes']:,} bytes"
            )
    return {
        "cell": "lstm",
        "hidden": hidden,
        "batch": batch,
        "dtype": "float32",
        "budget_bytes": budget,
        "machine": platform.machine(),
        "system": platform.system(),
        "cpus": os.cpu_count(),
        "threads": thread_count(None),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "membptt": __version__,
        "rows": rows,
    }


def measure_length(cell, batch, steps, budget, repeats):
    """Return one row for each strategy at one length."""
    tokens = np.random.default_rng(0).integers(0, ALPHABET, (steps + 1, batch), np.uint8)
    head = SoftmaxHead(cell.hidden_size, ALPHABET).with_targets(tokens[1:])
    full = steps * cell.internal_nbytes(batch)
    executors, rows = {}, []
    for name in STRATEGIES:
        planned = schedule(steps, full if name == "full" else budget, name, cell, batch)
        meter = PeakMeter()
        executors[name] = Executor(cell, planned, batch)
        stats = executors[name].run(tokens[:-1], head).stats
        meter.stop()
        rows.append(
            {
                "steps": steps,
                "strategy": name,
                "forward_steps": stats.forward_steps,
                "arena_peak_bytes": stats.peak_bytes,
                "measured_bytes": meter.peak_bytes,
            }
        )
    seconds = {name: [] for name in STRATEGIES}
    for _ in range(repeats):
        for name, one in executors.items():
            seconds[name].append(one.run(tokens[:-1], head).stats.seconds)
    for row in rows:
        row["seconds"] = statistics.median(seconds[row["strategy"]])
    for row in rows:
        row["time_factor"] = row["seconds"] / rows[0]["seconds"]
        row["saved_fraction"] = 1 - row["arena_peak_bytes"] / rows[0]["arena_peak_bytes"]
    return rows
