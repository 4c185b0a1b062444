"""A checkpoint is whole or not there, and training goes on from it to the same bits."""

import os
import tracemalloc
import zipfile

import numpy as np
import pytest

from membptt import files
from membptt.training import checkpoint
from membptt.training.checkpoint import check_writable, load_checkpoint, save_checkpoint
from membptt.training.corpus import Corpus
from membptt.training.settings import Settings, make_trainer

SETTINGS = {"steps": 3, "cell": "lstm"}


def arrays():
    return {"W": np.arange(6.0).reshape(2, 3), "k": np.array(7), "text": np.arange(3, dtype="u1")}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "état.npz"
    save_checkpoint(path, SETTINGS, arrays())
    return path


def test_round_trip(path):
    settings, found = load_checkpoint(path)
    assert settings == SETTINGS
    assert found.keys() == arrays().keys()
    for name, value in arrays().items():
        assert found[name].dtype == value.dtype
        assert np.array_equal(found[name], value)
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("backend", ["numpy", "cython"])
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
@pytest.mark.parametrize("stop", [0, 1, 7, 8, 9])  # the text begins anew after 8 windows
def test_resumed_training_gives_the_same_bits(make, tmp_path, stop, cell, backend):
    uninterrupted = make(cell=cell, backend=backend)
    for _ in range(11):
        uninterrupted.update()
    begun = make(cell=cell, backend=backend)
    for _ in range(stop):
        begun.update()
    save_checkpoint(tmp_path / "x", {}, begun.arrays())
    resumed = make(cell=cell, backend=backend, strategy="hsm", memory="2 kB", seed=5)
    resumed.restore(load_checkpoint(tmp_path / "x")[1])
    for _ in range(11 - stop):
        resumed.update()
    for name in ("updates", "loss_first", "loss_last", "parameters_sha256"):
        assert resumed.report()[name] == uninterrupted.report()[name]


@pytest.mark.parametrize("stop", [0, 1, 2, 5, 8])  # in the warm-up, at its end, in the decay
@pytest.mark.parametrize("decay", ["constant", "cosine", "exponential"])
@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_resumed_training_gives_the_same_bits_for_every_optimizer(
    make, tmp_path, optimizer, decay, stop
):
    def begin():
        return make(hidden=4, steps=6, optimizer=optimizer, decay=decay, warmup=2, updates=7)

    uninterrupted, begun, resumed = begin(), begin(), begin()
    rates = [uninterrupted.update().learning_rate for _ in range(9)]
    for _ in range(stop):
        begun.update()
    save_checkpoint(tmp_path / "x", {}, begun.arrays())
    resumed.restore(load_checkpoint(tmp_path / "x")[1])
    assert [resumed.update().learning_rate for _ in range(9 - stop)] == rates[stop:]
    assert resumed.report()["parameters_sha256"] == uninterrupted.report()["parameters_sha256"]


@pytest.mark.parametrize("keep", [0, 1, 100, 0.5, -1])
def test_cut_short(path, keep):
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * keep) if keep == 0.5 else keep])
    with pytest.raises(ValueError, match="cannot be read"):
        load_checkpoint(path)


def test_every_flipped_byte_is_noticed(path):
    whole = path.read_bytes()
    settings, found = load_checkpoint(path)
    for at in range(0, len(whole), 7):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        try:
            same_settings, same = load_checkpoint(path)
        except ValueError as error:
            assert "\n" not in str(error)
            continue
        # A byte that carries nothing, such as a date in the zip: what was read is right.
        assert same_settings == settings
        assert all(np.array_equal(same[name], value) for name, value in found.items())


def test_altered_by_hand(path):
    with np.load(path) as file:
        content = dict(file)
    content["W"] = content["W"] + 1
    with open(path, "wb") as file:
        np.savez(file, **content)
    with pytest.raises(ValueError, match="was altered since it was written"):
        load_checkpoint(path)


def test_another_version(path, monkeypatch):
    monkeypatch.setattr(checkpoint, "FORMAT", 4)
    with pytest.raises(ValueError, match="has format 3, this version of membptt reads 4"):
        load_checkpoint(path)


@pytest.mark.parametrize("content", [b"", b"hello", b"\x80\x04K\x01.", b"PK\x03\x04"])
def test_other_files(tmp_path, content):
    other = tmp_path / "other"
    other.write_bytes(content)
    with pytest.raises(ValueError, match=r"'.*other' cannot be read \(not a checkpoint"):
        load_checkpoint(other)
    np.save(tmp_path / "one.npy", np.arange(3))
    with pytest.raises(ValueError, match="cannot be read"):
        load_checkpoint(tmp_path / "one.npy")


@pytest.mark.parametrize(
    "change",
    [
        {"format": np.array([3, 3])},
        {"format": np.array(["3", "x"])},
        {"settings": np.frombuffer(20_000 * b"[", np.uint8)},
        {"sha256": np.array([{}])},  # a pickle
    ],
)
def test_members_of_another_kind(path, change):
    with np.load(path) as file:
        content = dict(file) | change
    np.savez(path, **content)
    with pytest.raises(ValueError, match=r"cannot be read \(not a checkpoint"):
        load_checkpoint(path)


@pytest.mark.parametrize("name", ["W", "sha256", "settings", "format"])
def test_members_that_are_no_arrays(path, name):
    with zipfile.ZipFile(path) as source:
        members = {entry: source.read(entry) for entry in source.namelist()}
    members[f"{name}.npy"] = b"no array"
    with zipfile.ZipFile(path, "w") as target:
        for entry, content in members.items():
            target.writestr(entry, content)
    with pytest.raises(ValueError, match=r"cannot be read \(not a checkpoint"):
        load_checkpoint(path)


def test_a_small_file_that_unpacks_to_much(path):
    with np.load(path) as file:
        content = dict(file) | {"W": np.zeros(10**6)}
    np.savez_compressed(path, **content)
    tracemalloc.start()
    with pytest.raises(ValueError, match="cannot be read"):
        load_checkpoint(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10**6


def test_an_array_that_claims_to_be_larger_than_all_memory(path):
    with zipfile.ZipFile(path, "w") as archive, archive.open("W.npy", "w") as file:
        header = {"descr": "<f8", "fortran_order": False, "shape": (2**50,)}
        np.lib.format.write_array_header_1_0(file, header)
    with pytest.raises(ValueError, match="cannot be read"):
        load_checkpoint(path)


def test_no_file(tmp_path):
    with pytest.raises(ValueError, match="does not exist; give a file that --save wrote"):
        load_checkpoint(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="is a directory"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failed_save_leaves_the_file_of_before(path, monkeypatch, fault, call):
    before = path.read_bytes()

    def fail(*_):
        raise fault

    monkeypatch.setattr(files.os, call, fail)
    with pytest.raises(type(fault)):
        save_checkpoint(path, {}, {})
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_a_link_stays_a_link(path):
    link = path.with_name("link")
    link.symlink_to(path)
    save_checkpoint(link, {"new": 1}, {})
    assert link.is_symlink()
    assert load_checkpoint(path)[0] == {"new": 1}


def test_check_writable(tmp_path):
    check_writable(tmp_path / "new")
    assert os.listdir(tmp_path) == []
    with pytest.raises(ValueError, match=r"save is .*, a directory; give a file"):
        check_writable(tmp_path)
    with pytest.raises(ValueError, match=r"no file can be written .*No such file"):
        check_writable(tmp_path / "no" / "folder")
    with pytest.raises(ValueError, match=r"no file can be written .*too long"):
        check_writable(tmp_path / ("n" * 300))
    with pytest.raises(ValueError, match="no file can be written"):
        check_writable("a\0b")


def test_restore_refuses_what_does_not_fit(make):
    trainer = make()
    found = trainer.arrays()
    before = trainer.report()["parameters_sha256"]
    with pytest.raises(ValueError, match=r"optimizer/m/W_h is missing, not float32 \[8, 32\]"):
        trainer.restore({name: found[name] for name in found if name != "optimizer/m/W_h"})
    with pytest.raises(ValueError, match=r"param/b is float64 \[32\], not float32 \[32\]"):
        trainer.restore(found | {"param/b": np.zeros(32)})
    for change, message in (
        ({"updates": np.array(-1)}, "updates is -1, position 0 of 0 to 145"),
        ({"position": np.array(-20)}, "position -20 of 0 to 145"),
        ({"position": np.array(146)}, "position 146 of 0 to 145"),
        ({"updates": np.array(3)}, "losses are .*nan"),
        ({"optimizer/k": np.array(-1)}, "optimizer/k is -1"),
    ):
        with pytest.raises(ValueError, match=message):
            trainer.restore(found | change)
    other = make_trainer(Settings(steps=5, batch=1, hidden=8), Corpus("abcdefgh"))
    with pytest.raises(ValueError, match="it was trained on another text than text"):
        other.restore(found)
    assert trainer.report()["parameters_sha256"] == before
