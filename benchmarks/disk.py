"""Sequences beyond memory: seconds a step at T = 10^3 ... 10^6, in memory alone and with a disk.

    python benchmarks/disk.py
    python benchmarks/disk.py --steps 1000 10000 --throttle 0.1 --json

An LSTM with batch 1 and hidden 64 back-propagates through all T steps at once, 64 KiB of arena. In
memory alone the recomputations grow with T; with hidden states on disk they do not. --throttle
limits the folder to a share of the rate that hides all transfers (one state in the time of an
interval's forward steps), and the time that docs/disk.md predicts stands beside the measured one.
The last columns: bytes written, the share of the transfers' time that nobody waited for, and how
much the process grew beyond its size before the first run.
"""

import argparse
import json
import resource
import statistics
import tempfile

import numpy as np

import membptt as mb
from membptt.executor.disk import disk_schedule, forward_seconds

ALPHABET = 103


def run(executor, tokens, head, repeats):
    """Return the statistics of the run with the median time."""
    found = sorted((executor.run(tokens, head).stats for _ in range(repeats)), key=seconds)
    return found[len(found) // 2]


def seconds(stats):
    """Return the wall-clock time of a run."""
    return stats.seconds


def resident():
    """Return the largest size of this process so far, in bytes."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measure(steps, arguments, folder):
    """Return one row: one length, in memory alone and with the disk."""
    cell = mb.LSTM(ALPHABET, 64)
    tokens = np.random.default_rng(0).integers(0, ALPHABET, (steps + 1, 1), np.uint8)
    head = mb.SoftmaxHead(64, ALPHABET).with_targets(tokens[1:])
    exact = "optimal" if steps <= 10_000 else "near-optimal"
    memory = mb.schedule(steps, arguments.memory, exact, cell, 1)
    disk, _ = disk_schedule(steps, arguments.memory, cell, 1, folder)
    rate = 0.0
    hidden = cell.hidden_nbytes(1)
    interval = disk.intervals.interval if disk.intervals else steps
    if arguments.throttle:
        rate = arguments.throttle * hidden / (interval * forward_seconds(cell, 1))
    repeats = max(1, min(5, 200_000 // steps))
    before = resident()
    with_disk = run(
        mb.Executor(cell, disk, 1, disk=folder, disk_rate=rate), tokens[:-1], head, repeats
    )
    grown = resident() - before
    in_memory = run(mb.Executor(cell, memory, 1), tokens[:-1], head, repeats)
    return {
        "steps": steps,
        "memory_strategy": exact,
        "memory_forward_steps_per_step": memory.forward_steps / steps,
        "memory_microseconds_per_step": in_memory.seconds / steps * 1e6,
        "interval": interval,
        "disk_forward_steps_per_step": disk.forward_steps / steps,
        "disk_microseconds_per_step": with_disk.seconds / steps * 1e6,
        "disk_predicted_microseconds_per_step": predicted(with_disk, rate, hidden, disk) * 1e6,
        "disk_written_bytes": with_disk.disk_written_bytes,
        "disk_hidden_fraction": with_disk.disk_hidden_fraction,
        "resident_growth_bytes": grown,
    }


def predicted(stats, rate, hidden, schedule):
    """Return seconds a step by the model: computing, and what of the transfers is not hidden."""
    computing = stats.seconds - stats.disk_waited_seconds
    if not rate:
        return computing / schedule.steps
    states = schedule.disk_bytes // hidden
    transfer = hidden / rate
    sweep = computing * schedule.steps / (schedule.forward_steps + 2 * schedule.steps)
    back = computing - sweep
    return (max(sweep, states * transfer) + max(back, states * transfer)) / schedule.steps


def main():
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", nargs="+", type=int, default=[10**3, 10**4, 10**5, 10**6])
    parser.add_argument("--memory", default="64 KiB")
    parser.add_argument("--disk", default=tempfile.gettempdir(), metavar="DIR")
    parser.add_argument("--throttle", type=float, default=0.0, metavar="SHARE")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = []
    if not arguments.json:
        print(f"LSTM, batch 1, hidden 64, arena {arguments.memory}, folder {arguments.disk}")
        print(
            f"{'T':>8}{'C/T memory':>12}{'µs/step':>9}{'interval':>9}{'C/T disk':>10}{'µs/step':>9}"
            f"{'model':>8}{'written':>13}{'hidden':>8}{'grown':>12}"
        )
    for steps in arguments.steps:
        row = measure(steps, arguments, arguments.disk)
        rows.append(row)
        if not arguments.json:
            print(
                f"{steps:>8}{row['memory_forward_steps_per_step']:>12.3f}"
                f"{row['memory_microseconds_per_step']:>9.2f}{row['interval']:>9}"
                f"{row['disk_forward_steps_per_step']:>10.3f}"
                f"{row['disk_microseconds_per_step']:>9.2f}"
                f"{row['disk_predicted_microseconds_per_step']:>8.2f}"
                f"{row['disk_written_bytes']:>13,}{row['disk_hidden_fraction']:>8.1%}"
                f"{row['resident_growth_bytes']:>12,}"
            )
    if arguments.json:
        spread = [row["disk_microseconds_per_step"] for row in rows]
        print(
            json.dumps(
                {
                    **vars(arguments),
                    "rows": rows,
                    "disk_median_microseconds_per_step": statistics.median(spread),
                }
            )
        )


if __name__ == "__main__":
    main()
