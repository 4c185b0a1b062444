/* A tile of a product: BM rows, BN columns, TM rows and TN columns of it to each thread.

   acc[i][j] = FMA(a[k], w[k], acc[i][j]) for k = 0, 1, ... from the start value that acc holds:
   one chain for each element, in the order of k. Neither the tile's shape nor the number of blocks
   enters the bits, which are those of membptt/kernels/product.h.

   Defined from outside:
     BM, BN, TM, TN, KT  the tile, and how many k stand in shared memory at once
     A_ALONG_K           1: a is [rows][K];     0: a is [K][rows]
     W_ALONG_K           1: w is [columns][K];  0: w is [K][columns]
     GATED               1: a thread's TN columns are the gates of one unit, `columns` apart
   Threads that stand side by side read side by side from global memory, whichever way it lies. The
   next k are on their way to registers while these are worked on. */

#define TX (BN / TN) /* threads along the columns: thread x owns the columns x, x + TX, ... */
#define THREADS (TX * (BM / TM))
#define A_EACH ((BM * KT + THREADS - 1) / THREADS)
#define W_EACH ((BN * KT + THREADS - 1) / THREADS)

/* Where element k of row m and of column c stands in shared memory. Four more than needed keep rows
   on different banks and aligned for loads of 16 bytes. */
#if A_ALONG_K
#define A_AT(m, k) ((m) * (KT + 4) + (k))
#define A_SHARED (BM * (KT + 4))
#else
#define A_AT(m, k) ((k) * BM + (m))
#define A_SHARED (KT * BM)
#endif
#if W_ALONG_K
#define W_AT(c, k) ((c) * (KT + 4) + (k))
#define W_SHARED (BN * (KT + 4))
#else
#define W_AT(c, k) ((k) * BN + (c))
#define W_SHARED (KT * BN)
#endif

/* Column c of the tile that begins at n0: is it one, and which? */
#if GATED
#define INSIDE(c) (n0 + (c) % TX < columns)
#define COLUMN(c) ((c) / TX * columns + n0 + (c) % TX)
#else
#define INSIDE(c) (n0 + (c) < columns)
#define COLUMN(c) (n0 + (c))
#endif

DEVICE void fetch_a(REAL *next, const REAL *a, integer rows, integer stride, integer K, integer m0,
                    integer k0)
{
#pragma unroll
    for (int i = 0; i < A_EACH; i++) {
        const int at = i * THREADS + (int)threadIdx.x;
        const int m = A_ALONG_K ? at / KT : at % BM, k = A_ALONG_K ? at % KT : at / BM;
        next[i] = 0;
        if (at < BM * KT && m0 + m < rows && k0 + k < K)
            next[i] = a[A_ALONG_K ? (m0 + m) * stride + k0 + k : (k0 + k) * stride + m0 + m];
    }
}

DEVICE void fetch_w(REAL *next, const REAL *w, integer columns, integer stride, integer K,
                    integer n0, integer k0)
{
#pragma unroll
    for (int i = 0; i < W_EACH; i++) {
        const int at = i * THREADS + (int)threadIdx.x;
        const int c = W_ALONG_K ? at / KT : at % BN, k = W_ALONG_K ? at % KT : at / BN;
        next[i] = 0;
        if (at < BN * KT && INSIDE(c) && k0 + k < K)
            next[i] = w[W_ALONG_K ? COLUMN(c) * stride + k0 + k : (k0 + k) * stride + COLUMN(c)];
    }
}

DEVICE void keep(REAL *a_tile, REAL *w_tile, const REAL *next_a, const REAL *next_w)
{
#pragma unroll
    for (int i = 0; i < A_EACH; i++) {
        const int at = i * THREADS + (int)threadIdx.x;
        if (at < BM * KT)
            a_tile[A_ALONG_K ? A_AT(at / KT, at % KT) : A_AT(at % BM, at / BM)] = next_a[i];
    }
#pragma unroll
    for (int i = 0; i < W_EACH; i++) {
        const int at = i * THREADS + (int)threadIdx.x;
        if (at < BN * KT)
            w_tile[W_ALONG_K ? W_AT(at / KT, at % KT) : W_AT(at % BN, at / BN)] = next_w[i];
    }
}

DEVICE void one_k(REAL acc[TM][TN], const REAL *a_tile, const REAL *w_tile, int k)
{
    const int x = (int)threadIdx.x % TX, y = (int)threadIdx.x / TX;
    REAL w[TN];
#pragma unroll
    for (int j = 0; j < TN; j++)
        w[j] = w_tile[W_AT(x + j * TX, k)];
#pragma unroll
    for (int i = 0; i < TM; i++) {
        const REAL a = a_tile[A_AT(y * TM + i, k)];
#pragma unroll
        for (int j = 0; j < TN; j++)
            acc[i][j] = FMA(a, w[j], acc[i][j]);
    }
}

/* Every thread of the block must call it. Rows and columns that are not there stay as they are. */
DEVICE void tile_product(REAL acc[TM][TN], const REAL *a, integer rows, integer a_stride,
                         const REAL *w, integer columns, integer w_stride, integer K, integer m0,
                         integer n0)
{
    __shared__ __align__(16) REAL a_tile[A_SHARED];
    __shared__ __align__(16) REAL w_tile[W_SHARED];
    REAL next_a[A_EACH], next_w[W_EACH];
    fetch_a(next_a, a, rows, a_stride, K, m0, 0);
    fetch_w(next_w, w, columns, w_stride, K, n0, 0);
    for (integer k0 = 0; k0 < K; k0 += KT) {
        __syncthreads(); /* nobody reads the last k any more */
        keep(a_tile, w_tile, next_a, next_w);
        __syncthreads();
        if (k0 + KT < K) {
            fetch_a(next_a, a, rows, a_stride, K, m0, k0 + KT);
            fetch_w(next_w, w, columns, w_stride, K, n0, k0 + KT);
        }
        if (k0 + KT <= K) {
#pragma unroll 8
            for (int k = 0; k < KT; k++)
                one_k(acc, a_tile, w_tile, k);
        } else {
            for (int k = 0; k < (int)(K - k0); k++)
                one_k(acc, a_tile, w_tile, k);
        }
    }
}

/* Row i of this thread, and its column j; its unit where the tile is GATED. */
#define ROW(i) (m0 + (int)threadIdx.x / TX * TM + (i))
#define OWN_COLUMN(j) (n0 + (int)threadIdx.x % TX + (j) * TX)
#define OWN_UNIT (n0 + (int)threadIdx.x % TX)

/* Every row of the tile starts from the same one, a bias. */
DEVICE void start_from(REAL acc[TM][TN], const REAL *row, integer columns, integer n0)
{
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++)
            acc[i][j] = OWN_COLUMN(j) < columns ? row[OWN_COLUMN(j)] : 0;
}
