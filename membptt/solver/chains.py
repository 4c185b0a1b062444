"""Chains whose steps differ: costs per step, sizes per step, and what saving and restoring cost.

Packed batches shrink as their sequences end, and a user's own chain may be uneven from the start.
The recurrences are those of `membptt.solver.recurrences.optimal` with a place in the chain added:
a node is the steps i + 1...j, and the units left for it do not count its start.
"""

from dataclasses import dataclass, field

from membptt.checks import integer


@dataclass(frozen=True)
class Chain:
    """What each step of a chain costs, and what its states take.

    Attributes
    ----------
    forward : tuple of float, length T
        Cost of running step t = 1...T, as ``forward[t - 1]``: 1 to count steps, or seconds.
    hidden, internal : tuple of int, length T
        Sizes of h_t and of the internal state of step t. h_0 is the caller's and takes nothing.
    backward : tuple of float, length T
        Cost of the backward of each step; it is paid once whatever the schedule.
    save_hidden, save_internal, restore : float
        Cost of each such action.

    Notes
    -----
    An internal state holds the hidden state that entered the step, and gives the one that left
    it: ``internal[t - 1]`` is at least ``hidden[t - 1]`` and ``hidden[t - 2]``.
    """

    forward: tuple
    hidden: tuple
    internal: tuple
    backward: tuple = field(default=())
    save_hidden: float = 0.0
    save_internal: float = 0.0
    restore: float = 0.0

    def __post_init__(self):
        steps = len(self.forward)
        if steps == 0:
            raise ValueError("forward is empty; give a cost for each step")
        if not self.backward:
            object.__setattr__(self, "backward", (0.0,) * steps)
        for name in ("hidden", "internal", "backward"):
            if len(getattr(self, name)) != steps:
                raise ValueError(
                    f"{name} has {len(getattr(self, name))} entries and forward has {steps}; "
                    "give one for each step"
                )
        for name in ("forward", "backward"):
            if not all(0 <= cost < float("inf") for cost in getattr(self, name)):
                raise ValueError(f"{name} holds a negative or infinite cost; give finite ones")
        for name in ("save_hidden", "save_internal", "restore"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} is {getattr(self, name)}; give a finite cost >= 0")
        for name in ("hidden", "internal"):
            sizes = tuple(integer(name, size, minimum=1) for size in getattr(self, name))
            object.__setattr__(self, name, sizes)

    @classmethod
    def even(cls, steps, hidden=1, internal=1, **costs):
        """Return a chain of equal steps, each of cost 1."""
        return cls((1,) * steps, (hidden,) * steps, (internal,) * steps, **costs)

    @property
    def steps(self):
        """T, the number of steps."""
        return len(self.forward)
