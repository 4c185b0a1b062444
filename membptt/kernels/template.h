/* The kernels of kernels.h for one element type and one instruction set. No include guard: each
   inclusion defines one set, kernels_<isa>_<type>. */

#if IS_DOUBLE
#define NAME(x) JOIN(JOIN(x, ISA), double)
#else
#define NAME(x) JOIN(JOIN(x, ISA), float)
#endif

#include "vector.h"
#include "elementwise.h"
#include "product.h"
#include "cells.h"
#include "heads.h"

static const membptt_kernels NAME(kernels) = {
    .isa = STRING(ISA),
    .itemsize = sizeof(REAL),
    .width = PW,
    .rows = ROWS,
    .pack = NAME(pack),
    .pack_transposed = NAME(pack_transposed),
    .to_panels = NAME(to_panels),
    .project = NAME(project),
    .product_back = NAME(product_back),
    .weight_gradient = NAME(weight_gradient),
    .token_gradient = NAME(token_gradient),
    .unpack = NAME(unpack),
    .rnn_forward = NAME(rnn_forward),
    .rnn_hidden = NAME(rnn_hidden),
    .rnn_backward = NAME(rnn_backward),
    .lstm_forward = NAME(lstm_forward),
    .lstm_hidden = NAME(lstm_hidden),
    .lstm_backward = NAME(lstm_backward),
    .gru_forward = NAME(gru_forward),
    .gru_hidden = NAME(gru_hidden),
    .gru_backward = NAME(gru_backward),
    .softmax = NAME(softmax),
    .squared_error = NAME(squared_error),
    .tanh_array = NAME(tanh_array),
    .sigmoid_array = NAME(sigmoid_array),
};

#undef NAME
#undef REAL
#undef INT
#undef ROWS
#undef VW
#undef PW
#undef VEC
#undef IVEC
#undef LOAD
#undef STORE
#undef LOAD_PART
#undef STORE_PART
#undef SET1
#undef FMA
