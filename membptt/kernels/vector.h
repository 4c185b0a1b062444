/* One vector type with the same few operations, for LEVEL 512, 256 or 128 and either element type.
   Included by template.h, which undefines everything again.

   REAL   the element type           VEC    a vector of VW elements
   FMA    a * b + c, rounded once where the instruction set can
   ROWS   rows of a register tile: ROWS * 2 accumulators, 2 weights and 1 broadcast fit */

#if IS_DOUBLE
#define REAL double
#define INT int64_t
#else
#define REAL float
#define INT int32_t
#endif

#if LEVEL == 512
#define ROWS 8
#if IS_DOUBLE
#define VW 8
#define VEC __m512d
#define LOAD(p) _mm512_loadu_pd(p)
#define STORE(p, v) _mm512_storeu_pd(p, v)
#define LOAD_PART(p, n) _mm512_maskz_loadu_pd((__mmask8)((1u << (n)) - 1), p)
#define STORE_PART(p, v, n) _mm512_mask_storeu_pd(p, (__mmask8)((1u << (n)) - 1), v)
#define SET1(x) _mm512_set1_pd(x)
#define FMA(a, b, c) _mm512_fmadd_pd(a, b, c)
#else
#define VW 16
#define VEC __m512
#define LOAD(p) _mm512_loadu_ps(p)
#define STORE(p, v) _mm512_storeu_ps(p, v)
#define LOAD_PART(p, n) _mm512_maskz_loadu_ps((__mmask16)((1u << (n)) - 1), p)
#define STORE_PART(p, v, n) _mm512_mask_storeu_ps(p, (__mmask16)((1u << (n)) - 1), v)
#define SET1(x) _mm512_set1_ps(x)
#define FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#endif
#elif LEVEL == 256
#define ROWS 4
#if IS_DOUBLE
#define VW 4
#define VEC __m256d
#define LOAD(p) _mm256_loadu_pd(p)
#define STORE(p, v) _mm256_storeu_pd(p, v)
#define SET1(x) _mm256_set1_pd(x)
#define FMA(a, b, c) _mm256_fmadd_pd(a, b, c)
#else
#define VW 8
#define VEC __m256
#define LOAD(p) _mm256_loadu_ps(p)
#define STORE(p, v) _mm256_storeu_ps(p, v)
#define SET1(x) _mm256_set1_ps(x)
#define FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#endif
#else
#define ROWS 4
#if IS_DOUBLE
#define VW 2
#else
#define VW 4
#endif
#define VEC NAME(vector)
typedef REAL VEC __attribute__((vector_size(16)));
INLINE VEC NAME(load)(const REAL *p)
{
    VEC v;
    memcpy(&v, p, sizeof v);
    return v;
}
INLINE void NAME(store)(REAL *p, VEC v) { memcpy(p, &v, sizeof v); }
INLINE VEC NAME(set1)(REAL x) { return x - (VEC){0}; }
INLINE VEC NAME(fma)(VEC a, VEC b, VEC c)
{
#if defined(__FP_FAST_FMA) && defined(__FP_FAST_FMAF)
    for (int i = 0; i < VW; i++)
        c[i] = IS_DOUBLE ? (REAL)__builtin_fma(a[i], b[i], c[i])
                         : (REAL)__builtin_fmaf(a[i], b[i], c[i]);
    return c;
#else
    return a * b + c;
#endif
}
#define LOAD(p) NAME(load)(p)
#define STORE(p, v) NAME(store)(p, v)
#define SET1(x) NAME(set1)(x)
#define FMA(a, b, c) NAME(fma)(a, b, c)
#endif

#define PW (2 * VW) /* the panel's width */

#ifndef LOAD_PART
INLINE VEC NAME(load_part)(const REAL *p, long n)
{
    REAL whole[VW] = {0};
    if (n == VW)
        return LOAD(p);
    memcpy(whole, p, (size_t)n * sizeof(REAL));
    return LOAD(whole);
}
INLINE void NAME(store_part)(REAL *p, VEC v, long n)
{
    REAL whole[VW];
    if (n == VW) {
        STORE(p, v);
        return;
    }
    STORE(whole, v);
    memcpy(p, whole, (size_t)n * sizeof(REAL));
}
#define LOAD_PART(p, n) NAME(load_part)(p, n)
#define STORE_PART(p, v, n) NAME(store_part)(p, v, n)
#endif

/* Integer lanes of the same width, for the exponent's bits and for comparisons. */
#define IVEC NAME(ivector)
typedef INT IVEC __attribute__((vector_size(VW * sizeof(REAL))));
