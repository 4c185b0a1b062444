"""How time and memory grow with the length of the sequence, at a fixed budget.

    python benchmarks/growth.py                      LSTM and RNN, T = 200, 1000, 5000, 20000
    python benchmarks/growth.py --memory "8 MiB" --json

Full BPTT's saved states grow with T; under `optimal` they stay within the budget and the forward
steps grow instead, slowly. Batch 16, hidden 256, float32; seconds are medians of interleaved
repeats, bytes what the executor counted.
"""

import argparse
import json
import statistics

import numpy as np

import membptt as mb

CELLS = {"lstm": mb.LSTM, "rnn": mb.RNN}
ALPHABET = 103


def measure(kind, steps, memory, repeats, batch=16, hidden=256):
    """Return one row: full BPTT and `optimal` within `memory`, for one length."""
    cell = CELLS[kind](ALPHABET, hidden)
    tokens = np.random.default_rng(0).integers(0, ALPHABET, (steps + 1, batch), np.uint8)
    head = mb.SoftmaxHead(hidden, ALPHABET).with_targets(tokens[1:])
    full = mb.schedule(steps, steps * cell.internal_nbytes(batch), "full", cell, batch)
    plans = {"full": full, "optimal": mb.schedule(steps, memory, "optimal", cell, batch)}
    executors = {name: mb.Executor(cell, plan, batch) for name, plan in plans.items()}
    stats = {name: one.run(tokens[:-1], head).stats for name, one in executors.items()}
    seconds = {name: [] for name in plans}
    for _ in range(repeats):
        for name, one in executors.items():
            seconds[name].append(one.run(tokens[:-1], head).stats.seconds)
    row = {"cell": kind, "steps": steps}
    for name, plan in plans.items():
        row |= {
            f"{name}_bytes": stats[name].peak_bytes,
            f"{name}_forward_steps_per_step": plan.forward_steps / steps,
            f"{name}_seconds_per_step": statistics.median(seconds[name]) / steps,
        }
    row["slowdown"] = row["optimal_seconds_per_step"] / row["full_seconds_per_step"]
    return row


def main():
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cells", nargs="+", choices=CELLS, default=list(CELLS))
    parser.add_argument("--steps", nargs="+", type=int, default=[200, 1000, 5000, 20000])
    parser.add_argument("--memory", default="2 MiB")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = []
    if not arguments.json:
        print(f"budget {arguments.memory}, batch 16, hidden 256, float32")
        print(
            f"{'cell':<6}{'T':>7}{'full bytes':>15}{'optimal':>12}{'share':>8}"
            f"{'forwards/step':>15}{'µs/step full':>14}{'optimal':>9}{'slowdown':>10}"
        )
    for kind in arguments.cells:
        for steps in arguments.steps:
            row = measure(kind, steps, arguments.memory, arguments.repeats)
            rows.append(row)
            if not arguments.json:
                print(
                    f"{kind:<6}{steps:>7}{row['full_bytes']:>15,}{row['optimal_bytes']:>12,}"
                    f"{row['optimal_bytes'] / row['full_bytes']:>8.2%}"
                    f"{row['optimal_forward_steps_per_step']:>15.3f}"
                    f"{row['full_seconds_per_step'] * 1e6:>14.1f}"
                    f"{row['optimal_seconds_per_step'] * 1e6:>9.1f}{row['slowdown']:>10.3f}"
                )
    if arguments.json:
        print(json.dumps({**vars(arguments), "rows": rows}))


if __name__ == "__main__":
    main()
