/* What all kernels share: the element type and its functions, in the common subset of CUDA and C.

   Defined from outside: DOUBLE, 1 or 0. The functions are those of membptt/kernels/elementwise.h,
   one element at a time and operation for operation, so that they give the same bits. Nothing is
   fused but where FMA stands, which the compiler's options take care of (sources.py). */

typedef long long integer;

#ifdef __CUDACC__
#define KERNEL extern "C" __global__ void
#else
#define KERNEL __global__ void
#endif
#define DEVICE static __device__ __forceinline__

/* Words on the device about the backward step that runs: an array of integers. */
#define NOW_STEP 0
#define NOW_INTERNAL 1 /* address of its internal state */
#define BAD_STEP 2     /* the lowest step so far whose loss is not finite, or 0 */

#if DOUBLE
#define REAL double
#define FMA(a, b, c) fma(a, b, c)
typedef unsigned long long bits_of_real;
#else
#define REAL float
#define FMA(a, b, c) fmaf(a, b, c)
typedef unsigned int bits_of_real;
#endif

typedef union {
    REAL value;
    bits_of_real bits;
} real_or_bits;

DEVICE REAL clamp(REAL x, REAL limit)
{
    x = x > limit ? limit : x; /* a NaN stays */
    return x < -limit ? -limit : x;
}

/* Return expm1(r) of the reduced argument and set *scale to 2^n. */
DEVICE REAL expm1_reduced(REAL x, REAL *scale)
{
#if DOUBLE
    const REAL magic = 6755399441055744.0; /* 1.5 * 2^52: adding it rounds to a whole number */
    const REAL ln2_high = 0x1.62e42feep-1, ln2_low = 0x1.a39ef35793c76p-33;
    const REAL taylor[12] = {1.0 / 6227020800.0, 1.0 / 479001600.0, 1.0 / 39916800.0,
                             1.0 / 3628800.0,    1.0 / 362880.0,    1.0 / 40320.0,
                             1.0 / 5040.0,       1.0 / 720.0,       1.0 / 120.0,
                             1.0 / 24.0,         1.0 / 6.0,         0.5};
    const int terms = 12, mantissa = 52, bias = 1023;
#else
    const REAL magic = 12582912.0f; /* 1.5 * 2^23 */
    const REAL ln2_high = 0x1.62e4p-1f, ln2_low = 0x1.7f7d1cp-20f;
    const REAL taylor[6] = {1.0f / 5040.0f, 1.0f / 720.0f, 1.0f / 120.0f,
                            1.0f / 24.0f,   1.0f / 6.0f,   0.5f};
    const int terms = 6, mantissa = 23, bias = 127;
#endif
    const REAL shifted = FMA(x, (REAL)1.4426950408889634074, magic);
    const REAL n = shifted - magic;
    REAL r = FMA(n, -ln2_high, x), q = taylor[0];
    real_or_bits power;
    r = FMA(n, -ln2_low, r);
#pragma unroll
    for (int i = 1; i < terms; i++)
        q = FMA(q, r, taylor[i]);
    /* The low bits of `shifted` are n: moved into the exponent's place they make 2^n. */
    power.value = shifted;
    power.bits = (power.bits + (bits_of_real)bias) << mantissa;
    *scale = power.value;
    return FMA(q * r, r, r);
}

DEVICE REAL real_exp(REAL x)
{
    REAL scale, p;
    x = clamp(x, DOUBLE ? (REAL)708.0 : (REAL)87.0);
    p = expm1_reduced(x, &scale);
    return FMA(scale, p, scale);
}

DEVICE REAL real_sigmoid(REAL x) { return (REAL)1 / ((REAL)1 + real_exp(-x)); }

DEVICE REAL real_tanh(REAL x)
{
    REAL scale, p, e;
    x = clamp(x + x, DOUBLE ? (REAL)44.0 : (REAL)24.0);
    p = expm1_reduced(x, &scale);
    e = FMA(scale, p, scale - (REAL)1);
    return e / (e + (REAL)2);
}
