"""The files of a command: nothing that it reads, or writes for another purpose, is written over."""

import os


def check_distinct(outputs, inputs):
    """Raise a ValueError if a file to write is also read, or written under another option.

    Paths are compared by what they lead to: relative ones, links and hard links may name one file.

    Parameters
    ----------
    outputs, inputs : list of (str, str)
        Option and path.
    """
    known = {identity(path): (option, path) for option, path in inputs}
    for option, path in outputs:
        other = known.setdefault(identity(path), (option, path))
        if other[0] != option:
            raise ValueError(
                f"{option} is {path!r}, the same file as {other[0]} {other[1]!r}; give another file"
            )


def identity(path):
    """Return what two paths have in common just when they lead to one file, be it there or not."""
    try:
        place = os.path.realpath(path)
        if os.path.exists(place):
            found = os.stat(place)
            return found.st_dev, found.st_ino
        folder = os.stat(os.path.dirname(place))
        return folder.st_dev, folder.st_ino, os.path.basename(place)
    except (OSError, ValueError):  # no file can be there: whoever opens it says why
        return path
