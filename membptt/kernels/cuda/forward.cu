/* One forward step: h_prev . W_h and, while the sums are in registers, the gates.

   The thread that holds the sums of a unit's gates finishes the unit: nothing is written but the
   next state and, where asked for, the internal state. */

#include "real.h"
#include "cell.h"
#define TN GATES
#define A_ALONG_K 1
#define W_ALONG_K 0
#define GATED 1
#include "tile.h"

/* Element `column` of x W_x + b for one row of a block of steps. */
DEVICE REAL projected(const REAL *start, const int *tokens, const REAL *bias, integer row,
                      integer columns, integer column)
{
    const REAL value = start[(tokens ? tokens[row] : row) * columns + column];
    return tokens ? value + bias[column] : value;
}

/* `done` is the number of steps behind `state`, `next_done` is set to one more. A launch on its own
   gives the step's number as `step`; one in a graph gives 0 and reads `done`.

   An expansion runs several steps in one launch, which all have their states at hand: block z takes
   the step z further on, `state_stride` and `internal_stride` elements on in the arrays.

   Each chain starts from a row of `start` [., G H]: with `tokens` [block_steps][B] the row of W_x
   that the token names, to which the bias is added; without, the projected input x W_x + b. A chain that does not start there starts from b_h. */
KERNEL __launch_bounds__(THREADS)
    forward(const REAL *state, const integer *done, REAL *next, integer *next_done, REAL *internal,
            const REAL *W_h, const REAL *start, const int *tokens, const REAL *bias,
            const REAL *bias_h, integer step, integer block_steps, integer B, integer H,
            integer state_stride, integer internal_stride)
{
    const integer number = (step ? step : *done + 1) + blockIdx.z;
    const integer first = (number - 1) % block_steps * B;
    const integer m0 = (integer)blockIdx.y * BM, n0 = (integer)blockIdx.x * TX;
    const integer there = OWN_UNIT < H;
    REAL acc[TM][TN];
    state += blockIdx.z * state_stride;
    next += blockIdx.z * state_stride;
    if (internal)
        internal += blockIdx.z * internal_stride;
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
        for (int g = 0; g < GATES; g++) {
            acc[i][g] = 0;
            if (there && ROW(i) < B)
                acc[i][g] = g < FROM_INPUT
                                ? projected(start, tokens, bias, first + ROW(i), GATES * H,
                                            g * H + OWN_UNIT)
                                : bias_h[OWN_UNIT];
        }
    tile_product(acc, state, B, H, W_h, H, GATES * H, H, m0, n0);
#pragma unroll
    for (int i = 0; i < TM; i++)
        if (there && ROW(i) < B) {
            const REAL late = FROM_INPUT == GATES
                                  ? 0
                                  : projected(start, tokens, bias, first + ROW(i), GATES * H,
                                              FROM_INPUT * H + OWN_UNIT);
            cell_forward(acc[i], late, state, next, internal, ROW(i) * H + OWN_UNIT, B * H);
        }
    if (blockIdx.x == 0 && blockIdx.y == 0 && blockIdx.z == 0 && threadIdx.x == 0)
        *next_done = number;
}
