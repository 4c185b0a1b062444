/* best[i] = min(best[i], price + left[i] + right[i]): the inner loop of the tables of a chain. */
#ifndef MEMBPTT_RELAX_H
#define MEMBPTT_RELAX_H

#include <stddef.h>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__GLIBC__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
void relax(double *restrict best, const double *left, const double *right, double price,
           ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; i++) {
        double sum = price + left[i] + right[i];
        best[i] = sum < best[i] ? sum : best[i];
    }
}

#endif
