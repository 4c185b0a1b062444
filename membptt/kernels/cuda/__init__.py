"""CUDA kernels for the chain, and the chain that launches them.

The .cu files hold one purpose each, in the subset of CUDA that a C compiler takes as well:

==============  ==============================================================================
forward.cu      one step: h_prev · W_h and the gates of each unit, in one launch
project.cu      x W_x + b for a block of steps
hidden.cu       the hidden state from an internal state
outputs.cu      backward 1 of 4: y = h W_y + b_y
loss.cu         backward 2 of 4: softmax cross-entropy or squared error, row by row
deltas.cu       backward 3 of 4: dh += dy · W_yᵀ, and the cell's deltas
back.cu         backward 4 of 4: dh_prev = du · W_hᵀ; adds the step's loss
gradient.cu     gradient of a matrix from a block of at most 512 rows, added in double
sums.cu         gradients of biases and of token rows; rounding at the end
==============  ==============================================================================

`real.h` has the element type and exp, tanh, sigmoid; `tile.h` the tiled product; `cell_*.h` what
differs from cell to cell.

**Bits.** Every element of a product is one chain of fused multiply-adds in the order of k, whatever
the tile; exp, tanh and sigmoid are the polynomials of the compiled kernels; sums over rows have one
order and one owner, no atomic operation. So gradients and states have the bits of backend "cython"
on a processor with fused multiply-add, under every schedule (a zero may have another sign). The
loss alone may differ in its last bits: its logarithm is the device's. No library takes part, cuBLAS
neither: its bits depend on the shape.

**Launches.** A forward step is 1 kernel; n steps that save no internal state are one call from the
host for each power of two in n (at most 64 steps, and not across blocks of inputs), as captured
graphs, but for the first step after a restart. A backward step is 4 kernels: 4 calls, or 2 with the
graph of the last three. Every 512 / B steps inputs are copied, dense ones are projected, and 5
kernels (GRU: 6) add to the gradients. A restart or a save is one copy, or one small kernel. An
expansion is two copies and one launch for each block of inputs. Nothing in between waits for the
device or takes memory (the first expansion does). `Device.launches` and `Device.calls` count.

**Tiles**, chosen by shape so that three in four multiprocessors have a block, if any tile does:

==================  ===========  =======  =================================================
block               threads      outputs  fits (132 multiprocessors)
==================  ===========  =======  =================================================
4 × 16 units        64           1        smaller shapes
16 × 16 units       128          2        B 64, H 512: 128 blocks
64 × 32, 64 × 64    256          8, 16    B 256, H 1024: 128 blocks in the forward step
==================  ===========  =======  =================================================

Outputs are those of a thread, units with all their gates in the forward step. Registers of a thread
by ptxas 13.0 for sm_90, float32: 52 to 63 in the two small tiles, 120 to 150 in the large one; the
LSTM's forward 168, 128 and 187. A backward product of the LSTM is a chain of 4 H steps that no tile
shortens: at H 512 it takes 2048 multiply-adds one after the other.

**What is verified without a device.** All of the above but time: the tests compile the .cu files as
C and run the whole chain on an emulated device (threads between barriers in two orders, guards
round every buffer, work done as late as the device may do it, graphs replayed with the arguments
that were captured), and compare with the compiled chain bit for bit. NVRTC compiles every file for
sm_80 and sm_90; the code it gives is searched for approximations and for arrays outside of
registers. `CudaDevice` runs on a stand-in for the calls of CuPy that it makes, from `mb.bptt` and
the training loop down; CuPy itself and a real device it has not met. The chain is for cells of one
layer: a `Stack` runs on its own code.
"""
