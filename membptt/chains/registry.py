"""Chooses the chain for a cell, compiled or plain; begins and ends its windows, and its threads."""

import os

import numpy as np

import membptt.cells as cells
from membptt.arrays import array_module
from membptt.chains.plain import PlainChain
from membptt.chains.ragged import RaggedChain
from membptt.kernels._layer import GRUChain, LSTMChain, RNNChain
from membptt.kernels._stack import StackChain
from membptt.kernels.cuda.chain import CudaChain

COMPILED = {"RNN": RNNChain, "LSTM": LSTMChain, "GRU": GRUChain}


class NoHead:
    """A head that asks for nothing: a chain needs one."""

    params: dict = {}  # noqa: RUF012 - it stays empty


def blank_inputs(cell, steps, batch):
    """Return inputs to time a cell with: tokens where it takes them, else rows of zeros."""
    if "W_x" in cell.params:
        return np.zeros((steps, batch), np.uint8)
    return np.zeros((steps, batch, *cell.input_shape), cell.dtype)


class Team:
    """The threads of a compiled chain, for as long as steps run."""

    def __init__(self, chain, threads):
        self.chain, self.threads = chain, threads
        self.wanted = threads > 1 and hasattr(chain, "open_team")

    def __enter__(self):
        if self.wanted:
            self.chain.open_team(self.threads)

    def __exit__(self, *_):
        if self.wanted:
            self.chain.close_team()


def make_chain(cell, head, steps, batch, ledger=None, isa=None, input_grads=False, packed=False):
    """Return the chain of the cell's backend.

    On a device it writes into `ledger` what it holds there; `isa` names an instruction set of the
    compiled kernels, by default the best that the processor has. `input_grads` asks for a chain
    that gives the derivative by the inputs, `packed` for one whose rows may have lengths: the CUDA
    kernels do neither.
    """
    if (
        cell.backend == "cupy"
        and not (input_grads or packed)
        and CudaChain.fits(cell, head)
        and compiles_kernels()
    ):
        return CudaChain(cell, head, steps, batch, ledger)
    if not runs_compiled(cell):
        return (RaggedChain if packed else PlainChain)(cell, head, steps, batch, ledger)
    if type(cell) is not cells.Stack:
        return compiled(cell)(cell, head, steps, batch, isa)
    layers = [None]
    for layer in cell.layers:
        bound = head if layer is cell.layers[-1] else None
        layers.append(compiled(layer)(layer, bound, steps, batch, isa, layers[-1]))
    return StackChain(cell, layers[1:])


def begin(chain, inputs, head, state, arena, lengths):
    """Have the chain begin a window; its rows change their order where they have `lengths`."""
    if lengths is None:
        chain.begin(inputs, head, state, arena)
    else:
        chain.begin(inputs, head, lengths.ordered(state), arena, lengths)


def finish(chain, lengths):
    """Return what `chain.finish` does, the rows in the caller's order again."""
    loss, bad_step, grads, last, state_grad = chain.finish()
    if lengths is not None:
        last, state_grad = lengths.restored(last), lengths.restored(state_grad)
        for step in () if chain.by_inputs is None else chain.by_inputs:
            (step[...],) = lengths.restored((step,))
    return loss, bad_step, grads, last, state_grad


def runs_compiled(cell):
    """Return whether the compiled kernels run this cell, and not its own code."""
    return cell.backend == "cython" and not cell.own_code


def compiled(cell):
    """Return the compiled chain of a cell of one layer."""
    name = type(cell).__name__
    # A subclass may compute something else than its base, whatever it is called.
    if name not in COMPILED or type(cell) is not getattr(cells, name):
        raise ValueError(f'backend is "cython", and {name} has no compiled kernels; give "numpy"')
    return COMPILED[name]


def compiles_kernels():
    """Return whether the device's library compiles kernels of ours, and the user wants them."""
    wanted = os.environ.get("MEMBPTT_CUDA_KERNELS", "1") != "0"
    return wanted and hasattr(array_module("cupy"), "RawModule")


def device_peak(chain):
    """Return the most bytes of a device's memory that were held at once; 0 on the host."""
    ledger = getattr(chain, "ledger", None)
    return 0 if ledger is None else ledger.peak
