"""Heads: an output layer and a loss, evaluated once a step, at backward time.

    y_t = h_t W_y + b_y                                              [B, V]
    softmax cross-entropy:  L_t = mean over B of -log softmax(y_t)[target]
    squared error:          L_t = mean over B and V of ½ (y_t - target)²

The loss is the mean of L_t over the steps. A head is bound to one window's targets by
`with_targets`; what comes back is all that the executor asks of a head: ``params``, ``kernel`` and
``forward_backward(step, h, grads)``. A head of your own needs the first and the last; its
``kernel`` is None.

Letters of shapes: T steps, B batch, H hidden units, V classes or outputs.
"""

import math

import numpy as np

from membptt.arrays import array_module, check_backend, from_host, namespace
from membptt.blocks import sequence
from membptt.checks import check_dtype, check_tokens, integer
from membptt.feed import Feed


class Head:
    """An output layer: ``W_y`` [H, V] and ``b_y`` [V]; the subclasses add the loss.

    Parameters
    ----------
    hidden_size : int
        H.
    outputs : int
        V.
    dtype : {"float32", "float64"}
    seed : int
        Of the initial weights, uniform in ±1/√H; biases start at 0.
    backend : {"cython", "numpy", "cupy"}
        Where the parameters are: on a GPU for "cupy", as those of a cell with this backend.
    """

    def __init__(self, hidden_size, outputs, dtype="float32", seed=0, backend="cython"):
        self.hidden_size = integer("hidden_size", hidden_size, minimum=1)
        self.outputs = integer("outputs", outputs, minimum=1)
        self.dtype = check_dtype(dtype)
        self.backend = check_backend(backend)
        xp = array_module(backend)
        # Another stream than the cell's, which may have been given the same seed.
        generator = np.random.default_rng([integer("seed", seed, minimum=0), 1])
        bound = 1 / math.sqrt(self.hidden_size)
        shape = (self.hidden_size, self.outputs)
        self.params = {
            "W_y": from_host(generator.uniform(-bound, bound, shape).astype(self.dtype), xp),
            "b_y": xp.zeros(self.outputs, dtype=self.dtype),
        }

    def with_targets(self, targets):
        """Return this head bound to the targets of one window.

        Parameters
        ----------
        targets : numpy.ndarray or reader
            As the head's loss needs them; see `membptt.blocks` for what is read block by block.

        Raises
        ------
        ValueError, TypeError
            If the shape or the dtype does not fit, or a class is out of range.
        """
        targets = sequence("targets", targets, self.outputs)
        self.check_targets(targets)
        return BoundHead(self, targets)

    def __repr__(self):
        return f"{type(self).__name__}({self.hidden_size}, {self.outputs}, {self.dtype.name!r})"


class SoftmaxHead(Head):
    """Output layer with softmax cross-entropy against class numbers [T, B]; loss in nats."""

    kernel = "softmax"

    def check_targets(self, targets):
        """Raise unless `targets` are class numbers [T, B] below V."""
        check_tokens("targets", targets, self.outputs)

    def loss(self, y, target):
        """Return the loss summed over the batch, and its derivative by y: softmax(y) - onehot."""
        xp = namespace(y)
        rows = xp.arange(len(target))
        largest = y.max(axis=1, keepdims=True)
        exponentials = xp.exp(y - largest)
        sums = exponentials.sum(axis=1, keepdims=True)
        loss = (xp.log(sums) + largest)[:, 0] - y[rows, target]
        dy = exponentials / sums
        dy[rows, target] -= 1
        return loss.sum(dtype=np.float64), dy

    def parts(self, targets):
        """Return by how many terms the summed loss is divided: T B."""
        return targets.size


class LinearHead(Head):
    """Output layer with half the mean squared error against dense targets [T, B, V]."""

    kernel = "squared_error"

    def check_targets(self, targets):
        """Raise unless `targets` are numbers [T, B, V] of the head's dtype."""
        if targets.ndim != 3 or targets.shape[2] != self.outputs or targets.size == 0:
            raise ValueError(
                f"targets have shape {targets.shape}; give [steps, batch, {self.outputs}]"
            )
        if targets.dtype != self.dtype:
            raise TypeError(f"targets are {targets.dtype}; give {self.dtype.name}, as the head's")

    def loss(self, y, target):
        """Return half the squared error summed over the batch, and its derivative by y."""
        dy = y - target
        return 0.5 * (dy * dy).sum(dtype=np.float64), dy

    def parts(self, targets):
        """Return by how many terms the summed loss is divided: T B V."""
        return targets.size


class BoundHead:
    """A head and the targets of one window: what `membptt.bptt` takes.

    Attributes
    ----------
    targets : numpy.ndarray or membptt.blocks.Blocks
        On the host.
    rows : the same, or membptt.feed.Feed
        What serves the targets of one step, where the parameters are.
    """

    def __init__(self, head, targets):
        self.head = head
        self.targets = targets
        xp = array_module(head.backend)
        self.rows = targets if xp is np else Feed(targets, xp)
        self.params = head.params
        self.kernel = head.kernel
        self.scale = 1 / head.parts(targets)

    def forward_backward(self, step, h, grads):
        """Return step's share of the loss and its derivative by h; add to `grads`.

        Parameters
        ----------
        step : int
            1 ... T.
        h : numpy.ndarray
            [B, H].
        grads : dict of numpy.ndarray
            Like `params`; changed in place.

        Returns
        -------
        loss : float, or on a device an array of no dimensions
        dh : numpy.ndarray
            [B, H].
        """
        p = self.params
        y = h @ p["W_y"] + p["b_y"]
        loss, dy = self.head.loss(y, self.rows[step - 1])
        dy *= self.scale
        grads["W_y"] += h.T @ dy
        grads["b_y"] += dy.sum(axis=0)
        return loss * self.scale, dy @ p["W_y"].T
