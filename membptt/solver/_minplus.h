/* The inner loop of the tables: the least p[i] + q[i] over i = 0...n-1, as n grows by one.
 *
 * At each call p has one new last element and q one new first element: q[i] is element n-1-i of a
 * second sequence. For every slope s and every i,
 *
 *     p[i] + q[i]  >=  min over i of (p[i] - s i)  +  min over j of (q[n-1-j] - s j)  +  s (n-1),
 *
 * whatever the shape of the two sequences. The two minima are kept up to date for a window of
 * neighbouring slopes, multiples of 1/64. The numbers are whole: where the split of the call
 * before, or its neighbour, comes within less than 1 of the best bound, it is the minimum and
 * nothing is scanned. Convex sequences always come that close, nearly convex ones mostly.
 * Everything else is scanned in full, and the window follows the slope.
 *
 * Each clone below is chosen once, when the module is loaded, by what the processor offers. All is
 * integer arithmetic, so that every clone gives the same result. */
#ifndef MEMBPTT_MINPLUS_H
#define MEMBPTT_MINPLUS_H

#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__GLIBC__)
#define MEMBPTT_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define MEMBPTT_CLONES
#endif

enum { WINDOW = 16, PER_UNIT = 64 };
enum { PATIENCE = 8 }; /* scans before the window moves, which costs about as much as these */

typedef struct {
    int64_t first[WINDOW];  /* PER_UNIT min over i of (p[i] - s i), s = (base + k) / PER_UNIT */
    int64_t second[WINDOW]; /* PER_UNIT min over j of (q[n-1-j] - s j) */
    int64_t base;
    ptrdiff_t split; /* a best i of the last call */
    int scans;       /* since the window last moved */
} Search;

static inline void search_clear(Search *search, int64_t base)
{
    for (int k = 0; k < WINDOW; k++)
        search->first[k] = search->second[k] = INT64_MAX / 4;
    search->base = base;
    search->scans = 0;
}

static inline void search_start(Search *search)
{
    search_clear(search, PER_UNIT);
    search->split = 0;
}

static inline void search_feed(Search *search, int64_t p, int64_t q, int64_t index)
{
    int64_t below = search->base * index;
    for (int k = 0; k < WINDOW; k++, below += index) {
        int64_t one = PER_UNIT * p - below, other = PER_UNIT * q - below;
        search->first[k] = one < search->first[k] ? one : search->first[k];
        search->second[k] = other < search->second[k] ? other : search->second[k];
    }
}

static inline int64_t search_bound(const Search *search, int k, int64_t last)
{
    return search->first[k] + search->second[k] + (search->base + k) * last;
}

/* Return whether no sum can be `best - 1` or less. */
static inline int search_proves(const Search *search, int64_t best, int64_t last)
{
    int64_t bound = 0, above = search->base * last;
    for (int k = 0; k < WINDOW; k++, above += last) {
        int64_t other = search->first[k] + search->second[k] + above;
        bound = other > bound ? other : bound;
    }
    return PER_UNIT * best - bound < PER_UNIT;
}

#define MEMBPTT_MINPLUS(COST, BITS)                                                          \
                                                                                             \
static inline COST least_sum##BITS(const COST *p, const COST *q, ptrdiff_t n)                \
{                                                                                            \
    COST best = INT##BITS##_MAX;                                                             \
    for (ptrdiff_t i = 0; i < n; i++) {                                                      \
        COST sum = p[i] + q[i];                                                              \
        best = sum < best ? sum : best;                                                      \
    }                                                                                        \
    return best;                                                                             \
}                                                                                            \
                                                                                             \
/* The bound is a concave function of the slope: go where it grows. */                       \
static inline void search_follow##BITS(                                                      \
    Search *search, const COST *p, const COST *q, ptrdiff_t n)                               \
{                                                                                            \
    int64_t move = 0;                                                                        \
    if (search_bound(search, WINDOW - 1, n - 1) > search_bound(search, WINDOW - 2, n - 1))   \
        move = WINDOW - 4;                                                                   \
    else if (search_bound(search, 0, n - 1) > search_bound(search, 1, n - 1))                \
        move = 4 - WINDOW;                                                                   \
    if (move == 0)                                                                           \
        return;                                                                              \
    search_clear(search, search->base + move);                                               \
    for (ptrdiff_t i = 0; i < n; i++)                                                        \
        search_feed(search, p[i], q[n - 1 - i], i);                                          \
}                                                                                            \
                                                                                             \
/* Return the least p[i] + q[i]; both arrays have grown by one element since the last call. */ \
MEMBPTT_CLONES                                                                               \
COST search_next##BITS(Search *search, const COST *p, const COST *q, ptrdiff_t n)            \
{                                                                                            \
    if (n == 0)                                                                              \
        return INT##BITS##_MAX;                                                              \
    ptrdiff_t i = search->split;                                                             \
    search_feed(search, p[n - 1], q[0], n - 1);                                              \
    COST best = p[i] + q[i];                                                                 \
    if (i + 1 < n && p[i + 1] + q[i + 1] < best) {                                           \
        best = p[i + 1] + q[i + 1];                                                          \
        search->split = i + 1;                                                               \
    }                                                                                        \
    if (search_proves(search, best, n - 1))                                                  \
        return best;                                                                         \
    COST least = least_sum##BITS(p, q, n);                                                   \
    if (least < best) {                                                                      \
        for (i = 0; p[i] + q[i] != least; i++)                                               \
            ;                                                                                \
        search->split = i;                                                                   \
    }                                                                                        \
    if (++search->scans >= PATIENCE)                                                         \
        search_follow##BITS(search, p, q, n);                                                \
    return least;                                                                            \
}

MEMBPTT_MINPLUS(int32_t, 32)
MEMBPTT_MINPLUS(int64_t, 64)

/* The least p[i] + q[i] on its own, for costs whose slopes no window follows. */
MEMBPTT_CLONES
int64_t least_sum(const int64_t *p, const int64_t *q, ptrdiff_t n)
{
    return least_sum64(p, q, n);
}

#endif
