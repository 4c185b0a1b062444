/* Sums over the rows of a block that are no product. No atomic operation: an element has one owner,
   which adds in the order of the rows. */

#include "real.h"
#define THREADS 128
#define ROWS 512 /* of a block; one step alone may have more */

/* sums [N] += the column sums of d [rows][N]. */
KERNEL __launch_bounds__(THREADS)
    column_sums(const REAL *d, double *sums, integer rows, integer N)
{
    const integer n = (integer)blockIdx.x * THREADS + threadIdx.x;
    REAL sum = 0;
    if (n >= N)
        return;
    for (integer s = 0; s < rows; s++)
        sum += d[s * N + n];
    sums[n] += (double)sum;
}

/* sums [V][N] += rows of d, at the row that each token names. The block of the first row with a
   token adds the rows of all that have it. */
KERNEL __launch_bounds__(THREADS)
    token_gradient(const int *tokens, const REAL *d, double *sums, integer rows, integer N)
{
    __shared__ int near[ROWS], seen;
    const integer n = (integer)blockIdx.x * THREADS + threadIdx.x, row = blockIdx.y;
    const int token = tokens[row];
    double sum = 0;
    if (threadIdx.x == 0)
        seen = 0;
    __syncthreads();
    for (integer s = threadIdx.x; s < row; s += THREADS)
        if (tokens[s] == token)
            seen = 1; /* whoever writes it writes the same */
    __syncthreads();
    if (seen)
        return;
    if (n < N)
        sum = sums[token * N + n];
    for (integer from = row; from < rows; from += ROWS) {
        const integer count = rows - from < ROWS ? rows - from : ROWS;
        __syncthreads();
        for (integer s = threadIdx.x; s < count; s += THREADS)
            near[s] = tokens[from + s];
        __syncthreads();
        for (integer s = 0; s < count && n < N; s++)
            if (near[s] == token)
                sum += (double)d[(from + s) * N + n];
    }
    if (n < N)
        sums[token * N + n] = sum;
}

/* out [count] = the sums, rounded once. */
KERNEL __launch_bounds__(THREADS) round_sums(const double *sums, REAL *out, integer count)
{
    const integer n = (integer)blockIdx.x * THREADS + threadIdx.x;
    if (n < count)
        out[n] = (REAL)sums[n];
}
