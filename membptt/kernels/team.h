/* A team of threads for the short phases of one time step.

   A phase has as many shares as the team has members. The caller hands the phase out, takes share 0,
   and then every share that nobody has begun: a member that the system has put aside costs nothing
   but its help. Members wait by spinning, since a phase takes microseconds, and yield after a while.
   They exist only while one run lasts: nothing is left behind for a fork, an idle interpreter or a
   signal to trip over.  */

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

enum { TEAM_SPINS = 2000, TEAM_LINE = 64, TEAM_SHARES = 1024 };

typedef void (*team_phase)(void *context, int share, int members);

typedef struct team {
    int members; /* shares of a phase */
    int started; /* threads besides the caller */
    pthread_t *others;
    team_phase phase;
    void *context;
    /* Phase number * SHARES + the next share to begin; negative: go home. */
    _Alignas(TEAM_LINE) atomic_long ticket;
    _Alignas(TEAM_LINE) atomic_long finished; /* shares of this phase that are done */
} team;

/* Begin a share of the phase that `seen` belongs to, if one is left; return whether it was. */
static inline int team_take(team *t, long seen)
{
    const long share = seen % TEAM_SHARES;
    if (share >= t->members)
        return 0;
    if (!atomic_compare_exchange_strong_explicit(&t->ticket, &seen, seen + 1, memory_order_acq_rel,
                                                 memory_order_acquire))
        return 0;
    t->phase(t->context, (int)share, t->members);
    atomic_fetch_add_explicit(&t->finished, 1, memory_order_release);
    return 1;
}

static inline void team_idle(long *spins)
{
    if (++*spins < TEAM_SPINS)
        TEAM_PAUSE();
    else
        sched_yield();
}

static void *team_work(void *argument)
{
    team *t = argument;
    for (long spins = 0;;) {
        const long seen = atomic_load_explicit(&t->ticket, memory_order_acquire);
        if (seen < 0)
            return NULL;
        if (team_take(t, seen))
            spins = 0;
        else
            team_idle(&spins);
    }
}

/* Take a share of the phase under way, if there is one, in a thread that has time. */
static inline int team_help(team *t)
{
    return t != NULL && team_take(t, atomic_load_explicit(&t->ticket, memory_order_acquire));
}

/* Run phase(context, share, members) for each share; return when all are done. */
static inline void team_run(team *t, team_phase phase, void *context)
{
    if (t == NULL) {
        phase(context, 0, 1);
        return;
    }
    const long begun =
        (atomic_load_explicit(&t->ticket, memory_order_relaxed) / TEAM_SHARES + 1) * TEAM_SHARES;
    t->phase = phase;
    t->context = context;
    atomic_store_explicit(&t->finished, 0, memory_order_relaxed);
    atomic_store_explicit(&t->ticket, begun + 1, memory_order_release); /* share 0 is the caller's */
    phase(context, 0, t->members);
    while (team_help(t))
        ;
    for (long spins = 0;
         atomic_load_explicit(&t->finished, memory_order_acquire) != t->members - 1;)
        team_idle(&spins);
}

/* Send the members home and free the team. NULL is allowed. */
static inline void team_close(team *t)
{
    if (t == NULL)
        return;
    atomic_store_explicit(&t->ticket, -1, memory_order_release);
    for (int i = 0; i < t->started; i++)
        pthread_join(t->others[i], NULL);
    free(t->others);
    free(t);
}

/* Return a team whose phases have `members` shares, but no thread besides the caller's yet. NULL for
   the caller alone, or without memory. */
static inline team *team_new(int members)
{
    if (members > TEAM_SHARES - 1)
        members = TEAM_SHARES - 1;
    if (members < 2)
        return NULL;
    team *t = aligned_alloc(TEAM_LINE, sizeof *t);
    pthread_t *others = malloc(sizeof *others * (size_t)(members - 1));
    if (t == NULL || others == NULL) {
        free(t);
        free(others);
        return NULL;
    }
    t->members = members;
    t->started = 0;
    t->others = others;
    atomic_init(&t->ticket, TEAM_SHARES - 1); /* no share to take */
    atomic_init(&t->finished, 0);
    return t;
}

/* Return a team of `members` threads, the caller included; where the system gives fewer, the others
   take their shares too. NULL for the caller alone. */
static inline team *team_open(int members)
{
    team *t = team_new(members);
    while (t != NULL && t->started < members - 1 &&
           pthread_create(&t->others[t->started], NULL, team_work, t) == 0)
        t->started++;
    return t;
}

#endif
