"""The text of the .cu files and how they are compiled: options, element types, tiles.

Headers are pasted in, not found by the compiler: CuPy keeps compiled code by the text of the source
alone and would go on using what was compiled before a header changed.
"""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent

# Every rounding of the source and no other, subnormal numbers kept: the bits of the compiled
# kernels depend on it.
OPTIONS = (
    "--std=c++17",
    "--fmad=false",
    "--ftz=false",
    "--prec-div=true",
    "--prec-sqrt=true",
)

# The kernels of each file, by the file's name without ".cu".
KERNELS = {
    "project": ("project",),
    "forward": ("forward",),
    "hidden": ("hidden",),
    "outputs": ("outputs",),
    "loss": ("softmax", "squared_error"),
    "deltas": ("deltas",),
    "back": ("back",),
    "gradient": ("weight_gradient",),
    "sums": ("column_sums", "token_gradient", "round_sums"),
}
FLAT = 128  # threads of a block in the files without a tile


@dataclass(frozen=True)
class Tile:
    """What one block of threads computes of a product.

    Attributes
    ----------
    rows, columns : int
        Of the block. In the forward step a column is a unit with all its gates.
    thread_rows, thread_columns : int
        Of one thread.
    """

    rows: int
    columns: int
    thread_rows: int
    thread_columns: int

    @property
    def threads(self):
        """Threads of a block."""
        return self.rows // self.thread_rows * (self.columns // self.thread_columns)

    def grid(self, rows, columns):
        """Return how many blocks cover a matrix: along the columns, along the rows."""
        return -(-columns // self.columns), -(-rows // self.rows)


# From many small blocks to few large ones: a block that computes more reads less for each result.
TILES = (Tile(4, 16, 1, 1), Tile(16, 16, 2, 1), Tile(64, 64, 4, 4))
FORWARD_TILES = (Tile(4, 16, 1, 1), Tile(16, 16, 2, 1), Tile(64, 32, 8, 1))


def choose_tile(tiles, rows, columns, multiprocessors):
    """Return the largest tile whose blocks keep three in four multiprocessors busy, or the first.

    No bit depends on it.
    """
    for tile in reversed(tiles):
        across, down = tile.grid(rows, columns)
        if 4 * across * down >= 3 * multiprocessors:
            return tile
    return tiles[0]


@cache
def source(name, cell):
    """Return the text of NAME.cu for a cell ("rnn", "lstm", "gru"), its headers pasted in."""

    def header(match):
        wanted = f"cell_{cell}.h" if match[1] == "cell.h" else match[1]
        return (FOLDER / wanted).read_text(encoding="utf-8")

    text = (FOLDER / f"{name}.cu").read_text(encoding="utf-8")
    return re.sub(r'^#include "(.+)"$', header, text, flags=re.MULTILINE)


def defines(name, itemsize, tile):
    """Return the macros that NAME.cu is compiled with, as a dict."""
    macros = {"DOUBLE": int(itemsize == 8)}
    if tile is None:
        return macros
    macros |= {"BM": tile.rows, "TM": tile.thread_rows, "KT": 16}
    if name == "forward":  # TN is the cell's number of gates
        return macros | {"BN": f"({tile.columns}*GATES)"}
    return macros | {"BN": tile.columns, "TN": tile.thread_columns}


def options(name, itemsize, tile):
    """Return the compiler's options for NAME.cu."""
    return OPTIONS + tuple(
        f"-D{key}={value}" for key, value in defines(name, itemsize, tile).items()
    )
