"""Plan for look-ahead: segments such that recomputing one hides behind back-propagating another.

Two lanes share the budget M: one back-propagates segment j, the other recomputes segment j + 1, the
one before it in time. Segments are numbered from the last in time to the first, j = 1 ... k, with
lengths L_j. When segment j has been restarted, the hidden states before j + 1 ... k - 1 are still
kept (segment k starts from the initial state), so that internal states have

    n_j = floor( (M - (k - 1 - j) a) / b )    slots,   n_k = floor(M / b)

(a, b: bytes of a hidden and an internal state). A slot that the backward lane frees is filled again
by the other lane, so a segment may take nearly all of them: L_1 <= n_1, and L_j <= n_j - 1 for the
others, where the one slot to spare lets a step be recomputed while the last one before it is still
in use. Everything is recomputed once, except segment 1: T + T - L_1 forward steps; but a
second core runs them while the first is busy with the backward steps, which take longer. Adding up
the L_j gives T ≈ M² / (2 a b): for the LSTM, T = 1000 needs about the memory that `optimal` has for
two forwards a step, and hardly more time than full BPTT.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Segments:
    """What `lookahead` plans: the rule of a schedule for two lanes.

    Attributes
    ----------
    steps : int
        T.
    hidden, internal, budget : int
        Bytes.
    lengths : tuple of int
        L_1 ... L_k, from the last segment in time to the first.
    """

    steps: int
    hidden: int
    internal: int
    budget: int
    lengths: tuple

    @property
    def begins(self):
        """int64 [k + 1]: T, then the step before the first of each segment."""
        return self.steps - np.concatenate(([0], np.cumsum(self.lengths)))

    @property
    def slots(self):
        """The slots for internal states while segment j is recomputed: n_1 ... n_k."""
        in_time = capacities(self.budget, self.hidden, self.internal, len(self.lengths))
        return in_time[::-1].tolist()

    @property
    def forward_steps(self):
        """Forward steps executed by both lanes together."""
        return 2 * self.steps - self.lengths[0]

    def time_factor(self, backward_ratio):
        """Return the predicted time of both lanes over that of full BPTT on one core.

        (T + sum over j of max(r L_j, L_{j+1})) / (T (1 + r)): after the first sweep, a segment
        takes as long as the slower of its backward steps and the next one's forward steps.
        """
        ahead = (*self.lengths[1:], 0)
        lanes = sum(map(max, (backward_ratio * n for n in self.lengths), ahead))
        return (self.steps + lanes) / (self.steps * (1 + backward_ratio))


def capacities(budget, hidden, internal, segments):
    """Return the slots of so many segments, counted from the first in time: n_k, n_k-1 and so on.

    The i-th keeps max(0, i - 2) hidden states beside it, whatever k is.
    """
    kept = np.maximum(0, np.arange(segments) - 1)
    return (budget - kept * hidden) // internal


def lookahead(steps, budget, hidden, internal):
    """Return the plan with the fewest segments that covers `steps` within `budget` bytes.

    Raises
    ------
    ValueError
        If no number of segments does; the message states the least budget.
    """
    lengths = cover(steps, budget, hidden, internal)
    if not lengths:
        least = least_budget(steps, hidden, internal)
        raise ValueError(
            f"memory is {budget}; strategy lookahead needs at least {least} for {steps} steps"
        )
    return Segments(steps, hidden, internal, budget, tuple(lengths))


def cover(steps, budget, hidden, internal):
    """Return the lengths of the fewest segments that cover `steps`, the first in time cut short.

    k of them cover n_1 + ... + n_k - (k - 1) steps, more with each as long as the last has a slot
    and all others two.
    """
    most = min(steps, budget // hidden + 2)
    slots = capacities(budget, hidden, internal, most)
    covered = np.cumsum(slots) - np.arange(most)
    enough = np.flatnonzero(covered >= steps)
    if not len(enough):
        return []
    last = int(enough[0])
    if slots[last] < 1 or (last and slots[last - 1] < 2):
        return []
    lengths = [*(slots[:last] - 1).tolist(), int(slots[last])]
    lengths[0] -= int(covered[last]) - steps
    return lengths[::-1]


def least_budget(steps, hidden, internal):
    """Return the smallest number of bytes that `cover` finds segments for."""
    low, high = 0, steps * internal
    while high - low > 1:
        middle = (low + high) // 2
        if cover(steps, middle, hidden, internal):
            high = middle
        else:
            low = middle
    return high
