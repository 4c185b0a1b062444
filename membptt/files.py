"""Files that are whole or not there: written beside their place, and moved there in one step.

A crash, a full disk or a Ctrl-C leaves the file of before. Only a log grows where it stands. Files
of arrays are read without pickle: a file cannot run code.
"""

import contextlib
import errno
import os
import shutil
import stat
import zipfile
from pathlib import Path

import numpy as np


@contextlib.contextmanager
def replacing(path, mode="w"):
    """Open a new file that takes the place of `path` when the block ends without an exception.

    Parameters
    ----------
    path : str or path
        An older file is replaced and its permissions are kept; a link stays a link. What is no
        file, such as a terminal or a pipe, is written to as it is.
    mode : {"w", "wb"}
        Text is UTF-8.

    Yields
    ------
    file
        Open for writing.

    Raises
    ------
    OSError
        If it cannot be written; the file of before is still there then.
    """
    place = Path(place_of(path))
    encoding = None if "b" in mode else "utf-8"
    other = os.path.exists(path) and not os.path.isfile(path)  # a folder is refused by open
    if other or os.fspath(path).startswith("/dev/"):  # /dev/stdout may lead to a file that is open
        with open(path, mode, encoding=encoding) as file:
            yield file
        return
    temporary = beside(place)
    try:
        file = open(temporary, mode.replace("w", "x"), encoding=encoding)
    except OSError as error:  # name the user's path, not the temporary one
        raise type(error)(error.errno, error.strerror, str(path)) from None
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if place.exists():
            shutil.copymode(place, temporary)
        os.replace(temporary, place)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    sync_directory(place.parent)


def appending(path, kept):
    """Return the file at `path`, cut after `kept` bytes, to add to at its end.

    It has no buffer: what was written is there for whoever reads it, or after a crash.

    Raises
    ------
    OSError
        If it cannot be written.
    """
    file = open(path, "ab", buffering=0)
    try:
        file.truncate(kept)
    except BaseException:
        file.close()
        raise
    return file


def is_device(path):
    """Return whether a device is at `path`, such as a terminal: reading one might never end."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):  # nothing is there; ValueError: a null byte in the path
        return False
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)


def place_of(path):
    """Return where the file of a path is, or is to be: links are followed.

    Raises
    ------
    FileNotFoundError
        If the path is empty, for which the system would take the folder that it works in.
    """
    if not os.fspath(path):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    return os.path.realpath(path)


def beside(path):
    """Return a new name in the same folder, as a str: pathlib interns every part it is given."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.{os.urandom(4).hex()}.part")


def make_beside(path):
    """Make a file where `replacing` would, and remove it: an OSError says why that cannot be."""
    temporary = beside(place_of(path))
    open(temporary, "xb").close()
    os.unlink(temporary)


def sync_directory(path):
    """Make the directory's entries outlast a crash."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_arrays(file, arrays):
    """Write arrays of numbers as .npz to an open file: np.savez takes not all names, and pickles.

    Parameters
    ----------
    file : file
        Of bytes.
    arrays : dict of numpy.ndarray

    Raises
    ------
    ValueError
        If an array holds objects.
    """
    with zipfile.ZipFile(file, "w") as archive:
        for name, value in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, value, allow_pickle=False)


def read_arrays(file, most=0):
    """Return the arrays of an open .npz file by name; np.load alone would take other files too.

    Parameters
    ----------
    file : file
        Of bytes.
    most : int
        How many bytes the arrays may take although the file is smaller, if it is compressed.

    Raises
    ------
    zipfile.BadZipFile
        If it is not an archive of arrays, or unpacks to more; a cut or altered one makes the
        readers raise almost anything.
    """
    if not zipfile.is_zipfile(file):
        raise zipfile.BadZipFile("not an archive")
    most = max(most, file.seek(0, os.SEEK_END))
    file.seek(0)
    with np.load(file, allow_pickle=False) as found:
        nbytes = sum(entry.file_size for entry in found.zip.infolist())
        if nbytes > most:
            raise zipfile.BadZipFile(f"unpacks to {nbytes} bytes, more than {most}")
        content = {name: found[name] for name in found.files}
    for name, value in content.items():
        if not isinstance(value, np.ndarray):  # NumPy returns the bytes of what is no .npy
            raise zipfile.BadZipFile(f"{name} is no array")
    return content
