"""Text from a model: each character drawn from what the model says about it, then read as the next.

    p(character) = softmax(y / temperature),  y = h W_y + b_y                               [V]

The first one is drawn from a hidden state of zeros, unless there is a text to go on from. Plain
array code on the host: one row, one step a character.
"""

import math

import numpy as np

from membptt.checks import integer
from membptt.training.checkpoint import load_checkpoint
from membptt.training.loop import all_params
from membptt.training.settings import Settings, make_model


def load_model(path):
    """Return cell, head and alphabet of a checkpoint, on the host, whatever it was trained on.

    Raises
    ------
    ValueError
        As `load_checkpoint`, or if the arrays are not those of the settings.
    """
    found, arrays = load_checkpoint(path)
    settings = Settings.from_dict(found, str(path))
    try:
        alphabet = "".join(map(chr, arrays["alphabet"].tolist()))
        alphabet.encode("utf-8")
        cell, head = make_model(settings, len(alphabet), "numpy")
        for name, value in all_params(cell, head).items():
            saved = arrays[f"param/{name}"]
            if (saved.shape, saved.dtype) != (value.shape, value.dtype):
                raise ValueError(f"{name} is {saved.dtype} {list(saved.shape)}")
            value[...] = saved
    except (KeyError, TypeError, ValueError, OverflowError, MemoryError) as error:
        raise ValueError(
            f"checkpoint {str(path)!r} has no model that can be read: {error}"
        ) from None
    cell.set_noise(None)
    return cell, head, alphabet


def sample(cell, head, length, temperature=1.0, prime=(), seed=0):
    """Yield the numbers of `length` characters, one by one.

    Parameters
    ----------
    cell : membptt.Cell
        Of tokens.
    head : membptt.SoftmaxHead
        As many classes as the cell has tokens.
    length : int
    temperature : float
        Below 1 what is likely gets likelier still; 0 for the most likely one, the first of several.
    prime : sequence of int
        What to read before; it is not repeated.
    seed : int

    Raises
    ------
    ValueError
        If `length` is below 1, `temperature` or `seed` negative or not finite.
    """
    length = integer("length", length, minimum=1)
    if not 0 <= temperature < math.inf:
        raise ValueError(f"temperature is {temperature}; give a finite number from 0 on")
    generator = np.random.default_rng(integer("seed", seed, minimum=0))
    state = cell.zero_state(1)
    for token in prime:
        state = cell.advance(np.array([token]), state)
    for _ in range(length):
        y = (state[0] @ head.params["W_y"] + head.params["b_y"])[0]
        token = draw(y.astype(np.float64), temperature, generator)
        yield token
        state = cell.advance(np.array([token]), state)


def draw(y, temperature, generator):
    """Return one class by its score y [V]."""
    if temperature == 0:
        return int(y.argmax())
    with np.errstate(over="ignore"):  # a low temperature: e to minus infinity is 0
        sums = np.exp((y - y.max()) / temperature).cumsum()
    # Divided first, since a product could round up to the last sum, which no class is above.
    return int(np.searchsorted(sums / sums[-1], generator.random(), side="right"))
