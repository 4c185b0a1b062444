/* A team of threads for the short phases of one time step.

   The caller hands out a share of each phase to every member and takes its own; a phase ends when
   all shares are done. Members spin between phases, since a phase takes microseconds; after a while
   they yield, so that a machine with less cores than members still moves. They exist only while
   one run lasts: nothing is left behind for a fork, an idle interpreter or a signal to trip over.  */

#ifndef MEMBPTT_TEAM_H
#define MEMBPTT_TEAM_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

#if defined(__x86_64__)
#define TEAM_PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define TEAM_PAUSE() __asm__ volatile("yield")
#else
#define TEAM_PAUSE() ((void)0)
#endif

enum { TEAM_SPINS = 2000, TEAM_LINE = 64 };

typedef void (*team_phase)(void *context, int member, int members);

typedef struct team_member {
    struct team *team;
    pthread_t thread;
    int number;
    _Alignas(TEAM_LINE) atomic_long done; /* phases that this member has finished */
} team_member;

typedef struct team {
    int members; /* the caller, member 0, included */
    team_member *others;
    team_phase phase; /* NULL: go home */
    void *context;
    _Alignas(TEAM_LINE) atomic_long begun; /* phases that have been handed out */
} team;

static inline void team_wait(const atomic_long *counter, long value)
{
    for (long spins = 0; atomic_load_explicit(counter, memory_order_acquire) != value; spins++) {
        if (spins < TEAM_SPINS)
            TEAM_PAUSE();
        else
            sched_yield();
    }
}

static void *team_work(void *argument)
{
    team_member *self = argument;
    team *t = self->team;
    for (long number = 1;; number++) {
        team_wait(&t->begun, number);
        if (t->phase == NULL)
            return NULL;
        t->phase(t->context, self->number, t->members);
        atomic_store_explicit(&self->done, number, memory_order_release);
    }
}

static inline void team_hand_out(team *t, team_phase phase, void *context)
{
    t->phase = phase;
    t->context = context;
    atomic_fetch_add_explicit(&t->begun, 1, memory_order_release);
}

/* Run phase(context, member, members) once for each member; return when all are done. */
static inline void team_run(team *t, team_phase phase, void *context)
{
    if (t == NULL || t->members == 1) {
        phase(context, 0, 1);
        return;
    }
    team_hand_out(t, phase, context);
    phase(context, 0, t->members);
    const long number = atomic_load_explicit(&t->begun, memory_order_relaxed);
    for (int i = 0; i < t->members - 1; i++)
        team_wait(&t->others[i].done, number);
}

/* Send the members home and free the team. NULL is allowed. */
static inline void team_close(team *t)
{
    if (t == NULL)
        return;
    team_hand_out(t, NULL, NULL);
    for (int i = 0; i < t->members - 1; i++)
        pthread_join(t->others[i].thread, NULL);
    free(t->others);
    free(t);
}

/* Return a team of at most `members` threads, the caller included; fewer if the system gives fewer,
   NULL if that leaves the caller alone. */
static inline team *team_open(int members)
{
    if (members < 2)
        return NULL;
    team *t = aligned_alloc(TEAM_LINE, sizeof *t);
    team_member *others = aligned_alloc(TEAM_LINE, sizeof *others * (size_t)(members - 1));
    if (t == NULL || others == NULL) {
        free(t);
        free(others);
        return NULL;
    }
    t->members = 1;
    t->others = others;
    atomic_init(&t->begun, 0);
    for (int i = 0; i < members - 1; i++) {
        others[i].team = t;
        others[i].number = i + 1;
        atomic_init(&others[i].done, 0);
        if (pthread_create(&others[i].thread, NULL, team_work, &others[i]) != 0)
            break;
        t->members++; /* before the first phase: no member reads it earlier */
    }
    if (t->members > 1)
        return t;
    free(others);
    free(t);
    return NULL;
}

#endif
