/* RNN: h = tanh(a). Internal state: h_prev, h. See membptt/cells/rnn.py and kernels/cells.h. */

#define GATES 1

/* From its pre-activations `a` make element `at` of the next state, and of the internal state
   unless that is NULL. Arrays of a state are `size` apart. */
DEVICE void cell_forward(const REAL *a, const REAL *state, REAL *next, REAL *internal, integer at,
                         integer size)
{
    const REAL h = real_tanh(a[0]);
    next[at] = h;
    if (internal) {
        internal[at] = state[at];
        internal[size + at] = h;
    }
}

/* The hidden state after the step, from the step's internal state. */
DEVICE void cell_hidden(const REAL *internal, REAL *state, integer at, integer size)
{
    state[at] = internal[size + at];
}

/* Deltas of the pre-activations, gates `H` apart, from dh of this step; dstate beyond dh becomes the
   derivative by the entering state. */
DEVICE void cell_backward(const REAL *internal, REAL dh, REAL *dstate, REAL *da, integer at,
                          integer size, integer H)
{
    const REAL h = internal[size + at];
    (void)dstate, (void)H;
    da[0] = dh * FMA(-h, h, (REAL)1);
}
