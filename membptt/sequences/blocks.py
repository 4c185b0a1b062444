"""Inputs and targets that are read block by block, since they do not fit into memory.

A *reader* is any object with ``shape`` [T, B, ...], ``dtype`` and ``reader[start:stop]``, which
gives the steps start+1 ... stop as an array: a dataset in an HDF5 or Zarr file, or a class of the
user's. Steps are run again, so blocks are read again, in any order.

What a reader gives is copied: it may fill one array again and again. Every block is checked when it
is read, since a reader that gives something else would change gradients in silence.
"""

import math
import threading
from contextlib import contextmanager

import numpy as np

from membptt.arrays import on_device
from membptt.checks import check_range

ROWS = 512  # steps times batch of a block


def sequence(name, source, count=None):
    """Return `source` as an array, or as Blocks where it is a reader.

    Parameters
    ----------
    name : str
        What the user calls the argument.
    source : array_like, reader or Blocks
    count : int, optional
        Whole numbers that a reader gives must be from 0 to count - 1.

    Raises
    ------
    TypeError
        If it lies on a device: sequences stay on the host and are sent in blocks. If it is a masked
        array: nothing here would heed the mask.
    """
    if on_device(source):
        raise TypeError(
            f"{name} lie on a device; give a NumPy array, {name}.get(): steps are sent in blocks"
        )
    if isinstance(source, np.ma.MaskedArray):
        raise TypeError(
            f"{name} are a masked array, whose mask would be lost; give {name}.data, steps without "
            "loss as head.with_targets(..., mask=mask), and where rows end as lengths="
        )
    if isinstance(source, np.ndarray):
        return np.asarray(source)
    if isinstance(source, Blocks):
        return source
    shape = getattr(source, "shape", None)
    if not isinstance(shape, tuple) or len(shape) < 2 or not hasattr(source, "__getitem__"):
        return np.asarray(source)
    try:
        dtype = np.dtype(source.dtype)
    except (AttributeError, TypeError):  # an array of another library: NumPy knows how to ask
        return np.asarray(source)
    return Blocks(name, source, dtype, count)


class Blocks:
    """The steps of a reader, or of an array that compiled code cannot read where it lies.

    Attributes
    ----------
    shape : tuple of int
    dtype : numpy.dtype
        In the machine's byte order.
    block_steps : int
        Steps that are read at once by ``blocks[index]``, which keeps the last two blocks.
    """

    def __init__(self, name, source, dtype, count=None):
        self.name, self.source = name, source
        self.count = count if dtype.kind in "iu" else None
        self.shape = tuple(map(int, source.shape))
        self.given = dtype
        self.dtype = dtype.newbyteorder("=")
        self.ndim, self.size = len(self.shape), math.prod(self.shape)
        self.block_steps = max(1, ROWS // max(1, self.shape[1]))
        self.kept = {}  # block number -> array, the last used last
        self.lock = threading.Lock()

    def __len__(self):
        return self.shape[0]

    @property
    def nbytes(self):
        """Bytes that `read` fills in all."""
        return self.size * self.dtype.itemsize

    @property
    def kept_nbytes(self):
        """Bytes of the blocks that are kept for ``blocks[index]``."""
        return sum(block.nbytes for block in self.kept.values())

    def read(self, start, out):
        """Fill `out` with the steps start + 1 ... start + len(out).

        Raises
        ------
        ValueError, TypeError
            If the reader gives another shape or dtype, or a number out of range; what the reader
            itself raises comes through, with a note.
        """
        stop = start + len(out)
        where = f"{self.name}[{start}:{stop}], steps {start + 1} to {stop}"
        with noted(where):
            block = np.asarray(self.source[start:stop])
        if block.shape != out.shape:
            raise ValueError(f"{where}, have shape {block.shape}; give {out.shape}")
        if block.dtype != self.given:
            raise TypeError(f"{where}, are {block.dtype}; give {self.given}, as the reader's dtype")
        np.copyto(out, block)
        if self.count is not None:
            check_range(self.name, out, self.count, start)

    def __getitem__(self, index):
        """Return a copy of one step, [B, ...]."""
        if not 0 <= index < len(self):
            raise IndexError(f"{self.name} have {len(self)} steps; there is no index {index}")
        number, place = divmod(index, self.block_steps)
        with self.lock:
            block = self.kept.pop(number, None)
            if block is None:
                start = number * self.block_steps
                steps = min(self.block_steps, len(self) - start)
                while len(self.kept) > 1:
                    del self.kept[next(iter(self.kept))]
                block = np.empty((steps, *self.shape[1:]), self.dtype)
                self.read(start, block)
            self.kept[number] = block
            return block[place].copy()

    def __array__(self, dtype=None, copy=None):
        """Return all steps: for oracles, which hold everything anyway."""
        out = np.empty(self.shape, self.dtype)
        self.read(0, out)
        return out if dtype is None else out.astype(dtype)


@contextmanager
def noted(where):
    """Add a note that says what was being read to whatever a reader raises."""
    try:
        yield
    except Exception as error:
        error.add_note(f"while {where}, were read")
        raise
