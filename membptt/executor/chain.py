"""Chooses the chain for a cell: compiled or plain."""

from membptt.executor.plain import PlainChain
from membptt.kernels._chain import LSTMChain, RNNChain

COMPILED = {"RNN": RNNChain, "LSTM": LSTMChain}


def make_chain(cell, head, steps, batch):
    """Return the chain of the cell's backend."""
    if cell.backend == "cython":
        return COMPILED[type(cell).__name__](cell, head, steps, batch)
    return PlainChain(cell, head, steps, batch)
