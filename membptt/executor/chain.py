"""Chooses the chain for a cell: compiled or plain; and a head for those who only want forwards."""

import membptt.cells as cells
from membptt.executor.plain import PlainChain
from membptt.kernels._chain import GRUChain, LSTMChain, RNNChain

COMPILED = {"RNN": RNNChain, "LSTM": LSTMChain, "GRU": GRUChain}


class NoHead:
    """A head that asks for nothing: a chain needs one."""

    kernel = None
    params: dict = {}  # noqa: RUF012 - it stays empty


def make_chain(cell, head, steps, batch, ledger=None):
    """Return the chain of the cell's backend; on a device it writes down what it holds there."""
    if cell.backend != "cython":
        return PlainChain(cell, head, steps, batch, ledger)
    name = type(cell).__name__
    # A subclass may compute something else than its base, whatever it is called.
    if name not in COMPILED or type(cell) is not getattr(cells, name):
        raise ValueError(f'backend is "cython", and {name} has no compiled kernels; give "numpy"')
    return COMPILED[name](cell, head, steps, batch)


def device_peak(chain):
    """Return the most bytes of a device's memory that were held at once; 0 on the host."""
    ledger = getattr(chain, "ledger", None)
    return 0 if ledger is None else ledger.peak
