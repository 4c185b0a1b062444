"""The GRU (Cho et al. 2014), with the reset gate behind the product, as cuDNN and PyTorch have it.

    a_t = x_t W_x + b                      [B, 3H], gates in the order r, z, n
    u_t = h_{t-1} W_h                      [B, 3H]
    r = σ(a_r + u_r)   z = σ(a_z + u_z)
    q = u_n + b_h      n = tanh(a_n + r ∘ q)
    h_t = (1 - z) ∘ n + z ∘ h_{t-1} = n + z ∘ (h_{t-1} - n)        [B, H]

Cho et al. multiply h_{t-1} by r before its product with W_hn, which makes two products, one after
the other, of every step; behind the product, one does.

Hidden state: h, H numbers a row. Internal state: h_prev, r, z, n, q, 5H numbers, so α = 5: h
follows from them without a product. The derivative of r reads q, which none of the others gives
back to the bit.
"""

from membptt.arrays import namespace
from membptt.cells.base import Cell, columns, sigmoid
from membptt.types import Array, Params, State


class GRU(Cell):
    """Gated recurrent unit. See `Cell` for the parameters; gates in the order r, z, n.

    One more parameter, ``b_h`` [H], is added to h_prev W_hn before r multiplies it.
    """

    gates = 3
    hidden_names = ("h",)
    internal_names = ("h_prev", "r", "z", "n", "q")

    def param_shapes(self):
        """Return the shape of each parameter by its name."""
        return super().param_shapes() | {"b_h": (self.hidden_size,)}

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
            (h,) and (h_prev, r, z, n, q).
        """
        (h_prev,) = state
        p = self.params
        a_r, a_z, a_n = columns(self.projected(x) + p["b"], 3)
        u_r, u_z, u_n = columns(self.noise.recurrent(h_prev) @ p["W_h"], 3)
        r = sigmoid(a_r + u_r)
        z = sigmoid(a_z + u_z)
        q = u_n + p["b_h"]
        n = namespace(q).tanh(a_n + r * q)
        internal = (h_prev, r, z, n, q)
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
            (h_prev, r, z, n, q).
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
        h_prev = internal[0]
        xp = namespace(h_prev)
        (da_r, da_z, da_n, dq), by_z = self.deltas(internal, dstate)
        da = xp.concat((da_r, da_z, da_n), axis=1)  # what multiplies x
        du = xp.concat((da_r, da_z, dq), axis=1)  # what multiplies h_prev
        self.add_gradients(grads, x, h_prev, da, du)
        self.add_by_input(dx, da)
        grads["b_h"] += xp.sum(dq, axis=0)
        dh_prev = self.noise.recurrent(du @ self.params["W_h"].T) + by_z
        return self.noise.with_kept((dh_prev,), dstate)

    def deltas(self, internal, dstate):
        """Return the derivatives by a_r, a_z, a_n and q, and by h_prev past the products.

        Each [B, H].
        """
        h_prev, r, z, n, q = internal
        (dh,) = self.noise.through(dstate)
        da_n = dh * (1 - z) * (1 - n * n)  # h = n + z (h_prev - n), tanh' = 1 - tanh²
        da_r = da_n * q * r * (1 - r)  # a_n + r q, σ' = σ (1 - σ)
        da_z = dh * (h_prev - n) * z * (1 - z)
        return (da_r, da_z, da_n, da_n * r), dh * z

    def state_from_internal(self, internal: State) -> State:
        """Return the hidden state after the step, from its internal state: no product."""
        h_prev, _, z, n, _ = internal
        h = n + z * (h_prev - n)
        return self.noise.zoned((h_prev,), (h,))
