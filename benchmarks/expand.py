"""Where expanding blocks of steps pays: strategy expand against optimal at equal memory.

    python benchmarks/expand.py [--steps 1000] [--rounds 15]

For each size of an LSTM the price of an expansion is measured on this machine. Then full BPTT,
`optimal` and `expand` run in turn; times are medians over the rounds, divided by full BPTT's.
Before that, without a machine: the least memory for one third more time than full BPTT, for several
prices.
"""

import argparse
from statistics import median

import numpy as np

import membptt as mb
from membptt.solver._expand import expand_costs

SIZES = [(1, 128), (1, 256), (1, 512), (16, 256)]
SHARES = (0.02, 0.05, 0.1)
PRICES = [(0, 0), (0, 0.02), (0, 0.05), (0, 0.1), (0, 0.2), (0.5, 0.05), (0.35, 0.45)]


def least_memory(steps):
    print(f"T = {steps}, alpha = 3, one third more time (a backward takes two forwards)")
    print("price of q steps  units  saved   forward steps  expanded steps")
    full = 3 * steps
    for fixed, per_step in PRICES:
        price = mb.ExpandCost(fixed, per_step)
        costs = expand_costs(steps, full // 3, 1, 3, price.prices())
        units = int(np.argmax(costs <= 200 * steps))
        found = mb.schedule(steps, mb.Units(units, 3), "expand", expand_cost=price)
        print(
            f"{fixed:4} + {per_step:4} q    {units:6}  {1 - units / full:6.2%} "
            f"{found.forward_steps:14}  {found.expanded_steps:14}"
        )


def measure(steps, rounds):
    print(f"\nLSTM, T = {steps}, float32: time over full BPTT's")
    print("batch hidden  price          memory   optimal  expand  predicted  expanded steps")
    for batch, hidden in SIZES:
        cell = mb.LSTM(64, hidden)
        head = mb.SoftmaxHead(hidden, 64)
        tokens = np.random.default_rng(0).integers(64, size=(steps + 1, batch))
        window = tokens[:-1], head.with_targets(tokens[1:])
        full = steps * cell.internal_nbytes(batch)
        _, price = mb.expand_schedule(steps, full // 20, cell, batch)
        for share in SHARES:
            memory = int(full * share)
            plans = [
                mb.schedule(steps, full, cell=cell, batch=batch),
                mb.schedule(steps, memory, cell=cell, batch=batch),
                mb.schedule(steps, memory, "expand", cell, batch, expand_cost=price),
            ]
            executors = [mb.Executor(cell, plan, batch) for plan in plans]
            seconds = [[ex.run(*window).stats.seconds for ex in executors] for _ in range(rounds)]
            base, optimal, expand = (median(column) for column in zip(*seconds[1:], strict=True))
            predicted = plans[2].time_factor() / plans[1].time_factor()
            print(
                f"{batch:5} {hidden:6}  {price.fixed:4} + {price.per_step:4} q {share:7.0%}  "
                f"{optimal / base:8.3f} {expand / base:7.3f}  {predicted * optimal / base:9.3f}"
                f"  {plans[2].expanded_steps:14}"
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    least_memory(args.steps)
    measure(args.steps, args.rounds)


if __name__ == "__main__":
    main()
