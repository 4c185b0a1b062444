"""Learning rates that change while training goes on, as pure functions of the update's number.

    warm-up       η k / w                                            for k ≤ w
    constant      η
    cosine        η (f + (1 - f) (1 + cos πq) / 2)                   Loshchilov and Hutter (2017)
    exponential   η fᑫ

with k = 1, 2, ... the update's number, w those of the warm-up, and q the part of the decay that is
done: 0 at update max(w, 1), 1 at update N, and from there on the rate stays η f. Nothing is kept
between updates, so training that is interrupted and resumed sees the same rates.
"""

import math
from dataclasses import dataclass

from membptt.checks import integer, one_of, positive

DECAYS = ("constant", "cosine", "exponential")


@dataclass(frozen=True)
class LearningRate:
    """The learning rate of each update; call it with the update's number.

    Parameters
    ----------
    peak : float
        η, the largest rate: that of the first update after the warm-up.
    decay : {"constant", "cosine", "exponential"}
        How it falls from there.
    decay_updates : int, optional
        N, the update at which the decay ends; constant needs none.
    decay_to : float
        f, the fraction of `peak` that is left at the end, above 0 and at most 1.
    warmup : int
        w, for how many updates the rate first grows in a straight line.

    Raises
    ------
    ValueError
        If a number is out of range, or the decay would end before the warm-up does.

    Examples
    --------
    >>> rate = LearningRate(0.1, "cosine", decay_updates=5, decay_to=0.2, warmup=2)
    >>> [round(rate(k), 3) for k in range(1, 8)]
    [0.05, 0.1, 0.08, 0.04, 0.02, 0.02, 0.02]
    """

    peak: float
    decay: str = "constant"
    decay_updates: int | None = None
    decay_to: float = 0.1
    warmup: int = 0

    def __post_init__(self):
        positive("learning_rate", self.peak)
        integer("warmup", self.warmup, minimum=0)
        one_of("decay", self.decay, DECAYS)
        if self.decay == "constant":
            return
        positive("decay_to", self.decay_to, largest=1)
        if self.decay_updates is None:
            raise ValueError(
                f"decay {self.decay!r} needs decay_updates, the update at which it ends"
            )
        if integer("decay_updates", self.decay_updates, minimum=1) <= self.warmup:
            raise ValueError(
                f"warmup is {self.warmup} and the decay ends at update {self.decay_updates}; give "
                "fewer updates of warm-up, or a later end"
            )

    def __call__(self, number: int) -> float:
        """Return the rate of update `number`, counted from 1."""
        if number < self.warmup:
            return self.peak * number / self.warmup
        if self.decay == "constant":
            return self.peak
        begin = max(self.warmup, 1)
        end = self.decay_updates
        done = 1.0 if end is None or number >= end else (number - begin) / (end - begin)
        if self.decay == "exponential":
            return self.peak * self.decay_to**done
        return self.peak * (
            self.decay_to + (1 - self.decay_to) * (1 + math.cos(math.pi * done)) / 2
        )
