"""Heads: an output layer and a loss, evaluated once a step, at backward time.

    y_t = h_t W_y + b_y                                              [B, V]
    softmax cross-entropy:  L_t = mean over B of -log softmax(y_t)[target]
    squared error:          L_t = mean over B and V of ½ (y_t - target)²

The loss is the mean of L_t over the steps. With a mask [T, B] or with lengths [B] it is the mean
over the rows and steps where the mask is True and a row has not ended; at the last step only, the
mean over the rows. A row without a loss gets a derivative of zero whatever its target holds, NaN
included, and a step without any loss costs nothing.

A head is bound to one window's targets by `with_targets` or `at_last`; what comes back is all that
the executor asks of a head: ``params``, ``kernel`` and ``forward_backward(step, h, grads)``. A head
of your own needs the first and the last; its ``kernel`` is None.

Letters of shapes: T steps, B batch, H hidden units, V classes or outputs.
"""

import math
from numbers import Real
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike

from membptt.arrays import array_module, check_backend, from_host, namespace
from membptt.checks import check_dtype, check_tokens, integer
from membptt.sequences.blocks import sequence
from membptt.sequences.feed import Feed
from membptt.sequences.lengths import Lengths, check_lengths
from membptt.types import Array, Inputs, Params, RowLengths


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

    target_axes: tuple[str, ...]  # by the subclass: those of targets

    def __init__(
        self,
        hidden_size: int,
        outputs: int,
        dtype: str = "float32",
        seed: int = 0,
        backend: str = "cython",
    ) -> None:
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

    def with_targets(
        self,
        targets: Inputs,
        mask: Inputs | None = None,
        lengths: RowLengths | None = None,
    ) -> "BoundHead":
        """Return this head bound to the targets of one window.

        Parameters
        ----------
        targets : numpy.ndarray or reader
            As the head's loss needs them; see `membptt.sequences.blocks` for what is read block by
            block.
        mask : numpy.ndarray of bool or reader, optional
            [T, B]: where there is a loss; everywhere by default. A target where there is none may
            be anything of the right type: NaN, or a class number that is none. (A reader's class
            numbers must all be in range.)
        lengths : sequence of int, optional
            [B]: how many steps each row has; there is no loss behind them, as where a mask is
            False. Give the same to `membptt.bptt`, and what is behind them is not run either.

        Raises
        ------
        ValueError, TypeError
            If a shape or a dtype does not fit, a class is out of range, or no loss is left.
        """
        targets = sequence("targets", targets, self.outputs)
        mask = None if mask is None else sequence("mask", mask)
        return BoundHead(self, targets, mask, lengths=lengths)

    def at_last(self, targets: ArrayLike, steps: ArrayLike) -> "BoundHead":
        """Return this head bound to one target a sequence, at its last step.

        Parameters
        ----------
        targets : numpy.ndarray
            [B, ...], as the head's loss needs them for one step.
        steps : int or sequence of int
            T; or [B], at which step each row's sequence ends.

        Raises
        ------
        ValueError, TypeError
            If a shape or a dtype does not fit, or a class is out of range.
        """
        targets = np.asarray(targets)
        if targets.ndim != len(self.target_axes) - 1:
            raise ValueError(
                f"targets have shape {targets.shape}; give [{', '.join(self.target_axes[1:])}], "
                "those of the last step"
            )
        if isinstance(steps, Real | SupportsIndex) and np.ndim(steps) == 0:
            steps = [integer("steps", steps, minimum=1)] * len(targets)
        ends = Lengths(steps, "steps").given
        if len(ends) != len(targets):
            raise ValueError(
                f"steps are {ends.tolist()}; give the number of steps, or for each of "
                f"{len(targets)} rows the step at which it ends"
            )
        return BoundHead(self, targets[None], None, ends)

    def __repr__(self):
        return f"{type(self).__name__}({self.hidden_size}, {self.outputs}, {self.dtype.name!r})"


class SoftmaxHead(Head):
    """Output layer with softmax cross-entropy against class numbers [T, B]; loss in nats."""

    kernel = "softmax"
    target_axes = ("steps", "batch")
    terms = 1  # of a row's loss

    def check_targets(self, targets, mask=None):
        """Raise unless `targets` are class numbers [T, B], below V where `mask` is True."""
        check_tokens("targets", targets, self.outputs, mask)

    def losses(self, y, target):
        """Return the loss of each row, and its derivative by y: softmax(y) - onehot."""
        xp = namespace(y)
        rows = xp.arange(len(target))
        largest = y.max(axis=1, keepdims=True)
        exponentials = xp.exp(y - largest)
        sums = exponentials.sum(axis=1, keepdims=True)
        losses = (xp.log(sums) + largest)[:, 0] - y[rows, target]
        dy = exponentials / sums
        dy[rows, target] -= 1
        return losses, dy


class LinearHead(Head):
    """Output layer with half the mean squared error against dense targets [T, B, V]."""

    kernel = "squared_error"
    target_axes = ("steps", "batch", "outputs")

    @property
    def terms(self):
        """Of how many terms a row's loss is the sum: V."""
        return self.outputs

    def check_targets(self, targets, mask=None):
        """Raise unless `targets` are numbers [T, B, V] of the head's dtype."""
        if targets.ndim != 3 or targets.shape[2] != self.outputs or targets.size == 0:
            raise ValueError(
                f"targets have shape {targets.shape}; give [steps, batch, {self.outputs}]"
            )
        if targets.dtype != self.dtype:
            raise TypeError(f"targets are {targets.dtype}; give {self.dtype.name}, as the head's")

    def losses(self, y, target):
        """Return half the squared error of each row, and its derivative by y."""
        dy = y - target
        return 0.5 * (dy * dy).sum(axis=1, dtype=np.float64), dy


class BoundHead:
    """A head and the targets of one window: what `membptt.bptt` takes.

    Attributes
    ----------
    targets : numpy.ndarray or membptt.sequences.blocks.Blocks
        On the host: [T, B, ...], or [1, B, ...] with `ends`.
    mask : numpy.ndarray or membptt.sequences.blocks.Blocks or None
        [T, B]: where there is a loss.
    ends : numpy.ndarray or None
        [B]: at which step each row has its only loss.
    lengths : membptt.sequences.lengths.Lengths or None
        Of the rows, where they differ; the mask is False behind them.
    rows : as targets, or membptt.sequences.feed.Feed
        What serves the targets of one step, where the parameters are.
    """

    def __init__(self, head, targets, mask=None, ends=None, lengths=None):
        self.head = head
        self.targets, self.given_mask, self.ends = targets, mask, ends
        self.lengths = None
        if targets.ndim > 1:  # else the head says what it needs
            self.lengths = check_lengths(lengths, *targets.shape[:2], "targets")
        self.params = head.params
        self.kernel = head.kernel
        self.scale = None
        self.check()
        xp = array_module(head.backend)
        self.rows = targets if xp is np else Feed(targets, xp)

    def check(self):
        """Raise unless targets and mask fit; find by how many terms the loss is divided."""
        mask, shape = self.given_mask, self.targets.shape[:2]
        if mask is not None:
            if mask.shape != shape:
                raise ValueError(f"mask has shape {mask.shape}; give {shape}, as targets")
            if mask.dtype != bool:
                raise TypeError(f"mask is {mask.dtype}; give bool")
        if self.lengths is not None:
            live = self.lengths.mask(len(self.targets))
            mask = live if mask is None else live & np.asarray(mask)
        self.mask = mask
        in_memory = isinstance(mask, np.ndarray)
        self.head.check_targets(self.targets, mask if in_memory else None)
        if self.scale is None or in_memory:
            scored = shape[0] * shape[1] if mask is None else count_true(mask)
            if scored == 0:
                raise ValueError("mask is False everywhere; give at least one step and row a loss")
            self.scale = 1 / (scored * self.head.terms)

    def scored(self, step):
        """Return which rows have a loss at this step, bool [B] on the host; None for all."""
        if self.mask is not None:
            return self.mask[step - 1]
        return None if self.ends is None else self.ends == step

    def scored_targets(self, step):
        """Return the targets of this step on the host, of the rows that have a loss."""
        target, scored = self.targets[0 if self.ends is not None else step - 1], self.scored(step)
        return target if scored is None else target[scored]

    def forward_backward(
        self, step: int, h: Array, grads: Params, rows: Array | None = None
    ) -> tuple[Any, Array]:
        """Return step's share of the loss and its derivative by h; add to `grads`.

        Parameters
        ----------
        step : int
            1 ... T.
        h : numpy.ndarray
            [B, H].
        grads : dict of numpy.ndarray
            Like `params`; changed in place.
        rows : numpy.ndarray of int64, optional
            Whose h these are: the rows that a packed batch has left at this step.

        Returns
        -------
        loss : float, or on a device an array of no dimensions
        dh : numpy.ndarray
            [B, H].
        """
        scored = self.scored(step)
        if scored is not None and not scored.any():  # nothing to multiply
            return namespace(h).zeros((), dtype=np.float64), namespace(h).zeros_like(h)
        p = self.params
        loss, dy = self.loss_of(step, h @ p["W_y"] + p["b_y"], rows)
        grads["W_y"] += h.T @ dy
        grads["b_y"] += dy.sum(axis=0)
        return loss, dy @ p["W_y"].T

    def loss_of(self, step, y, rows=None):
        """Return step's share of the loss and its derivative by the outputs y, both [B, V]."""
        xp = namespace(y)
        scored = self.scored(step)
        target = self.rows[0 if self.ends is not None else step - 1]
        if rows is not None:
            target = target[rows]
        if scored is not None:
            scored = from_host(scored, xp)
            scored = scored if rows is None else scored[rows]
            column = scored[:, None]
            target = xp.where(scored if target.ndim == 1 else column, target, 0)
        losses, dy = self.head.losses(y, target)
        if scored is not None:
            losses, dy = xp.where(scored, losses, 0), xp.where(column, dy, 0)
        dy *= self.scale
        return losses.sum(dtype=np.float64) * self.scale, dy


def count_true(mask):
    """Return how many elements of a mask are True, of a reader block by block."""
    if isinstance(mask, np.ndarray):
        return int(np.count_nonzero(mask))
    return sum(int(np.count_nonzero(mask[index])) for index in range(len(mask)))
