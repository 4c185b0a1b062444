/* The compiled kernels, one set for each element type and instruction set.

   Letters: B rows (batch), H hidden units, G gates (RNN 1, GRU 3, LSTM 4), K terms of a
   product, W = panel width (two vector registers).

   Panels. A matrix [rows, N] in panels is [ceil(N / W)][rows][W], padded with zeros. Weights are
   packed so once per update. The G gates of W neighbouring units stand side by side: panel u*G + g
   holds gate g of the units u*W ... u*W + W - 1. Whoever owns a unit block owns whole units.

   Bits. Every element of a product is one chain of fused multiply-adds in the order of k, so its
   bits depend neither on how many rows are computed together, nor on blocking, nor on AVX2 or
   AVX-512. The portable set multiplies and adds with two roundings where the machine cannot fuse.  */

#ifndef MEMBPTT_KERNELS_H
#define MEMBPTT_KERNELS_H

#include <stdint.h>

typedef struct {
    const char *isa;
    long itemsize;
    long width; /* W */
    long rows;  /* rows that one register tile holds */

    /* weights [K, G*H] -> panels [units/W * G][K][W], plus bias [G*H] on every row unless NULL */
    void (*pack)(const void *weights, const void *bias, void *panels, long K, long H, long G);
    /* weights [H, G*N] -> panels of the transpose [H/W][G * N/W * W][W], gate after gate */
    void (*pack_transposed)(const void *weights, void *panels, long H, long N, long G);
    /* row-major [rows, N] -> the panels lo ... hi - 1 of `stride` rows each, from row `first` */
    void (*to_panels)(const void *matrix, void *panels, long rows, long N, long stride, long first,
                      long lo, long hi);

    /* out panels [.][stride][W] = bias + a [rows, K] . packed, for the panels lo ... hi - 1 */
    void (*project)(const void *a, const void *packed, const void *bias, void *out, long rows,
                    long K, long stride, long lo, long hi);
    /* out [rows, N] (+)= d . packed, d in panels [blocks * G][stride][W] from row `first` */
    void (*product_back)(const void *d, const void *packed, void *out, long rows, long blocks,
                         long G, long N, long stride, long first, int accumulate, long lo,
                         long hi);
    /* sums [panels][K][W] in double += a^T d over `rows` rows, both in panels [.][stride][W];
       bias_sums [panels][W] += the column sums of d */
    void (*weight_gradient)(const void *a, const void *d, double *sums, double *bias_sums,
                            long rows, long K, long stride, long lo, long hi);
    /* sums [panels][V][W] += rows of d, at the row that each token names */
    void (*token_gradient)(const int64_t *tokens, const void *d, double *sums, double *bias_sums,
                           long rows, long V, long stride, long lo, long hi);
    /* double panels -> row-major [K, G*H] (or [G*H] for K = 1) */
    void (*unpack)(const double *panels, void *weights, long K, long H, long G);

    /* One step: units of the blocks lo ... hi - 1. `start` holds panels of rows to start each chain
       from ([.][start_rows][W]); row b starts from row pick[b]. internal may be NULL. */
    void (*rnn_forward)(const void *h_prev, const void *packed, const void *start, long start_rows,
                        const int64_t *pick, void *h, void *internal, long B, long H, long lo,
                        long hi);
    void (*rnn_hidden)(const void *internal, void *h, long B, long H);
    void (*rnn_backward)(const void *internal, const void *dh, void *d, void *h_panels, long B,
                         long H, long stride, long first, long lo, long hi);

    void (*lstm_forward)(const void *h_prev, const void *c_prev, const void *packed,
                         const void *start, long start_rows, const int64_t *pick, void *h, void *c,
                         void *internal, long B, long H, long lo, long hi);
    void (*lstm_hidden)(const void *internal, void *h, void *c, long B, long H);
    void (*lstm_backward)(const void *internal, const void *dh, void *dc, void *d, void *h_panels,
                          long B, long H, long stride, long first, long lo, long hi);

    void (*gru_forward)(const void *h_prev, const void *packed, const void *bias_h,
                        const void *start, long start_rows, const int64_t *pick, void *h,
                        void *internal, long B, long H, long lo, long hi);
    void (*gru_hidden)(const void *internal, void *h, long B, long H);
    void (*gru_backward)(const void *internal, void *dh, void *d, void *d_h, void *h_panels, long B,
                         long H, long stride, long first, long lo, long hi);

    /* For the rows lo ... hi - 1: logits in panels [.][stride][W], row r at first + r, become
       (softmax - one-hot) * scale; losses[r] = -log softmax[target]. A row with scored[r] 0 has
       no loss and gets zeros; scored is NULL where all have one. */
    void (*softmax)(void *logits, const int64_t *targets, const uint8_t *scored, double *losses,
                    long V, long stride, long first, double scale, long lo, long hi);
    /* outputs become (output - target) * scale; losses[r] = half the sum of squared errors */
    void (*squared_error)(void *outputs, const void *targets, const uint8_t *scored,
                          double *losses, long N, long stride, long first, double scale, long lo,
                          long hi);
    /* element-wise functions on their own, for tests of their accuracy */
    void (*tanh_array)(const void *x, void *y, long n);
    void (*sigmoid_array)(const void *x, void *y, long n);
} membptt_kernels;

/* The set for this element size: `isa` names one of "avx512", "avx2", "portable", or is NULL for
   the best that the processor has. NULL if the processor or the build lacks it. */
const membptt_kernels *membptt_select(long itemsize, const char *isa);

#endif
