/* The cells' steps: the product of the hidden state with its weights and, while the sums are still
   in the first cache, the gates. The equations stand in membptt/cells, one line each. */

/* Pre-activations of rows b ... b+count-1 for `panels` panels from p: start + h_prev . W_h. */
INLINE void NAME(preactivate)(REAL *tile, const REAL *h_prev, const REAL *packed,
                              const REAL *start, long start_rows, const int64_t *pick, long b,
                              int count, long p, int panels, long H)
{
    for (int q = 0; q < panels; q++)
        for (int i = 0; i < count; i++) {
            const REAL *from = start + ((p + q) * start_rows + pick[b + i]) * PW;
            REAL *to = tile + (q * ROWS + i) * PW;
            STORE(to, LOAD(from));
            STORE(to + VW, LOAD(from + VW));
        }
    NAME(tile_product)(tile, count, panels, h_prev + b * H, H, 1, H, 1, 0, packed + p * H * PW,
                       H * PW);
}

/* Run `body` for each vector of units [n, n + part) of a block, v = 0 or 1 being its half. */
#define FOR_VECTORS(unit, H)                                             \
    for (long v = 0, n = (unit), part; v < 2 && n < (H); v++, n += VW)   \
        if ((part = (H) - n < VW ? (H) - n : VW) > 0)

/* ---- RNN: h = tanh(a) ---- internal state: h_prev, h ---- */

static void NAME(rnn_forward)(const void *h_prev_, const void *packed_, const void *start_,
                              long start_rows, const int64_t *pick, void *h_, void *internal_,
                              long B, long H, long lo, long hi)
{
    const REAL *h_prev = h_prev_, *packed = packed_, *start = start_;
    REAL *h = h_, *internal = internal_;
    REAL tile[4 * ROWS * PW];
    for (long p = lo; p < hi; p += 4) {
        const int panels = hi - p < 4 ? (int)(hi - p) : 4;
        for (long b = 0; b < B; b += ROWS) {
            const int count = B - b < ROWS ? (int)(B - b) : ROWS;
            NAME(preactivate)(tile, h_prev, packed, start, start_rows, pick, b, count, p, panels,
                              H);
            for (int q = 0; q < panels; q++)
                for (int i = 0; i < count; i++)
                    FOR_VECTORS((p + q) * PW, H) {
                        const long at = (b + i) * H + n;
                        const VEC a = LOAD(tile + (q * ROWS + i) * PW + v * VW);
                        const VEC h_new = NAME(tanh)(a);
                        STORE_PART(h + at, h_new, part);
                        if (internal) {
                            STORE_PART(internal + at, LOAD_PART(h_prev + at, part), part);
                            STORE_PART(internal + B * H + at, h_new, part);
                        }
                    }
        }
    }
}

static void NAME(rnn_hidden)(const void *internal_, void *h, long B, long H)
{
    memcpy(h, (const REAL *)internal_ + B * H, (size_t)(B * H) * sizeof(REAL));
}

static void NAME(rnn_backward)(const void *internal_, const void *dh_, void *d_, void *h_panels_,
                               long B, long H, long stride, long first, long lo, long hi)
{
    const REAL *h_prev = internal_, *h = h_prev + B * H, *dh = dh_;
    REAL *d = d_, *h_panels = h_panels_;
    for (long u = lo; u < hi; u++)
        for (long b = 0; b < B; b++)
            for (long v = 0; v < 2; v++) {
                const long n = u * PW + v * VW, at = b * H + n;
                const long to = (u * stride + first + b) * PW + v * VW;
                const long part = H - n < VW ? (H - n > 0 ? H - n : 0) : VW;
                const VEC out = LOAD_PART(h + at, part);
                STORE(d + to, LOAD_PART(dh + at, part) * FMA(-out, out, SET1(1)));
                STORE(h_panels + to, LOAD_PART(h_prev + at, part));
            }
}

/* ---- LSTM ---- internal state: h_prev, c_prev, i, f, g, o ---- */

/* c = f c_prev + i g;  h = o tanh c. The forward and every restart take h from here. */
INLINE VEC NAME(lstm_state)(VEC c_prev, VEC i, VEC f, VEC g, VEC o, VEC *h, VEC *tanh_c)
{
    const VEC c = FMA(f, c_prev, i * g);
    *tanh_c = NAME(tanh)(c);
    *h = o * *tanh_c;
    return c;
}

static void NAME(lstm_forward)(const void *h_prev_, const void *c_prev_, const void *packed_,
                               const void *start_, long start_rows, const int64_t *pick, void *h_,
                               void *c_, void *internal_, long B, long H, long lo, long hi)
{
    const REAL *h_prev = h_prev_, *c_prev = c_prev_, *packed = packed_, *start = start_;
    REAL *h = h_, *c = c_, *internal = internal_;
    const long size = B * H;
    REAL tile[4 * ROWS * PW];
    for (long u = lo; u < hi; u++)
        for (long b = 0; b < B; b += ROWS) {
            const int count = B - b < ROWS ? (int)(B - b) : ROWS;
            NAME(preactivate)(tile, h_prev, packed, start, start_rows, pick, b, count, 4 * u, 4,
                              H);
            for (int r = 0; r < count; r++)
                FOR_VECTORS(u * PW, H) {
                    const long at = (b + r) * H + n;
                    const REAL *a = tile + r * PW + v * VW;
                    const VEC i = NAME(sigmoid)(LOAD(a));
                    const VEC f = NAME(sigmoid)(LOAD(a + ROWS * PW));
                    const VEC g = NAME(tanh)(LOAD(a + 2 * ROWS * PW));
                    const VEC o = NAME(sigmoid)(LOAD(a + 3 * ROWS * PW));
                    const VEC before = LOAD_PART(c_prev + at, part);
                    VEC h_new, tanh_c;
                    const VEC c_new = NAME(lstm_state)(before, i, f, g, o, &h_new, &tanh_c);
                    if (internal) {
                        REAL *to = internal + at;
                        STORE_PART(to, LOAD_PART(h_prev + at, part), part);
                        STORE_PART(to + size, before, part);
                        STORE_PART(to + 2 * size, i, part);
                        STORE_PART(to + 3 * size, f, part);
                        STORE_PART(to + 4 * size, g, part);
                        STORE_PART(to + 5 * size, o, part);
                    }
                    STORE_PART(h + at, h_new, part);
                    STORE_PART(c + at, c_new, part);
                }
        }
}

static void NAME(lstm_hidden)(const void *internal_, void *h_, void *c_, long B, long H)
{
    const REAL *internal = internal_;
    REAL *h = h_, *c = c_;
    const long size = B * H;
    for (long at = 0; at < size; at += VW) {
        const long part = size - at < VW ? size - at : VW;
        const REAL *from = internal + at;
        VEC h_new, tanh_c;
        const VEC c_new = NAME(lstm_state)(
            LOAD_PART(from + size, part), LOAD_PART(from + 2 * size, part),
            LOAD_PART(from + 3 * size, part), LOAD_PART(from + 4 * size, part),
            LOAD_PART(from + 5 * size, part), &h_new, &tanh_c);
        STORE_PART(h + at, h_new, part);
        STORE_PART(c + at, c_new, part);
    }
}

/* On entry dh, dc are the derivatives by h and c of this step; on exit d holds the deltas of the
   pre-activations, h_panels the h_prev that they multiply, dc the derivative by c_prev. */
static void NAME(lstm_backward)(const void *internal_, const void *dh_, void *dc_, void *d_,
                                void *h_panels_, long B, long H, long stride, long first, long lo,
                                long hi)
{
    const REAL *internal = internal_, *dh_all = dh_;
    REAL *dc_all = dc_, *d = d_, *h_panels = h_panels_;
    const long size = B * H;
    const VEC one = SET1(1);
    for (long u = lo; u < hi; u++)
        for (long b = 0; b < B; b++)
            for (long v = 0; v < 2; v++) {
                const long n = u * PW + v * VW, at = b * H + n;
                const long part = H - n < VW ? (H - n > 0 ? H - n : 0) : VW;
                const long row = (first + b) * PW + v * VW, panel = stride * PW;
                const REAL *from = internal + at;
                REAL *to = d + 4 * u * panel + row;
                const VEC c_prev = LOAD_PART(from + size, part);
                const VEC i = LOAD_PART(from + 2 * size, part);
                const VEC f = LOAD_PART(from + 3 * size, part);
                const VEC g = LOAD_PART(from + 4 * size, part);
                const VEC o = LOAD_PART(from + 5 * size, part);
                VEC h, tanh_c;
                NAME(lstm_state)(c_prev, i, f, g, o, &h, &tanh_c);
                const VEC dh = LOAD_PART(dh_all + at, part);
                const VEC dc =
                    FMA(dh * o, FMA(-tanh_c, tanh_c, one), LOAD_PART(dc_all + at, part));
                STORE(to, dc * g * i * (one - i));
                STORE(to + panel, dc * c_prev * f * (one - f));
                STORE(to + 2 * panel, dc * i * FMA(-g, g, one));
                STORE(to + 3 * panel, dh * tanh_c * o * (one - o));
                STORE(h_panels + u * panel + row, LOAD_PART(from, part));
                STORE_PART(dc_all + at, dc * f, part);
            }
}

/* ---- GRU ---- internal state: h_prev, r, z, n, q ---- */

/* h = n + z (h_prev - n). The forward and every restart take h from here. */
INLINE VEC NAME(gru_state)(VEC h_prev, VEC z, VEC n)
{
    return FMA(z, h_prev - n, n);
}

/* Gates r and z start from the projected inputs; q = b_h + h_prev . W_hn starts from b_h, and the
   projected input of n is added when r has been multiplied in. */
static void NAME(gru_forward)(const void *h_prev_, const void *packed_, const void *bias_h_,
                              const void *start_, long start_rows, const int64_t *pick, void *h_,
                              void *internal_, long B, long H, long lo, long hi)
{
    const REAL *h_prev = h_prev_, *packed = packed_, *bias_h = bias_h_, *start = start_;
    REAL *h = h_, *internal = internal_;
    const long size = B * H;
    REAL tile[4 * ROWS * PW];
    for (long u = lo; u < hi; u++)
        for (long b = 0; b < B; b += ROWS) {
            const int count = B - b < ROWS ? (int)(B - b) : ROWS;
            for (int g = 0; g < 3; g++)
                for (int i = 0; i < count; i++) {
                    const REAL *from = g < 2 ? start + ((3 * u + g) * start_rows + pick[b + i]) * PW
                                             : bias_h + u * PW;
                    REAL *to = tile + (g * ROWS + i) * PW;
                    STORE(to, LOAD(from));
                    STORE(to + VW, LOAD(from + VW));
                }
            NAME(tile_product)(tile, count, 3, h_prev + b * H, H, 1, H, 1, 0,
                               packed + 3 * u * H * PW, H * PW);
            for (int i = 0; i < count; i++)
                FOR_VECTORS(u * PW, H) {
                    const long at = (b + i) * H + n;
                    const REAL *a = tile + i * PW + v * VW;
                    const REAL *a_n = start + ((3 * u + 2) * start_rows + pick[b + i]) * PW;
                    const VEC r = NAME(sigmoid)(LOAD(a));
                    const VEC z = NAME(sigmoid)(LOAD(a + ROWS * PW));
                    const VEC q = LOAD(a + 2 * ROWS * PW);
                    const VEC new = NAME(tanh)(FMA(r, q, LOAD(a_n + v * VW)));
                    const VEC before = LOAD_PART(h_prev + at, part);
                    if (internal) {
                        REAL *to = internal + at;
                        STORE_PART(to, before, part);
                        STORE_PART(to + size, r, part);
                        STORE_PART(to + 2 * size, z, part);
                        STORE_PART(to + 3 * size, new, part);
                        STORE_PART(to + 4 * size, q, part);
                    }
                    STORE_PART(h + at, NAME(gru_state)(before, z, new), part);
                }
        }
}

static void NAME(gru_hidden)(const void *internal_, void *h_, long B, long H)
{
    const REAL *internal = internal_;
    REAL *h = h_;
    const long size = B * H;
    for (long at = 0; at < size; at += VW) {
        const long part = size - at < VW ? size - at : VW;
        const REAL *from = internal + at;
        STORE_PART(h + at,
                   NAME(gru_state)(LOAD_PART(from, part), LOAD_PART(from + 2 * size, part),
                                   LOAD_PART(from + 3 * size, part)),
                   part);
    }
}

/* On entry dh is the derivative by h of this step; on exit dh z, to which the product with W_h is
   added. d holds the deltas that multiply x, d_h those that multiply h_prev: they differ in gate n,
   whose product with h_prev is behind r. */
static void NAME(gru_backward)(const void *internal_, void *dh_, void *d_, void *d_h_,
                               void *h_panels_, long B, long H, long stride, long first, long lo,
                               long hi)
{
    const REAL *internal = internal_;
    REAL *dh_all = dh_, *d = d_, *d_h = d_h_, *h_panels = h_panels_;
    const long size = B * H, panel = stride * PW;
    const VEC one = SET1(1);
    for (long u = lo; u < hi; u++)
        for (long b = 0; b < B; b++)
            for (long v = 0; v < 2; v++) {
                const long n = u * PW + v * VW, at = b * H + n;
                const long part = H - n < VW ? (H - n > 0 ? H - n : 0) : VW;
                const long row = (first + b) * PW + v * VW, to = 3 * u * panel + row;
                const REAL *from = internal + at;
                const VEC before = LOAD_PART(from, part);
                const VEC r = LOAD_PART(from + size, part);
                const VEC z = LOAD_PART(from + 2 * size, part);
                const VEC new = LOAD_PART(from + 3 * size, part);
                const VEC q = LOAD_PART(from + 4 * size, part);
                const VEC dh = LOAD_PART(dh_all + at, part);
                const VEC da_n = dh * (one - z) * FMA(-new, new, one);
                const VEC da_r = da_n * q * r * (one - r);
                const VEC da_z = dh * (before - new) * z * (one - z);
                STORE(d + to, da_r);
                STORE(d + to + panel, da_z);
                STORE(d + to + 2 * panel, da_n);
                STORE(d_h + to, da_r);
                STORE(d_h + to + panel, da_z);
                STORE(d_h + to + 2 * panel, da_n * r);
                STORE(h_panels + u * panel + row, before);
                STORE_PART(dh_all + at, dh * z, part);
            }
}
#undef FOR_VECTORS
