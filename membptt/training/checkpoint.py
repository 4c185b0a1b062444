"""Checkpoints: one .npz file with all that training goes on from.

A file holds the arrays, the settings as JSON, the format's version, and a SHA-256 over all of that.
It is written beside its place and moved there in one step (membptt.files): a crash or a full disk
leaves the file of before. It is read without pickle: a file cannot run code.
"""

import hashlib
import json
import os

import numpy as np

from membptt.files import make_beside, read_arrays, replacing, write_arrays

FORMAT = 3


class Unwritable(ValueError):
    """A file of a training run cannot be written."""


def save_checkpoint(path, settings, arrays):
    """Write a checkpoint in the place of `path`.

    Parameters
    ----------
    path : str or path
        Ends as you like; an older file is replaced.
    settings : dict
        Of what JSON can hold.
    arrays : dict of numpy.ndarray

    Raises
    ------
    OSError
        If it cannot be written; the file of before is still there then.
    """
    text = json.dumps(settings, sort_keys=True).encode()
    content = arrays | {"settings": np.frombuffer(text, np.uint8), "format": np.array(FORMAT)}
    content["sha256"] = np.frombuffer(digest(content), np.uint8)
    with replacing(path, "wb") as file:
        write_arrays(file, content)


def load_checkpoint(path):
    """Return settings and arrays of a checkpoint.

    Raises
    ------
    ValueError
        If there is no such file, or it is not a checkpoint of this version, or was cut or altered.
    """
    name = f"checkpoint {str(path)!r}"
    if not os.path.exists(path):
        raise ValueError(f"{name} does not exist; give a file that --save wrote")
    if os.path.isdir(path):
        raise ValueError(f"{name} is a directory; give a file that --save wrote")
    if not os.path.isfile(path):  # reading a device or a pipe might never end
        raise ValueError(f"{name} is a device or a pipe; give a file that --save wrote")
    try:
        with open(path, "rb") as file:
            content = read_arrays(file)
        found, version = content.pop("sha256").tobytes(), content["format"].item()
        settings = json.loads(content["settings"].tobytes())
    except (PermissionError, MemoryError) as error:
        reason = getattr(error, "strerror", error)
        raise ValueError(f"{name} cannot be read ({reason}); give another one") from None
    except Exception as error:  # a cut or altered file makes the readers raise almost anything
        raise ValueError(
            f"{name} cannot be read (not a checkpoint, or cut short); give a file that --save wrote"
        ) from error
    if version != FORMAT:
        raise ValueError(
            f"{name} has format {version}, this version of membptt reads {FORMAT}; resume it with "
            "the version that wrote it"
        )
    if found != digest(content):
        raise ValueError(f"{name} was altered since it was written; give an intact file")
    del content["format"], content["settings"]
    return settings, content


def check_writable(path, option="save"):
    """Raise a ValueError unless a file can be made at `path`: better now than after training."""
    name = f"{option} is {str(path)!r}"
    if os.path.isdir(path):
        raise ValueError(f"{name}, a directory; give a file")
    if os.path.exists(path) and not os.path.isfile(path):
        raise ValueError(f"{name}, a device or a pipe; give a file")
    try:
        make_beside(path)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        raise ValueError(
            f"{name}, where no file can be written ({getattr(error, 'strerror', error)}); give a "
            "file in a folder that exists and is yours"
        ) from None


def digest(content):
    """Return the SHA-256 over names, types, shapes and bytes, sorted by name."""
    found = hashlib.sha256()
    for name in sorted(content):
        value = content[name]
        found.update(f"{name} {value.dtype.str} {value.shape}\n".encode())
        found.update(value.tobytes())
    return found.digest()
