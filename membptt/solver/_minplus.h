/* The inner loop of the tables: the least g[i] + h[i] over i = 0...n-1, both arrays contiguous.
 *
 * The compiler turns it into vector code; each clone below is chosen once, when the module is
 * loaded, by what the processor offers. Integers, so that every clone gives the same result. */
#ifndef MEMBPTT_MINPLUS_H
#define MEMBPTT_MINPLUS_H

#include <stdint.h>
#include <stddef.h>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__GLIBC__)
#define MEMBPTT_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define MEMBPTT_CLONES
#endif

MEMBPTT_CLONES
int32_t least_sum32(const int32_t *g, const int32_t *h, ptrdiff_t n)
{
    int32_t best = INT32_MAX;
    for (ptrdiff_t i = 0; i < n; i++) {
        int32_t sum = g[i] + h[i];
        best = sum < best ? sum : best;
    }
    return best;
}

MEMBPTT_CLONES
int64_t least_sum64(const int64_t *g, const int64_t *h, ptrdiff_t n)
{
    int64_t best = INT64_MAX;
    for (ptrdiff_t i = 0; i < n; i++) {
        int64_t sum = g[i] + h[i];
        best = sum < best ? sum : best;
    }
    return best;
}

#endif
