"""What a run gives back: loss, gradients, last state, and what it cost."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Stats:
    """What one run did.

    Attributes
    ----------
    forward_steps, backward_steps : int
        Single-step forwards and backwards executed.
    peak_bytes : int
        The most bytes of the arena that were in use at once.
    arena_bytes : int
        The size of the arena.
    workspace_bytes : int
        Packed weights, sums and deltas of one block: constant, whatever the number of steps.
    seconds : float
        Wall-clock time of the run.
    """

    forward_steps: int
    backward_steps: int
    peak_bytes: int
    arena_bytes: int
    workspace_bytes: int
    seconds: float


@dataclass(frozen=True)
class Result:
    """Loss, gradients and last state of one run.

    Attributes
    ----------
    loss : float
        Mean over the steps and the batch.
    grads : dict of numpy.ndarray
        The derivative by each parameter of the cell and of the head, by its name.
    state : tuple of numpy.ndarray
        The hidden state after the last step.
    state_grad : tuple of numpy.ndarray
        The derivative by the initial hidden state.
    stats : Stats
    trace : numpy.ndarray or None
        int64 [actions, 4]: code, start, stop and bytes in use after it, as executed.
    """

    loss: float
    grads: dict
    state: tuple
    state_grad: tuple
    stats: Stats
    trace: np.ndarray | None = None
