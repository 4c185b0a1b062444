"""The log of a training run: one line a record, JSON or CSV, each written as soon as it is known.

A record is of an update or of an evaluation on held-out text:

    kind                  "update" or "evaluation"
    update                after how many updates since the start of training
    loss, bits_per_char   of the update's window, before the update; nats, bits
    gradient_norm         before clipping
    learning_rate
    forward_steps         run, recomputations included
    peak_bytes            of the arena
    valid_loss, valid_bits_per_char   on the held-out text
    seconds               that it took

In CSV every line has all of them, and those of the other kind are empty; in JSON they are left out.
"""

import errno
import json
import os

from membptt.files import appending
from membptt.training.checkpoint import Unwritable, check_writable
from membptt.training.validation import in_bits

KEYS = (
    "kind",
    "update",
    "loss",
    "bits_per_char",
    "gradient_norm",
    "learning_rate",
    "forward_steps",
    "peak_bytes",
    "valid_loss",
    "valid_bits_per_char",
    "seconds",
)


def json_line(record):
    """Return a record as a line of JSON."""
    return json.dumps(record) + "\n"


def csv_line(record):
    """Return a record as a line of CSV: words and numbers that need no quotes."""
    return ",".join(str(record.get(key, "")) for key in KEYS) + "\n"


def json_update(line):
    """Return the number of updates of a line of JSON."""
    record = json.loads(line)
    return known(record["kind"], record["update"], set(record).issubset(KEYS))


def csv_update(line):
    """Return the number of updates of a line of CSV."""
    kind, update, *others = line.decode().split(",")
    return known(kind, int(update), len(others) == len(KEYS) - 2)


def known(kind, update, keys_fit):
    """Return the number of updates of a record, or raise a ValueError if it is none of ours."""
    if kind not in KINDS or type(update) is not int or not keys_fit:
        raise ValueError(f"{kind} {update}")
    return update


KINDS = ("update", "evaluation")
HEADER = ",".join(KEYS) + "\n"
# By how the file's name ends: the first line, how records begin, a record as a line, a line's
# number of updates.
FORMATS = {
    ".jsonl": ("", [f'{{"kind": "{kind}",' for kind in KINDS], json_line, json_update),
    ".csv": (HEADER, [f"{kind}," for kind in KINDS], csv_line, csv_update),
}


class Log:
    """A file of records, to be used in ``with``.

    Parameters
    ----------
    path : str
        Ends in .jsonl or .csv. A file from before is replaced, or gone on with.
    updates : int, optional
        Go on after the records of so many updates: later ones are dropped, as is a last line that
        was not finished.

    Raises
    ------
    ValueError
        If the name ends in something else, the file cannot be written, or what is there is no log.
    """

    def __init__(self, path, updates=None):
        ending = os.path.splitext(path)[1]
        if ending not in FORMATS:
            raise ValueError(f"log is {path!r}; give a name that ends in {' or '.join(FORMATS)}")
        check_writable(path, "log")
        header, begins, self.line, self.update_of = FORMATS[ending]
        self.path, self.header = path, header.encode()
        self.begins = [begin.encode() for begin in begins]
        try:
            kept = 0 if updates is None or not os.path.exists(path) else self.kept(updates)
            self.file = appending(path, kept)
        except OSError as error:
            raise self.unwritable(error) from None
        if kept == 0:
            try:
                self.append(self.header)
            except BaseException:
                self.file.close()
                raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()

    def kept(self, updates):
        """Return how many bytes are the whole records of the first `updates` updates."""
        end = 0
        with open(self.path, "rb") as file:
            for number, line in enumerate(file, start=1):
                first = number == 1 and self.header
                if not line.endswith(b"\n"):
                    if not self.unfinished(line, [self.header] if first else self.begins):
                        raise self.no_log(number)
                    break
                if b"\r" in line:  # an end of line to some readers
                    raise self.no_log(number)
                if not first:
                    try:
                        later = self.update_of(line) > updates
                    except (ValueError, KeyError, TypeError, RecursionError):
                        raise self.no_log(number) from None
                    if later:
                        break
                elif line != self.header:
                    raise self.no_log(number)
                end += len(line)
        return end

    @staticmethod
    def unfinished(line, begins):
        """Return whether a line without its end is the beginning of one that begins like that."""
        return any(line.startswith(begin) or begin.startswith(line) for begin in begins)

    def no_log(self, number):
        """Return the error that says that a line is no record."""
        return ValueError(
            f"log is {self.path!r}, whose line {number} is not one of a log like this; give "
            "another file"
        )

    def update(self, update):
        """Write what an `Update` did."""
        self.write(
            kind="update",
            update=update.number,
            loss=update.loss,
            bits_per_char=update.bits,
            gradient_norm=update.gradient_norm,
            learning_rate=update.learning_rate,
            forward_steps=update.forward_steps,
            peak_bytes=update.peak_bytes,
            seconds=update.seconds,
        )

    def evaluation(self, update, loss, seconds):
        """Write the loss on held-out text after so many updates."""
        self.write(
            kind="evaluation",
            update=update,
            valid_loss=loss,
            valid_bits_per_char=in_bits(loss),
            seconds=seconds,
        )

    def write(self, **record):
        """Write one record, or raise an Unwritable."""
        self.append(self.line(record).encode())

    def append(self, line):
        """Write one line to the file, past all buffers of Python's."""
        try:
            if self.file.write(line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise self.unwritable(error) from None

    def unwritable(self, error):
        """Return the error that says why the file cannot be written."""
        return Unwritable(
            f"log is {self.path!r}, which cannot be written ({error.strerror}); make room, or give "
            "another place"
        )
