/* Instantiates template.h for each element type and instruction set, and chooses at run time. */

#include "kernels.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define HAVE_X86 1
#include <immintrin.h>
#endif

#define JOIN2(a, b) a##_##b
#define JOIN(a, b) JOIN2(a, b)
#define STRING2(x) #x
#define STRING(x) STRING2(x)
#define INLINE static inline __attribute__((always_inline))

#ifdef __clang__
#define TARGET(features) \
    _Pragma(STRING2(clang attribute push(__attribute__((target(features))), apply_to = function)))
#define TARGET_END _Pragma("clang attribute pop")
#else
#define TARGET(features) _Pragma("GCC push_options") _Pragma(STRING2(GCC target(features)))
#define TARGET_END _Pragma("GCC pop_options")
#endif

#ifdef HAVE_X86

TARGET("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")
#define LEVEL 512
#define ISA avx512
#define IS_DOUBLE 0
#include "template.h"
#undef IS_DOUBLE
#define IS_DOUBLE 1
#include "template.h"
#undef IS_DOUBLE
#undef ISA
#undef LEVEL
TARGET_END

TARGET("avx2,fma")
#define LEVEL 256
#define ISA avx2
#define IS_DOUBLE 0
#include "template.h"
#undef IS_DOUBLE
#define IS_DOUBLE 1
#include "template.h"
#undef IS_DOUBLE
#undef ISA
#undef LEVEL
TARGET_END

#endif /* HAVE_X86 */

#define LEVEL 128
#define ISA portable
#define IS_DOUBLE 0
#include "template.h"
#undef IS_DOUBLE
#define IS_DOUBLE 1
#include "template.h"
#undef IS_DOUBLE
#undef ISA
#undef LEVEL

const membptt_kernels *membptt_select(long itemsize, const char *isa)
{
    const int wide = itemsize == 8;
#ifdef HAVE_X86
    __builtin_cpu_init();
    if ((isa == NULL || strcmp(isa, "avx512") == 0) && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        return wide ? &kernels_avx512_double : &kernels_avx512_float;
    if ((isa == NULL || strcmp(isa, "avx2") == 0) && __builtin_cpu_supports("avx2") &&
        __builtin_cpu_supports("fma"))
        return wide ? &kernels_avx2_double : &kernels_avx2_float;
#endif
    if (isa == NULL || strcmp(isa, "portable") == 0)
        return wide ? &kernels_portable_double : &kernels_portable_float;
    return NULL;
}
