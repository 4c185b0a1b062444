/* What two lanes share, one that runs forwards and one that runs backwards: counters that one of them
   writes and the other waits for, and the thread of the second lane.  */

#ifndef MEMBPTT_LANES_H
#define MEMBPTT_LANES_H

#include "../kernels/team.h"

/* Padded, not aligned: it stands inside a Python object, which nobody aligns to a cache line. */
typedef struct {
    char before[TEAM_LINE];
    atomic_long value;
    char after[TEAM_LINE];
} lane_counter;

static inline void lane_set(lane_counter *c, long value)
{
    atomic_store_explicit(&c->value, value, memory_order_release);
}

static inline long lane_get(lane_counter *c)
{
    return atomic_load_explicit(&c->value, memory_order_acquire);
}

static inline long lane_add(lane_counter *c, long change)
{
    return atomic_fetch_add_explicit(&c->value, change, memory_order_acq_rel) + change;
}

/* Wait until the counter is at least `value`. */
static inline void lane_wait(lane_counter *c, long value)
{
    for (long spins = 0; lane_get(c) < value;)
        team_idle(&spins);
}

typedef void *(*lane_function)(void *);

/* Start a thread; return NULL if the system has none to give. */
static inline void *lane_start(lane_function function, void *context)
{
    pthread_t *thread = malloc(sizeof *thread);
    if (thread != NULL && pthread_create(thread, NULL, function, context) != 0) {
        free(thread);
        thread = NULL;
    }
    return thread;
}

static inline void lane_join(void *thread)
{
    pthread_join(*(pthread_t *)thread, NULL);
    free(thread);
}

#endif
