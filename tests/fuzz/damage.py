"""What becomes of files: bytes flipped, cut, moved; members replaced by others, and by pickles."""

import io
import json
import os
import zipfile

import numpy as np

from membptt.training.checkpoint import digest

WORDS = [b"", b"\0", b"\xff" * 8, b"[" * 5000, b"{", b'"', b"\n", b"nan", b"-1", b"9" * 400]


class Executed:
    """Makes a folder in the current one when it is unpickled."""

    def __reduce__(self):
        return os.mkdir, ("executed",)


def altered(rng, data):
    """Return bytes with one to three changes."""
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 3])):
        at, end = sorted(rng.randrange(len(data) + 1) for _ in range(2))
        end = min(end, at + rng.choice([1, 2, 8, 1000]))
        change = rng.randrange(7)
        if change == 0 and data:
            data[min(at, len(data) - 1)] ^= 1 << rng.randrange(8)
        elif change == 1:
            data[at:end] = rng.randbytes(end - at)
        elif change == 2:
            del data[at:]
        elif change == 3:
            del data[at:end]
        elif change == 4:
            data[at:at] = rng.choice(WORDS)
        elif change == 5:
            data[at:at] = data[rng.randrange(len(data) + 1) :][: end - at]
        else:
            data[at:end] = bytes(end - at)
    return bytes(data)


def other_array(rng, array):
    """Return another array in the place of this one."""
    dtypes = ["u1", "i8", "<f4", ">f8", "f2", "c8", "?", "U3", "S2", "M8[s]", "V5", [("a", "i4")]]
    made = [
        lambda: array.astype(rng.choice(["f4", "f8", "i8", "u1", ">f4", "c16"])),
        lambda: array[..., None],
        lambda: array.ravel(),
        lambda: array[:0] if array.ndim else array[None],
        lambda: np.asfortranarray(array),
        lambda: np.full_like(array, rng.choice([0, 1, 2**7 - 1])),
        lambda: np.full(array.shape, rng.choice([np.nan, np.inf, -1e300, 2.0**62])),
        lambda: np.full(array.shape, rng.choice([-(2**63), 2**40, 2**63 - 1, -1])),
        lambda: np.zeros(rng.choice([(), (0,), (1,), (2, 3), (0, 5)]), rng.choice(dtypes)),
        lambda: np.frombuffer(rng.randbytes(array.nbytes), array.dtype).reshape(array.shape),
    ]
    with np.errstate(all="ignore"):
        return rng.choice(made)()


def other_settings(rng, settings):
    """Return the settings of a checkpoint with one value, or more than that, replaced."""
    values = [None, True, 0, -1, 1, 2, 3.5, 1e308, 2**31, 2**63, 2**70, "", "1 B", [], {}]
    values += "x adam lstm gru ln-rnn disk full numpy int8 cosine /dev/zero".split()
    found = dict(settings)
    for _ in range(rng.choice([1, 1, 2])):
        found[rng.choice(sorted(found))] = rng.choice(values)
    if rng.random() < 0.1:
        return rng.choice([[], 3, None, "settings", {}, found | {"more": 1}])
    return found


def checkpoint(rng, data):
    """Return a checkpoint of other content: sealed, so that the content is read."""
    with np.load(io.BytesIO(data)) as file:
        content = dict(file)
    if rng.random() < 0.4:
        settings = other_settings(rng, json.loads(content["settings"].tobytes()))
        content["settings"] = np.frombuffer(json.dumps(settings).encode(), np.uint8)
    for _ in range(rng.choice([0, 1, 1, 2])):
        name = rng.choice(sorted(content))
        if rng.random() < 0.1:
            del content[name]
        else:
            content[name] = other_array(rng, content[name])
    if rng.random() < 0.95:
        content.pop("sha256", None)
        content["sha256"] = np.frombuffer(digest(content), np.uint8)
    return archive(content, rng.random() < 0.1)


def weights(rng, data):
    """Return an .npz file of other arrays."""
    with np.load(io.BytesIO(data)) as file:
        content = dict(file)
    name = rng.choice(sorted(content))
    content[name] = other_array(rng, content[name])
    return archive(content, rng.random() < 0.5)


def archive(content, compressed=False):
    """Return the bytes of an .npz file."""
    file = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(file, **content)
    return file.getvalue()


def members(rng, data):
    """Return an archive whose members are something else than arrays, or claim to be more."""
    source = zipfile.ZipFile(io.BytesIO(data))
    names = source.namelist()
    chosen = rng.choice(names)
    file = io.BytesIO()
    compression = rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
    with zipfile.ZipFile(file, "w", compression) as target:
        for name in names:
            content = source.read(name)
            if name == chosen:
                content = member(rng, content)
            target.writestr(name, content)
        if rng.random() < 0.1:
            target.writestr(rng.choice(["../out.npy", "more.npy", "a/b", "x" * 300]), b"")
    return file.getvalue()


def member(rng, content):
    """Return what stands in the place of an array in .npy form."""
    file = io.BytesIO()
    kind = rng.randrange(5)
    if kind == 0:  # a pickle of an object that makes a folder
        np.save(file, np.array([Executed()], dtype=object), allow_pickle=True)
    elif kind == 1:  # a header of more than there is
        shape = rng.choice([(2**40,), (2**63,), (-1,), (10**7, 10**7), (2**31, 0)])
        header = {"descr": "<f8", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
    elif kind == 2:  # nothing but zeros, a lot of them
        np.save(file, np.zeros(2 * 10**7, np.uint8))
    elif kind == 3:
        file.write(b"\x93NUMPY\x01\x00" + bytes([255, 255]) + rng.choice(WORDS) * 9)
    else:
        file.write(altered(rng, content))
    return file.getvalue()
