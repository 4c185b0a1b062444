"""Adam, and clipping by the global norm: both in place, over scratch of a constant size.

Every sum and every element is computed in one fixed order, whatever the schedule was, so equal
gradients give equal parameters to the bit.
"""

import math
import sys

import numpy as np

from membptt.arrays import from_host, namespace

# Elements at a time. On the host they and their moments stay in the first caches; on a device more
# at once keep it busy, and what they take besides stays small: `scratch_nbytes`.
CHUNK = 2**14
DEVICE_CHUNK = 2**18


class Adam:
    """Adam, Kingma and Ba (2015), algorithm 1.

        m ← β₁ m + (1 - β₁) g                  v ← β₂ v + (1 - β₂) g²
        p ← p - η m̂ / (√v̂ + ε)                 m̂ = m / (1 - β₁ᵏ),  v̂ = v / (1 - β₂ᵏ)

    with k the number of the update.

    Parameters
    ----------
    params : dict of numpy.ndarray
        C-contiguous; changed in place by `step`.
    learning_rate : float
        η.
    beta1, beta2, epsilon : float
        β₁, β₂ and ε.

    Attributes
    ----------
    updates : int
        k, how often `step` ran.
    m, v : dict of numpy.ndarray
        The moments, like `params`.

    Raises
    ------
    ValueError
        If a number is out of range, or a parameter is not contiguous.
    """

    def __init__(self, params, learning_rate=0.002, beta1=0.9, beta2=0.999, epsilon=1e-8):
        self.learning_rate = positive("learning_rate", learning_rate)
        self.beta1 = fraction("beta1", beta1)
        self.beta2 = fraction("beta2", beta2)
        self.epsilon = positive("epsilon", epsilon)
        for name, value in params.items():
            if not value.flags.c_contiguous:
                raise ValueError(f"parameter {name} is not C-contiguous; give a copy of it")
        self.params = params
        self.m = {name: namespace(value).zeros_like(value) for name, value in params.items()}
        self.v = {name: namespace(value).zeros_like(value) for name, value in params.items()}
        self.updates = 0

    def step(self, grads):
        """Move every parameter against its gradient.

        Parameters
        ----------
        grads : dict of numpy.ndarray
            Like `params`.

        Raises
        ------
        FloatingPointError
            If a parameter is not finite any more: the state is lost, go back to a saved one.
        """
        self.updates += 1
        bias1 = 1 - self.beta1**self.updates
        bias2 = 1 - self.beta2**self.updates
        for name in self.params:
            xp = namespace(self.params[name])
            finite = True
            arrays = (self.params[name], grads[name], self.m[name], self.v[name])
            for p, g, m, v in chunks(*arrays):
                s = g - m
                s *= 1 - self.beta1
                m += s  # m + (1 - β₁)(g - m)
                xp.multiply(g, g, out=s)
                s -= v
                s *= 1 - self.beta2
                v += s  # v + (1 - β₂)(g² - v)
                xp.divide(v, bias2, out=s)
                xp.sqrt(s, out=s)
                s += self.epsilon
                xp.divide(m, s, out=s)
                s *= self.learning_rate / bias1
                p -= s
                finite = finite & xp.all(xp.isfinite(p))
            if not finite:
                raise FloatingPointError(
                    f"parameter {name} stops being finite at learning rate "
                    f"{self.learning_rate:g}; lower it"
                )

    @property
    def nbytes(self):
        """The bytes of the moments."""
        return 2 * sum(value.nbytes for value in self.m.values())

    @property
    def scratch_nbytes(self):
        """What `step` and `clip_by_norm` take besides, on a device: a chunk at a time."""
        largest = max((value.size for value in self.params.values()), default=0)
        return 32 + 3 * np.dtype(np.float64).itemsize * min(largest, DEVICE_CHUNK)

    def arrays(self):
        """Return the state by name: what `restore` takes."""
        moments = {f"m/{name}": value for name, value in self.m.items()}
        moments |= {f"v/{name}": value for name, value in self.v.items()}
        return moments | {"k": np.array(self.updates)}

    def restore(self, arrays):
        """Continue from a state that `arrays` returned."""
        for name, value in self.arrays().items():
            if name != "k":
                value[...] = from_host(arrays[name], namespace(value))
        self.updates = int(arrays["k"])


def clip_by_norm(grads, limit):
    """Scale all gradients down so that their norm together is at most `limit`.

        g ← g · min(1, limit / ‖g‖),  ‖g‖² = Σ over all elements of g²

    Pascanu, Mikolov and Bengio (2013), section 3.2. The sum is in double.

    Parameters
    ----------
    grads : dict of numpy.ndarray
        C-contiguous; changed in place.
    limit : float
        Positive; infinity only measures.

    Returns
    -------
    float
        ‖g‖ before; not finite when a gradient is not, and then nothing is changed.
    """
    square = 0.0
    for value in grads.values():
        for (g,) in chunks(value):
            square = square + namespace(g).square(g, dtype=np.float64).sum()
    norm = math.sqrt(float(square))
    if limit < norm < math.inf:
        for name in grads:
            grads[name] *= limit / norm
    return norm


def chunks(*arrays):
    """Yield views of the same `CHUNK` elements of every array, one chunk after the other."""
    flat = [array.reshape(-1) for array in arrays]
    length = CHUNK if namespace(arrays[0]) is np else DEVICE_CHUNK
    for start in range(0, flat[0].size, length):
        yield [array[start : start + length] for array in flat]


def positive(name, value, largest=sys.float_info.max):
    """Return `value` as a float, or raise a ValueError unless 0 < value <= largest."""
    value = float(value)
    if not 0 < value <= largest:
        raise ValueError(f"{name} is {value}; give a number above 0")
    return value


def fraction(name, value):
    """Return `value` as a float, or raise a ValueError unless 0 <= value < 1."""
    value = float(value)
    if not 0 <= value < 1:
        raise ValueError(f"{name} is {value}; give a number from 0 up to, not including, 1")
    return value
