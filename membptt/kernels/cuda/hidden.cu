/* The hidden state after a step, from the step's internal state: no product. */

#include "real.h"
#include "cell.h"
#define THREADS 128

KERNEL __launch_bounds__(THREADS) hidden(const REAL *internal, REAL *state, integer size)
{
    const integer at = (integer)blockIdx.x * THREADS + threadIdx.x;
    if (at < size)
        cell_hidden(internal, state, at, size);
}
