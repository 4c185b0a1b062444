/* Backward step, 4 of 4: dh_prev = du . W_h transposed, gate after gate; and the loss so far. */

#include "real.h"
#include "cell.h"
#define A_ALONG_K 1
#define W_ALONG_K 1
#define GATED 0
#include "tile.h"

/* One column of blocks more than the product needs: its first thread adds up the step's loss. N is
   G H, the number of pre-activations. */
KERNEL __launch_bounds__(THREADS)
    back(integer *now, const REAL *du, const REAL *W_h, REAL *dh, const double *losses,
         const double *scale, double *total, integer block_steps, integer B, integer H, integer N)
{
    const integer step = now[NOW_STEP], first = (step - 1) % block_steps * B;
    const integer m0 = (integer)blockIdx.y * BM, n0 = (integer)blockIdx.x * BN;
    REAL acc[TM][TN];
    if (n0 >= H) {
        if (blockIdx.y == 0 && threadIdx.x == 0) {
            double loss = 0;
            for (integer b = 0; b < B; b++)
                loss += losses[b];
            *total += loss * *scale;
            if (!(loss - loss == 0))
                now[BAD_STEP] = step;
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++)
            acc[i][j] = KEEPS_DH && ROW(i) < B && OWN_COLUMN(j) < H
                            ? dh[ROW(i) * H + OWN_COLUMN(j)]
                            : 0;
    tile_product(acc, du + first * N, B, N, W_h, H, N, N, m0, n0);
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++)
            if (ROW(i) < B && OWN_COLUMN(j) < H)
                dh[ROW(i) * H + OWN_COLUMN(j)] = acc[i][j];
}
