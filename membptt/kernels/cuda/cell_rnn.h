/* RNN: h = tanh(a). Internal state: h_prev, h. See membptt/cells/rnn.py and kernels/cells.h. */

#define GATES 1
#define FROM_INPUT 1 /* so many chains start from projected inputs, the others from b_h */
#define KEEPS_DH 0   /* 1: the derivative by h_prev starts from what cell_backward leaves in dh */

/* From its pre-activations `a` make element `at` of the next state, and of the internal state
   unless that is NULL. Arrays of a state are `size` apart; `late` is the projected input of the last
   gate, where its chain did not start from it. */
DEVICE void cell_forward(const REAL *a, REAL late, const REAL *state, REAL *next, REAL *internal,
                         integer at, integer size)
{
    const REAL h = real_tanh(a[0]);
    (void)late;
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
   derivative by the entering state. da multiplies x; du multiplies h_prev, and is da itself but where
   a cell has b_h. */
DEVICE void cell_backward(const REAL *internal, REAL dh, REAL *dstate, REAL *da, REAL *du,
                          integer at, integer size, integer H)
{
    const REAL h = internal[size + at];
    (void)dstate, (void)du, (void)H;
    da[0] = dh * FMA(-h, h, (REAL)1);
}
