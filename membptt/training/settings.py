"""What a training run is made from: the settings, and the trainer that they give."""

import tempfile
from dataclasses import asdict, dataclass, fields

from membptt.cells import LSTM, RNN
from membptt.checks import integer
from membptt.executor import disk_schedule, expand_schedule
from membptt.schedules import schedule
from membptt.training.corpus import Corpus, Windows
from membptt.training.heads import SoftmaxHead
from membptt.training.loop import Trainer, all_params
from membptt.training.optimizers import Adam

CELLS = {"lstm": LSTM, "rnn": RNN}
MEMORY = "2MiB"

# What may change when training is resumed: the parameters' bits do not depend on these. (Where the
# text lies may change; that it is the same text is checked by its digest.)
FREE = ("text", "memory", "strategy", "updates", "disk", "disk_budget")


@dataclass(frozen=True)
class Settings:
    """Settings of a training run, by the names of the command line's options.

    Attributes
    ----------
    text : str or None
        Path of the text; None for the one that comes with Python.
    memory : str or int or None
        Budget in bytes; None for 2 MiB, or with strategy "full" for all that it needs.
    steps, batch, hidden : int
    cell, strategy, backend, dtype : str
    updates : int
        How many updates the training has in all.
    seed : int
    learning_rate, clip : float
    disk : str or None
        Folder for strategy "disk"; None for the system's folder for temporary files.
    disk_budget : str or int or None
        Most bytes there.
    """

    text: str | None = None
    memory: str | int | None = None
    steps: int = 1000
    batch: int = 16
    hidden: int = 256
    cell: str = "lstm"
    strategy: str = "optimal"
    updates: int = 160
    backend: str = "cython"
    seed: int = 0
    learning_rate: float = 0.02
    clip: float = 1.0
    dtype: str = "float32"
    disk: str | None = None
    disk_budget: str | int | None = None

    def __post_init__(self):
        if self.cell not in CELLS:
            raise ValueError(f"cell is {self.cell!r}; give one of {', '.join(CELLS)}")
        for name in ("disk", "disk_budget"):
            if getattr(self, name) is not None and self.strategy != "disk":
                raise ValueError(
                    f"{name} is {getattr(self, name)!r} with strategy {self.strategy}; it is for "
                    "strategy disk"
                )
        for name in ("steps", "batch", "hidden", "updates"):
            integer(name, getattr(self, name), minimum=1)

    def as_dict(self):
        """Return the settings by name."""
        return asdict(self)

    def resumed(self, given, path):
        """Return these settings with those of `given` that may change.

        Parameters
        ----------
        given : dict
            What the user asked for, by name.
        path : str
            Of the checkpoint, for messages.

        Raises
        ------
        ValueError
            If one would change the result of the training begun.
        """
        for name, value in given.items():
            saved = getattr(self, name)
            if name not in FREE and value != saved:
                option = name.replace("_", "-")
                raise ValueError(
                    f"{option} is {value!r}, the checkpoint {path!r} was trained with {saved!r}; "
                    f"leave --{option} out, or begin anew without --resume"
                )
        if "strategy" in given and "memory" not in given and given["strategy"] != self.strategy:
            given = given | {"memory": None}  # another strategy has another need
        return Settings(**(self.as_dict() | given))

    @classmethod
    def from_dict(cls, found, path):
        """Return the settings of a checkpoint."""
        if not isinstance(found, dict) or set(found) != {field.name for field in fields(cls)}:
            raise ValueError(f"checkpoint {path!r} has other settings than this version knows")
        try:
            for field in fields(cls):
                kept = isinstance(found[field.name], field.type)
                if not kept or isinstance(found[field.name], bool):
                    raise TypeError(f"{field.name} is {found[field.name]!r}")
            return cls(**found)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"checkpoint {path!r} has settings that make no sense: {error}"
            ) from None


def load_corpus(settings):
    """Return the corpus, or raise a ValueError if it is too short for the settings."""
    corpus = Corpus.default() if settings.text is None else Corpus.from_file(settings.text)
    Windows(corpus, settings.steps, settings.batch)
    return corpus


def make_trainer(settings, corpus, meter=None):
    """Return a `Trainer` before its first update; a `PeakMeter` sees all that it allocates."""
    size, seed = len(corpus.alphabet), settings.seed
    cell = CELLS[settings.cell](size, settings.hidden, settings.dtype, seed, settings.backend)
    memory = budget(settings, cell)
    if settings.strategy == "disk":
        disk = settings.disk or tempfile.gettempdir()
        plan, _ = disk_schedule(
            settings.steps, memory, cell, settings.batch, disk, settings.disk_budget
        )
    elif settings.strategy == "expand":
        disk = None
        plan, _ = expand_schedule(settings.steps, memory, cell, settings.batch)
    else:
        disk = None
        plan = schedule(settings.steps, memory, settings.strategy, cell, settings.batch)
    head = SoftmaxHead(settings.hidden, size, settings.dtype, seed, settings.backend)
    adam = Adam(all_params(cell, head), settings.learning_rate)
    return Trainer(cell, head, plan, corpus, adam, settings.batch, settings.clip, meter, disk)


def budget(settings, cell):
    """Return the memory asked for; by default 2 MiB, and for full BPTT what it needs."""
    if settings.memory is not None:
        return settings.memory
    if settings.strategy == "full":
        return settings.steps * cell.internal_nbytes(settings.batch)
    return MEMORY
