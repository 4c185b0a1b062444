/* Backward step, 2 of 4: the loss of each row, and its derivative in place of the outputs.

   One block a row. As in membptt/kernels/heads.h, sums run in double over eight lanes, element n in
   lane n % 8; only the logarithm is the device's own, so that a loss may differ from the compiled
   one in its last bits. Gradients do not. */

#include "real.h"
#define THREADS 128
#define LANES 8

DEVICE double lanes_sum(const double *lane)
{
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

/* The row of step now[NOW_STEP] that this block works on, in a block of `steps` steps. */
DEVICE integer row_of(const integer *now, integer steps, integer B)
{
    return (now[NOW_STEP] - 1) % steps * B + blockIdx.x;
}

/* y becomes (softmax - one-hot) * scale; losses[b] = -log softmax[target]. */
KERNEL __launch_bounds__(THREADS)
    softmax(REAL *y, const int *targets, double *losses, const double *scale, const integer *now,
            integer head_steps, integer block_steps, integer B, integer V)
{
    __shared__ REAL best[THREADS];
    __shared__ double lane[LANES];
    REAL *row = y + row_of(now, head_steps, B) * V;
    const integer target = targets[row_of(now, block_steps, B)], thread = threadIdx.x;
    const REAL at_target = row[target];
    REAL largest = row[0], factor;
    double sum = 0;
    for (integer n = thread; n < V; n += THREADS)
        largest = row[n] > largest ? row[n] : largest;
    best[thread] = largest;
    __syncthreads();
    for (integer half = THREADS / 2; half > 0; half /= 2) {
        if (thread < half && best[thread + half] > best[thread])
            best[thread] = best[thread + half];
        __syncthreads();
    }
    largest = best[0];
    for (integer n = thread; n < V; n += THREADS)
        row[n] = real_exp(row[n] - largest);
    __syncthreads();
    if (thread < LANES) {
        for (integer n = thread; n < V; n += LANES)
            sum += (double)row[n];
        lane[thread] = sum;
    }
    __syncthreads();
    sum = lanes_sum(lane);
    factor = (REAL)(*scale / sum);
    for (integer n = thread; n < V; n += THREADS) {
        const REAL share = row[n] * factor;
        row[n] = n == target ? share - (REAL)*scale : share;
    }
    if (thread == 0)
        losses[blockIdx.x] = log(sum) + ((double)largest - (double)at_target);
}

/* y becomes (y - target) * scale; losses[b] = half the sum of squared errors. */
KERNEL __launch_bounds__(THREADS)
    squared_error(REAL *y, const REAL *targets, double *losses, const double *scale,
                  const integer *now, integer head_steps, integer block_steps, integer B, integer V)
{
    __shared__ double lane[LANES];
    REAL *row = y + row_of(now, head_steps, B) * V;
    const REAL *wanted = targets + row_of(now, block_steps, B) * V;
    const integer thread = threadIdx.x;
    if (thread < LANES) {
        double sum = 0;
        for (integer n = thread; n < V; n += LANES) {
            const double error = (double)row[n] - (double)wanted[n];
            sum += error * error;
        }
        lane[thread] = sum;
    }
    __syncthreads();
    for (integer n = thread; n < V; n += THREADS)
        row[n] = (REAL)(((double)row[n] - (double)wanted[n]) * *scale);
    if (thread == 0)
        losses[blockIdx.x] = lanes_sum(lane) / 2;
}
