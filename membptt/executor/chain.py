"""Chooses the chain for a cell: compiled or plain."""

import membptt.cells as cells
from membptt.executor.plain import PlainChain
from membptt.kernels._chain import LSTMChain, RNNChain

COMPILED = {"RNN": RNNChain, "LSTM": LSTMChain}


def make_chain(cell, head, steps, batch):
    """Return the chain of the cell's backend."""
    if cell.backend != "cython":
        return PlainChain(cell, head, steps, batch)
    name = type(cell).__name__
    # A subclass may compute something else than its base, whatever it is called.
    if name not in COMPILED or type(cell) is not getattr(cells, name):
        raise ValueError(f'backend is "cython", and {name} has no compiled kernels; give "numpy"')
    return COMPILED[name](cell, head, steps, batch)
