/* Losses on outputs that stand in panels, with the derivative in place of the outputs.

   Sums run over eight lanes in double, element n in lane n % 8, whatever the vector's width: the
   bits of a loss do not depend on the instruction set's width.

   A row r without a loss, where scored[r] is 0, gets zeros whatever its outputs and its target are,
   NaN included; scored may be NULL for all. */

INLINE double NAME(lanes_sum)(const double *lane)
{
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

/* The largest of the V elements of a row in panels. The zeros that pad the last panel stay out. */
INLINE REAL NAME(largest)(const REAL *row, long V, long stride)
{
    REAL lane[PW], last;
    VEC m0 = SET1(row[0]), m1 = m0;
    long n = 0;
    for (; n + PW <= V; n += PW) {
        const VEC x0 = LOAD(row + n * stride), x1 = LOAD(row + n * stride + VW);
        m0 = NAME(choose)((IVEC)(x0 > m0), x0, m0);
        m1 = NAME(choose)((IVEC)(x1 > m1), x1, m1);
    }
    STORE(lane, m0);
    STORE(lane + VW, m1);
    last = lane[0];
    for (int j = 1; j < PW; j++)
        last = lane[j] > last ? lane[j] : last;
    for (long j = 0; n + j < V; j++)
        last = row[n * stride + j] > last ? row[n * stride + j] : last;
    return last;
}

INLINE void NAME(no_loss)(REAL *row, double *loss, long V, long stride)
{
    for (long n = 0; n < V; n += PW) {
        STORE(row + n * stride, SET1(0));
        STORE(row + n * stride + VW, SET1(0));
    }
    *loss = 0;
}

static void NAME(softmax)(void *logits_, const int64_t *targets, const uint8_t *scored,
                          double *losses, long V, long stride, long first, double scale, long lo,
                          long hi)
{
    for (long r = lo; r < hi; r++) {
        REAL *row = (REAL *)logits_ + (first + r) * PW; /* element n: row[n/PW * stride*PW + n%PW] */
        if (scored && !scored[r]) {
            NAME(no_loss)(row, losses + r, V, stride);
            continue;
        }
        const long target = (long)targets[r];
        const REAL at_target = row[target / PW * stride * PW + target % PW];
        const REAL largest = NAME(largest)(row, V, stride);
        double lane[8] = {0};
        for (long n = 0; n < V; n += PW) {
            REAL *x = row + n * stride;
            const long part = V - n < PW ? V - n : PW;
            STORE(x, NAME(exp)(LOAD(x) - SET1(largest)));
            STORE(x + VW, NAME(exp)(LOAD(x + VW) - SET1(largest)));
            for (long j = part; j < PW; j++)
                x[j] = 0;
            for (long j = 0; j < PW; j++) /* PW may be 4: the lane follows n */
                lane[(n + j) % 8] += (double)x[j];
        }
        const double sum = NAME(lanes_sum)(lane);
        const VEC factor = SET1((REAL)(scale / sum));
        for (long n = 0; n < V; n += PW) {
            REAL *x = row + n * stride;
            STORE(x, LOAD(x) * factor);
            STORE(x + VW, LOAD(x + VW) * factor);
        }
        row[target / PW * stride * PW + target % PW] -= (REAL)scale;
        losses[r] = log(sum) + ((double)largest - (double)at_target);
    }
}

static void NAME(squared_error)(void *outputs_, const void *targets_, const uint8_t *scored,
                                double *losses, long N, long stride, long first, double scale,
                                long lo, long hi)
{
    const REAL *targets = targets_;
    for (long r = lo; r < hi; r++) {
        REAL *row = (REAL *)outputs_ + (first + r) * PW;
        if (scored && !scored[r]) {
            NAME(no_loss)(row, losses + r, N, stride);
            continue;
        }
        double lane[8] = {0};
        for (long n = 0; n < N; n += PW) {
            REAL *x = row + n * stride;
            const long part = N - n < PW ? N - n : PW;
            for (long j = 0; j < part; j++) {
                const double error = (double)x[j] - (double)targets[r * N + n + j];
                lane[(n + j) % 8] += error * error;
                x[j] = (REAL)(error * scale);
            }
            for (long j = part; j < PW; j++)
                x[j] = 0;
        }
        losses[r] = NAME(lanes_sum)(lane) / 2;
    }
}
