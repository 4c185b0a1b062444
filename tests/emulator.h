/* Runs CUDA kernels on the CPU: included before the text of a .cu file, which a C compiler then takes.

   Each thread of a block is a coroutine with a stack of its own that gives way at a barrier; between
   two barriers the threads run one after the other, forwards or backwards, and so do the blocks. A
   kernel that lets threads race gives other bits backwards. Shared memory is filled with NaN before
   each block. Coroutines are entered by ucontext and switched by longjmp, which costs no system
   call. */

#include <math.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define __global__
#define __device__
#define __shared__ static __attribute__((section("shared_memory")))
#define __launch_bounds__(threads)
#define __align__(n) __attribute__((aligned(n)))
#define __forceinline__ inline __attribute__((always_inline))

typedef struct {
    unsigned x, y, z;
} dim3;
static dim3 threadIdx, blockIdx;

extern char __start_shared_memory[] __attribute__((weak));
extern char __stop_shared_memory[] __attribute__((weak));

enum { STACK = 1 << 16, MOST_THREADS = 1024 };
enum { NEW, READY, WAITING, FINISHED }; /* READY: at the end of its last kernel */

static struct {
    ucontext_t context;
    jmp_buf place;
    int state;
} coroutine[MOST_THREADS];
static jmp_buf scheduler;
static void (*running)(const int64_t *);
static const int64_t *running_arguments;

__attribute__((unused)) static void __syncthreads(void)
{
    const unsigned thread = threadIdx.x;
    coroutine[thread].state = WAITING;
    if (!_setjmp(coroutine[thread].place))
        _longjmp(scheduler, 1);
}

static void body(void)
{
    for (;;) {
        running(running_arguments);
        coroutine[threadIdx.x].state = FINISHED;
        if (!_setjmp(coroutine[threadIdx.x].place))
            _longjmp(scheduler, 1);
    }
}

static void resume(int thread)
{
    threadIdx.x = (unsigned)thread;
    if (_setjmp(scheduler))
        return;
    if (coroutine[thread].state != NEW)
        _longjmp(coroutine[thread].place, 1);
    setcontext(&coroutine[thread].context);
}

/* Run one block; return 0, or 1 if some threads wait at a barrier that others never come to. */
static int run_block(int threads, int backwards)
{
    static int i, finished; /* static: they live through longjmp */
    if (__start_shared_memory)
        memset(__start_shared_memory, 0xff, (size_t)(__stop_shared_memory - __start_shared_memory));
    for (i = 0; i < threads; i++) {
        if (!coroutine[i].context.uc_stack.ss_sp) {
            getcontext(&coroutine[i].context);
            coroutine[i].context.uc_stack.ss_sp = malloc(STACK);
            coroutine[i].context.uc_stack.ss_size = STACK;
            makecontext(&coroutine[i].context, body, 0);
            coroutine[i].state = NEW;
        } else if (coroutine[i].state != NEW) {
            coroutine[i].state = READY;
        }
    }
    do {
        for (i = 0; i < threads; i++)
            resume(backwards ? threads - 1 - i : i);
        for (i = finished = 0; i < threads; i++)
            finished += coroutine[i].state == FINISHED;
        if (finished != 0 && finished != threads)
            return 1;
    } while (finished == 0);
    return 0;
}

/* `kernel` takes its arguments from an array of 64-bit words. */
int emulate(void (*kernel)(const int64_t *), const int64_t *arguments, int64_t x, int64_t y,
            int64_t z, int64_t threads, int64_t backwards)
{
    running = kernel;
    running_arguments = arguments;
    for (int64_t at = 0; at < x * y * z; at++) {
        const int64_t block = backwards ? x * y * z - 1 - at : at;
        blockIdx.x = (unsigned)(block % x);
        blockIdx.y = (unsigned)(block / x % y);
        blockIdx.z = (unsigned)(block / x / y);
        if (run_block((int)threads, (int)backwards))
            return 1;
    }
    return 0;
}
