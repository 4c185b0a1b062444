"""What a training run is made from: the settings, and the trainer that they give."""

from dataclasses import asdict, dataclass, fields

from membptt.cells import (
    GRU,
    LSTM,
    RNN,
    LayerNormGRU,
    LayerNormLSTM,
    LayerNormRNN,
    Reduced,
    Stack,
)
from membptt.cells.packing import FORMATS
from membptt.checks import fraction, integer, one_of
from membptt.heads import SoftmaxHead
from membptt.schedules import schedule
from membptt.timing import disk_schedule, expand_schedule
from membptt.training.corpus import Corpus, Windows
from membptt.training.loop import Trainer, all_params
from membptt.training.optimizers import SGD, Adam, AdamW
from membptt.training.parallel import Parts
from membptt.training.rates import DECAYS, LearningRate

CELLS = {
    "lstm": LSTM,
    "rnn": RNN,
    "gru": GRU,
    "ln-lstm": LayerNormLSTM,
    "ln-rnn": LayerNormRNN,
    "ln-gru": LayerNormGRU,
}
PLAIN = ("lstm", "rnn", "gru")  # whose internal states can be reduced
MOST_LAYERS = 1000  # each is made before it is known whether memory has room for all
OPTIMIZERS = {"adam": Adam, "adamw": AdamW, "sgd": SGD}
MEMORY = "2MiB"

# Settings that mean something only beside certain values of another one, and what they are there
# by default.
DEPENDENT = {
    "disk": ("strategy", ("disk",), None),
    "disk_budget": ("strategy", ("disk",), None),
    "weight_decay": ("optimizer", ("adamw",), 0.01),
    "momentum": ("optimizer", ("sgd",), 0.9),
    "decay_to": ("decay", DECAYS[1:], 0.1),
    "decay_updates": ("decay", DECAYS[1:], None),
}

EVAL_EVERY = 20  # updates from one evaluation on held-out text to the next

# What may change when training is resumed: the parameters' bits do not depend on these. (Where the
# text lies may change; that it is the same text is checked by its digest.)
FREE = (
    "text",
    "memory",
    "strategy",
    "updates",
    "disk",
    "disk_budget",
    "valid",  # as a file; a fraction is taken off the text that is trained on
    "eval_every",
    "patience",
)


@dataclass(frozen=True)
class Settings:
    """Settings of a training run, by the names of the command line's options.

    Attributes
    ----------
    text : str or None
        Path of the text; None for the one that comes with Python.
    memory : str or int or None
        Budget in bytes; None for 2 MiB, or with strategy "full" for all that it needs.
    steps, batch, hidden, layers : int
    cell, strategy, backend, dtype : str
    updates : int
        How many updates the training has in all.
    seed : int
    dropout, recurrent_dropout, zoneout : float
        Probabilities of noise in training, the first one between layers; `membptt.cells.noise`.
    learning_rate, clip : float
    optimizer : str
    weight_decay : float or None
        For "adamw"; None for 0.01.
    momentum : float or None
        For "sgd"; None for 0.9.
    warmup : int
    decay : str
        How the learning rate falls; see `membptt.LearningRate`.
    decay_to : float or None
        The fraction of it that is left in the end; None for 0.1.
    decay_updates : int or None
        The update at which the decay ends; None for `updates`. It stays what it was when `updates`
        is changed later.
    parts : int
        Into how many parts the batch is cut, each back-propagated on its own.
    reduction : str
        How several processes add up; see `membptt.training.parallel`.
    internal : str or None
        The format of reduced internal states; None for exact ones. See `membptt.Reduced`.
    disk : str or None
        Folder for strategy "disk"; None for the system's folder for temporary files.
    disk_budget : str or int or None
        Most bytes there.
    valid : str or float or None
        Held-out text to evaluate on: the path of a file, or the fraction at the end of the text
        that is not trained on.
    eval_every : int or None
        Updates from one evaluation to the next; None for 20, or `updates` if there are fewer.
    patience : int or None
        After how many evaluations in a row without improvement to stop; None for never.
    """

    text: str | None = None
    memory: str | int | None = None
    steps: int = 1000
    batch: int = 16
    hidden: int = 256
    layers: int = 1
    cell: str = "lstm"
    strategy: str = "optimal"
    updates: int = 160
    backend: str = "cython"
    seed: int = 0
    dropout: float = 0.0
    recurrent_dropout: float = 0.0
    zoneout: float = 0.0
    learning_rate: float = 0.02
    clip: float = 1.0
    optimizer: str = "adam"
    weight_decay: float | None = None
    momentum: float | None = None
    warmup: int = 0
    decay: str = "constant"
    decay_to: float | None = None
    decay_updates: int | None = None
    dtype: str = "float32"
    parts: int = 1
    reduction: str = "tree"
    internal: str | None = None
    disk: str | None = None
    disk_budget: str | int | None = None
    valid: str | float | None = None
    eval_every: int | None = None
    patience: int | None = None

    def __post_init__(self):
        for name, known in (("cell", CELLS), ("optimizer", OPTIMIZERS), ("decay", DECAYS)):
            one_of(name, getattr(self, name), known)
        if self.internal is not None:
            one_of("internal", self.internal, FORMATS)
        for name in ("steps", "batch", "hidden", "layers", "updates", "parts"):
            integer(name, getattr(self, name), minimum=1)
        for name in ("dropout", "recurrent_dropout", "zoneout"):
            fraction(name, getattr(self, name))
        if self.dropout and self.layers == 1:
            raise ValueError(
                f"dropout is {self.dropout} between layers, of which there is 1; give layers of at "
                "least 2, or recurrent_dropout or zoneout"
            )
        for name, (other, values, usual) in DEPENDENT.items():
            chosen, value = getattr(self, other), getattr(self, name)
            if chosen not in values and value is not None:
                raise ValueError(
                    f"{name} is {value!r} with {other} {chosen}; it is for {other} "
                    f"{' or '.join(values)}"
                )
            if chosen in values and value is None:
                value = self.updates if name == "decay_updates" else usual
                object.__setattr__(self, name, value)
        self.check_evaluation()

    def check_evaluation(self):
        """Raise unless the settings of evaluations fit together; set their default."""
        for name in ("eval_every", "patience"):
            value = getattr(self, name)
            if value is None:
                continue
            integer(name, value, minimum=1)
            if self.valid is None:
                raise ValueError(f"{name} is {value} without valid; give a held-out text, as valid")
        if self.valid is None:
            return
        if isinstance(self.valid, float) and not 0 < self.valid < 1:
            raise ValueError(
                f"valid is {self.valid}; give a file, or a fraction of the text above 0 and below 1"
            )
        if self.eval_every is None:
            object.__setattr__(self, "eval_every", min(EVAL_EVERY, self.updates))
        if self.eval_every > self.updates:
            raise ValueError(
                f"eval_every is {self.eval_every} with updates {self.updates}, nothing would be "
                f"evaluated; give at most {self.updates}"
            )

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
            fixed = name not in FREE or (name == "valid" and float in (type(value), type(saved)))
            if fixed and value != saved:
                option = name.replace("_", "-")
                raise ValueError(
                    f"{option} is {value!r}, the checkpoint {path!r} was trained with {saved!r}; "
                    f"leave --{option} out, or begin anew without --resume"
                )
        kept = asdict(self)
        if given.get("strategy", self.strategy) != self.strategy:
            for name, (other, values, usual) in DEPENDENT.items():
                if other == "strategy" and given["strategy"] not in values:
                    kept[name] = usual  # what only the strategy of before has a use for
            if given["strategy"] == "full":
                kept["memory"] = None  # it needs all that it needs; the others keep the budget
        return Settings(**(kept | given))

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
    """Return the corpus to train on and the one to evaluate on, or None for that.

    Raises
    ------
    ValueError
        If one cannot be read, or is too short for the settings.
    """
    corpus = Corpus.default() if settings.text is None else Corpus.from_file(settings.text)
    held_out = None
    if isinstance(settings.valid, float):
        corpus, held_out = corpus.split(settings.valid)
    elif settings.valid is not None:
        held_out = Corpus.from_file(settings.valid, "valid", corpus.alphabet)
    Windows(corpus, settings.steps, settings.batch)
    return corpus, held_out


def make_trainer(settings, corpus, meter=None, comm=None):
    """Return a `Trainer` before its first update; a `PeakMeter` sees all that it allocates.

    `comm` are the processes that share the work (mpi4py), None for this one alone.
    """
    parts = Parts(settings.parts, settings.batch, comm, settings.reduction)
    cell, head = make_model(settings, len(corpus.alphabet), settings.backend)
    memory = budget(settings, cell, parts.rows)
    disk = settings.disk
    if settings.strategy == "disk":
        plan, _ = disk_schedule(
            settings.steps, memory, cell, parts.rows, disk, settings.disk_budget
        )
    elif settings.strategy == "expand":
        plan, _ = expand_schedule(settings.steps, memory, cell, parts.rows)
    else:
        plan = schedule(settings.steps, memory, settings.strategy, cell, parts.rows)
    optimizer = make_optimizer(settings, all_params(cell, head))
    return Trainer(
        cell, head, plan, corpus, optimizer, settings.batch, settings.clip, meter, disk, parts
    )


def make_model(settings, size, backend):
    """Return the cell and the head of these settings, for an alphabet of so many characters."""
    hidden, dtype, seed = settings.hidden, settings.dtype, settings.seed
    cell = make_cell(
        settings.cell,
        size,
        hidden,
        settings.layers,
        dtype,
        seed,
        backend,
        settings.internal,
        settings.dropout,
        recurrent_dropout=settings.recurrent_dropout,
        zoneout=settings.zoneout,
    )
    return cell, SoftmaxHead(hidden, size, dtype, seed, backend)


def make_cell(
    kind,
    inputs,
    hidden,
    layers=1,
    dtype="float32",
    seed=0,
    backend="cython",
    internal=None,
    dropout=0.0,
    **options,
):
    """Return a cell of this kind, or as many layers of it on one another, seeded one by one.

    `internal` is the format of reduced internal states, None for exact ones; `dropout` is that
    between layers; other `options` are each cell's own.
    """
    if layers > MOST_LAYERS:
        raise ValueError(f"layers is {layers}; give at most {MOST_LAYERS}")
    if internal is not None and kind not in PLAIN:
        raise ValueError(
            f"internal is {internal!r} with cell {kind}; it is for cell {', '.join(PLAIN)}"
        )
    sizes = [inputs] + [hidden] * layers
    cells = [
        CELLS[kind](size, hidden, dtype, seed + number, backend, **options)
        for number, size in enumerate(sizes[:-1])
    ]
    if internal is not None:
        cells = [Reduced(cell, internal) for cell in cells]
    return cells[0] if layers == 1 else Stack(cells, dropout, seed)


def make_optimizer(settings, params):
    """Return the optimizer of these settings over `params`."""
    final = 1.0 if settings.decay_to is None else settings.decay_to
    rate = LearningRate(
        settings.learning_rate, settings.decay, settings.decay_updates, final, settings.warmup
    )
    own = {"weight_decay": settings.weight_decay, "momentum": settings.momentum}
    given = {name: value for name, value in own.items() if value is not None}
    return OPTIMIZERS[settings.optimizer](params, rate, **given)


def budget(settings, cell, batch):
    """Return the memory asked for; by default 2 MiB, and for full BPTT what it needs."""
    if settings.memory is not None:
        return settings.memory
    if settings.strategy == "full":
        return settings.steps * cell.internal_nbytes(batch)
    return MEMORY
