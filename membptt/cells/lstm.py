"""The LSTM (Hochreiter and Schmidhuber 1997, forget gate by Gers et al. 2000), no peepholes.

    a_t = x_t W_x + h_{t-1} W_h + b        [B, 4H], gates in the order i, f, g, o
    i = σ(a_i)   f = σ(a_f)   g = tanh(a_g)   o = σ(a_o)
    c_t = f ∘ c_{t-1} + i ∘ g              [B, H]
    h_t = o ∘ tanh(c_t)                    [B, H]

Hidden state: (h, c), 2H numbers a row. Internal state: h_prev, c_prev, i, f, g, o, 6H numbers, so
α = 3: c, tanh(c) and h follow from them element by element, without a matrix product.
"""

from membptt.arrays import namespace
from membptt.cells.base import Cell, columns, sigmoid
from membptt.types import Array, Params, State


class LSTM(Cell):
    """Long short-term memory. See `Cell` for the parameters; gates in the order i, f, g, o."""

    gates = 4
    hidden_names = ("h", "c")
    internal_names = ("h_prev", "c_prev", "i", "f", "g", "o")

    def forward_step(self, x: Array, state: State) -> tuple[State, State]:
        """Return the hidden state after this step, and its internal state.

        Parameters
        ----------
        x : numpy.ndarray
            [B, I], or tokens [B].
        state : tuple of two arrays
            (h_prev, c_prev), each [B, H].

        Returns
        -------
        state, internal : tuple of arrays, each [B, H]
            (h, c) and (h_prev, c_prev, i, f, g, o).
        """
        h_prev, c_prev = state
        xp = namespace(h_prev)
        a = self.preactivations(x, h_prev)
        a_i, a_f, a_g, a_o = columns(a, 4)
        i = sigmoid(a_i)
        f = sigmoid(a_f)
        g = xp.tanh(a_g)
        o = sigmoid(a_o)
        internal = (h_prev, c_prev, i, f, g, o)
        return self.state_from_internal(internal), internal

    def backward_step(
        self, x: Array, internal: State, dstate: State, grads: Params, dx: Array | None = None
    ) -> State:
        """Return the derivative by the entering hidden state; add this step's to `grads`.

        Parameters
        ----------
        x : numpy.ndarray
            As in `forward_step`.
        internal : tuple of arrays
            (h_prev, c_prev, i, f, g, o).
        dstate : tuple of two arrays
            (dh, dc), the derivatives of the loss by h and c, each [B, H].
        grads : dict of numpy.ndarray
            Like `params`; changed in place.
        dx : numpy.ndarray, optional
            [B, I]: the derivative by x is added to it.

        Returns
        -------
        tuple of two arrays
            (dh_prev, dc_prev), each [B, H].
        """
        h_prev = internal[0]
        da, dc_prev = self.deltas(internal, dstate)
        self.add_gradients(grads, x, h_prev, da)
        self.add_by_input(dx, da)
        dh_prev = self.noise.recurrent(da @ self.params["W_h"].T)
        return self.noise.with_kept((dh_prev, dc_prev), dstate)

    def deltas(self, internal, dstate):
        """Return the derivatives by the pre-activations a [B, 4H], and by c_prev [B, H]."""
        _, c_prev, i, f, g, o = internal
        dh, dc = self.noise.through(dstate)
        xp = namespace(dh)
        tanh_c = xp.tanh(f * c_prev + i * g)
        dc = dc + dh * o * (1 - tanh_c * tanh_c)  # h = o tanh(c): tanh' = 1 - tanh²
        da_i = dc * g * i * (1 - i)  # c = f c_prev + i g, σ' = σ (1 - σ)
        da_f = dc * c_prev * f * (1 - f)
        da_g = dc * i * (1 - g * g)
        da_o = dh * tanh_c * o * (1 - o)
        return xp.concat((da_i, da_f, da_g, da_o), axis=1), dc * f

    def state_from_internal(self, internal: State) -> State:
        """Return the hidden state after the step, from its internal state: no product."""
        h_prev, c_prev, i, f, g, o = internal
        c = f * c_prev + i * g
        h = o * namespace(c).tanh(c)
        return self.noise.zoned((h_prev, c_prev), (h, c))
