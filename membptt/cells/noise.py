"""Noise of a network in training: dropout, recurrent dropout and zoneout.

    dropout            what layer l + 1 reads is h_t of layer l ∘ m, another m at every step
    recurrent dropout  h_{t-1} W_h becomes (h_{t-1} ∘ m) W_h, with one m for all steps of a window
                       (Gal and Ghahramani 2016)
    zoneout            h_t keeps the value h_{t-1} with probability p, unit by unit; c_t of an LSTM
                       too, with a mask of its own (Krueger et al. 2017)

A mask m of dropout is 0 with probability p, else 1 / (1 - p), so that its mean is 1.

A step is run again when its states are recomputed, and must come out the same to the bit. So no
mask is drawn from a generator that has a state: each bit is a hash of where it stands,

    (seed, layer, draw, kind of noise, step)  ->  a key           on the host
    (key, row of the batch, unit)             ->  64 bits         in the backend's arrays

and nothing is kept between forward and backward. The hash is the output function of SplitMix64
(Steele, Lea and Flood 2014), a few operations on whole numbers, the same on every library.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from membptt.arrays import from_host, namespace
from membptt.checks import fraction

WORD = 2**64
GOLDEN = 0x9E3779B97F4A7C15  # 2⁶⁴ over the golden ratio, made odd: the increment of SplitMix64

# Kinds of noise: each has masks of its own. Zoneout has one for each array of the hidden state.
BETWEEN, RECURRENT, ZONEOUT = 0, 1, 2


@dataclass(frozen=True)
class Noise:
    """Probabilities, and where in the stream of masks a cell stands.

    Attributes
    ----------
    dropout, recurrent_dropout, zoneout : float
        Probabilities from 0 up to, not including, 1; the first is a stack's.
    seed : int
        Counts modulo 2⁶⁴.
    layer : int
        Of a stack.
    draw : int or None
        Other masks for every number: a trainer gives that of the update. None: no noise, and
        zoneout's expectation.
    first_row : int
        Where in the whole batch the rows begin.
    step : int
        1 ... T.
    rows : numpy.ndarray of int64 or None
        The numbers of the rows, from `first_row` on; 0, 1, 2 ... by default.
    """

    dropout: float = 0.0
    recurrent_dropout: float = 0.0
    zoneout: float = 0.0
    seed: int = 0
    layer: int = 0
    draw: int | None = 0
    first_row: int = 0
    step: int = 0
    rows: np.ndarray | None = None
    known: dict = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self):
        for name in ("dropout", "recurrent_dropout", "zoneout"):
            object.__setattr__(self, name, fraction(name, getattr(self, name)))

    @property
    def wanted(self):
        """Whether there is any, in training."""
        return bool(self.dropout or self.recurrent_dropout or self.zoneout)

    def options(self):
        """Return the probabilities that are not 0, by name."""
        names = ("dropout", "recurrent_dropout", "zoneout")
        return {name: getattr(self, name) for name in names if getattr(self, name)}

    def reseeded(self):
        """Return noise with other masks: those of a seed that follows from this one."""
        return replace(self, seed=scrambled((self.seed + GOLDEN) % WORD))

    # -- what cells call ---------------------------------------------------------------------------

    def between(self, h, layer):
        """Return what `layer` reads of h [B, H] beneath it; also makes dh of its derivative."""
        return self.dropped(h, self.dropout, BETWEEN, layer, self.step)

    def recurrent(self, h):
        """Return what W_h multiplies, of h_prev [B, H]; also makes dh_prev of its derivative."""
        return self.dropped(h, self.recurrent_dropout, RECURRENT, self.layer, 0)

    def zoned(self, before, after):
        """Return the hidden state after a step from those before and after it without zoneout."""
        if not self.zoneout:
            return after
        pairs = zip(before, after, strict=True)
        return tuple(self.mixed(k, old, new, new) for k, (old, new) in enumerate(pairs))

    def through(self, dstate):
        """Return the derivative by the state without zoneout, from that by the state with it."""
        if not self.zoneout:
            return dstate
        return tuple(self.mixed(k, 0, d, d) for k, d in enumerate(dstate))

    def with_kept(self, dprev, dstate):
        """Return the derivative by the state before, with what zoneout kept of it added."""
        if not self.zoneout:
            return dprev
        kept = (self.mixed(k, d, 0, d) for k, d in enumerate(dstate))
        return tuple(d + more for d, more in zip(dprev, kept, strict=True))

    # -- how masks come about ----------------------------------------------------------------------

    def dropped(self, array, p, kind, layer, step):
        """Return array ∘ m."""
        if not p or self.draw is None:
            return array
        hit = self.hits(array, p, kind, layer, step)
        return namespace(array).where(hit, 0, array * (1 / (1 - p)))

    def mixed(self, k, kept, new, like):
        """Return `kept` where zoneout keeps array k of the state, else `new`; of `like`'s shape."""
        p = self.zoneout
        if self.draw is None:
            return p * kept + (1 - p) * new
        hit = self.hits(like, p, ZONEOUT + k, self.layer, self.step)
        return namespace(like).where(hit, kept, new)

    def hits(self, array, p, kind, layer, step):
        """Return which elements of an array [B, H] the noise hits: each with probability p.

        The backward of a step asks several times for what is then at hand.
        """
        place = kind, layer, step, array.shape
        if place not in self.known:
            self.known[place] = self.hashed(namespace(array), array.shape, p, kind, layer, step)
        return self.known[place]

    def hashed(self, xp, shape, p, kind, layer, step):
        """Return what `hits` does, as an array of bool of the module `xp`."""
        rows, units = shape
        key = 0
        for number in (self.seed, layer, self.draw, kind, step):
            key = scrambled((key + (number + 1) * GOLDEN) % WORD)
        first = self.first_row + 1
        if self.rows is None:
            row = xp.arange(first, first + rows, dtype=xp.uint64)[:, None]
        else:
            row = from_host((self.rows + first).astype(np.uint64), xp)[:, None]
        unit = xp.arange(1, 1 + units, dtype=xp.uint64)[None, :]
        bits = scrambled(scrambled(row * GOLDEN + key) + unit * GOLDEN)
        return bits < int(p * WORD)


def scrambled(z):
    """Return the output function of SplitMix64: every bit of it depends on all of the number.

    For arrays of uint64, which are modulo 2⁶⁴ by themselves, and for Python's own numbers.
    """
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & (WORD - 1)
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & (WORD - 1)
    return z ^ (z >> 31)
