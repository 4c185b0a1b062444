"""RNN, LSTM and GRU with layer normalisation (Ba, Kiros and Hinton 2016) of their pre-activations.

What is normalised is each gate's sum of products a [B, H], over its H units:

    s = 1 / sqrt(mean (a - mean a)² + ε)       [B, 1]
    v = (a - mean a) s                         [B, H]
    pre-activation: g ∘ v + b                  gain g and bias b, [H] for each gate

(In the GRU, a_n and u_n on their own, since r stands between them.) The gates follow from v element
by element, so that an internal state keeps v in place of the gates, and s: α hardly grows. With dv
the derivative by v, and means over the H units,

    da = s (dv - mean dv - v ∘ mean(dv ∘ v))

since mean a and s depend on every unit of a.
"""

from membptt.arrays import namespace
from membptt.cells.base import columns, planned_part, sigmoid
from membptt.cells.gru import GRU
from membptt.cells.lstm import LSTM
from membptt.cells.rnn import RNN

EPSILON = 1e-5  # of the variance: equal pre-activations have no spread to divide by


def normalised(a):
    """Return v [B, H] and s [B, 1] of a [B, H]."""
    xp = namespace(a)
    centred = a - xp.mean(a, axis=1, keepdims=True)
    s = 1 / xp.sqrt(xp.mean(centred * centred, axis=1, keepdims=True) + EPSILON)
    return centred * s, s


def through(dv, v, s):
    """Return the derivative by a, from that by v."""
    xp = namespace(dv)
    along = xp.mean(dv * v, axis=1, keepdims=True)
    return s * (dv - xp.mean(dv, axis=1, keepdims=True) - v * along)


class Normalised:
    """What the normalised cells share: the gain, the internal state, both ways through.

    Attributes
    ----------
    normalised_names : tuple of str
        What is normalised on its own, each [B, H].
    """

    own_code = True

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.params["g"][...] = 1

    @property
    def internal_names(self):
        """The entering state, what is normalised, and the factors s side by side."""
        before = tuple(f"{name}_prev" for name in self.hidden_names)
        return (*before, *self.normalised_names, "s")

    def param_shapes(self):
        """Return the shape of each parameter by its name."""
        return super().param_shapes() | {"g": (len(self.normalised_names) * self.hidden_size,)}

    def internal_shapes(self, batch):
        """Return the shape of each array of an internal state.

        s has so many columns that it is a whole number of parts of a hidden row; zeros are unused.
        """
        part = planned_part(len(self.hidden_names) * self.hidden_size)
        width = -(-len(self.normalised_names) // part) * part
        return [*super().internal_shapes(batch)[:-1], (batch, width)]

    @property
    def biases(self):
        """The biases of all that is normalised, side by side."""
        return self.params["b"]

    def internal_of(self, state, parts):
        """Return the internal state of a step that `state` enters, from the sums of products."""
        found = [normalised(part) for part in parts]
        xp, (rows, width) = namespace(parts[0]), self.internal_shapes(parts[0].shape[0])[-1]
        unused = xp.zeros((rows, width - len(found)), dtype=parts[0].dtype)
        s = xp.concat([*(s for _, s in found), unused], axis=1)
        return (*state, *(v for v, _ in found), s)

    def split(self, internal):
        """Return the entering state, what is normalised, and s, of an internal state."""
        count = len(self.hidden_names)
        return internal[:count], internal[count:-1], internal[-1]

    def scaled(self, parts):
        """Return g ∘ v + b of each."""
        H = self.hidden_size
        g, b = self.params["g"], self.biases
        return [v * g[k * H :][:H] + b[k * H :][:H] for k, v in enumerate(parts)]

    def deltas_of_sums(self, dz, parts, s, grads):
        """Return da of each, from the derivatives dz by the pre-activations; add those by g."""
        H, xp = self.hidden_size, namespace(s)
        found = []
        for k, (d, v) in enumerate(zip(dz, parts, strict=True)):
            at = slice(k * H, (k + 1) * H)
            grads["g"][at] += xp.sum(d * v, axis=0)
            found.append(through(d * self.params["g"][at], v, s[:, k : k + 1]))
        return found


class LayerNormRNN(Normalised, RNN):  # type: ignore[override]
    """`membptt.RNN` with layer normalisation: h = tanh(g ∘ v + b), v of x W_x + h_prev W_h.

    Parameters as for `Cell`, with one more array, ``g`` [H], at first 1. Internal state: h_prev and
    v [B, H], s [B, 1 or more].
    """

    normalised_names = ("v",)

    def forward_step(self, x, state):
        """Return the hidden state after this step, and its internal state; see `RNN`."""
        a = self.projected(x) + self.noise.recurrent(state[0]) @ self.params["W_h"]
        internal = self.internal_of(state, [a])
        return self.state_from_internal(internal), internal

    def backward_step(self, x, internal, dstate, grads, dx=None):
        """Return the derivative by the entering hidden state; add this step's to `grads`."""
        (h_prev,), parts, s = self.split(internal)
        dz = self.deltas((h_prev, self.activated(parts)), dstate)
        (da,) = self.deltas_of_sums([dz], parts, s, grads)
        self.add_gradients(grads, x, h_prev, da, db=dz)
        self.add_by_input(dx, da)
        dh_prev = self.noise.recurrent(da @ self.params["W_h"].T)
        return self.noise.with_kept((dh_prev,), dstate)

    def activated(self, parts):
        """Return h, from v."""
        (z,) = self.scaled(parts)
        return namespace(z).tanh(z)

    def state_from_internal(self, internal):
        """Return the hidden state after the step, from its internal state: no product."""
        (h_prev,), parts, _ = self.split(internal)
        return super().state_from_internal((h_prev, self.activated(parts)))


class LayerNormLSTM(Normalised, LSTM):  # type: ignore[override]
    """`membptt.LSTM` with layer normalisation of each gate's x W_x + h_prev W_h.

    Parameters as for `Cell`, with one more array, ``g`` [4H], at first 1. Internal state: h_prev,
    c_prev and v of the four gates, each [B, H], s [B, 4 or more]. c is not normalised.
    """

    normalised_names = ("v_i", "v_f", "v_g", "v_o")

    def forward_step(self, x, state):
        """Return the hidden state after this step, and its internal state; see `LSTM`."""
        a = self.projected(x) + self.noise.recurrent(state[0]) @ self.params["W_h"]
        internal = self.internal_of(state, columns(a, 4))
        return self.state_from_internal(internal), internal

    def backward_step(self, x, internal, dstate, grads, dx=None):
        """Return the derivative by the entering hidden state; add this step's to `grads`."""
        (h_prev, c_prev), parts, s = self.split(internal)
        dz, dc_prev = self.deltas((h_prev, c_prev, *self.activated(parts)), dstate)
        da = namespace(s).concat(self.deltas_of_sums(columns(dz, 4), parts, s, grads), axis=1)
        self.add_gradients(grads, x, h_prev, da, db=dz)
        self.add_by_input(dx, da)
        dh_prev = self.noise.recurrent(da @ self.params["W_h"].T)
        return self.noise.with_kept((dh_prev, dc_prev), dstate)

    def activated(self, parts):
        """Return the gates i, f, g, o, from v of each."""
        z_i, z_f, z_g, z_o = self.scaled(parts)
        return sigmoid(z_i), sigmoid(z_f), namespace(z_g).tanh(z_g), sigmoid(z_o)

    def state_from_internal(self, internal):
        """Return the hidden state after the step, from its internal state: no product."""
        state, parts, _ = self.split(internal)
        return super().state_from_internal((*state, *self.activated(parts)))


class LayerNormGRU(Normalised, GRU):  # type: ignore[override]
    """`membptt.GRU` with layer normalisation.

    Normalised are x W_x + h_prev W_h of r and of z, x W_x of n, and h_prev W_h of n, which r
    multiplies once it has its gain and ``b_h``. Parameters as for `GRU`, with one more array, ``g``
    [4H], at first 1. Internal state: h_prev and the four, each [B, H], s [B, 4 or more].
    """

    normalised_names = ("v_r", "v_z", "v_n", "v_q")

    @property
    def biases(self):
        """The biases of r, z and n, and b_h, side by side."""
        p = self.params
        return namespace(p["b"]).concat((p["b"], p["b_h"]))

    def forward_step(self, x, state):
        """Return the hidden state after this step, and its internal state; see `GRU`."""
        a_r, a_z, a_n = columns(self.projected(x), 3)
        u_r, u_z, u_n = columns(self.noise.recurrent(state[0]) @ self.params["W_h"], 3)
        internal = self.internal_of(state, [a_r + u_r, a_z + u_z, a_n, u_n])
        return self.state_from_internal(internal), internal

    def backward_step(self, x, internal, dstate, grads, dx=None):
        """Return the derivative by the entering hidden state; add this step's to `grads`."""
        (h_prev,), parts, s = self.split(internal)
        xp = namespace(s)
        dz, by_z = self.deltas((h_prev, *self.activated(parts)), dstate)
        d_r, d_z, d_n, d_q = self.deltas_of_sums(dz, parts, s, grads)
        da = xp.concat((d_r, d_z, d_n), axis=1)  # what multiplies x
        du = xp.concat((d_r, d_z, d_q), axis=1)  # what multiplies h_prev
        self.add_gradients(grads, x, h_prev, da, du, db=xp.concat(dz[:3], axis=1))
        self.add_by_input(dx, da)
        grads["b_h"] += xp.sum(dz[3], axis=0)
        dh_prev = self.noise.recurrent(du @ self.params["W_h"].T) + by_z
        return self.noise.with_kept((dh_prev,), dstate)

    def activated(self, parts):
        """Return r, z, n and q, from v of each."""
        z_r, z_z, z_n, q = self.scaled(parts)
        r = sigmoid(z_r)
        return r, sigmoid(z_z), namespace(q).tanh(z_n + r * q), q

    def state_from_internal(self, internal):
        """Return the hidden state after the step, from its internal state: no product."""
        state, parts, _ = self.split(internal)
        return super().state_from_internal((*state, *self.activated(parts)))
