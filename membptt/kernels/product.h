/* Products of small row blocks with packed weights, and the gradient of the weights.

   Every output element is acc = FMA(a[k], w[k], acc) for k = 0, 1, ... from its start value: the
   tile's shape, the number of rows and the split into panels never enter its bits. */

/* acc[r][p] += sum_k a[r*rs + chunk*cs + k*ks] * w[p][chunk*kc + k], for constant R and P. */
INLINE void NAME(chains)(const int R, const int P, REAL *tile, const REAL *a, long rs, long ks,
                         long kc, long chunks, long cs, const REAL *w, long ws)
{
    VEC acc[ROWS * 4 * 2];
    for (int p = 0; p < P; p++)
        for (int r = 0; r < R; r++) {
            acc[(p * R + r) * 2] = LOAD(tile + (p * ROWS + r) * PW);
            acc[(p * R + r) * 2 + 1] = LOAD(tile + (p * ROWS + r) * PW + VW);
        }
    for (long chunk = 0; chunk < chunks; chunk++, a += cs)
        for (long k = 0; k < kc; k++, w += PW)
#pragma GCC unroll 4
            for (int p = 0; p < P; p++) {
                const VEC w0 = LOAD(w + p * ws), w1 = LOAD(w + p * ws + VW);
#pragma GCC unroll 8
                for (int r = 0; r < R; r++) {
                    const VEC s = SET1(a[r * rs + k * ks]);
                    acc[(p * R + r) * 2] = FMA(s, w0, acc[(p * R + r) * 2]);
                    acc[(p * R + r) * 2 + 1] = FMA(s, w1, acc[(p * R + r) * 2 + 1]);
                }
            }
    for (int p = 0; p < P; p++)
        for (int r = 0; r < R; r++) {
            STORE(tile + (p * ROWS + r) * PW, acc[(p * R + r) * 2]);
            STORE(tile + (p * ROWS + r) * PW + VW, acc[(p * R + r) * 2 + 1]);
        }
}

/* tile [panels <= 4][ROWS][PW] += a (rows <= ROWS) . w (panels ws apart). Few rows take several
   panels at once, so that enough independent chains hide the latency of the FMA. */
static void NAME(tile_product)(REAL *tile, int rows, int panels, const REAL *a, long rs, long ks,
                               long kc, long chunks, long cs, const REAL *w, long ws)
{
#define RUN(R, P, p)                                                                            \
    NAME(chains)(R, P, tile + (p) * ROWS * PW, a, rs, ks, kc, chunks, cs, w + (p) * ws, ws)
    int p = 0;
    if (rows == 1) {
        for (; p + 4 <= panels; p += 4)
            RUN(1, 4, p);
        for (; p + 2 <= panels; p += 2)
            RUN(1, 2, p);
    } else if (rows == 2) {
        for (; p + 2 <= panels; p += 2)
            RUN(2, 2, p);
    }
    for (; p < panels; p++)
        switch (rows) {
        case 1: RUN(1, 1, p); break;
        case 2: RUN(2, 1, p); break;
        case 3: RUN(3, 1, p); break;
        case 4: RUN(4, 1, p); break;
#if ROWS == 8
        case 5: RUN(5, 1, p); break;
        case 6: RUN(6, 1, p); break;
        case 7: RUN(7, 1, p); break;
        case 8: RUN(8, 1, p); break;
#endif
        }
#undef RUN
}

INLINE void NAME(clear)(REAL *tile, int rows, int panels)
{
    for (int p = 0; p < panels; p++)
        memset(tile + p * ROWS * PW, 0, (size_t)(rows * PW) * sizeof(REAL));
}

static void NAME(pack)(const void *weights_, const void *bias_, void *panels_, long K, long H,
                       long G)
{
    const REAL *weights = weights_, *bias = bias_;
    REAL *panels = panels_;
    for (long u = 0; u * PW < H; u++)
        for (long g = 0; g < G; g++)
            for (long k = 0; k < K; k++, panels += PW)
                for (long j = 0; j < PW; j++) {
                    const long unit = u * PW + j;
                    REAL value = 0;
                    if (unit < H) {
                        value = weights ? weights[k * G * H + g * H + unit] : 0;
                        if (bias)
                            value += bias[g * H + unit];
                    }
                    panels[j] = value;
                }
}

static void NAME(pack_transposed)(const void *weights_, void *panels_, long H, long N, long G)
{
    const REAL *weights = weights_;
    REAL *panels = panels_;
    for (long n = 0; n * PW < H; n++)
        for (long g = 0; g < G; g++)
            for (long u = 0; u * PW < N; u++)
                for (long jj = 0; jj < PW; jj++, panels += PW)
                    for (long j = 0; j < PW; j++) {
                        const long row = n * PW + j, column = u * PW + jj;
                        panels[j] = row < H && column < N
                                        ? weights[row * G * N + g * N + column]
                                        : 0;
                    }
}

static void NAME(to_panels)(const void *matrix_, void *panels_, long rows, long N, long stride,
                            long first, long lo, long hi)
{
    const REAL *matrix = matrix_;
    for (long p = lo; p < hi; p++) {
        const long n = p * PW, part = N - n < PW ? N - n : PW;
        REAL *panels = (REAL *)panels_ + (p * stride + first) * PW;
        for (long r = 0; r < rows; r++) {
            memcpy(panels + r * PW, matrix + r * N + n, (size_t)part * sizeof(REAL));
            memset(panels + r * PW + part, 0, (size_t)(PW - part) * sizeof(REAL));
        }
    }
}

static void NAME(project)(const void *a_, const void *packed_, const void *bias_, void *out_,
                          long rows, long K, long stride, long lo, long hi)
{
    const REAL *a = a_, *packed = packed_, *bias = bias_;
    REAL *out = out_;
    REAL tile[4 * ROWS * PW];
    for (long p = lo; p < hi; p += 4) {
        const int panels = hi - p < 4 ? (int)(hi - p) : 4;
        for (long r = 0; r < rows; r += ROWS) {
            const int count = rows - r < ROWS ? (int)(rows - r) : ROWS;
            for (int q = 0; q < panels; q++)
                for (int i = 0; i < count; i++)
                    memcpy(tile + (q * ROWS + i) * PW, bias + (p + q) * PW, PW * sizeof(REAL));
            NAME(tile_product)(tile, count, panels, a + r * K, K, 1, K, 1, 0, packed + p * K * PW,
                               K * PW);
            for (int q = 0; q < panels; q++)
                memcpy(out + ((p + q) * stride + r) * PW, tile + q * ROWS * PW,
                       (size_t)count * PW * sizeof(REAL));
        }
    }
}

static void NAME(product_back)(const void *d_, const void *packed_, void *out_, long rows,
                               long blocks, long G, long N, long stride, long first,
                               int accumulate, long lo, long hi)
{
    const REAL *d = (const REAL *)d_ + first * PW, *packed = packed_;
    REAL *out = out_;
    REAL tile[4 * ROWS * PW];
    const long K = G * blocks * PW;
    for (long p = lo; p < hi; p += 4) {
        const int panels = hi - p < 4 ? (int)(hi - p) : 4;
        for (long r = 0; r < rows; r += ROWS) {
            const int count = rows - r < ROWS ? (int)(rows - r) : ROWS;
            NAME(clear)(tile, count, panels);
            if (accumulate)
                for (int q = 0; q < panels; q++)
                    for (int i = 0; i < count; i++) {
                        const long n = (p + q) * PW, part = N - n < PW ? N - n : PW;
                        memcpy(tile + (q * ROWS + i) * PW, out + (r + i) * N + n,
                               (size_t)part * sizeof(REAL));
                    }
            for (long g = 0; g < G; g++) /* gate by gate: an order that no width enters */
                NAME(tile_product)(tile, count, panels, d + (g * stride + r) * PW, PW, 1, PW,
                                   blocks, G * stride * PW,
                                   packed + (p * K + g * blocks * PW) * PW, K * PW);
            for (int q = 0; q < panels; q++)
                for (int i = 0; i < count; i++) {
                    const long n = (p + q) * PW, part = N - n < PW ? N - n : PW;
                    memcpy(out + (r + i) * N + n, tile + (q * ROWS + i) * PW,
                           (size_t)part * sizeof(REAL));
                }
        }
    }
}

/* sums[0 ... PW) += v in double */
INLINE void NAME(add_wide)(double *sums, const REAL *v)
{
    for (int j = 0; j < PW; j++)
        sums[j] += (double)v[j];
}

/* The chain runs over one block of rows; the blocks add up in double. */
INLINE void NAME(add_bias)(const REAL *d, double *bias_sums, long rows)
{
    REAL column[PW];
    VEC s0 = SET1(0), s1 = SET1(0);
    for (long s = 0; s < rows; s++) {
        s0 += LOAD(d + s * PW);
        s1 += LOAD(d + s * PW + VW);
    }
    STORE(column, s0);
    STORE(column + VW, s1);
    NAME(add_wide)(bias_sums, column);
}

static void NAME(weight_gradient)(const void *a_, const void *d_, double *sums, double *bias_sums,
                                  long rows, long K, long stride, long lo, long hi)
{
    const REAL *a = a_, *d = d_;
    REAL tile[4 * ROWS * PW];
    for (long p = lo; p < hi; p++) {
        const REAL *dp = d + p * stride * PW;
        if (bias_sums)
            NAME(add_bias)(dp, bias_sums + p * PW, rows);
        for (long k = 0; k < K; k += ROWS) {
            const int count = K - k < ROWS ? (int)(K - k) : ROWS;
            const REAL *ap = a + (k / PW) * stride * PW + k % PW;
            NAME(clear)(tile, count, 1);
            NAME(tile_product)(tile, count, 1, ap, 1, PW, rows, 1, 0, dp, 0);
            for (int i = 0; i < count; i++)
                NAME(add_wide)(sums + (p * K + k + i) * PW, tile + i * PW);
        }
    }
}

static void NAME(token_gradient)(const int64_t *tokens, const void *d_, double *sums,
                                 double *bias_sums, long rows, long V, long stride, long lo,
                                 long hi)
{
    const REAL *d = d_;
    for (long p = lo; p < hi; p++) {
        const REAL *dp = d + p * stride * PW;
        NAME(add_bias)(dp, bias_sums + p * PW, rows);
        for (long s = 0; s < rows; s++)
            NAME(add_wide)(sums + (p * V + tokens[s]) * PW, dp + s * PW);
    }
}

static void NAME(unpack)(const double *panels, void *weights_, long K, long H, long G)
{
    REAL *weights = weights_;
    for (long u = 0; u * PW < H; u++)
        for (long g = 0; g < G; g++)
            for (long k = 0; k < K; k++, panels += PW)
                for (long j = 0; j < PW && u * PW + j < H; j++)
                    weights[k * G * H + g * H + u * PW + j] = (REAL)panels[j];
}
