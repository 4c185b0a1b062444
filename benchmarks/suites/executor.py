"""A long sequence under each strategy at a twentieth of full BPTT's memory, beside full BPTT.

Seconds come with what explains them: forward steps, and bytes of saved states as the executor
counted them; the tests assert both, here they are kept over commits. The peak memory of the process
includes the interpreter and NumPy.
"""

import numpy as np

import membptt as mb
from membptt.solver import STRATEGIES

from . import pytorch

STEPS = 1000
COMPARED = ("full", "uniform", "hsm", "ism", "msm", "optimal")


def window(batch, hidden, strategy, backend="cython"):
    """Return a function that runs one window and returns its Result."""
    if strategy not in STRATEGIES:
        raise NotImplementedError(f"this commit has no strategy {strategy}")
    cell = mb.LSTM(100, hidden, backend=backend)
    tokens = np.random.default_rng(0).integers(0, 100, (STEPS + 1, batch), np.uint8)
    head = mb.SoftmaxHead(hidden, 100).with_targets(tokens[1:])
    full = STEPS * cell.internal_nbytes(batch)
    budget = full if strategy == "full" else full // 20
    plan = mb.schedule(STEPS, budget, strategy, cell, batch)
    executor = mb.Executor(cell, plan, batch, threads=1)
    return lambda: executor.run(tokens[:-1], head)


class Strategies:
    """LSTM, T = 1000, batch 8, hidden 128, 5 % of full BPTT's memory."""

    params = COMPARED
    param_names = ("strategy",)

    def setup(self, strategy):
        self.run = window(8, 128, strategy)
        self.stats = self.run().stats

    def time_window(self, strategy):
        self.run()

    def track_forward_steps(self, strategy):
        return self.stats.forward_steps

    def track_peak_of_saved_states(self, strategy):
        return self.stats.peak_bytes

    def track_workspace(self, strategy):
        return self.stats.workspace_bytes

    track_forward_steps.unit = "steps"
    track_peak_of_saved_states.unit = track_workspace.unit = "bytes"


class Plain:
    """The same sizes in plain NumPy, stored in full and not."""

    params = ("full", "optimal")
    param_names = ("strategy",)

    def setup(self, strategy):
        self.run = window(8, 128, strategy, "numpy")

    def time_window(self, strategy):
        self.run()


class Peak:
    """The memory of the whole process at batch 16, hidden 256: full BPTT saves 94 MiB."""

    params = ("full", "optimal")
    param_names = ("strategy",)

    def setup(self, strategy):
        self.run = window(16, 256, strategy)

    def peakmem_window(self, strategy):
        self.run()


class PyTorch:
    """PyTorch's LSTM at batch 8, hidden 128, and with torch.utils.checkpoint on 32 segments."""

    params = ("full", "checkpoint")
    param_names = ("strategy",)

    def setup(self, strategy):
        self.torch = torch = pytorch()
        self.layer = torch.nn.LSTM(100, 128)
        self.output = torch.nn.Linear(128, 100)
        generator = torch.Generator().manual_seed(0)
        tokens = torch.randint(100, (STEPS + 1, 8), generator=generator)
        self.x = torch.nn.functional.one_hot(tokens[:-1], 100).float()
        self.targets = tokens[1:]
        self.run = self.full if strategy == "full" else self.checkpoint
        self.run()

    def time_window(self, strategy):
        self.run()

    def segment(self, x, targets, *state):
        h, state = self.layer(x, state or None)
        y = self.output(h).flatten(0, 1)
        loss = self.torch.nn.functional.cross_entropy(y, targets.flatten(), reduction="sum")
        return loss / (STEPS * 8), *state

    def full(self):
        self.zero_grad()
        self.segment(self.x, self.targets)[0].backward()

    def checkpoint(self):
        from torch.utils.checkpoint import checkpoint

        self.zero_grad()
        loss, state = 0.0, ()
        for x, targets in zip(self.x.chunk(32), self.targets.chunk(32), strict=True):
            share, *state = checkpoint(self.segment, x, targets, *state, use_reentrant=False)
            loss = loss + share
        loss.backward()

    def zero_grad(self):
        self.layer.zero_grad()
        self.output.zero_grad()
