"""Chooses the chain for a cell: compiled or plain."""

from membptt.cells import LSTM, RNN
from membptt.executor.plain import PlainChain
from membptt.kernels._chain import LSTMChain, RNNChain

COMPILED = {RNN: RNNChain, LSTM: LSTMChain}


def make_chain(cell, head, steps, batch):
    """Return the chain of the cell's backend."""
    if cell.backend != "cython":
        return PlainChain(cell, head, steps, batch)
    if type(cell) not in COMPILED:  # a subclass may compute something else than its base
        raise ValueError(
            f'backend is "cython", and {type(cell).__name__} has no compiled kernels; give "numpy"'
        )
    return COMPILED[type(cell)](cell, head, steps, batch)
