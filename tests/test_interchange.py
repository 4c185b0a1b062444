"""Weights to PyTorch and back, and to files and back."""

import tracemalloc
import zipfile
from functools import partial

import numpy as np
import pytest

import membptt as mb
from membptt.cells import GRU, LSTM, RNN, Stack


def layers(kind, count, dtype="float64"):
    sizes = [5] + [7] * count
    cells = [kind(size, 7, dtype, seed) for seed, size in enumerate(sizes[:-1])]
    return cells[0] if count == 1 else Stack(cells)


def same(one, other):
    assert one.params.keys() == other.params.keys()
    return all((one.params[name] == other.params[name]).all() for name in one.params)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("kind", [RNN, GRU, LSTM])
def test_there_and_back(kind, count, dtype):
    cell = layers(kind, count, dtype)
    again = mb.from_torch(mb.to_torch(cell), backend="numpy")
    assert type(again) is type(cell) and again.dtype == cell.dtype and again.backend == "numpy"
    assert same(cell, again)
    for given in mb.to_torch(cell).values():
        assert not any(np.shares_memory(given, own) for own in cell.params.values())


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("kind", [RNN, GRU, LSTM])
def test_modules_compute_the_same(kind, count, bias):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra: torch)")
    torch.manual_seed(0)
    module = getattr(torch.nn, kind.__name__)(5, 7, count, bias=bias, dtype=torch.float64)
    cell = mb.from_torch(module.state_dict())
    x = np.random.default_rng(0).standard_normal((9, 3, 5))
    theirs, _ = module(torch.from_numpy(x))
    theirs.sum().backward()
    head = mb.LinearHead(7, 7, "float64")
    head.params["W_y"][...], targets = np.eye(7), np.zeros((9, 3, 7))
    # Half the squared error against y - 1 has the derivative 1 by y.
    targets[...] = theirs.detach().numpy() - 1
    result = mb.full_bptt(cell, x, head.with_targets(targets))
    grads = {name: value * targets.size for name, value in result.grads.items()}
    for number in range(count):
        own = f"{number}." if count > 1 else ""
        wanted = getattr(module, f"weight_hh_l{number}").grad.numpy().T
        np.testing.assert_allclose(grads[f"{own}W_h"], wanted, rtol=1e-9, atol=1e-12)
    if bias:
        back = getattr(torch.nn, kind.__name__)(5, 7, count, dtype=torch.float64)
        tensors = {name: torch.from_numpy(value) for name, value in mb.to_torch(cell).items()}
        back.load_state_dict(tensors)
        ours, _ = back(torch.from_numpy(x))
        np.testing.assert_allclose(ours.detach(), theirs.detach(), rtol=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.clear(), "state_dict has no weight_ih_l0"),
        (lambda d: d.pop("weight_hh_l0"), "weight_ih_l0 without a matrix weight_hh_l0"),
        (
            lambda d: d.update(weight_ih_l0_reverse=d["weight_ih_l0"]),
            "has weight_ih_l0_reverse, of a bidirectional module; give bidirectional=True",
        ),
        (
            lambda d: d.update(weight_hr_l0=np.zeros((2, 7))),
            r"has weight_hr_l0, which .* \(no proj",
        ),
        (lambda d: d.update(bias_ih_l0=np.zeros(3)), r"bias_ih_l0 has shape \(3,\); give \(28,\)"),
        (lambda d: d.update(weight_hh_l0=np.zeros((14, 7))), "with G 1, 3 or 4 gates"),
    ],
)
def test_a_state_dict_that_does_not_fit(change, message):
    found = mb.to_torch(layers(LSTM, 1))
    change(found)
    with pytest.raises(ValueError, match=message):
        mb.from_torch(found)


@pytest.mark.parametrize("kind", [RNN, GRU, LSTM])
def test_both_directions_there_and_back(kind):
    cells = tuple(kind(5, 7, "float64", seed) for seed in (1, 2))
    found = mb.to_torch(cells)
    assert set(found) == {f"{k}{end}" for k in mb.to_torch(cells[0]) for end in ("", "_reverse")}
    again = mb.from_torch(found, "numpy", bidirectional=True)
    assert all(same(*pair) for pair in zip(cells, again, strict=True))
    assert not same(*again) and again[1].backend == "numpy"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda d: d.pop("weight_ih_l0_reverse"),
            "has no weight_ih_l0_reverse; give that of a mod",
        ),
        (lambda d: d.pop("weight_ih_l0"), "has no weight_ih_l0; give that of a module with"),
        (lambda d: d.pop("weight_hh_l0_reverse"), "without a matrix weight_hh_l0_reverse"),
        (
            lambda d: d.update(weight_ih_l1=np.zeros((28, 14))),
            "has weight_ih_l1, a layer that reads",
        ),
        (lambda d: d.update(weight_hr_l0=np.zeros((2, 7))), "has weight_hr_l0, which no layer"),
    ],
)
def test_a_state_dict_of_both_directions_that_does_not_fit(change, message):
    found = mb.to_torch((LSTM(3, 7), LSTM(3, 7)))
    change(found)
    with pytest.raises(ValueError, match=message):
        mb.from_torch(found, bidirectional=True)


@pytest.mark.parametrize(
    "cells",
    [
        (LSTM(3, 7),),
        (LSTM(3, 7), LSTM(3, 8)),
        (LSTM(3, 7), LSTM(4, 7)),
        (LSTM(3, 7), GRU(3, 7)),
        (Stack([RNN(3, 7), RNN(7, 7)]),) * 2,
    ],
)
def test_pairs_that_pytorch_has_not(cells):
    with pytest.raises(ValueError, match="modules for two directions of one kind and one size"):
        mb.to_torch(cells)


def test_cells_that_pytorch_has_not():
    with pytest.raises(ValueError, match="of one kind and one size"):
        mb.to_torch(Stack([GRU(3, 4), LSTM(4, 4)]))
    with pytest.raises(ValueError, match="of one kind and one size"):
        mb.to_torch(Stack([GRU(3, 4), GRU(4, 5)]))
    own = mb.Custom(None, None, {"a": np.zeros(1)}, 1, {"h": (1,)})
    with pytest.raises(ValueError, match="give an RNN, GRU or LSTM"):
        mb.to_torch(own)


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_files(tmp_path, ending):
    if ending == "safetensors":
        pytest.importorskip("safetensors", reason="safetensors is not installed")
    cell, other = layers(GRU, 2), layers(GRU, 2)
    other.params = {name: value * 0 for name, value in other.params.items()}
    path = tmp_path / f"weights.{ending}"
    mb.save_params(path, cell.params)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    mb.load_params(path, other.params)
    assert same(cell, other)
    whole = path.read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], whole[:-1], b"?" * 9 + whole[9:]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"cannot be read|lacks|holds|is "):
            mb.load_params(path, other.params)
        assert same(cell, other)


def test_files_that_do_not_fit(tmp_path):
    path = tmp_path / "weights.npz"
    cell = LSTM(3, 4)
    mb.save_params(path, cell.params)
    for params, message in [
        (LSTM(3, 5).params, r"W_x in file .* is float32 \[3, 16\]; give float32 \[3, 20\]"),
        (LSTM(3, 4, "float64").params, "is float32 .*; give float64"),
        (GRU(3, 4).params, "W_x in file|lacks b_h"),
        ({"W_x": cell.params["W_x"]}, "also has W_h"),
    ]:
        with pytest.raises(ValueError, match=message):
            mb.load_params(path, params)
    with pytest.raises(ValueError, match="does not exist"):
        mb.load_params(tmp_path / "none.npz", cell.params)
    for call in (mb.save_params, mb.load_params):
        with pytest.raises(ValueError, match=r"ends in '\.pt'; give \.npz or \.safetensors"):
            call(tmp_path / "weights.pt", cell.params)


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_parameters_of_any_name_and_shape(tmp_path, ending):
    """As a cell of one's own may have: scalars, none at all, in another order."""
    if ending == "safetensors":
        pytest.importorskip("safetensors", reason="safetensors is not installed")
    path = tmp_path / f"weights.{ending}"
    params = {
        "file": np.float64(3),
        "allow_pickle": np.ones((2, 0, 3), np.float32),
        "../a b/ü": np.arange(12.0).reshape(3, 4).T,
        "self": np.arange(6)[::-2],
    }
    mb.save_params(path, params)
    found = {name: np.zeros_like(value) for name, value in params.items()}
    mb.load_params(path, found)
    for name, value in params.items():
        assert np.array_equal(found[name], value) and found[name].shape == value.shape


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_what_is_no_parameter_is_not_written(tmp_path, ending):
    if ending == "safetensors":
        pytest.importorskip("safetensors", reason="safetensors is not installed")
    for params, message in [
        ({"a": np.array([{}])}, "params has a of type object; give an array of numbers"),
        ({"a": "text"}, "params has a of type <U4; give an array"),
        ({3: np.ones(2)}, "params has an entry 3; give names that are str"),
    ]:
        with pytest.raises(TypeError, match=message):
            mb.save_params(tmp_path / f"weights.{ending}", params)
    assert not list(tmp_path.iterdir())


def test_a_cell_is_no_dict(tmp_path):
    cell, path = LSTM(3, 4), tmp_path / "weights.npz"
    for call in (partial(mb.save_params, path), partial(mb.load_params, path)):
        with pytest.raises(TypeError, match="params is of type LSTM; give a dict, like cell"):
            call(cell)
    with pytest.raises(TypeError, match=r"state_dict is of type LSTM; give a dict, like module"):
        mb.from_torch(cell)


def test_a_pickle_is_never_loaded(tmp_path):
    path = tmp_path / "weights.npz"
    np.savez(path, W_x=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ValueError, match="cannot be read"):
        mb.load_params(path, LSTM(3, 4).params)


def test_a_member_that_is_no_array(tmp_path):
    path = tmp_path / "weights.npz"
    with zipfile.ZipFile(path, "w") as target:
        target.writestr("W_x.npy", b"no array")
    with pytest.raises(ValueError, match=r"cannot be read \(W_x is no array\)"):
        mb.load_params(path, LSTM(3, 4).params)


def test_a_small_file_that_unpacks_to_much(tmp_path):
    """What fits is read, compressed or not, and the rest is refused before it takes memory."""
    path = tmp_path / "weights.npz"
    cell = LSTM(3, 4)
    np.savez_compressed(path, **cell.params)
    mb.load_params(path, cell.params)
    np.savez_compressed(path, **cell.params, more=np.zeros(10**6))
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"cannot be read \(unpacks to 8\d+ bytes, more than"):
        mb.load_params(path, cell.params)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10**6
