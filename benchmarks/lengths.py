"""Rows of several lengths: what the packed form saves in time, and in rows that are run again.

    python benchmarks/lengths.py [--steps 1000] [--rounds 9]

Lengths of three kinds. First full BPTT of an LSTM with everything stored: packed, padded, and the
share of rows that are live. Then plans for a fiftieth of the memory: rows run forward, over those
of full BPTT, of `packed_schedule` and of strategy optimal with states of all rows; and the measured
time of both, over that of full BPTT packed. Times are medians over rounds in turn.
"""

import argparse
import time
from statistics import median

import numpy as np

import membptt as mb
from membptt.schedules.packed import counted

BATCH, HIDDEN, SYMBOLS = 16, 256, 64


def kinds(steps):
    """Yield names and lengths [B] of which one is `steps`."""
    numbers = np.random.default_rng(0)
    uniform = numbers.integers(1, steps + 1, BATCH)
    short = np.clip(numbers.exponential(steps / 4, BATCH).astype(int), 1, steps)
    quarter = np.full(BATCH, max(1, steps // 4))
    for name, lengths in (("uniform", uniform), ("exponential", short), ("one long", quarter)):
        lengths[0] = steps
        yield name, lengths


def measure(name, lengths, rounds):
    steps = int(lengths.max())
    cell, head = mb.LSTM(SYMBOLS, HIDDEN), mb.SoftmaxHead(HIDDEN, SYMBOLS)
    tokens = np.random.default_rng(1).integers(SYMBOLS, size=(steps + 1, BATCH))
    inputs, bound = tokens[:-1], head.with_targets(tokens[1:], lengths=lengths)
    everything = mb.schedule(steps, steps * cell.internal_nbytes(BATCH), cell=cell, batch=BATCH)
    memory = steps * cell.internal_nbytes(BATCH) // 50
    began = time.perf_counter()
    packed = mb.packed_schedule(lengths, memory, cell)
    planning = time.perf_counter() - began
    even = mb.schedule(steps, memory, cell=cell, batch=BATCH)
    counts = counted(even, packed.lengths, packed.hidden, packed.internal)
    full = packed.full_row_steps
    runs = [
        (mb.Executor(cell, everything, BATCH), None),
        (mb.Executor(cell, everything, BATCH), lengths),
        (mb.Executor(cell, packed, BATCH), lengths),
        (mb.Executor(cell, even, BATCH), lengths),
    ]
    seconds = [
        [executor.run(inputs, bound, lengths=each).stats.seconds for executor, each in runs]
        for _ in range(rounds + 1)
    ]
    padded, stored, mine, theirs = (median(column) for column in zip(*seconds[1:], strict=True))
    print(
        f"{name:<12} {full / (steps * BATCH):5.0%}  {stored / padded:13.2f}  "
        f"{packed.row_steps / full:6.2f} {counts.row_steps / full:6.2f}  "
        f"{mine / stored:6.2f} {theirs / stored:6.2f}  {planning:8.2f} s"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    print(f"LSTM, T = {args.steps}, batch {BATCH}, hidden {HIDDEN}, float32")
    print("                      full BPTT:     rows forward   time            planning")
    print("lengths       live  packed/padded  packed   even  packed   even")
    for name, lengths in kinds(args.steps):
        measure(name, lengths, args.rounds)


if __name__ == "__main__":
    main()
