"""What a run gives back: loss, gradients, last state, and what it cost."""

from dataclasses import dataclass

import numpy as np

from membptt.types import Array, Params, State


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
    expanded_steps : int
        Steps whose internal states were computed in blocks, not by a forward step (strategy
        expand).
    device_peak_bytes : int
        The most bytes of a device's memory held at once, by the ledger; 0 on the host.
    disk_written_bytes, disk_read_bytes : int
        To and from slow storage, checksums included (strategy disk).
    outputs_bytes : int
        Of the array of outputs, beside the arena (`membptt.bptt_bidirectional`).
    disk_busy_seconds, disk_waited_seconds : float
        How long transfers took in the background, and how long the run waited for them.
    """

    forward_steps: int
    backward_steps: int
    peak_bytes: int
    arena_bytes: int
    workspace_bytes: int
    seconds: float
    expanded_steps: int = 0
    device_peak_bytes: int = 0
    disk_written_bytes: int = 0
    disk_read_bytes: int = 0
    disk_busy_seconds: float = 0.0
    disk_waited_seconds: float = 0.0
    outputs_bytes: int = 0

    @property
    def disk_hidden_fraction(self) -> float:
        """The share of the transfers' time that the run did not wait for; 1 without transfers."""
        if self.disk_busy_seconds == 0:
            return 1.0
        return max(0.0, 1 - self.disk_waited_seconds / self.disk_busy_seconds)


@dataclass(frozen=True)
class BidirectionalResult:
    """Loss, gradients and last states of one run in both directions.

    Attributes
    ----------
    loss : float
        Mean over the steps and the batch.
    grads : dict of numpy.ndarray
        ``forward.W_x``, ``backward.W_x`` and so on for the cells' parameters, and those of the
        head by their own names.
    state : pair of tuples of numpy.ndarray
        The hidden state of the forward cell after step T, and of the backward cell after step 1.
    state_grad : pair of tuples of numpy.ndarray
        The derivative by the initial hidden state of each cell.
    stats : Stats
    """

    loss: float
    grads: Params
    state: tuple[State, State]
    state_grad: tuple[State, State]
    stats: Stats


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
    transfers : numpy.ndarray or None
        Recorded transfers of strategy disk, [n, 4]: 0 write or 1 read, step, begin, end in seconds.
    input_grads : array or None
        The derivative by the inputs, [T, B, I], where it was asked for.
    """

    loss: float
    grads: Params
    state: State
    state_grad: State
    stats: Stats
    trace: np.ndarray | None = None
    transfers: np.ndarray | None = None
    input_grads: Array | None = None
