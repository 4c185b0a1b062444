"""Data-parallel training: a tree with fixed bits against MPI's all-reduce, and a model.

    mpirun -n 2 python benchmarks/parallel.py       (as root: --allow-run-as-root; --oversubscribe
                                                     for more processes than cores)

Each process back-propagates a part of the batch, then all add their gradients up: in the tree of
membptt.training.parallel, and by MPI's all-reduce, in turn; medians over the rounds. The model for
N machines takes the measured seconds of a part, and a network's latency and bandwidth as stated.
"""

import argparse
import time
from statistics import median

import numpy as np
from needed import needed

import membptt as mb
from membptt.training.parallel import REDUCTIONS, Parts

MPI = needed("mpi4py.MPI", "pip install 'membptt[mpi]'")

STEPS, ALPHABET = 1000, 64
SIZES = [(2, 128), (4, 256), (4, 512)]  # rows of one part, hidden units
LATENCY, BANDWIDTH = 10e-6, 10e9 / 8  # seconds, bytes a second: Ethernet of 10 Gbit/s


def run(comm, rows, hidden, rounds):
    """Return bytes of a gradient, and the median seconds of a part and of each reduction."""
    parts = {name: Parts(comm.size, rows * comm.size, comm, name) for name in REDUCTIONS}
    cell, head = mb.LSTM(ALPHABET, hidden), mb.SoftmaxHead(hidden, ALPHABET)
    plan = mb.schedule(STEPS, STEPS * cell.internal_nbytes(rows) // 20, cell=cell, batch=rows)
    executor = mb.Executor(cell, plan, rows, threads=1)
    text = np.random.default_rng(comm.rank).integers(ALPHABET, size=(STEPS + 1, rows))
    bound = head.with_targets(text[1:])
    seconds = []
    for _ in range(rounds + 1):
        comm.Barrier()
        times = [time.perf_counter()]
        grads = executor.run(text[:-1], bound).grads
        times.append(time.perf_counter())
        for way in parts.values():
            comm.Barrier()
            times.append(time.perf_counter())
            way.total([{name: array.copy() for name, array in grads.items()}])
            times.append(time.perf_counter())
        seconds.append([times[1] - times[0], times[3] - times[2], times[5] - times[4]])
    nbytes = sum(array.nbytes for array in grads.values())
    return nbytes, [median(column) for column in zip(*seconds[1:], strict=True)]


def predicted(processes, part, nbytes):
    """Return seconds of an update on so many machines: a part each, and log2 N exchanges."""
    return part + np.log2(processes) * (LATENCY + nbytes / BANDWIDTH)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    comm = MPI.COMM_WORLD
    if comm.rank == 0:
        print(
            f"{comm.size} processes on this machine, LSTM, T = {STEPS}, 5 % of full BPTT's memory"
        )
        print("rows hidden  gradient     a part   tree       all-reduce")
    model = []
    for rows, hidden in SIZES:
        nbytes, (part, tree, other) = run(comm, rows, hidden, args.rounds)
        model.append((rows, hidden, part, nbytes))
        if comm.rank == 0:
            print(
                f"{rows:4} {hidden:6}  {nbytes / 1e6:6.2f} MB  {part * 1e3:8.1f} ms  "
                f"{tree * 1e3:6.2f} ms  {other * 1e3:6.2f} ms"
            )
    if comm.rank > 0:
        return
    counts = (2, 8, 64, 512)
    print("\nmodel, 10 Gbit/s and 10 µs: share of the time of N machines that is computing")
    print("rows hidden  " + "  ".join(f"N = {count:3}" for count in counts))
    for rows, hidden, part, nbytes in model:
        shares = [part / predicted(count, part, nbytes) for count in counts]
        print(f"{rows:4} {hidden:6}  " + "  ".join(f"{share:7.1%}" for share in shares))


if __name__ == "__main__":
    main()
