cdef extern from "spill.h" nogil:
    enum:
        SPILL_MOST
        SPILL_OK
        SPILL_ERRNO
        SPILL_SHORT
        SPILL_DAMAGED
    ctypedef struct spill_buffer:
        char *memory
    ctypedef struct spill_end:
        pass
    ctypedef struct spill:
        int fd
        long nbytes
        double rate
        int buffers
        spill_buffer buffer[8]
        int fault, error
        long fault_step
        long written, read
        double busy, waited
        double *events
        long events_most, events_count
    double spill_now()
    int spill_start(spill *)
    void spill_stop(spill *)
    int spill_acquire(spill *, long step)
    void spill_store(spill *, int number, long record)
    int spill_prefetch(spill *, long step, long record)
    int spill_fetch(spill *, long step)
    int spill_find(spill *, long step)
    int spill_drop(spill *, long step)


cdef class Spill:
    cdef spill s
    cdef bint running
    cdef readonly object arena, events
    cdef long first_offset, interval
    cdef double began

    cdef long acquire_at(self, long step) noexcept nogil
    cdef void store_from(self, long step, long at) noexcept nogil
    cdef int prefetch_step(self, long step) noexcept nogil
    cdef long fetch_at(self, long step) noexcept nogil
    cdef long find_at(self, long step) noexcept nogil
    cdef int drop_step(self, long step) noexcept nogil
