/* exp, tanh and sigmoid of a vector: one range reduction, one polynomial, no table, no branch.

   exp(x) = 2^n (1 + p(r)),  n = round(x / ln 2),  r = x - n ln 2,  |r| <= ln(2) / 2,
   p(r) = expm1(r) by its Taylor series: degree 7 for float (remainder 1.5e-8 of r), 13 for double
   (1.2e-17 of r). ln 2 is split so that n times its high part is exact, with or without a fused
   multiply-add. Errors measured over all arguments are stated in tests/kernels. A NaN stays a NaN:
   the clamps compare, and every comparison with a NaN is false. */

/* mask ? a : b, lane by lane */
INLINE VEC NAME(choose)(IVEC mask, VEC a, VEC b)
{
    return (VEC)(((IVEC)a & mask) | ((IVEC)b & ~mask));
}

INLINE VEC NAME(clamp)(VEC x, REAL limit)
{
    const VEC high = SET1(limit), low = SET1(-limit);
    x = NAME(choose)((IVEC)(x > high), high, x);
    return NAME(choose)((IVEC)(x < low), low, x);
}

/* Return p(r) and set *scale to 2^n. |x| must stay below 87 (float) or 708 (double). */
INLINE VEC NAME(expm1_reduced)(VEC x, VEC *scale)
{
#if IS_DOUBLE
    const REAL magic = 6755399441055744.0; /* 1.5 * 2^52: adding it rounds to a whole number */
    const REAL ln2_high = 0x1.62e42feep-1, ln2_low = 0x1.a39ef35793c76p-33;
    static const REAL taylor[] = {1.0 / 6227020800.0, 1.0 / 479001600.0, 1.0 / 39916800.0,
                                  1.0 / 3628800.0,    1.0 / 362880.0,    1.0 / 40320.0,
                                  1.0 / 5040.0,       1.0 / 720.0,       1.0 / 120.0,
                                  1.0 / 24.0,         1.0 / 6.0,         0.5};
    const int terms = 12, mantissa = 52, bias = 1023;
#else
    const REAL magic = 12582912.0f; /* 1.5 * 2^23 */
    const REAL ln2_high = 0x1.62e4p-1f, ln2_low = 0x1.7f7d1cp-20f;
    static const REAL taylor[] = {1.0f / 5040.0f, 1.0f / 720.0f, 1.0f / 120.0f,
                                  1.0f / 24.0f,   1.0f / 6.0f,   0.5f};
    const int terms = 6, mantissa = 23, bias = 127;
#endif
    const VEC shifted = FMA(x, SET1((REAL)1.4426950408889634074), SET1(magic));
    const VEC n = shifted - SET1(magic);
    VEC r = FMA(n, SET1(-ln2_high), x);
    r = FMA(n, SET1(-ln2_low), r);
    VEC q = SET1(taylor[0]);
    for (int i = 1; i < terms; i++)
        q = FMA(q, r, SET1(taylor[i]));
    /* The low bits of `shifted` are n: moved into the exponent's place they make 2^n. */
    *scale = (VEC)(((IVEC)shifted + bias) << mantissa);
    return FMA(q * r, r, r);
}

INLINE VEC NAME(exp)(VEC x)
{
    VEC scale;
    x = NAME(clamp)(x, IS_DOUBLE ? (REAL)708.0 : (REAL)87.0);
    const VEC p = NAME(expm1_reduced)(x, &scale);
    return FMA(scale, p, scale);
}

INLINE VEC NAME(sigmoid)(VEC x)
{
    return SET1(1) / (SET1(1) + NAME(exp)(-x));
}

/* tanh x = e / (e + 2) with e = expm1(2x): no cancellation near 0, exact saturation. */
INLINE VEC NAME(tanh)(VEC x)
{
    VEC scale;
    x = NAME(clamp)(x + x, IS_DOUBLE ? (REAL)44.0 : (REAL)24.0);
    const VEC p = NAME(expm1_reduced)(x, &scale);
    const VEC e = FMA(scale, p, scale - SET1(1));
    return e / (e + SET1(2));
}

#define MAP(name)                                              \
    static void NAME(name##_array)(const void *x_, void *y_, long n) \
    {                                                          \
        const REAL *x = x_;                                    \
        REAL *y = y_;                                          \
        for (long i = 0; i < n; i += VW) {                     \
            const long part = n - i < VW ? n - i : VW;         \
            const VEC v = NAME(name)(LOAD_PART(x + i, part));  \
            STORE_PART(y + i, v, part);                        \
        }                                                      \
    }
MAP(tanh)
MAP(sigmoid)
#undef MAP
