"""Optimizers, and clipping by the global norm: in place, over scratch of a constant size.

    SGD      v ← μ v + g                            p ← p - η v
    Adam     m ← β₁ m + (1 - β₁) g                  v ← β₂ v + (1 - β₂) g²
             p ← p - η m̂ / (√v̂ + ε)                 m̂ = m / (1 - β₁ᵏ),  v̂ = v / (1 - β₂ᵏ)
    AdamW    p ← p - η λ p, then as Adam

with p a parameter, g its gradient, k = 1, 2, ... the number of the update, and η the learning rate:
a number, or a function of k such as `membptt.LearningRate`.

Every sum and every element is computed in one fixed order, whatever the schedule was, so equal
gradients give equal parameters to the bit.
"""

import math
from collections.abc import Callable

import numpy as np

from membptt.arrays import from_host, namespace
from membptt.checks import at_least, fraction, mapping, positive
from membptt.types import Params

# Elements at a time. On the host they and their moments stay in the first caches; on a device more
# at once keep it busy, and what they take besides stays small: `scratch_nbytes`.
CHUNK = 2**14
DEVICE_CHUNK = 2**18


class Optimizer:
    """Base of the optimizers; the subclasses say how a chunk of a parameter is moved.

    Parameters
    ----------
    params : dict of numpy.ndarray
        C-contiguous; changed in place by `step`.
    learning_rate : float or callable
        η: a number, or a function of the update's number.

    Attributes
    ----------
    updates : int
        k, how often `step` ran.
    moments : dict of dict of numpy.ndarray
        What is kept between updates, by its name in the formulas and then like `params`.
    """

    moment_names: tuple[str, ...] = ()
    move: Callable[..., None]  # by the subclass: (rate, parameter, gradient, *moments), in place

    def __init__(self, params: Params, learning_rate: float | Callable[[int], float]) -> None:
        if not callable(learning_rate):
            learning_rate = positive("learning_rate", learning_rate)
        for name, value in mapping("params", params, "cell.params | head.params").items():
            if not value.flags.c_contiguous:
                raise ValueError(f"parameter {name} is not C-contiguous; give a copy of it")
        self.learning_rate = learning_rate
        self.params = params
        self.moments: dict[str, Params] = {
            moment: {name: namespace(value).zeros_like(value) for name, value in params.items()}
            for moment in self.moment_names
        }
        self.updates = 0

    def rate(self, number: int) -> float:
        """Return the learning rate of update `number`."""
        return self.learning_rate(number) if callable(self.learning_rate) else self.learning_rate

    def step(self, grads: Params) -> None:
        """Move every parameter against its gradient.

        Parameters
        ----------
        grads : dict of numpy.ndarray
            Like `params`; what else it holds is not used.

        Raises
        ------
        TypeError, ValueError
            If it is no dict, one is missing or of another shape: nothing has been moved then.
        FloatingPointError
            If a parameter is not finite any more: the state is lost, go back to a saved one.
        """
        self.check(grads)
        self.updates += 1
        rate = self.rate(self.updates)
        for name, value in self.params.items():
            xp = namespace(value)
            kept = [self.moments[moment][name] for moment in self.moment_names]
            finite = True
            for p, g, *state in chunks(value, grads[name], *kept):
                self.move(rate, p, g, *state)
                finite = finite & xp.all(xp.isfinite(p))
            if not finite:
                raise FloatingPointError(
                    f"parameter {name} stops being finite at learning rate {rate:g}; lower it"
                )

    def check(self, grads):
        """Raise unless there is a gradient of the right shape for every parameter."""
        mapping("grads", grads, "result.grads")
        for name, value in self.params.items():
            if name not in grads:
                raise ValueError(f"grads have no {name}; give one for each parameter: result.grads")
            shape = np.shape(grads[name])
            if shape != value.shape:
                raise ValueError(f"the gradient of {name} has shape {shape}; give {value.shape}")

    @property
    def nbytes(self):
        """The bytes of the moments."""
        return sum(value.nbytes for values in self.moments.values() for value in values.values())

    @property
    def scratch_nbytes(self):
        """What `step` and `clip_by_norm` take besides, on a device: a chunk at a time."""
        largest = max((value.size for value in self.params.values()), default=0)
        return 32 + 3 * np.dtype(np.float64).itemsize * min(largest, DEVICE_CHUNK)

    def arrays(self):
        """Return the state by name: what `restore` takes."""
        state = {
            f"{moment}/{name}": value
            for moment, values in self.moments.items()
            for name, value in values.items()
        }
        return state | {"k": np.array(self.updates)}

    def restore(self, arrays):
        """Continue from a state that `arrays` returned."""
        for name, value in self.arrays().items():
            if name != "k":
                value[...] = from_host(arrays[name], namespace(value))
        self.updates = int(arrays["k"])


class SGD(Optimizer):
    """Stochastic gradient descent with momentum, Polyak (1964).

    Parameters
    ----------
    params : dict of numpy.ndarray
        C-contiguous; changed in place by `step`.
    learning_rate : float or callable
        η: a number, or a function of the update's number.
    momentum : float
        μ, from 0 up to 1; 0 for none.

    Attributes
    ----------
    updates : int
        k, how often `step` ran.

    Raises
    ------
    ValueError
        If a number is out of range, or a parameter is not contiguous.
    """

    moment_names = ("v",)

    def __init__(
        self,
        params: Params,
        learning_rate: float | Callable[[int], float] = 0.02,
        momentum: float = 0.9,
    ) -> None:
        super().__init__(params, learning_rate)
        self.momentum = fraction("momentum", momentum)

    def move(self, rate, p, g, v):
        """Move one chunk of a parameter."""
        v *= self.momentum
        v += g
        p -= rate * v


class Adam(Optimizer):
    """Adam, Kingma and Ba (2015), algorithm 1.

    Parameters
    ----------
    params : dict of numpy.ndarray
        C-contiguous; changed in place by `step`.
    learning_rate : float or callable
        η: a number, or a function of the update's number.
    beta1, beta2, epsilon : float
        β₁, β₂ and ε.

    Attributes
    ----------
    updates : int
        k, how often `step` ran.

    Raises
    ------
    ValueError
        If a number is out of range, or a parameter is not contiguous.
    """

    moment_names = ("m", "v")

    def __init__(
        self,
        params: Params,
        learning_rate: float | Callable[[int], float] = 0.002,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
    ) -> None:
        super().__init__(params, learning_rate)
        self.beta1 = fraction("beta1", beta1)
        self.beta2 = fraction("beta2", beta2)
        self.epsilon = positive("epsilon", epsilon)

    def move(self, rate, p, g, m, v):
        """Move one chunk of a parameter."""
        xp = namespace(p)
        s = g - m
        s *= 1 - self.beta1
        m += s  # m + (1 - β₁)(g - m)
        xp.multiply(g, g, out=s)
        s -= v
        s *= 1 - self.beta2
        v += s  # v + (1 - β₂)(g² - v)
        xp.divide(v, 1 - self.beta2**self.updates, out=s)
        xp.sqrt(s, out=s)
        s += self.epsilon
        xp.divide(m, s, out=s)
        s *= rate / (1 - self.beta1**self.updates)
        p -= s


class AdamW(Adam):
    """Adam with decoupled weight decay, Loshchilov and Hutter (2019), algorithm 2.

    Only matrices decay, ``W_x``, ``W_h`` and ``W_y``: what multiplies. Biases are left alone, since
    they add little to what a network can fit, and a decayed one only moves its units' working
    point.

    Parameters
    ----------
    params : dict of numpy.ndarray
        C-contiguous; changed in place by `step`.
    learning_rate : float or callable
        η: a number, or a function of the update's number.
    weight_decay : float
        λ, at least 0; multiplied by the learning rate of the update.
    beta1, beta2, epsilon : float
        β₁, β₂ and ε.

    Attributes
    ----------
    updates : int
        k, how often `step` ran.

    Raises
    ------
    ValueError
        If a number is out of range, or a parameter is not contiguous.
    """

    def __init__(
        self,
        params: Params,
        learning_rate: float | Callable[[int], float] = 0.002,
        weight_decay: float = 0.01,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
    ) -> None:
        super().__init__(params, learning_rate, beta1, beta2, epsilon)
        self.weight_decay = at_least("weight_decay", weight_decay, 0)

    def step(self, grads: Params) -> None:
        """Let the matrices decay, then move every parameter against its gradient; see `Adam`."""
        self.check(grads)
        rate = self.rate(self.updates + 1)
        for value in self.params.values():
            if value.ndim >= 2:
                value *= 1 - rate * self.weight_decay
        super().step(grads)


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
