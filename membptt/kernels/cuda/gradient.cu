/* sums [K][N] += a [rows][K] transposed . d [rows][N]: the gradient of a matrix from one block.

   The chain runs over the rows of the block from zero; the blocks add up in double. */

#include "real.h"
#define A_ALONG_K 0
#define W_ALONG_K 0
#define GATED 0
#include "tile.h"

KERNEL __launch_bounds__(THREADS)
    weight_gradient(const REAL *a, const REAL *d, double *sums, integer rows, integer K, integer N)
{
    const integer m0 = (integer)blockIdx.y * BM, n0 = (integer)blockIdx.x * BN;
    REAL acc[TM][TN];
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++)
            acc[i][j] = 0;
    tile_product(acc, a, K, K, d, N, N, rows, m0, n0);
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++)
            if (ROW(i) < K && OWN_COLUMN(j) < N)
                sums[ROW(i) * N + OWN_COLUMN(j)] += (double)acc[i][j];
}
