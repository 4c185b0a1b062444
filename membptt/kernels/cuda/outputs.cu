/* Backward step, 1 of 4: the head's outputs y = b_y + h . W_y, in their rows of the head's block. */

#include "real.h"
#define A_ALONG_K 1
#define W_ALONG_K 0
#define GATED 0
#include "tile.h"

/* Launched on its own for each step, with the step and the address of its internal state; leaves
   both in `now`, where the next three kernels find them. Keeps h for the gradient of W_y. */
KERNEL __launch_bounds__(THREADS)
    outputs(const REAL *h, const REAL *W_y, const REAL *b_y, REAL *y, REAL *h_rows, integer *now,
            integer step, integer internal, integer head_steps, integer B, integer H, integer V)
{
    const integer first = (step - 1) % head_steps * B;
    const integer m0 = (integer)blockIdx.y * BM, n0 = (integer)blockIdx.x * BN;
    REAL acc[TM][TN];
    start_from(acc, b_y, V, n0);
    tile_product(acc, h, B, H, W_y, V, V, H, m0, n0);
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++)
            if (ROW(i) < B && OWN_COLUMN(j) < V)
                y[(first + ROW(i)) * V + OWN_COLUMN(j)] = acc[i][j];
    if (blockIdx.x == 0) {
        const integer begin = m0 * H, end = (m0 + BM < B ? m0 + BM : B) * H;
        for (integer at = begin + threadIdx.x; at < end; at += THREADS)
            h_rows[first * H + at] = h[at];
        if (blockIdx.y == 0 && threadIdx.x == 0) {
            now[NOW_STEP] = step;
            now[NOW_INTERNAL] = internal;
        }
    }
}
