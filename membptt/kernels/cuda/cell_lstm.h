/* LSTM: c = f c_prev + i g, h = o tanh c. Internal state: h_prev, c_prev, i, f, g, o. See
   membptt/cells/lstm.py and kernels/cells.h; what the functions do stands in cell_rnn.h. */

#define GATES 4
#define FROM_INPUT 4
#define KEEPS_DH 0

DEVICE REAL lstm_state(REAL c_prev, REAL i, REAL f, REAL g, REAL o, REAL *h, REAL *tanh_c)
{
    const REAL c = FMA(f, c_prev, i * g);
    *tanh_c = real_tanh(c);
    *h = o * *tanh_c;
    return c;
}

DEVICE void cell_forward(const REAL *a, REAL late, const REAL *state, REAL *next, REAL *internal,
                         integer at, integer size)
{
    const REAL c_prev = state[size + at];
    const REAL i = real_sigmoid(a[0]), f = real_sigmoid(a[1]);
    const REAL g = real_tanh(a[2]), o = real_sigmoid(a[3]);
    REAL h, tanh_c;
    (void)late;
    next[size + at] = lstm_state(c_prev, i, f, g, o, &h, &tanh_c);
    next[at] = h;
    if (internal) {
        internal[at] = state[at];
        internal[size + at] = c_prev;
        internal[2 * size + at] = i;
        internal[3 * size + at] = f;
        internal[4 * size + at] = g;
        internal[5 * size + at] = o;
    }
}

DEVICE void cell_hidden(const REAL *internal, REAL *state, integer at, integer size)
{
    REAL h, tanh_c;
    state[size + at] = lstm_state(internal[size + at], internal[2 * size + at],
                                  internal[3 * size + at], internal[4 * size + at],
                                  internal[5 * size + at], &h, &tanh_c);
    state[at] = h;
}

DEVICE void cell_backward(const REAL *internal, REAL dh, REAL *dstate, REAL *da, REAL *du,
                          integer at, integer size, integer H)
{
    const REAL c_prev = internal[size + at], one = 1;
    const REAL i = internal[2 * size + at], f = internal[3 * size + at];
    const REAL g = internal[4 * size + at], o = internal[5 * size + at];
    REAL h, tanh_c, dc;
    (void)du;
    lstm_state(c_prev, i, f, g, o, &h, &tanh_c);
    dc = FMA(dh * o, FMA(-tanh_c, tanh_c, one), dstate[size + at]);
    da[0] = dc * g * i * (one - i);
    da[H] = dc * c_prev * f * (one - f);
    da[2 * H] = dc * i * FMA(-g, g, one);
    da[3 * H] = dh * tanh_c * o * (one - o);
    dstate[size + at] = dc * f;
}
