/* GRU: n = tanh(a_n + r q), q = b_h + h_prev . W_hn, h = n + z (h_prev - n). Internal state: h_prev, r,
   z, n, q. See membptt/cells/gru.py and kernels/cells.h; what the functions do stands in
   cell_rnn.h. */

#define GATES 3
#define FROM_INPUT 2 /* q starts from b_h: the projected input of n comes in behind r */
#define KEEPS_DH 1   /* h_prev also comes into h by itself */

DEVICE REAL gru_state(REAL h_prev, REAL z, REAL n) { return FMA(z, h_prev - n, n); }

DEVICE void cell_forward(const REAL *a, REAL a_n, const REAL *state, REAL *next, REAL *internal,
                         integer at, integer size)
{
    const REAL h_prev = state[at], r = real_sigmoid(a[0]), z = real_sigmoid(a[1]), q = a[2];
    const REAL n = real_tanh(FMA(r, q, a_n));
    next[at] = gru_state(h_prev, z, n);
    if (internal) {
        internal[at] = h_prev;
        internal[size + at] = r;
        internal[2 * size + at] = z;
        internal[3 * size + at] = n;
        internal[4 * size + at] = q;
    }
}

DEVICE void cell_hidden(const REAL *internal, REAL *state, integer at, integer size)
{
    state[at] = gru_state(internal[at], internal[2 * size + at], internal[3 * size + at]);
}

DEVICE void cell_backward(const REAL *internal, REAL dh, REAL *dstate, REAL *da, REAL *du,
                          integer at, integer size, integer H)
{
    const REAL h_prev = internal[at], one = 1;
    const REAL r = internal[size + at], z = internal[2 * size + at];
    const REAL n = internal[3 * size + at], q = internal[4 * size + at];
    const REAL da_n = dh * (one - z) * FMA(-n, n, one);
    du[0] = da[0] = da_n * q * r * (one - r);
    du[H] = da[H] = dh * (h_prev - n) * z * (one - z);
    da[2 * H] = da_n;
    du[2 * H] = da_n * r;
    dstate[at] = dh * z;
}
