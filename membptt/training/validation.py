"""How well a model does on text that it is not trained on, and when it has stopped getting better.

The held-out text is cut into B streams of equal length, which are read from their start to their
end in one forward run from a hidden state of zeros: B streams of n characters give B (n - 1)
losses, and a loss here is their mean. Memory does not depend on n.
"""

import math

import numpy as np

from membptt.checks import integer
from membptt.executor import evaluate


class Validation:
    """Evaluates a cell and a head on held-out text, and remembers how well they did.

    Parameters
    ----------
    corpus : Corpus
        Of the alphabet of the text that is trained on.
    batch : int
        B.
    patience : int, optional
        After how many evaluations in a row without improvement there have been enough.

    Attributes
    ----------
    loss, best : float or None
        The last and the least so far, in nats a character.
    best_update : int
        After which update the least was found.
    stale : int
        Evaluations since then.

    Raises
    ------
    ValueError
        If the text is too short.
    """

    def __init__(self, corpus, batch, patience=None):
        batch = integer("batch", batch, minimum=1)
        length = len(corpus.tokens) // batch
        if length < 2:
            raise ValueError(
                f"{corpus.name} has {len(corpus.tokens)} characters; batch {batch} needs "
                f"{2 * batch} to evaluate on: give more of it, or a smaller batch"
            )
        streams = corpus.tokens[: batch * length].reshape(batch, length)
        self.inputs, self.targets = streams[:, :-1].T, streams[:, 1:].T
        self.sha256 = corpus.sha256
        self.patience = patience
        self.loss = self.best = None
        self.best_update = self.stale = 0

    def evaluate(self, cell, head, update, parts=None):
        """Return the loss after this update; remember whether it is the least so far.

        Of several processes, those of `parts` (membptt.training.parallel.Parts), the first one
        evaluates.

        Raises
        ------
        FloatingPointError, ValueError
            If it is not finite.
        """

        def loss():
            try:
                with np.errstate(over="ignore", invalid="ignore"):  # what overflows is named
                    return evaluate(cell, self.inputs, head.with_targets(self.targets))[0]
            except (FloatingPointError, ValueError) as error:
                raise type(error)(f"evaluation after update {update}: {error}") from None

        self.loss = loss() if parts is None else parts.of_first(loss)
        if self.best is None or self.loss < self.best:
            self.best, self.best_update, self.stale = self.loss, update, 0
        else:
            self.stale += 1
        return self.loss

    @property
    def improved(self):
        """Whether the last evaluation was the best so far."""
        return self.best is not None and self.stale == 0

    @property
    def exhausted(self):
        """Whether there have been as many evaluations without improvement as patience allows."""
        return self.patience is not None and self.stale >= self.patience

    def report(self):
        """Return the numbers by the names that the command line prints; None before the first."""
        return {
            "valid_loss_last": self.loss,
            "valid_bits_per_char_last": in_bits(self.loss),
            "valid_loss_best": self.best,
            "valid_bits_per_char_best": in_bits(self.best),
            "valid_updates_best": None if self.best is None else self.best_update,
            "stopped_early": self.exhausted,
        }

    def arrays(self):
        """Return what `restore` takes, by name."""
        losses = [math.nan if x is None else x for x in (self.loss, self.best)]
        return {
            "valid/losses": np.array(losses),
            "valid/counts": np.array([self.best_update, self.stale]),
            "valid/text": np.frombuffer(bytes.fromhex(self.sha256), np.uint8),
        }

    def restore(self, arrays):
        """Go on from what `arrays` returned; begin anew where that was of another text, or none.

        Raises
        ------
        ValueError
            If an array is missing or of another shape or type, or its numbers are none that
            evaluations come to.
        """
        here = self.arrays()
        if not np.array_equal(arrays.get("valid/text"), here["valid/text"]):
            return
        for name, mine in here.items():
            found = arrays.get(name)
            if found is None or (found.shape, found.dtype) != (mine.shape, mine.dtype):
                raise ValueError(f"{name} is missing or not {mine.dtype} {list(mine.shape)}")
        losses, counts = arrays["valid/losses"].tolist(), arrays["valid/counts"].tolist()
        none_yet = np.isnan(losses).all()
        if min(counts) < 0 or not (none_yet or np.isfinite(losses).all()):
            raise ValueError(f"valid/counts are {counts} and valid/losses {losses}")
        self.loss, self.best = (None if math.isnan(loss) else loss for loss in losses)
        self.best_update, self.stale = counts


def in_bits(loss):
    """Return nats in bits; None stays None."""
    return None if loss is None else loss / math.log(2)
