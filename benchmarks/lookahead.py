"""Look-ahead against full BPTT and `optimal`, side by side in one run on two cores.

    python benchmarks/lookahead.py
    python benchmarks/lookahead.py --sizes 1x64 8x64 --percent 3 5 10 --json

For each batch x hidden size the character model's LSTM runs one update's loss and gradients under
full BPTT with one and with two threads, under `optimal` with two threads, and under `lookahead`,
where a second thread recomputes while the first back-propagates. Rounds are interleaved, seconds
are medians. The ratio is to the faster of the two full runs: what a user would otherwise have.
"""

import argparse
import json
import statistics

import numpy as np

import membptt as mb

ALPHABET = 103


def runs(steps, batch, hidden, percents):
    """Return functions that run one update each, by what they are, and the window for them."""
    cell = mb.LSTM(ALPHABET, hidden)
    tokens = np.random.default_rng(0).integers(0, ALPHABET, (steps + 1, batch), np.uint8)
    head = mb.SoftmaxHead(hidden, ALPHABET).with_targets(tokens[1:])
    full = steps * cell.internal_nbytes(batch)

    def executor(strategy, percent, threads):
        schedule = mb.schedule(steps, int(full * percent / 100), strategy, cell, batch)
        made = mb.Executor(cell, schedule, batch, threads=threads)
        return lambda: made.run(tokens[:-1], head).stats

    found = {("full", 100, threads): executor("full", 100, threads) for threads in (1, 2)}
    for percent in percents:
        found["optimal", percent, 2] = executor("optimal", percent, 2)
        found["lookahead", percent, 2] = executor("lookahead", percent, 2)
    return found


def measure(steps, batch, hidden, percents, repeats):
    """Return one row for each run: medians of interleaved rounds."""
    todo = runs(steps, batch, hidden, percents)
    stats = {key: run() for key, run in todo.items()}  # the first run of each allocates
    seconds = {key: [] for key in todo}
    for _ in range(repeats):
        for key, run in todo.items():
            seconds[key].append(run().seconds)
    medians = {key: statistics.median(times) for key, times in seconds.items()}
    fastest = min(medians["full", 100, 1], medians["full", 100, 2])
    return [
        {
            "batch": batch,
            "hidden": hidden,
            "strategy": strategy,
            "percent": percent,
            "threads": threads,
            "arena_peak_bytes": stats[strategy, percent, threads].peak_bytes,
            "forward_steps": stats[strategy, percent, threads].forward_steps,
            "seconds": medians[strategy, percent, threads],
            "ratio": medians[strategy, percent, threads] / fastest,
        }
        for strategy, percent, threads in todo
    ]


def main():
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument(
        "--sizes", nargs="+", default=["1x64", "8x64", "1x128", "16x256"], metavar="BxH"
    )
    parser.add_argument("--percent", type=float, nargs="+", default=[3, 5, 10])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = []
    for size in arguments.sizes:
        batch, hidden = map(int, size.split("x"))
        rows += measure(arguments.steps, batch, hidden, arguments.percent, arguments.repeats)
    if arguments.json:
        print(json.dumps({**vars(arguments), "rows": rows}))
        return
    print(f"LSTM, T = {arguments.steps}, float32; ratio to the faster full BPTT of each size")
    print(f"{'B':>4}{'H':>5} {'strategy':<10}{'memory':>8}{'threads':>8}{'ms':>10}{'ratio':>8}")
    for row in rows:
        print(
            f"{row['batch']:>4}{row['hidden']:>5} {row['strategy']:<10}{row['percent']:>7}%"
            f"{row['threads']:>8}{row['seconds'] * 1e3:>10.2f}{row['ratio']:>8.3f}"
        )


if __name__ == "__main__":
    main()
