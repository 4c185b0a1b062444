"""Memory and time of every strategy: one table, measured side by side in one run.

    python benchmarks/strategies.py                       LSTM, T = 1000, batch 16, hidden 256
    python benchmarks/strategies.py --cell rnn --steps 5000 --json
    python benchmarks/strategies.py --plot trade-off.png  drawn too; needs matplotlib (extra: plot)

Each row is one strategy at one budget, a percentage of the bytes that full BPTT saves. The arena
and the forward steps are counted by the executor, the peak is what tracemalloc saw NumPy allocate
from before the network was made until after the update, the seconds are medians of interleaved
repeats: one update of each row, then the next round, so that a slow minute of the machine meets all
alike. Beside the measured time stands what the cost model says: full BPTT's seconds times
(C/T + r)/(1 + r), where r comes from a forward sweep that saves nothing, timed here too: all that
full BPTT takes beyond it counts as backward.
"""

import argparse
import gc
import json
import statistics
import time
import tracemalloc
from functools import partial

import numpy as np

import membptt as mb
from membptt.chains.registry import make_chain

CELLS = {"rnn": mb.RNN, "lstm": mb.LSTM}
ALPHABET = 103


class Case:
    """A network on tokens, as the character model trains it."""

    def __init__(self, arguments):
        self.batch = arguments.batch
        self.cell = CELLS[arguments.cell](ALPHABET, arguments.hidden)
        generator = np.random.default_rng(0)
        tokens = generator.integers(0, ALPHABET, (arguments.steps + 1, arguments.batch), np.uint8)
        self.inputs = tokens[:-1]
        self.head = mb.SoftmaxHead(arguments.hidden, ALPHABET).with_targets(tokens[1:])


def traced_peak(arguments, schedule):
    """Return the most bytes that NumPy held from before the network was made until the end."""
    gc.collect()
    tracemalloc.start()
    case = Case(arguments)
    mb.Executor(case.cell, schedule, case.batch).run(case.inputs, case.head)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def forward_seconds(case, steps, threads, repeats):
    """Return the median time of a forward sweep that saves nothing, by the same kernels."""
    chain = make_chain(case.cell, case.head, steps, case.batch)
    arena = np.zeros(case.cell.internal_nbytes(case.batch), np.uint8)
    chain.begin(case.inputs, case.head, case.cell.zero_state(case.batch), arena)
    chain.open_team(threads)
    seconds = []
    for _ in range(repeats):
        chain.restart(0)
        started = time.perf_counter()
        chain.forward(0, steps)
        seconds.append(time.perf_counter() - started)
    chain.close_team()
    return statistics.median(seconds)


def measure(arguments):
    """Return the rows of the table and the ratio r."""
    case = Case(arguments)
    full = arguments.steps * case.cell.internal_nbytes(case.batch)
    plans = [("full", 100.0, mb.schedule(arguments.steps, full, "full", case.cell, case.batch))]
    for percent in arguments.percent:
        for strategy in arguments.strategies:
            budget = int(full * percent / 100)
            plan = mb.schedule(arguments.steps, budget, strategy, case.cell, case.batch)
            plans.append((strategy, percent, plan))
    executors = [mb.Executor(case.cell, plan, case.batch) for _, _, plan in plans]
    runs = [partial(executor.run, case.inputs, case.head) for executor in executors]
    results = [run() for run in runs]  # the first run of each allocates
    seconds = [[] for _ in plans]
    for _ in range(arguments.repeats):
        for run, times in zip(runs, seconds, strict=True):
            times.append(run().stats.seconds)
    full_seconds = statistics.median(seconds[0])
    sweep = forward_seconds(case, arguments.steps, executors[0].threads, arguments.repeats)
    ratio = full_seconds / sweep - 1
    rows = []
    for (strategy, percent, plan), result, times in zip(plans, results, seconds, strict=True):
        measured = statistics.median(times)
        rows.append(
            {
                "strategy": strategy,
                "budget_percent": percent,
                "arena_bytes": result.stats.arena_bytes,
                "arena_peak_bytes": result.stats.peak_bytes,
                "measured_peak_bytes": traced_peak(arguments, plan),
                "forward_steps": result.stats.forward_steps,
                "seconds": measured,
                "slowdown": measured / full_seconds,
                "predicted_slowdown": plan.time_factor(ratio),
            }
        )
    return rows, ratio


def draw(rows, path):
    """Draw slowdown against the share of full BPTT's memory, measured, one line a strategy."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")
    for name in dict.fromkeys(row["strategy"] for row in rows):
        own = sorted(
            (row["budget_percent"], row["slowdown"]) for row in rows if row["strategy"] == name
        )
        axes.plot(*zip(*own, strict=True), marker="o", label=name)
    axes.set_xscale("log")
    axes.set_xlabel("saved states, % of full BPTT's bytes")
    axes.set_ylabel("time of an update over full BPTT's")
    axes.legend()
    figure.savefig(path)


def main():
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cell", choices=CELLS, default="lstm")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--percent", type=float, nargs="+", default=[2.6, 5, 10])
    parser.add_argument(
        "--strategies", nargs="+", default=["hsm", "ism", "msm", "optimal"], metavar="STRATEGY"
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    parser.add_argument("--plot", metavar="FILE", help="draw the table, as PNG, SVG or PDF")
    arguments = parser.parse_args()
    rows, ratio = measure(arguments)
    if arguments.plot:
        draw(rows, arguments.plot)
    if arguments.json:
        print(json.dumps({**vars(arguments), "backward_ratio": ratio, "rows": rows}))
        return
    print(
        f"{arguments.cell}, T = {arguments.steps}, batch {arguments.batch}, hidden "
        f"{arguments.hidden}, float32; backward/forward time r = {ratio:.2f}"
    )
    print(
        f"{'strategy':<10}{'budget':>8}{'arena bytes':>14}{'in use':>12}{'peak traced':>13}"
        f"{'forwards':>10}{'seconds':>9}{'slowdown':>10}{'predicted':>11}"
    )
    for row in rows:
        print(
            f"{row['strategy']:<10}{row['budget_percent']:>7.1f}%{row['arena_bytes']:>14,}"
            f"{row['arena_peak_bytes']:>12,}{row['measured_peak_bytes']:>13,}"
            f"{row['forward_steps']:>10,}{row['seconds']:>9.3f}{row['slowdown']:>10.3f}"
            f"{row['predicted_slowdown']:>11.3f}"
        )


if __name__ == "__main__":
    main()
