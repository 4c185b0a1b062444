from libc.stdint cimport int64_t, uint8_t

cdef extern from "kernels.h" nogil:
    ctypedef struct membptt_kernels:
        const char *isa
        long itemsize
        long width
        long rows
        void (*pack)(const void *, const void *, void *, long, long, long) noexcept nogil
        void (*pack_transposed)(const void *, void *, long, long, long) noexcept nogil
        void (*to_panels)(const void *, void *, long, long, long, long, long, long) noexcept nogil
        void (*project)(const void *, const void *, const void *, void *,
                        long, long, long, long, long) noexcept nogil
        void (*product_back)(const void *, const void *, void *,
                             long, long, long, long, long, long, int, long, long) noexcept nogil
        void (*weight_gradient)(const void *, const void *, double *, double *,
                                long, long, long, long, long) noexcept nogil
        void (*token_gradient)(const int64_t *, const void *, double *, double *,
                               long, long, long, long, long) noexcept nogil
        void (*unpack)(const double *, void *, long, long, long) noexcept nogil
        void (*rnn_forward)(const void *, const void *, const void *, long, const int64_t *,
                            void *, void *, long, long, long, long) noexcept nogil
        void (*rnn_hidden)(const void *, void *, long, long) noexcept nogil
        void (*rnn_backward)(const void *, const void *, void *, void *,
                             long, long, long, long, long, long) noexcept nogil
        void (*lstm_forward)(const void *, const void *, const void *, const void *, long,
                             const int64_t *, void *, void *, void *,
                             long, long, long, long) noexcept nogil
        void (*lstm_hidden)(const void *, void *, void *, long, long) noexcept nogil
        void (*lstm_backward)(const void *, const void *, void *, void *, void *,
                              long, long, long, long, long, long) noexcept nogil
        void (*gru_forward)(const void *, const void *, const void *, const void *, long,
                            const int64_t *, void *, void *, long, long, long, long) noexcept nogil
        void (*gru_hidden)(const void *, void *, long, long) noexcept nogil
        void (*gru_backward)(const void *, void *, void *, void *, void *,
                             long, long, long, long, long, long) noexcept nogil
        void (*softmax)(void *, const int64_t *, const uint8_t *, double *, long, long, long,
                        double, long, long) noexcept nogil
        void (*squared_error)(void *, const void *, const uint8_t *, double *, long, long, long,
                              double, long, long) noexcept nogil
        void (*tanh_array)(const void *, void *, long) noexcept nogil
        void (*sigmoid_array)(const void *, void *, long) noexcept nogil

    const membptt_kernels *membptt_select(long itemsize, const char *isa)


cdef extern from "team.h" nogil:
    ctypedef struct team:
        int members
    ctypedef void (*team_phase)(void *, int, int) noexcept nogil
    void team_run(team *, team_phase, void *) noexcept
    team *team_new(int members)
    team *team_open(int members)
    int team_help(team *) noexcept
    void team_close(team *)
