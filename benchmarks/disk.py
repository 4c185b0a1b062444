"""Sequences beyond memory: seconds a step at T = 10^3 ... 10^6, in memory alone and with a disk.

    python benchmarks/disk.py                  about a minute
    python benchmarks/disk.py --steps 1000 10000 100000 --throttle 0.1
    python benchmarks/disk.py --steps 10000 --hidden 8 --memory "8 KiB"      tiny states

An LSTM with batch 1 back-propagates through all T steps at once. In memory alone the recomputations
grow with T; with hidden states on disk they do not. Rounds are interleaved: each runs every length
and strategy; the numbers are medians.

--throttle limits the folder to a share of the rate that just hides the transfers, one state in the
time of an interval's forward steps. Then two more schedules run: the same one, which has to wait,
beside the time that docs/disk.md predicts from the run without a limit; and one planned for so slow
a folder, with longer intervals.
"""

import argparse
import json
import resource
import tempfile
from dataclasses import replace
from statistics import median

import numpy as np

import membptt as mb
from membptt.timing.disk import disk_schedule, measure

ALPHABET = 103
ROUNDS = 5
ROUND_STEPS = 100_000  # short sequences run several times a round


class Case:
    """One length: its executors by name, and what they took."""

    def __init__(self, steps, arguments, speed):
        cell = mb.LSTM(ALPHABET, arguments.hidden)
        tokens = np.random.default_rng(0).integers(0, ALPHABET, (steps + 1, 1), np.uint8)
        head = mb.SoftmaxHead(arguments.hidden, ALPHABET)
        self.window = tokens[:-1], head.with_targets(tokens[1:])
        self.steps, self.speed = steps, speed
        self.hidden = cell.hidden_nbytes(1)
        self.exact = "optimal" if steps <= 10_000 else "near-optimal"
        schedules = {
            "memory": mb.schedule(steps, arguments.memory, self.exact, cell, 1),
            "disk": self.planned(cell, arguments, speed),
        }
        self.transfer_seconds = 0.0
        if arguments.throttle:
            interval = schedules["disk"].intervals.interval
            self.transfer_seconds = interval * speed.forward_seconds / arguments.throttle
            rate = self.hidden / self.transfer_seconds
            slow = replace(speed, write_rate=rate, read_rate=rate)
            schedules["throttled"] = schedules["disk"]
            schedules["planned"] = self.planned(cell, arguments, slow)
        self.executors = {}
        for name, schedule in schedules.items():
            rate = self.hidden / self.transfer_seconds if name in ("throttled", "planned") else 0.0
            self.executors[name] = mb.Executor(
                cell, schedule, 1, disk=arguments.disk, disk_rate=rate
            )
        self.stats = {name: [] for name in schedules}

    def planned(self, cell, arguments, speed):
        """Return the schedule with a disk for these speeds."""
        return disk_schedule(self.steps, arguments.memory, cell, 1, arguments.disk, speed=speed)[0]

    def run(self):
        """Run each executor for one round."""
        for name, executor in self.executors.items():
            for _ in range(max(1, ROUND_STEPS // self.steps)):
                self.stats[name].append(executor.run(*self.window).stats)

    def row(self):
        """Return what was found, by name."""
        row = {"steps": self.steps, "memory_strategy": self.exact}
        for name, executor in self.executors.items():
            schedule, stats = executor.schedule, self.stats[name]
            row[f"{name}_forward_steps_per_step"] = schedule.forward_steps / self.steps
            row[f"{name}_microseconds_per_step"] = (
                1e6 * median(s.seconds for s in stats) / self.steps
            )
            if schedule.intervals is not None:
                row[f"{name}_interval"] = schedule.intervals.interval
                row[f"{name}_written_bytes"] = stats[0].disk_written_bytes
                row[f"{name}_hidden_fraction"] = median(s.disk_hidden_fraction for s in stats)
                waited = (s.disk_waited_seconds / s.seconds for s in stats)
                row[f"{name}_waited_fraction"] = median(waited)
        if "throttled" in self.executors:
            row["predicted_microseconds_per_step"] = 1e6 * self.predicted() / self.steps
        return row

    def predicted(self):
        """Return the seconds of a throttled run by the model of docs/disk.md.

        The sweep and the way back each take the longer of computing and of their transfers; what
        computing takes is known from the runs without a limit.
        """
        computing = median(s.seconds - s.disk_waited_seconds for s in self.stats["disk"])
        sweep = self.steps * self.speed.forward_seconds
        states = self.executors["disk"].schedule.disk_bytes // self.hidden
        transfers = states * (self.transfer_seconds + self.speed.latency)
        return max(sweep, transfers) + max(computing - sweep, transfers)


def lines(row):
    """Yield the row for people."""
    yield (
        f"T = {row['steps']:>9,}: {row['memory_microseconds_per_step']:.2f} µs a step in memory "
        f"({row['memory_strategy']}, {row['memory_forward_steps_per_step']:.3f} forwards a step)"
    )
    for name in ("disk", "throttled", "planned"):
        if f"{name}_interval" in row:
            yield (
                f"{name:>15}: {row[f'{name}_microseconds_per_step']:.2f} µs, "
                f"{row[f'{name}_forward_steps_per_step']:.3f} forwards, interval "
                f"{row[f'{name}_interval']}, {row[f'{name}_written_bytes']:,} bytes written, "
                f"{row[f'{name}_hidden_fraction']:.0%} of the transfers' time hidden, "
                f"{row[f'{name}_waited_fraction']:.1%} of the run's time waited"
                + (
                    f", predicted {row['predicted_microseconds_per_step']:.2f} µs"
                    if name == "throttled"
                    else ""
                )
            )


def main():
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", nargs="+", type=int, default=[10**3, 10**4, 10**5, 10**6])
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--memory", default="64 KiB")
    parser.add_argument("--disk", default=tempfile.gettempdir(), metavar="DIR")
    parser.add_argument("--throttle", type=float, default=0.0, metavar="SHARE")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    speed = measure(mb.LSTM(ALPHABET, arguments.hidden), 1, arguments.disk)
    cases = [Case(steps, arguments, speed) for steps in arguments.steps]
    resident = []
    for _ in range(arguments.rounds):
        for case in cases:
            case.run()
        resident.append(1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    grown = resident[-1] - resident[0]
    rows = [case.row() for case in cases]
    if arguments.json:
        print(
            json.dumps(
                {
                    **vars(arguments),
                    "latency_microseconds": 1e6 * speed.latency,
                    "forward_microseconds": 1e6 * speed.forward_seconds,
                    "rows": rows,
                    "resident_growth_bytes": grown,
                }
            )
        )
        return
    print(
        f"LSTM, batch 1, hidden {arguments.hidden}, arena {arguments.memory}; a forward step takes "
        f"{1e6 * speed.forward_seconds:.2f} µs, a transfer to {arguments.disk} at least "
        f"{1e6 * speed.latency:.0f} µs"
    )
    for row in rows:
        print(*lines(row), sep="\n")
    print(f"the process grew by {grown:,} bytes after the first round")


if __name__ == "__main__":
    main()
