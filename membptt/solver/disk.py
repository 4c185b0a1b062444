"""Plan for sequences beyond memory: hidden states on disk at intervals (Kukreja et al. 2018).

The first sweep stores the hidden state after every S-th step on slow storage, in the background.
The backward sweep takes the intervals from the last to the first; while one is back-propagated
under a memory schedule, the state before the next one is read. Each interval costs C(S) forward
steps, so that the forward steps per step do not depend on T:

    forward steps = (n - 1) S + (n - 1) C(S) + C(L),   n = ceil(T / S),   L = T - (n - 1) S

Two buffers of one hidden state each are part of the budget M, and so is the hidden state before the
last interval, which never goes to disk. What is left, M' = M - 3 a, plans an interval:

    S >= M' // b          the longest interval without recomputation inside it: C(S) = S
    S >= w / f            writing takes w seconds, a forward step f: no write is waited for
    S >= T a / D          no more than D bytes on disk

A longer interval than the first bound asks for is only worth it for the other two: it recomputes.
(a, b: bytes of a hidden and of an internal state.)
"""

from dataclasses import dataclass

BUFFERS = 2


@dataclass(frozen=True)
class Intervals:
    """The rule of a schedule with states on disk.

    Attributes
    ----------
    steps, interval : int
        T and S.
    rule : membptt.solver._solver.Rule
        Where to split within an interval.
    buffers : int
        Rooms for hidden states on their way.
    """

    steps: int
    interval: int
    rule: object
    buffers: int = BUFFERS

    @property
    def count(self):
        """Return n, how many intervals there are."""
        return -(-self.steps // self.interval)


def inner_budget(budget, hidden):
    """Return what is left of the budget for a schedule within an interval."""
    return budget - (BUFFERS + 1) * hidden


def shortest_interval(
    steps, budget, hidden, internal, disk_budget=None, forward_seconds=None, transfer_seconds=None
):
    """Return the interval S that the three bounds ask for.

    Parameters
    ----------
    steps, budget, hidden, internal : int
        T, M, a, b.
    disk_budget : int, optional
        D, bytes.
    forward_seconds, transfer_seconds : float, optional
        Of a forward step, and of writing or reading one hidden state, the slower of both, what
        any transfer takes included. For tiny states that is nearly all.
    """
    bounds = [1, inner_budget(budget, hidden) // internal]
    if disk_budget is not None:
        bounds.append(-(-steps * hidden // disk_budget))
    if forward_seconds and transfer_seconds:
        bounds.append(-int(-transfer_seconds // forward_seconds))
    return min(steps, max(bounds))
