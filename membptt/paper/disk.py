"""Kukreja, Hückelheim and Gorman (2018) once more: what hidden states on a disk cost.

Time is that of an iteration over full BPTT's, by the model of membptt.solver.disk: the first sweep
and the way back each take as long as their computing or their transfers, whichever is more,

    max(sweep, n ρ) + max(recomputation + T r, n ρ)          in units of one forward step

with n states on disk, ρ the time that one of them takes to write or to read and r that of a
backward step. Below ρ = 1 no transfer is ever waited for. What the paper states is taken from its
abstract. The same quantities are measured on this machine, the folder throttled to choose ρ.
"""

import statistics

import numpy as np

from membptt.cells import LSTM
from membptt.executor import Executor
from membptt.heads import SoftmaxHead
from membptt.memory import Units
from membptt.paper.costs import ALPHA, at_budget
from membptt.schedules import schedule
from membptt.solver.disk import BUFFERS, shortest_interval
from membptt.timing.moves import measure as measure_times

UNITS = 33  # of memory, in hidden states: ten internal states and three hidden ones on their way
BACKWARD_RATIO = 2.0
LENGTHS = tuple(np.unique(np.geomspace(50, 1_000_000, 25).round().astype(int)).tolist())
MOST_PLANNED = 10_000  # steps that `optimal` is solved for here
RATIOS = tuple(np.geomspace(0.1, 1000, 25).round(3).tolist())
RATIO_STEPS = 10_000
SHOWN_RATIOS = (1, 30, 100)
GRID = ((15, 33, 60, 120), (30, 100, 300, 1000, 3000, 10_000), (0.1, 1, 3, 10, 30, 100, 300, 1000))

ALPHABET = 64
MEASURED_LENGTHS = (500, 2000, 6000)
MEASURED_RATIOS = (0.25, 1, 4, 8)  # times the interval without recomputation
MEASURED_RATIO_STEPS = 2000


def disk_costs():
    """Return claims and the lines of the figures that the model gives, as plain values."""
    return {"claims": claims(), "figures": {"disk-length": by_length(), "disk-ratio": by_ratio()}}


def disk_time(steps, ratio, units=UNITS, interval=None):
    """Return the time factor with states on disk, and the interval.

    Parameters
    ----------
    steps : int
        T.
    ratio : float
        ρ, the time to write or to read a state over that of a forward step.
    units : int
        Memory, in hidden states.
    interval : int, optional
        By default the one that nobody waits for.
    """
    if interval is None:
        interval = shortest_interval(steps, units, 1, ALPHA, None, 1.0, ratio)
    planned = schedule(steps, Units(units, ALPHA), "disk", interval=interval)
    return time_factor(planned, ratio, BACKWARD_RATIO), interval


def time_factor(planned, ratio, backward_ratio):
    """Return the time of a schedule with states on disk over that of full BPTT."""
    sweep = (planned.intervals.count - 1) * planned.intervals.interval
    back = planned.forward_steps - sweep + backward_ratio * planned.steps
    transfers = planned.disk_bytes // planned.hidden * ratio
    both = max(sweep, transfers) + max(back, transfers)
    return both / ((1 + backward_ratio) * planned.steps)


def memory_time(name, steps, units=UNITS):
    """Return the time factor of a strategy that has this memory and no disk."""
    cost = steps if units >= steps * ALPHA else at_budget(name, steps, units)
    return (cost / steps + BACKWARD_RATIO) / (1 + BACKWARD_RATIO)


def claims():
    """Return what the paper's abstract says, with the verdict."""
    lengths = (10_000, 100_000, 1_000_000)
    spread = max(
        max(times) / min(times) - 1
        for times in ([disk_time(steps, ratio)[0] for steps in lengths] for ratio in (0.1, 10, 100))
    )
    revolve = [memory_time("revolve", steps) for steps in (lengths[0], lengths[-1])]
    cases, slower, slower_without_buffers = compared()
    return [
        {
            "claim": "the overhead is constant in the sequence length",
            "paper": "constant",
            "ours": f"T = {lengths[0]:,} to {lengths[-1]:,}: changes by at most {spread:.1%}; "
            f"Revolve in memory alone goes from {revolve[0]:.2f} to {revolve[1]:.2f}",
            "holds": spread < 0.02,
        },
        {
            "claim": "it depends only on the ratio of transfer time to computing time",
            "paper": "only on the ratio",
            "ours": f"up to ρ = {UNITS // ALPHA - 1} none: "
            f"{disk_time(lengths[-1], 0.1)[0]:.3f}; then "
            + ", ".join(f"{disk_time(lengths[-1], r)[0]:.3f} at ρ = {r}" for r in (30, 100, 1000)),
            "holds": disk_time(lengths[-1], 0.1)[0] == disk_time(lengths[-1], 10)[0],
        },
        {
            "claim": "at least as fast as Revolve in the same memory",
            "paper": "always",
            "ours": f"in {cases - slower} of {cases} cases where the {BUFFERS + 1} states on their "
            f"way count as memory, in {cases - slower_without_buffers} where they do not",
            "holds": slower_without_buffers == 0,
        },
    ]


def compared():
    """Return how many cases were compared with Revolve, and in how many the disk is slower.

    The last number is for memory in which the states on their way are not counted.
    """
    cases = slower = slower_without_buffers = 0
    budgets, lengths, ratios = GRID
    for units in budgets:
        for steps in lengths:
            if units >= steps * ALPHA:
                continue
            revolve = memory_time("revolve", steps, units)
            without = memory_time("revolve", steps, units - BUFFERS - 1)
            for ratio in ratios:
                found, _ = disk_time(steps, ratio, units)
                cases += 1
                slower += found > revolve + 1e-12
                slower_without_buffers += found > without + 1e-12
    return cases, slower, slower_without_buffers


def by_length():
    """Return the time factor against T."""
    lines = {
        f"disk, ρ = {ratio}": [list(LENGTHS), [disk_time(t, ratio)[0] for t in LENGTHS]]
        for ratio in SHOWN_RATIOS
    }
    short = [steps for steps in LENGTHS if steps <= MOST_PLANNED]
    lines["optimal"] = [short, [memory_time("optimal", steps) for steps in short]]
    lines["revolve"] = [list(LENGTHS), [memory_time("revolve", steps) for steps in LENGTHS]]
    return lines


def by_ratio():
    """Return the time factor against ρ at one length."""
    shortest = disk_time(RATIO_STEPS, 0.0)[1]
    fixed = [disk_time(RATIO_STEPS, ratio, interval=shortest)[0] for ratio in RATIOS]
    lines = {
        "disk, interval fits": [list(RATIOS), [disk_time(RATIO_STEPS, r)[0] for r in RATIOS]],
        f"disk, interval {shortest}": [list(RATIOS), fixed],
    }
    for name in ("optimal", "revolve"):
        lines[name] = [list(RATIOS), [memory_time(name, RATIO_STEPS)] * len(RATIOS)]
    return lines


def measure_disk(
    hidden=256, batch=4, lengths=MEASURED_LENGTHS, steps=MEASURED_RATIO_STEPS, repeats=3
):
    """Return what was measured, as plain values: by length, and by ρ at one length.

    Parameters
    ----------
    hidden, batch : int
        H and B of the LSTM, float32.
    lengths : sequence of int
    steps : int
        T of the runs with a throttled folder.
    repeats : int
        Interleaved runs that the median is taken of, after one that is not timed.

    Notes
    -----
    One thread computes, so that on two cores the other one is free for the transfers. States go to
    the system's folder for temporary files.
    """
    bench = Bench(LSTM(ALPHABET, hidden), batch, repeats)
    return {
        "hidden": hidden,
        "batch": batch,
        "memory_bytes": bench.memory,
        "forward_seconds": bench.times.forward,
        "backward_seconds": bench.times.backward,
        "by_length": [bench.row(length) for length in lengths],
        "by_ratio": bench.throttled(steps),
    }


class Bench:
    """Runs of one cell, each compared with full BPTT."""

    def __init__(self, cell, batch, repeats):
        self.cell, self.batch, self.repeats = cell, batch, repeats
        self.hidden = cell.hidden_nbytes(batch)
        self.memory = UNITS * self.hidden
        self.times = measure_times(cell, SoftmaxHead(cell.hidden_size, ALPHABET), batch, threads=1)

    def plan(self, steps, strategy, interval=None):
        """Return a schedule within the memory; full BPTT has all that it needs."""
        full = steps * self.cell.internal_nbytes(self.batch)
        memory = full if strategy == "full" else self.memory
        return schedule(steps, memory, strategy, self.cell, self.batch, interval)

    def seconds(self, steps, runs):
        """Return the median seconds of each run: pairs of a schedule and the rate of the folder."""
        tokens = np.random.default_rng(0).integers(0, ALPHABET, (steps + 1, self.batch), np.uint8)
        head = SoftmaxHead(self.cell.hidden_size, ALPHABET).with_targets(tokens[1:])
        executors = [
            Executor(self.cell, planned, self.batch, threads=1, disk_rate=rate)
            for planned, rate in runs
        ]
        found = [
            [one.run(tokens[:-1], head).stats.seconds for one in executors]
            for _ in range(self.repeats + 1)
        ]
        return [statistics.median(times) for times in zip(*found[1:], strict=True)]

    def row(self, steps):
        """Return one length: full BPTT, memory alone, and the disk as fast as it is."""
        interval = self.interval(steps)
        names = ("full", "revolve", "optimal", "disk")
        plans = [self.plan(steps, name, interval if name == "disk" else None) for name in names]
        full, *others = self.seconds(steps, [(planned, 0.0) for planned in plans])
        row = {"steps": steps, "interval": interval, "full_seconds": full}
        for planned, taken in zip(plans[1:], others, strict=True):
            row |= {
                f"{planned.strategy}_forward_steps": planned.forward_steps,
                f"{planned.strategy}_time_factor": taken / full,
            }
        return row

    def interval(self, steps, ratio=None):
        """Return the interval that nobody waits for; without a ratio, the shortest of use."""
        sizes = self.hidden, self.cell.internal_nbytes(self.batch)
        return shortest_interval(steps, self.memory, *sizes, None, 1.0, ratio)

    def throttled(self, steps):
        """Return one row for each ρ: with the shortest interval, and with one that fits."""
        shortest = self.interval(steps)
        cases = [
            (share * shortest, interval)
            for share in MEASURED_RATIOS
            for interval in dict.fromkeys((shortest, self.interval(steps, share * shortest)))
        ]
        runs = [
            (self.plan(steps, "disk", interval), self.hidden / (ratio * self.times.forward))
            for ratio, interval in cases
        ]
        full, *others = self.seconds(steps, [(self.plan(steps, "full"), 0.0), *runs])
        backward_ratio = self.times.backward / self.times.forward
        return [
            {
                "steps": steps,
                "ratio": ratio,
                "interval": interval,
                "time_factor": taken / full,
                "predicted_time_factor": time_factor(planned, ratio, backward_ratio),
            }
            for (ratio, interval), (planned, _), taken in zip(cases, runs, others, strict=True)
        ]
