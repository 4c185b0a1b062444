/* A tier of slow storage behind a few buffers: states are written and read by one thread in the
   background, while the caller goes on.

   A state goes out in two moves: `acquire` waits for a free buffer, `store` has it written. It comes
   back in two: `prefetch` has it read into a free buffer, `fetch` waits until it is there; `drop`
   gives the buffer back. Records stand in the file at fixed places, each with its step and a
   checksum: what comes back is what went out, or an error. The caller never holds more than the
   buffers; when storage is slower than the caller, the caller waits.  */

#ifndef MEMBPTT_SPILL_H
#define MEMBPTT_SPILL_H

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "../kernels/checksum.h"

enum { SPILL_FREE, SPILL_HELD, SPILL_WRITE, SPILL_READ, SPILL_READY };
enum { SPILL_OK, SPILL_ERRNO, SPILL_SHORT, SPILL_DAMAGED };
enum { SPILL_MOST = 8, SPILL_EVENTS = 4 };

typedef struct {
    char *memory;
    long step;
    long record; /* its place in the file */
    int state;
} spill_buffer;

typedef struct {
    int fd;
    long nbytes;    /* of a state */
    double rate;    /* bytes a second at most, to try slow storage; 0: no limit */
    int buffers;
    spill_buffer buffer[SPILL_MOST];
    int queue[SPILL_MOST], queued; /* buffers waiting for the thread, first come first served */
    int closing, fault, error;     /* fault: the first that happened, of the enum above */
    long fault_step;
    long written, read;            /* bytes, records' ends included */
    double busy, waited;           /* seconds of the thread's transfers; of the caller's waiting */
    double *events;                /* [most][SPILL_EVENTS]: 0 write or 1 read, step, begin, end */
    long events_most, events_count;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    pthread_t thread;
} spill;

typedef struct {
    int64_t step;
    uint64_t sum;
} spill_end;

static inline double spill_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Move all bytes or say why not: SPILL_OK, SPILL_ERRNO (errno is set), SPILL_SHORT. */
static inline int spill_move(int fd, char *data, size_t count, off_t at, int writing)
{
    while (count > 0) {
        const ssize_t moved = writing ? pwrite(fd, data, count, at) : pread(fd, data, count, at);
        if (moved < 0 && errno == EINTR)
            continue;
        if (moved < 0)
            return SPILL_ERRNO;
        if (moved == 0)
            return SPILL_SHORT;
        data += moved;
        at += moved;
        count -= (size_t)moved;
    }
    return SPILL_OK;
}

static inline int spill_transfer(spill *s, spill_buffer *b, int writing)
{
    const off_t at = (off_t)b->record * (off_t)(s->nbytes + (long)sizeof(spill_end));
    spill_end end = {b->step, 0};
    if (writing)
        end.sum = state_checksum(b->memory, s->nbytes, b->step);
    int fault = spill_move(s->fd, b->memory, (size_t)s->nbytes, at, writing);
    if (fault == SPILL_OK)
        fault = spill_move(s->fd, (char *)&end, sizeof end, at + s->nbytes, writing);
    if (fault == SPILL_OK && !writing &&
        (end.step != b->step || end.sum != state_checksum(b->memory, s->nbytes, b->step)))
        fault = SPILL_DAMAGED;
    return fault;
}

static inline void spill_pace(const spill *s, double begun)
{
    const double left = s->rate > 0 ? (double)s->nbytes / s->rate - (spill_now() - begun) : 0;
    if (left > 0) {
        const struct timespec t = {(time_t)left, (long)(1e9 * (left - (double)(time_t)left))};
        nanosleep(&t, NULL);
    }
}

static inline void *spill_work(void *argument)
{
    spill *s = argument;
    if (s->rate > 0)
        prctl(PR_SET_TIMERSLACK, 1000UL); /* sleep as long as asked, to a microsecond */
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (s->queued == 0 && !s->closing)
            pthread_cond_wait(&s->work, &s->lock);
        if (s->queued == 0)
            break;
        spill_buffer *b = &s->buffer[s->queue[0]];
        memmove(s->queue, s->queue + 1, sizeof s->queue[0] * (size_t)--s->queued);
        const int writing = b->state == SPILL_WRITE;
        pthread_mutex_unlock(&s->lock);

        const double begun = spill_now();
        const int fault = spill_transfer(s, b, writing);
        const int error = errno;
        spill_pace(s, begun);
        const double ended = spill_now();

        pthread_mutex_lock(&s->lock);
        s->busy += ended - begun;
        *(writing ? &s->written : &s->read) += s->nbytes + (long)sizeof(spill_end);
        if (s->events_count < s->events_most) {
            double *event = s->events + SPILL_EVENTS * s->events_count++;
            event[0] = !writing, event[1] = (double)b->step, event[2] = begun, event[3] = ended;
        }
        if (fault != SPILL_OK && s->fault == SPILL_OK) {
            s->fault = fault;
            s->error = error;
            s->fault_step = b->step;
        }
        b->state = writing ? SPILL_FREE : SPILL_READY;
        pthread_cond_broadcast(&s->done);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* Start the thread; 0, or an error number. The struct is zeroed but for fd, nbytes, rate, buffers,
   events and the buffers' memory. */
static inline int spill_start(spill *s)
{
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->work, NULL);
    pthread_cond_init(&s->done, NULL);
    return pthread_create(&s->thread, NULL, spill_work, s);
}

/* Finish what is queued and end the thread. */
static inline void spill_stop(spill *s)
{
    pthread_mutex_lock(&s->lock);
    s->closing = 1;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->work);
    pthread_cond_destroy(&s->done);
}

/* Wait for a buffer in `state` (and of `step`, unless it is negative); its number, or -1 after a
   fault. */
static inline int spill_await(spill *s, int state, long step)
{
    const double begun = spill_now();
    int found = -1;
    while (s->fault == SPILL_OK) {
        for (int i = 0; i < s->buffers && found < 0; i++)
            if (s->buffer[i].state == state && (step < 0 || s->buffer[i].step == step))
                found = i;
        if (found >= 0)
            break;
        pthread_cond_wait(&s->done, &s->lock);
    }
    s->waited += spill_now() - begun;
    return found;
}

static inline void spill_queue(spill *s, int number, int state, long record)
{
    s->buffer[number].state = state;
    s->buffer[number].record = record;
    s->queue[s->queued++] = number;
}

/* Wait for a free buffer for the state of `step`; its number, or -1 after a fault. */
static inline int spill_acquire(spill *s, long step)
{
    pthread_mutex_lock(&s->lock);
    const int number = spill_await(s, SPILL_FREE, -1);
    if (number >= 0) {
        s->buffer[number].state = SPILL_HELD;
        s->buffer[number].step = step;
    }
    pthread_mutex_unlock(&s->lock);
    return number;
}

/* Have the buffer written at place `record`; it is free again when that is done. */
static inline void spill_store(spill *s, int number, long record)
{
    pthread_mutex_lock(&s->lock);
    spill_queue(s, number, SPILL_WRITE, record);
    pthread_mutex_unlock(&s->lock);
    pthread_cond_signal(&s->work); /* outside: the thread would wake only to wait for the lock */
}

/* Have the state of `step` read from place `record` into a free buffer; -1 after a fault. */
static inline int spill_prefetch(spill *s, long step, long record)
{
    pthread_mutex_lock(&s->lock);
    const int number = spill_await(s, SPILL_FREE, -1);
    if (number >= 0) {
        s->buffer[number].step = step;
        spill_queue(s, number, SPILL_READ, record);
    }
    pthread_mutex_unlock(&s->lock);
    pthread_cond_signal(&s->work);
    return number;
}

/* Wait until the state of `step` is there; its buffer's number, or -1 after a fault. */
static inline int spill_fetch(spill *s, long step)
{
    pthread_mutex_lock(&s->lock);
    const int number = spill_await(s, SPILL_READY, step);
    pthread_mutex_unlock(&s->lock);
    return number;
}

/* The buffer that holds the state of `step`, ready; -1 if there is none. */
static inline int spill_find(spill *s, long step)
{
    int found = -1;
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < s->buffers; i++)
        if (s->buffer[i].state == SPILL_READY && s->buffer[i].step == step)
            found = i;
    pthread_mutex_unlock(&s->lock);
    return found;
}

/* Give the buffer of `step` back; 0, or -1 if there is none. */
static inline int spill_drop(spill *s, long step)
{
    const int number = spill_find(s, step);
    if (number >= 0) {
        pthread_mutex_lock(&s->lock);
        s->buffer[number].state = SPILL_FREE;
        pthread_cond_broadcast(&s->done);
        pthread_mutex_unlock(&s->lock);
    }
    return number < 0 ? -1 : 0;
}

#endif
