"""Full BPTT of one layer against PyTorch's own on the CPU, side by side in one run.

    python benchmarks/against_pytorch.py            1 and 2 threads, T = 1000, float32
    python benchmarks/against_pytorch.py --cell gru     nn.GRU, or rnn; by default lstm
    python benchmarks/against_pytorch.py --json

Both compute forward, backward and all weight gradients for dense inputs, with the same output layer
of one number and the mean squared error at every step. Rounds are interleaved (ours, theirs, ours,
...); the ratio is that of the medians, theirs over ours: above 1, membptt is faster. The share is
that of the rate which the product with packed weights reaches alone on as many threads, measured in
the same run: what there is to gain from anything but a faster product.

Where OPENBLAS_CORETYPE is set, unset it for this command: it slows PyTorch's and NumPy's BLAS down.
"""

import argparse
import json
import statistics
import time

import numpy as np
from needed import needed

import membptt as mb
from membptt.kernels._kernels import product_seconds

torch = needed("torch", "pip install 'membptt[torch]'")

GATES = {"lstm": 4, "gru": 3, "rnn": 1}
SHAPES = [(32, 256, 256), (1, 128, 128), (16, 512, 64), (64, 64, 64)]


class Ours:
    """One layer of membptt under the schedule that stores everything."""

    def __init__(self, kind, steps, batch, hidden, inputs, threads):
        self.cell = getattr(mb, kind.upper())(inputs, hidden)
        self.x = np.random.default_rng(0).standard_normal((steps, batch, inputs), np.float32)
        zeros = np.zeros((steps, batch, 1), np.float32)
        self.head = mb.LinearHead(hidden, 1).with_targets(zeros)
        budget = steps * self.cell.internal_nbytes(batch)
        schedule = mb.schedule(steps, budget, "full", self.cell, batch)
        self.executor = mb.Executor(self.cell, schedule, batch, threads=threads)

    def __call__(self):
        self.executor.run(self.x, self.head)


class Theirs:
    """The same layer in PyTorch."""

    def __init__(self, kind, steps, batch, hidden, inputs):
        self.layer = getattr(torch.nn, kind.upper())(inputs, hidden)
        self.output = torch.nn.Linear(hidden, 1)
        generator = np.random.default_rng(0)
        x = generator.standard_normal((steps, batch, inputs), np.float32)
        self.x, self.zeros = torch.from_numpy(x), torch.zeros(steps, batch, 1)

    def __call__(self):
        for module in (self.layer, self.output):
            module.zero_grad()
        y, _ = self.layer(self.x)
        torch.nn.functional.mse_loss(self.output(y), self.zeros).backward()


def interleaved(first, second, repeats):
    """Return the medians of the seconds of both, run in turns."""
    seconds = [], []
    for timed in range(-1, repeats):  # one round to warm up
        for run, times in zip((first, second), seconds, strict=True):
            time.sleep(0.02)  # the other's idle threads spin a few milliseconds
            started = time.perf_counter()
            run()
            if timed >= 0:
                times.append(time.perf_counter() - started)
    return [statistics.median(times) for times in seconds]


def operations(kind, steps, batch, hidden, inputs):
    """Return the multiplications and additions of forward, backward and weight gradients."""
    recurrent = 2 * batch * GATES[kind] * hidden * hidden
    projection = 2 * batch * GATES[kind] * hidden * inputs
    return steps * (3 * recurrent + 2 * projection)


def peak_rate(repeats=300):
    """Return operations a second of the packed product alone, on one thread: the best of five."""
    seconds = min(product_seconds(16, 1024, 256, repeats) for _ in range(5))
    return 2 * 16 * 1024 * 256 / seconds


def main():
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cell", choices=tuple(GATES), default="lstm")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = []
    for threads in arguments.threads:
        torch.set_num_threads(threads)
        for batch, hidden, inputs in SHAPES:
            sizes = (arguments.cell, arguments.steps, batch, hidden, inputs)
            ours, theirs = interleaved(Ours(*sizes, threads), Theirs(*sizes), arguments.repeats)
            rows.append(
                {
                    "threads": threads,
                    "batch": batch,
                    "hidden": hidden,
                    "inputs": inputs,
                    "membptt_seconds": ours,
                    "pytorch_seconds": theirs,
                    "ratio": theirs / ours,
                    "gflops": operations(*sizes) / ours * 1e-9,
                    "share_of_peak": operations(*sizes) / ours / (threads * peak_rate()),
                }
            )
            if not arguments.json:
                row = rows[-1]
                print(
                    f"{threads} threads, B{batch} H{hidden} I{inputs}: membptt {ours:.3f} s, "
                    f"PyTorch {theirs:.3f} s, ratio {row['ratio']:.2f}, {row['gflops']:.0f} "
                    f"Gflop/s, {row['share_of_peak']:.0%} of the product's own rate"
                )
    if arguments.json:
        found = {"pytorch": torch.__version__, "cell": arguments.cell, "steps": arguments.steps}
        print(json.dumps(found | {"rows": rows}))


if __name__ == "__main__":
    main()
