/* out [rows][N] = b + x [rows][K] . W [K][N]: the inputs of a block of steps at once. */

#include "real.h"
#define A_ALONG_K 1
#define W_ALONG_K 0
#define GATED 0
#include "tile.h"

KERNEL __launch_bounds__(THREADS) project(const REAL *x, const REAL *W, const REAL *b, REAL *out,
                                          integer rows, integer K, integer N)
{
    const integer m0 = (integer)blockIdx.y * BM, n0 = (integer)blockIdx.x * BN;
    REAL acc[TM][TN];
    start_from(acc, b, N, n0);
    tile_product(acc, x, rows, K, W, N, N, K, m0, n0);
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++)
            if (ROW(i) < rows && OWN_COLUMN(j) < N)
                out[ROW(i) * N + OWN_COLUMN(j)] = acc[i][j];
}
