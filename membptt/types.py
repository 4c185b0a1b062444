"""Names of the types in signatures; shapes and units stand in the docstrings.

On backend "cupy" the arrays are CuPy's, which type checkers do not tell from NumPy's here.
"""

from collections.abc import Sequence
from os import PathLike
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
State = tuple[Array, ...]
Params = dict[str, Array]
FilePath = str | PathLike[str]


class Reader(Protocol):
    """What inputs, targets and masks are read from, block by block, where they are no arrays."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole: steps first."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """As NumPy's arrays have it."""

    def __getitem__(self, index: slice, /) -> Any:
        """Return the steps of a slice, as an array."""


class LossHead(Protocol):
    """A head with its targets: one of `membptt.heads`, or an object of yours."""

    @property
    def params(self) -> Params:
        """The parameters, by name; no name that the cell has."""

    def forward_backward(self, step: int, h: Any, grads: Params, /) -> tuple[Any, Any]:
        """Return the step's share of the loss and its derivative by h; add to `grads`."""


Inputs = Array | Reader
RowLengths = Sequence[int] | NDArray[Any]
