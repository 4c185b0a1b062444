"""Weights to and from elsewhere: PyTorch's layout, and files of arrays.

PyTorch keeps weights transposed, ``weight_ih_l0`` [G H, I] and ``weight_hh_l0`` [G H, H], and two
biases that it adds. The gates of its LSTM come in our order i, f, g, o, those of its GRU in our
order r, z, n. So

    W_x = weight_ihᵀ     W_h = weight_hhᵀ     b = bias_ih + bias_hh

but for gate n of the GRU, where bias_hh stands inside r ∘ (...): it is our b_h. PyTorch itself is
not needed: dicts of arrays go in and come out.

Files are .npz or .safetensors by their ending; neither can run code when it is read.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, overload

import numpy as np

from membptt.arrays import from_host, namespace, to_host
from membptt.cells import GRU, LSTM, RNN, Cell, Stack
from membptt.checks import mapping, shown
from membptt.files import read_arrays, replacing, write_arrays
from membptt.types import FilePath, Params

HEADER = 4096  # bytes, and seldom more than 128, before an array in .npz
KINDS = {1: RNN, 3: GRU, 4: LSTM}  # by the number of gates
WANTED = "give an RNN, GRU or LSTM, or a Stack of one of them"


def to_torch(cell: Cell | Sequence[Cell]) -> Params:
    """Return a cell's parameters as ``state_dict`` of the PyTorch module has them.

    Parameters
    ----------
    cell : RNN, GRU, LSTM, or a Stack of one of them with layers of one size
        Or a pair of cells of one kind and one size, as `bptt_bidirectional` takes it, for a
        bidirectional module of one layer.

    Returns
    -------
    dict of numpy.ndarray
        ``weight_ih_l0`` and so on; for ``module.load_state_dict`` after ``torch.from_numpy`` of
        each. All of b is in ``bias_ih``.

    Raises
    ------
    ValueError
        If PyTorch has no such module.

    Examples
    --------
    >>> import membptt as mb
    >>> {name: array.shape for name, array in mb.to_torch(mb.GRU(5, 2)).items()}
    {'weight_ih_l0': (6, 5), 'weight_hh_l0': (6, 2), 'bias_ih_l0': (6,), 'bias_hh_l0': (6,)}
    """
    if isinstance(cell, Sequence):
        return pair_to_torch(cell)
    if not isinstance(cell, Cell):
        raise TypeError(f"cell is {shown(cell)}; {WANTED}")
    layers = cell.layers if isinstance(cell, Stack) else [cell]
    if len({(type(layer), layer.hidden_size) for layer in layers}) > 1:
        raise ValueError(f"cell is {shown(cell)}; PyTorch's layers are of one kind and one size")
    if type(layers[0]) not in KINDS.values():
        raise ValueError(f"cell is {shown(cell)}; {WANTED}")
    found: Params = {}
    for number, layer in enumerate(layers):
        p = {name: to_host(value) for name, value in layer.params.items()}
        inside = np.zeros_like(p["b"])
        if type(layer) is GRU:
            inside[2 * layer.hidden_size :] = p["b_h"]
        found |= {
            f"weight_ih_l{number}": np.ascontiguousarray(p["W_x"].T),
            f"weight_hh_l{number}": np.ascontiguousarray(p["W_h"].T),
            f"bias_ih_l{number}": p["b"].copy(),
            f"bias_hh_l{number}": inside,
        }
    return found


def pair_to_torch(cells):
    """Return what `to_torch` does, for the cells of both directions."""
    sizes = [(type(cell), cell.input_size, cell.hidden_size) for cell in cells]
    if len(cells) != 2 or sizes[0] != sizes[1] or isinstance(cells[0], Stack):
        raise ValueError(
            f"cell is {shown(cells)}; PyTorch has modules for two directions of one kind and one "
            "size, and no pair of cells for more than one layer"
        )
    forward, backward = map(to_torch, cells)
    return forward | {f"{name}_reverse": value for name, value in backward.items()}


@overload
def from_torch(
    state_dict: Mapping[str, Any], backend: str = ..., bidirectional: Literal[False] = ...
) -> Cell: ...


@overload
def from_torch(
    state_dict: Mapping[str, Any], backend: str = ..., *, bidirectional: Literal[True]
) -> tuple[Cell, Cell]: ...


def from_torch(
    state_dict: Mapping[str, Any], backend: str = "cython", bidirectional: bool = False
) -> Cell | tuple[Cell, Cell]:
    """Return the cell with the weights of a PyTorch ``nn.RNN`` (tanh), ``nn.GRU`` or ``nn.LSTM``.

    Parameters
    ----------
    state_dict : dict of torch.Tensor or numpy.ndarray
        ``module.state_dict()``. The kind is told by the number of gates; an ``nn.RNN`` with
        nonlinearity "relu" looks the same and is not the same.
    backend : {"cython", "numpy", "cupy"}
    bidirectional : bool
        Whether the module is: of one layer then.

    Returns
    -------
    RNN, GRU, LSTM or Stack
        A Stack if there is more than one layer. With `bidirectional` the pair of cells that
        `bptt_bidirectional` takes; rows of its head are in the order of the module's outputs.

    Raises
    ------
    ValueError
        If an entry is missing or of another shape, or the module is bidirectional where it should
        not be or has several such layers, or projects.
    """
    given = mapping("state_dict", state_dict, "module.state_dict()")
    given = {name: on_host(value) for name, value in given.items()}
    if bidirectional:
        return pair_from_torch(given, backend)
    if "weight_ih_l0_reverse" in given:
        raise ValueError(
            "state_dict has weight_ih_l0_reverse, of a bidirectional module; give "
            "bidirectional=True, for a pair of cells"
        )
    layers: list[Cell] = []
    while f"weight_ih_l{len(layers)}" in given:
        layers.append(layer_from_torch(given, len(layers), backend))
    if not layers:
        raise ValueError(
            "state_dict has no weight_ih_l0; give that of an nn.RNN, nn.GRU or nn.LSTM: "
            "module.state_dict()"
        )
    check_all_taken(given)
    return layers[0] if len(layers) == 1 else Stack(layers)


def pair_from_torch(given, backend):
    """Return the cells of both directions."""
    suffixes = "", "_reverse"
    for suffix in suffixes:
        if f"weight_ih_l0{suffix}" not in given:
            raise ValueError(
                f"state_dict has no weight_ih_l0{suffix}; give that of a module with "
                "bidirectional=True, or leave that out here"
            )
    if "weight_ih_l1" in given:
        raise ValueError(
            "state_dict has weight_ih_l1, a layer that reads both directions of the one beneath, "
            "which no pair of cells does; give one layer"
        )
    forward, backward = (layer_from_torch(given, 0, backend, suffix) for suffix in suffixes)
    check_all_taken(given)
    return forward, backward


def check_all_taken(given):
    """Raise if entries are left."""
    if given:
        raise ValueError(f"state_dict has {min(given)}, which no layer here has (no projection)")


def on_host(value):
    """Return an array of NumPy's: a tensor of PyTorch's is taken from wherever it is."""
    return value.detach().cpu().numpy() if hasattr(value, "detach") else to_host(value)


def layer_from_torch(given, number, backend, suffix=""):
    """Return one layer, and take its entries out of `given`."""
    names = [
        f"{name}_l{number}{suffix}" for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    ]
    weight_ih = given.pop(names[0])
    weight_hh = given.pop(names[1], None)
    if weight_hh is None or weight_hh.ndim != 2 or weight_ih.ndim != 2:
        raise ValueError(f"state_dict has {names[0]} without a matrix {names[1]}; give both")
    rows, hidden = weight_hh.shape
    if rows % hidden or rows // hidden not in KINDS or len(weight_ih) != rows:
        raise ValueError(
            f"{names[0]} has shape {weight_ih.shape} and {names[1]} {weight_hh.shape}; give "
            "[G H, I] and [G H, H] with G 1, 3 or 4 gates"
        )
    biases = [given.pop(name, np.zeros(rows, weight_ih.dtype)) for name in names[2:]]
    for name, bias in zip(names[2:], biases, strict=True):
        if bias.shape != (rows,):
            raise ValueError(f"{name} has shape {bias.shape}; give ({rows},)")
    kind = KINDS[rows // hidden]
    layer = kind(weight_ih.shape[1], hidden, weight_ih.dtype.name, backend=backend)
    params = {"W_x": weight_ih.T, "W_h": weight_hh.T, "b": biases[0] + biases[1]}
    if kind is GRU:
        params["b"][2 * hidden :] = biases[0][2 * hidden :]
        params["b_h"] = biases[1][2 * hidden :]
    fill(layer.params, params, "state_dict")
    return layer


def save_params(path: FilePath, params: Params) -> None:
    """Write parameters to a file, whole or not at all.

    Parameters
    ----------
    path : str or path
        Ends in .npz or .safetensors (extra: safetensors).
    params : dict of array
        Such as ``cell.params | head.params``.

    Raises
    ------
    ValueError
        If the ending is another one, or safetensors is not installed.
    TypeError
        If a name is no str, or an array not one of numbers.
    OSError
        If the file cannot be written; the one of before is still there then.
    """
    library = library_for(path)
    arrays: dict[str, Any] = {  # ascontiguousarray would give a scalar an axis
        name: np.asarray(to_host(value), order="C")
        for name, value in mapping("params", params, "cell.params").items()
    }
    for name, value in arrays.items():
        if not isinstance(name, str):
            raise TypeError(f"params has an entry {name!r}; give names that are str")
        if value.dtype.kind not in "biufc":
            raise TypeError(f"params has {name} of type {value.dtype}; give an array of numbers")
    with replacing(path, "wb") as file:
        if library is np:
            write_arrays(file, arrays)
        else:
            file.write(library.save(arrays))


def load_params(path: FilePath, params: Params) -> None:
    """Fill parameters from a file, in place.

    Parameters
    ----------
    path : str or path
    params : dict of array
        As they were saved: the same names, shapes and dtypes.

    Raises
    ------
    ValueError
        If the file cannot be read, or a name, shape or dtype differs; nothing is changed then.
    """
    name, library = f"file {str(path)!r}", library_for(path)
    params = mapping("params", params, "cell.params")
    most = sum(value.nbytes + HEADER for value in params.values())
    try:
        with open(path, "rb") as file:
            found = read_arrays(file, most) if library is np else library.load(file.read())
    except FileNotFoundError:
        raise ValueError(f"{name} does not exist; give one that save_params wrote") from None
    except Exception as error:  # a cut or altered file makes the readers raise almost anything
        raise ValueError(f"{name} cannot be read ({error}); give an intact file") from None
    fill(params, found, name)


def library_for(path):
    """Return what writes and reads a file of this ending: numpy, or safetensors.numpy."""
    ending = os.path.splitext(os.fspath(path))[1]
    if ending == ".npz":
        return np
    if ending != ".safetensors":
        raise ValueError(f"file {str(path)!r} ends in {ending!r}; give .npz or .safetensors")
    try:
        import safetensors.numpy
    except ImportError:
        raise ValueError(
            f"file {str(path)!r} needs safetensors, which is not installed; pip install "
            "'membptt[safetensors]', or give .npz"
        ) from None
    return safetensors.numpy


def fill(params, found, name):
    """Put the arrays `found` in the places of `params`, or say what does not fit."""
    for key in [*params, *found]:
        if key not in found or key not in params:
            side = "lacks" if key not in found else "also has"
            raise ValueError(f"{name} {side} {key}; give {', '.join(params)}")
        mine, theirs = params[key], found[key]
        if (mine.shape, mine.dtype) != (theirs.shape, theirs.dtype):
            raise ValueError(
                f"{key} in {name} is {theirs.dtype} {list(theirs.shape)}; give {mine.dtype} "
                f"{list(mine.shape)}"
            )
    for key, mine in params.items():
        mine[...] = from_host(found[key], namespace(mine))
