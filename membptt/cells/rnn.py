"""The vanilla RNN (Elman 1990) with tanh.

    a_t = x_t W_x + h_{t-1} W_h + b        [B, H]
    h_t = tanh(a_t)                        [B, H]

Hidden state: h, H numbers a row. Internal state: h_prev and h, 2H numbers, so α = 2: tanh' is
1 - h², which needs no pre-activation.
"""

from membptt.arrays import namespace
from membptt.cells.base import Cell
from membptt.types import Array, Params, State


class RNN(Cell):
    """Vanilla RNN: h = tanh(x W_x + h_prev W_h + b). See `Cell` for the parameters."""

    hidden_names = ("h",)
    internal_names = ("h_prev", "h")

    def forward_step(self, x: Array, state: State) -> tuple[State, State]:
        """Return the hidden state after this step, and its internal state.

        Parameters
        ----------
        x : numpy.ndarray
            [B, I], or tokens [B].
        state : tuple of one array
            (h_prev,), [B, H].

        Returns
        -------
        state, internal : tuple of arrays, each [B, H]
            (h,) and (h_prev, h).
        """
        (h_prev,) = state
        a = self.preactivations(x, h_prev)
        h = namespace(a).tanh(a)
        return self.noise.zoned((h_prev,), (h,)), (h_prev, h)

    def backward_step(
        self, x: Array, internal: State, dstate: State, grads: Params, dx: Array | None = None
    ) -> State:
        """Return the derivative by the entering hidden state; add this step's to `grads`.

        Parameters
        ----------
        x : numpy.ndarray
            As in `forward_step`.
        internal : tuple of arrays
            (h_prev, h).
        dstate : tuple of one array
            (dh,), the derivative of the loss by h, [B, H].
        grads : dict of numpy.ndarray
            Like `params`; changed in place.
        dx : numpy.ndarray, optional
            [B, I]: the derivative by x is added to it.

        Returns
        -------
        tuple of one array
            (dh_prev,), [B, H].
        """
        h_prev, _ = internal
        da = self.deltas(internal, dstate)
        self.add_gradients(grads, x, h_prev, da)
        self.add_by_input(dx, da)
        dh_prev = self.noise.recurrent(da @ self.params["W_h"].T)
        return self.noise.with_kept((dh_prev,), dstate)

    def deltas(self, internal, dstate):
        """Return the derivative by the pre-activation a, [B, H]."""
        _, h = internal
        (dh,) = self.noise.through(dstate)
        return dh * (1 - h * h)  # tanh'(a) = 1 - tanh²(a)

    def state_from_internal(self, internal: State) -> State:
        """Return the hidden state after the step, from its internal state: no product."""
        h_prev, h = internal
        return self.noise.zoned((h_prev,), (h,))
