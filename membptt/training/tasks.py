"""Tasks with long dependences: what is to be known at the end was read long before.

    copy_memory   some symbols, a long blank, then the symbols once more    tokens -> tokens
    adding        a sum of two marked numbers among many                    [T, B, 2] -> a number
    digits        a handwritten digit, read pixel by pixel                  [T, B, 1] -> a class

Every example is a pure function of its arguments. The mask says which steps have a target: only
there does a loss make sense. What is there to be predicted at other steps is filled with a target
that is legal and means nothing.

Sources: Hochreiter and Schmidhuber (1997), sections 5.4 (adding) and 5.2 (a symbol kept over a time
lag); copy_memory as in Arjovsky, Shah and Bengio (2016), section 4.1; pixel by pixel after Le,
Jaitly and Hinton (2015).

Letters of shapes: T steps, B batch.
"""

from dataclasses import dataclass

import numpy as np

from membptt.checks import integer, shown


@dataclass(frozen=True)
class Example:
    """A batch of sequences for a task.

    Attributes
    ----------
    inputs : numpy.ndarray
        Tokens [T, B], or [T, B, I].
    targets : numpy.ndarray
        Class numbers [T, B], or [T, B, V].
    mask : numpy.ndarray of bool
        [T, B]: at which steps the target counts.
    """

    inputs: np.ndarray
    targets: np.ndarray
    mask: np.ndarray


def copy_memory(delay, batch, length=10, symbols=8, seed=0):
    """Return sequences whose first symbols are to be said again after a delay.

    First `length` random symbols, then `delay` steps of which the last one is a marker and the
    others are blank, then `length` blanks, at which the symbols are to be said in their order.
    Class numbers: the symbols from 0, the blank, the marker.

    Parameters
    ----------
    delay : int
        Steps between the last symbol and the first answer, the marker included.
    batch : int
    length : int
        How many symbols.
    symbols : int
        How many different ones.
    seed : int

    Returns
    -------
    Example
        T = delay + 2 length; tokens from an alphabet of symbols + 2.

    Examples
    --------
    >>> copy_memory(delay=4, batch=1, length=2, symbols=3).inputs.ravel().tolist()
    [2, 1, 3, 3, 3, 4, 3, 3]
    """
    delay, batch = integer("delay", delay, minimum=1), integer("batch", batch, minimum=1)
    length = integer("length", length, minimum=1)
    symbols = integer("symbols", symbols, minimum=1)
    blank, marker = symbols, symbols + 1
    steps = delay + 2 * length
    said = np.random.default_rng(seed).integers(symbols, size=(length, batch))
    inputs = np.full((steps, batch), blank)
    inputs[:length] = said
    inputs[length + delay - 1] = marker
    targets = np.full((steps, batch), blank)
    targets[-length:] = said
    mask = np.zeros((steps, batch), bool)
    mask[-length:] = True
    return Example(inputs, targets, mask)


def adding(steps, batch, seed=0, dtype="float32"):
    """Return sequences of numbers of which two are marked; their sum is wanted at the last step.

    The first input is uniform in [0, 1), the second 1 at the two marked steps and else 0: one of
    them in either half. To say 1 always gives a mean squared error of 1/6.

    Parameters
    ----------
    steps, batch : int
        T, at least 2, and B.
    seed : int
    dtype : {"float32", "float64"}

    Returns
    -------
    Example
        Inputs [T, B, 2], targets [T, B, 1].

    Examples
    --------
    >>> example = adding(steps=50, batch=1)
    >>> values, marks = example.inputs[:, 0].T
    >>> bool(abs(values @ marks - example.targets[-1, 0, 0]) < 1e-6)
    True
    """
    steps, batch = integer("steps", steps, minimum=2), integer("batch", batch, minimum=1)
    generator = np.random.default_rng(seed)
    values = generator.random((steps, batch))
    half = steps // 2
    marked = generator.integers(half, size=batch), generator.integers(half, steps, size=batch)
    marks = np.zeros((steps, batch))
    targets = np.zeros((steps, batch, 1))
    for at in marked:
        marks[at, np.arange(batch)] = 1
        targets[-1, :, 0] += values[at, np.arange(batch)]
    mask = np.zeros((steps, batch), bool)
    mask[-1] = True
    return Example(np.stack([values, marks], axis=2).astype(dtype), targets.astype(dtype), mask)


def digits(batch=None, part="train", seed=0, dtype="float32"):
    """Return images of handwritten digits, 8 x 8 pixels, one pixel a step; which digit, at the end.

    Parameters
    ----------
    batch : int, optional
        So many, drawn at random; by default all.
    part : {"train", "test"}
        The first 1500 of 1797 images, or the others.
    seed : int
    dtype : {"float32", "float64"}

    Returns
    -------
    Example
        T = 64; inputs [T, B, 1] from 0 to 1, targets [T, B] below 10.

    Raises
    ------
    ValueError
        If scikit-learn is not installed: it brings the images, no network is needed.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise ValueError(
            "digits need scikit-learn, which is not installed; pip install 'membptt[tasks]'"
        ) from None
    if part not in ("train", "test"):
        raise ValueError(f'part is {shown(part)}; give "train" or "test"')
    images, classes = load_digits(return_X_y=True)
    chosen = slice(None, 1500) if part == "train" else slice(1500, None)
    images, classes = images[chosen], classes[chosen]
    if batch is not None:
        batch = integer("batch", batch, minimum=1)
        drawn = np.random.default_rng(seed).integers(len(images), size=batch)
        images, classes = images[drawn], classes[drawn]
    inputs = np.ascontiguousarray(images.T[:, :, None] / 16).astype(dtype)
    mask = np.zeros(inputs.shape[:2], bool)
    mask[-1] = True
    return Example(inputs, np.tile(classes, (len(inputs), 1)), mask)
