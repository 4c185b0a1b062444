"""The training loop: one update is one window, one schedule, one step of the optimizer.

    window [T, B] -> loss and gradients by the schedule -> clip -> optimizer -> the next window

The hidden state goes from one window to the next, and back to zeros where the text begins anew. The
bits of the parameters depend on the seed, the text and the sizes, never on strategy or budget.
"""

import hashlib
import math
import statistics
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from membptt.arrays import all_finite, from_host, namespace, to_host
from membptt.cells import Cell
from membptt.cells.reduced import exact, is_reduced
from membptt.checks import positive
from membptt.executor import Executor
from membptt.heads import SoftmaxHead
from membptt.oracle.approximation import GradientError, gradient_error
from membptt.schedules import Schedule
from membptt.training.corpus import Corpus, Windows
from membptt.training.optimizers import Optimizer, clip_by_norm
from membptt.training.parallel import Parts
from membptt.training.validation import in_bits
from membptt.types import FilePath

TRACED = 2  # updates under the meter: the second one reuses all that the first one allocated


@dataclass(frozen=True)
class Update:
    """What one update did.

    Attributes
    ----------
    number : int
        1, 2, ..., counted from the start of training.
    loss : float
        Before the update, in nats a character.
    gradient_norm : float
        Before clipping.
    learning_rate : float
    forward_steps : int
        Steps run forward, recomputations included.
    peak_bytes : int
        The most bytes of the arena in use at once.
    seconds : float
        Wall-clock time.
    """

    number: int
    loss: float
    gradient_norm: float
    learning_rate: float
    forward_steps: int
    peak_bytes: int
    seconds: float

    @property
    def bits(self) -> float:
        """The loss in bits a character."""
        return in_bits(self.loss)


class Trainer:
    """Trains a cell and a head to tell the next character of a text.

    Parameters
    ----------
    cell : membptt.Cell
        Its input size is that of the alphabet; its parameters are changed in place. Noise that it
        has (`Cell.set_noise`) is drawn anew for every update, from the update's number, and is off
        between updates.
    head : membptt.SoftmaxHead
        As many classes as the alphabet has characters.
    schedule : membptt.Schedule
        Its number of steps is the length of a window.
    corpus : Corpus
    optimizer : SGD, Adam or AdamW
        Over `all_params(cell, head)`.
    batch : int
        Streams that the text is cut into.
    clip : float
        Largest norm of all gradients together; infinity to leave them as they are.
    meter : PeakMeter, optional
        Made before cell, head and optimizer, so that these are counted too. It is stopped after
        the second update: tracing slows these two a little, and the later ones, at full speed,
        allocate nothing that they did not.
    disk : path, optional
        Folder for strategy disk.
    parts : membptt.training.parallel.Parts, optional
        Back-propagate the batch part by part, other processes' parts among them; `schedule` is then
        for the rows of one part. By default the whole batch at once.

    Attributes
    ----------
    updates : int
        How many were made since the start of training.
    position : int
        Where in every stream the next window starts.
    state : tuple of numpy.ndarray
        The hidden state that enters the next window.
    loss_first, loss_last : float or None
        In nats a character; kept over save and resume.
    gradient_errors : list of GradientError
        What `measure_error` found, in order.

    Raises
    ------
    ValueError
        If the text is too short, or its alphabet is not the cell's and the head's.
    """

    def __init__(
        self,
        cell: Cell,
        head: SoftmaxHead,
        schedule: Schedule,
        corpus: Corpus,
        optimizer: Optimizer,
        batch: int,
        clip: float = 1.0,
        meter: Any = None,
        disk: FilePath | None = None,
        parts: Parts | None = None,
    ) -> None:
        for name, size in (("input_size", cell.input_size), ("head's outputs", head.outputs)):
            if size != len(corpus.alphabet):
                raise ValueError(
                    f"{name} is {size}; give {len(corpus.alphabet)}, as many as {corpus.name} has "
                    "distinct characters"
                )
        self.meter = meter
        self.cell = cell
        self.head = head
        self.schedule = schedule
        self.corpus = corpus
        self.optimizer = optimizer
        self.clip = positive("clip", clip, largest=math.inf)
        self.windows = Windows(corpus, schedule.steps, batch)
        self.parts = Parts(1, batch) if parts is None else parts
        self.executor = Executor(cell, schedule, self.parts.rows, disk=disk)
        self.cell.set_noise(None)
        self.updates = self.position = 0
        self.state = self.zero_state()
        self.loss_first = self.loss_last = None
        self.seconds: list[float] = []
        self.gradient_errors: list[GradientError] = []
        self.arena_peak_bytes = None
        self.stats = None
        self.ledger = self.executor.ledger
        if self.ledger is not None:
            self.ledger.hold("moments", optimizer.nbytes)

    def update(self) -> Update:
        """Train on the next window.

        Returns
        -------
        Update

        Raises
        ------
        FloatingPointError
            If the loss or the norm of the gradients is not finite: nothing has been changed then.
            Or if a parameter is not finite after the step.
        ValueError
            If a parameter was not finite before it.
        """
        started = time.perf_counter()
        number = self.updates + 1
        inputs, targets = self.windows.at(self.position)
        self.optimizer.params.update(all_params(self.cell, self.head))  # some may be other arrays
        self.cell.set_noise(number)
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # what overflows is found and named
                result = self.parts.run(self.executor, self.head, inputs, targets, self.state)
                with self.scratch():
                    norm = clip_by_norm(result.grads, self.clip)
                    if not math.isfinite(norm):
                        raise FloatingPointError(self.blame_gradient(result.grads))
                    self.optimizer.step(result.grads)
        except (FloatingPointError, ValueError) as error:
            raise type(error)(f"update {number}: {error}") from None
        finally:
            self.cell.set_noise(None)
        self.position = self.windows.after(self.position)
        self.state = result.state
        if self.position == 0:
            self.state = self.zero_state()
        self.updates = number
        self.loss_last = result.loss
        if number == 1:
            self.loss_first = result.loss
        seconds = time.perf_counter() - started
        self.seconds.append(seconds)
        self.stats = result.stats
        self.arena_peak_bytes = max(self.arena_peak_bytes or 0, result.stats.peak_bytes)
        if self.meter is not None and len(self.seconds) == TRACED:
            self.meter.stop()
        return Update(
            number,
            result.loss,
            norm,
            self.optimizer.rate(number),
            result.stats.forward_steps,
            result.stats.peak_bytes,
            seconds,
        )

    def measure_error(self):
        """Compare the next update's gradients with the exact ones: for reduced internal states.

        On the first part of this process, if the batch is cut into parts. Beside the arena it takes
        the budget once more while it runs, but no less than one exact internal state; the meter
        leaves that out.

        Returns
        -------
        membptt.GradientError

        Raises
        ------
        FloatingPointError
            If the loss of that update is not finite.
        """
        if self.meter is not None and self.seconds:
            self.meter.stop()
        inputs, targets = self.windows.at(self.position)
        rows, first = self.parts.mine[0], self.parts.own.start
        state = tuple(array[rows.start - first : rows.stop - first] for array in self.state)
        bound = self.head.with_targets(np.ascontiguousarray(targets[:, rows]))
        window = np.ascontiguousarray(inputs[:, rows])
        least = exact(self.cell).internal_nbytes(self.parts.rows)
        with np.errstate(over="ignore", invalid="ignore"):
            self.cell.set_noise(self.updates + 1, rows.start)
            try:
                found = gradient_error(
                    self.cell, window, bound, state, max(self.schedule.budget, least)
                )
            finally:
                self.cell.set_noise(None)
        self.gradient_errors.append(found)
        if self.meter is not None:
            self.meter.forget()
        return found

    def zero_state(self):
        """Return a hidden state of zeros for the rows that this process has."""
        return self.cell.zero_state(self.parts.own.stop - self.parts.own.start)

    @contextmanager
    def scratch(self):
        """Have the device's ledger say what an update of the parameters takes for itself."""
        if self.ledger is None:
            yield
            return
        self.ledger.hold("scratch", self.optimizer.scratch_nbytes)
        yield
        self.ledger.give("scratch")

    def blame_gradient(self, grads):
        """Return a line that says which gradient is not finite, and in which steps."""
        begin = f"steps {self.position + 1} to {self.position + self.windows.steps} of every stream"
        for name, value in grads.items():
            if not all_finite(value):
                return (
                    f"the gradient of {name} is not finite after {begin}; lower the learning rate "
                    "or take fewer steps"
                )
        return f"the norm of the gradients overflows after {begin}; lower the learning rate"

    def seconds_per_update(self):
        """Return the median over the updates made here, the traced ones left out if it can be."""
        timed = self.seconds if self.meter is None else self.seconds[TRACED:] or self.seconds
        return statistics.median(timed) if timed else None

    def report(self):
        """Return the numbers of the run, by the names that the command line prints.

        Returns
        -------
        dict
            ``measured_peak_bytes`` is what the meter saw: the arena, parameters, gradients,
            moments, workspace and windows together, but not the text; on a device it is the peak
            of the ledger. ``seconds_per_update`` is the median. What was not measured, because no
            update was made here or there is no meter, is None. With strategy disk,
            ``disk_hidden_fraction`` is the share of the last update's transfers that nobody waited
            for. With reduced internal states, ``gradient_error_first`` and ``gradient_error_last``
            are what `measure_error` found at first and at last.
        """
        measured = None
        if self.ledger is not None and self.seconds:
            measured = self.ledger.peak
        elif self.meter is not None and self.seconds:
            self.meter.stop()
            measured = self.meter.peak_bytes
        found = {
            "updates": self.updates,
            "loss_first": self.loss_first,
            "loss_last": self.loss_last,
            "bits_per_char_last": in_bits(self.loss_last),
            "budget_bytes": self.schedule.budget,
            "arena_peak_bytes": self.arena_peak_bytes,
            "measured_peak_bytes": measured,
            "full_bytes": self.schedule.full_bytes,
            "forward_steps_per_update": self.schedule.forward_steps,
            "seconds_per_update": self.seconds_per_update(),
            "parameters_sha256": digest(all_params(self.cell, self.head)),
        }
        if is_reduced(self.cell):
            errors = [each.total for each in self.gradient_errors]
            found |= {
                "gradient_error_first": errors[0] if errors else None,
                "gradient_error_last": errors[-1] if len(errors) > 1 else None,
            }
        if self.schedule.intervals is not None and self.stats is not None:
            found |= {
                "disk_interval": self.schedule.intervals.interval,
                "disk_written_bytes_per_update": self.stats.disk_written_bytes,
                "disk_read_bytes_per_update": self.stats.disk_read_bytes,
                "disk_hidden_fraction": self.stats.disk_hidden_fraction,
            }
        return found

    def arrays(self):
        """Return all that training goes on from, by name: what `restore` takes.

        Of several processes all have to call this: each has the hidden state of its own rows.
        """
        params = {f"param/{name}": array for name, array in self.optimizer.params.items()}
        moments = {f"optimizer/{name}": array for name, array in self.optimizer.arrays().items()}
        copied = {name: np.array(to_host(array)) for name, array in (params | moments).items()}
        state = {
            f"state/{name}": self.parts.gathered(to_host(array))
            for name, array in zip(self.cell.hidden_names, self.state, strict=True)
        }
        losses = [math.nan if x is None else x for x in (self.loss_first, self.loss_last)]
        return (
            copied
            | state
            | {
                "updates": np.array(self.updates),
                "position": np.array(self.position),
                "losses": np.array(losses),
                "text": np.frombuffer(bytes.fromhex(self.corpus.sha256), np.uint8),
                "alphabet": np.array([ord(character) for character in self.corpus.alphabet]),
            }
        )

    def restore(self, arrays):
        """Go on from what `arrays` returned, to the same bits as without the interruption.

        Raises
        ------
        ValueError
            If the text is another one, an array is missing or of another shape or type, or a number
            is none that training comes to; nothing has been changed then.
        """
        here = self.arrays()
        if not np.array_equal(arrays.get("text"), here["text"]):
            raise ValueError(f"it was trained on another text than {self.corpus.name}")
        for name, mine in here.items():
            found = arrays.get(name)
            if found is None or (found.shape, found.dtype) != (mine.shape, mine.dtype):
                what = "missing" if found is None else f"{found.dtype} {list(found.shape)}"
                raise ValueError(f"{name} is {what}, not {mine.dtype} {list(mine.shape)}")
        updates, position = int(arrays["updates"]), int(arrays["position"])
        last = self.windows.streams.shape[1] - self.windows.steps - 1
        if updates < 0 or not 0 <= position <= last:
            raise ValueError(f"updates is {updates}, position {position} of 0 to {last}")
        if arrays["optimizer/k"] < 0:
            raise ValueError(f"optimizer/k is {arrays['optimizer/k']}, a number of updates")
        if updates and not np.isfinite(arrays["losses"]).all():
            raise ValueError(f"losses are {arrays['losses'].tolist()}, not finite")
        for name, value in self.optimizer.params.items():
            value[...] = from_host(arrays[f"param/{name}"], namespace(value))
        self.optimizer.restore(
            {name: arrays[f"optimizer/{name}"] for name in self.optimizer.arrays()}
        )
        self.state = tuple(
            from_host(arrays[f"state/{name}"][self.parts.own], namespace(mine))
            for name, mine in zip(self.cell.hidden_names, self.state, strict=True)
        )
        self.updates, self.position = updates, position
        if self.updates:
            self.loss_first, self.loss_last = arrays["losses"].tolist()


def all_params(cell, head):
    """Return the parameters of both in one dict: what the optimizer moves."""
    return cell.params | head.params


def digest(params):
    """Return the SHA-256 over names, types, shapes and bytes of all parameters, sorted by name."""
    found = hashlib.sha256()
    for name in sorted(params):
        value = np.ascontiguousarray(to_host(params[name]))
        found.update(f"{name} {value.dtype.name} {value.shape}\n".encode())
        found.update(value.astype(value.dtype.newbyteorder("<"), copy=False).tobytes())
    return found.hexdigest()
