/* Backward step, 3 of 4: dh += dy . W_y transposed, and the cell's deltas from it. */

#include "real.h"
#include "cell.h"
#define A_ALONG_K 1
#define W_ALONG_K 1
#define GATED 0
#include "tile.h"

/* The deltas da and du [block_steps B][G H] and the h_prev that du multiplies go to the step's rows of the
   block; h_prev is also what the head of the step before reads. */
KERNEL __launch_bounds__(THREADS)
    deltas(const integer *now, REAL *dstate, const REAL *dy, const REAL *W_y, REAL *da,
           REAL *du, REAL *h_rows, REAL *head_state, integer head_steps, integer block_steps,
           integer B, integer H, integer V)
{
    const integer step = now[NOW_STEP];
    const REAL *internal = (const REAL *)now[NOW_INTERNAL];
    const integer first = (step - 1) % block_steps * B;
    const integer m0 = (integer)blockIdx.y * BM, n0 = (integer)blockIdx.x * BN;
    REAL acc[TM][TN];
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++)
            acc[i][j] = ROW(i) < B && OWN_COLUMN(j) < H ? dstate[ROW(i) * H + OWN_COLUMN(j)] : 0;
    tile_product(acc, dy + (step - 1) % head_steps * B * V, B, V, W_y, H, V, V, m0, n0);
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++)
            if (ROW(i) < B && OWN_COLUMN(j) < H) {
                const integer at = ROW(i) * H + OWN_COLUMN(j);
                const integer to = (first + ROW(i)) * GATES * H + OWN_COLUMN(j);
                cell_backward(internal, acc[i][j], dstate, da + to, du + to, at, B * H, H);
                h_rows[first * H + at] = head_state[at] = internal[at];
            }
}
