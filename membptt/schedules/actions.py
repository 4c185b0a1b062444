"""What a schedule is made of: actions on a chain of steps and a stack of saved states.

Steps are numbered 1...T, and h_t is the hidden state after step t; h_0 is the caller's and always
at hand. The *working state* is the one hidden state that the next step starts from; it lives
outside the stack. A saved *hidden state* p is h_p; a saved *internal state* s is all that the
backward of step s reads, h_(s-1) included, and h_s can be derived from it too.

An action is a small immutable value; its row form, for compiled code, is three integers
``(code, start, stop)``.
"""

from dataclasses import dataclass
from typing import ClassVar

ADVANCE, SAVE_HIDDEN, SAVE_INTERNAL, RESTORE, BACKWARD, FREE = range(6)
STORE, PREFETCH, FETCH, DROP = range(6, 10)  # slow storage: strategy disk
EXPAND = 10  # strategy expand


@dataclass(frozen=True, slots=True)
class _Segment:
    """Actions that run the steps start + 1...stop."""

    start: int
    stop: int

    code: ClassVar[int]

    @property
    def row(self):
        """The action as integers (code, start, stop)."""
        return self.code, self.start, self.stop


@dataclass(frozen=True, slots=True)
class Advance(_Segment):
    """Run the steps start + 1...stop and save nothing.

    Read as: from h_start, advance to h_stop.
    """

    code: ClassVar[int] = ADVANCE


@dataclass(frozen=True, slots=True)
class AdvanceSaveHidden(_Segment):
    """Run the steps start + 1...stop and push h_stop, which stays the working state.

    Read as: from h_start, advance to h_stop and save it as a hidden state.
    """

    code: ClassVar[int] = SAVE_HIDDEN


@dataclass(frozen=True, slots=True)
class AdvanceSaveInternal(_Segment):
    """Run the steps start + 1...stop and push the internal state of step `stop`.

    Read as: from h_start, advance to h_stop and save the internal state of the last step.
    """

    code: ClassVar[int] = SAVE_INTERNAL


@dataclass(frozen=True, slots=True)
class Restore:
    """Make h_step the working state, from the topmost saved state that can give it.

    That is the hidden state h_step, the internal state of step `step` (which derives it) or of
    step + 1 (which it entered), or for step 0 the caller's initial state.

    Read as: go back to h_step.
    """

    step: int

    code: ClassVar[int] = RESTORE

    @property
    def row(self):
        """The action as integers (code, step, 0)."""
        return self.code, self.step, 0


@dataclass(frozen=True, slots=True)
class Backward:
    """Run the head at `step` and the step's backward, from the internal state on top.

    Read as: back-propagate through this step.
    """

    step: int

    code: ClassVar[int] = BACKWARD

    @property
    def row(self):
        """The action as integers (code, step, 0)."""
        return self.code, self.step, 0


@dataclass(frozen=True, slots=True)
class Free:
    """Pop the top of the stack, which is the state named.

    Read as: give back the memory of this state.
    """

    step: int
    internal: bool

    code: ClassVar[int] = FREE

    @property
    def row(self):
        """The action as integers (code, step, 1 if internal else 0)."""
        return self.code, self.step, int(self.internal)


@dataclass(frozen=True, slots=True)
class _Transfer:
    """Actions between the working state, a buffer and slow storage."""

    step: int

    code: ClassVar[int]

    @property
    def row(self):
        """The action as integers (code, step, 0)."""
        return self.code, self.step, 0


@dataclass(frozen=True, slots=True)
class Store(_Transfer):
    """Copy the working state h_step into a buffer and have it written in the background.

    Read as: put h_step on disk, without waiting.
    """

    code: ClassVar[int] = STORE


@dataclass(frozen=True, slots=True)
class Prefetch(_Transfer):
    """Have h_step read into a buffer in the background.

    Read as: h_step will be needed; begin to read it.
    """

    code: ClassVar[int] = PREFETCH


@dataclass(frozen=True, slots=True)
class Fetch(_Transfer):
    """Wait until h_step is in its buffer, and make it the working state; it stays there.

    Read as: go back to h_step, which came from disk.
    """

    code: ClassVar[int] = FETCH


@dataclass(frozen=True, slots=True)
class Drop(_Transfer):
    """Give back the buffer that holds h_step.

    Read as: h_step is not needed any more.
    """

    code: ClassVar[int] = DROP


@dataclass(frozen=True, slots=True)
class Expand(_Segment):
    """Make the internal states of the steps start + 1...stop out of the hidden states before them.

    The hidden states start + 1...stop - 1 are on top of the stack; they, and h_start if it lies
    right below them, give their places to the internal states. All these steps are computed at
    once, since none waits for another. Step `stop` is the next to be back-propagated. The working
    state is lost.

    Read as: from the saved hidden states, expand the block of steps start + 1...stop.
    """

    code: ClassVar[int] = EXPAND


Action = (
    Advance
    | AdvanceSaveHidden
    | AdvanceSaveInternal
    | Restore
    | Backward
    | Free
    | Store
    | Prefetch
    | Fetch
    | Drop
    | Expand
)

_BY_CODE = [
    Advance,
    AdvanceSaveHidden,
    AdvanceSaveInternal,
    lambda step, _: Restore(step),
    lambda step, _: Backward(step),
    lambda step, internal: Free(step, bool(internal)),
    lambda step, _: Store(step),
    lambda step, _: Prefetch(step),
    lambda step, _: Fetch(step),
    lambda step, _: Drop(step),
    Expand,
]


def from_chunks(chunks):
    """Yield the actions of chunks of rows, int64 arrays [n, 3]."""
    for chunk in chunks:
        for row in chunk.tolist():
            yield from_row(*row)


def from_row(code, start, stop):
    """Return the action whose row this is.

    Examples
    --------
    >>> from_row(1, 0, 4)
    AdvanceSaveHidden(start=0, stop=4)
    """
    if not 0 <= code < len(_BY_CODE):
        raise ValueError(f"action code is {code}; give 0 to {len(_BY_CODE) - 1}")
    return _BY_CODE[code](int(start), int(stop))
