"""``membptt train``: a character-level language model, trained inside a budget of bytes."""

import contextlib
import json
import sys
import time
from argparse import SUPPRESS
from dataclasses import asdict

from tqdm import tqdm

from membptt.arrays import BACKENDS, usable
from membptt.cells.packing import FORMATS
from membptt.checks import DTYPES
from membptt.cli.config import Config
from membptt.cli.interrupts import Deferred
from membptt.cli.log import Log
from membptt.cli.paths import check_distinct
from membptt.cli.ranks import ranks, together
from membptt.cli.values import held_out, real, whole
from membptt.executor.executor import HOST_ONLY
from membptt.memory import format_bytes
from membptt.solver import STRATEGIES
from membptt.training.checkpoint import (
    Unwritable,
    check_writable,
    load_checkpoint,
    save_checkpoint,
)
from membptt.training.measure import PeakMeter
from membptt.training.parallel import REDUCTIONS
from membptt.training.rates import DECAYS
from membptt.training.settings import (
    CELLS,
    DEPENDENT,
    EVAL_EVERY,
    MEMORY,
    OPTIMIZERS,
    Settings,
    load_corpus,
    make_trainer,
)
from membptt.training.validation import Validation, in_bits

SAVE_SECONDS = 60  # between saves; one is made at the end and on Ctrl-C too


def add_arguments(subparsers):
    """Add the command and its options."""
    parser = subparsers.add_parser(
        "train",
        help="train a character-level language model inside a memory budget",
        description="Train a character-level language model inside a memory budget, with the "
        "gradients of full BPTT, and report what was used.",
        argument_default=SUPPRESS,  # so that --resume knows what was really given
    )
    add = parser.add_argument
    add(
        "--config",
        action=Config,
        metavar="FILE.toml",
        help="options from a file, such as `learning-rate = 0.01`; the command line wins",
    )
    add("--text", metavar="FILE", help="text in UTF-8 (default: one that comes with Python)")
    add(
        "--memory",
        metavar="BYTES",
        help="budget for all saved states together, for example 2MiB "
        f"(default: {MEMORY}; for --strategy full all that it needs)",
    )
    add("--steps", type=whole, metavar="T", help=f"steps of a window ({default('steps')})")
    add("--batch", type=whole, metavar="B", help=f"windows side by side ({default('batch')})")
    add("--hidden", type=whole, metavar="H", help=f"hidden units ({default('hidden')})")
    add("--layers", type=whole, metavar="N", help=f"on one another ({default('layers')})")
    add(
        "--dropout",
        type=real,
        metavar="P",
        help="probability with which a layer does not see a unit of the layer beneath, in training "
        f"({default('dropout')})",
    )
    add(
        "--recurrent-dropout",
        type=real,
        metavar="P",
        help="probability with which a unit is not multiplied by W_h, for a whole window "
        f"({default('recurrent_dropout')})",
    )
    add(
        "--zoneout",
        type=real,
        metavar="P",
        help=f"probability with which a unit keeps its value at a step ({default('zoneout')})",
    )
    add(
        "--parts",
        type=whole,
        metavar="P",
        help="cut the batch into P parts, each back-propagated on its own within --memory; bits "
        "depend on P, not on the number of processes that mpirun starts (default: that number)",
    )
    add(
        "--reduction",
        choices=REDUCTIONS,
        help="how processes add up their gradients: in a tree, which gives the same bits for any "
        f"number of them, or by MPI's own all-reduce ({default('reduction')})",
    )
    add("--cell", choices=tuple(CELLS), help=f"kind of network ({default('cell')})")
    add("--strategy", choices=tuple(STRATEGIES), help=f"of schedules ({default('strategy')})")
    add(
        "--updates",
        type=whole,
        metavar="N",
        help="counted from the start of training, also after --resume; one window each "
        f"({default('updates')})",
    )
    add(
        "--backend",
        choices=("auto", *BACKENDS),
        help="code to run (default: auto, which is cupy where a GPU can run the strategy, else "
        "cython)",
    )
    add(
        "--internal",
        choices=FORMATS,
        help="keep internal states in fewer bits: approximate gradients, whose error is measured "
        "before the first update and after the last (default: exact)",
    )
    add("--dtype", choices=DTYPES, help=f"({default('dtype')})")
    add("--seed", type=whole, metavar="N", help=f"of parameters and noise ({default('seed')})")
    add("--optimizer", choices=tuple(OPTIMIZERS), help=f"({default('optimizer')})")
    add(
        "--learning-rate",
        type=real,
        metavar="X",
        help=f"the largest, where it changes ({default('learning_rate')})",
    )
    add(
        "--weight-decay",
        type=real,
        metavar="X",
        help=f"of adamw, on matrices and not on biases ({default('weight_decay')})",
    )
    add("--momentum", type=real, metavar="X", help=f"of sgd ({default('momentum')})")
    add(
        "--warmup",
        type=whole,
        metavar="N",
        help=f"updates over which the learning rate grows from 0 ({default('warmup')})",
    )
    add("--decay", choices=DECAYS, help=f"of the learning rate after that ({default('decay')})")
    add(
        "--decay-to",
        type=real,
        metavar="X",
        help=f"fraction of the learning rate that is left in the end ({default('decay_to')})",
    )
    add(
        "--decay-updates",
        type=whole,
        metavar="N",
        help="the update at which the decay ends (default: the last one of --updates)",
    )
    add(
        "--clip",
        type=real,
        metavar="X",
        help=f"largest norm of the gradients together, inf for no limit ({default('clip')})",
    )
    add(
        "--valid",
        type=held_out,
        metavar="FILE|FRACTION",
        help="text to evaluate on, which is not trained on: a file of the same alphabet, or a "
        "fraction such as 0.1 off the end of the text (default: none)",
    )
    add(
        "--eval-every",
        type=whole,
        metavar="N",
        help=f"updates from one evaluation to the next (default: {EVAL_EVERY}, or all if fewer)",
    )
    add(
        "--patience",
        type=whole,
        metavar="N",
        help="stop after N evaluations in a row without improvement (default: never)",
    )
    add(
        "--save-best",
        metavar="FILE",
        default=None,
        help="keep the state that did best on held-out text, as --save does",
    )
    add("--disk", metavar="DIR", help="folder for --strategy disk (default: for temporary files)")
    add("--disk-budget", metavar="BYTES", help="most bytes there (default: no limit)")
    add(
        "--save",
        metavar="FILE",
        default=None,
        help="keep all that training goes on from there: at the end, on Ctrl-C, once a minute",
    )
    add(
        "--resume",
        metavar="FILE",
        default=None,
        help="go on from a saved file, with its settings; memory, strategy, disk, updates and "
        "evaluation may change",
    )
    add(
        "--log",
        metavar="FILE.jsonl|FILE.csv",
        default=None,
        help="write one line for every update and evaluation, as they come; with --resume a file "
        "from before is gone on with",
    )
    add(
        "--verify",
        action="store_true",
        default=False,
        help="debug: check that every step that is run again gives the hidden state of before",
    )
    add("--json", action="store_true", default=False, help="report as JSON, the last line")


def default(name):
    """Return the words about a setting's default."""
    value = DEPENDENT[name][-1] if name in DEPENDENT else getattr(Settings, name)
    return f"default: {value}"


def run(args, out):
    """Train, print the report for people to `out`, and the JSON object to standard output.

    Returns
    -------
    int
        The exit code: 0, or 130 after a Ctrl-C.
    """
    with ranks() as comm:
        return run_with(comm, args, out)


def run_with(comm, args, out):
    """Do what `run` does, together with the other processes of `comm` if there are any."""
    interrupted, failure = False, None
    with contextlib.ExitStack() as stack:
        with together(comm):
            settings, trainer, validation = prepare(args, stack, comm)
            log = open_log(args, trainer, comm)
            if log is not None:
                stack.enter_context(log)
        print(describe(settings, trainer), file=sys.stderr)
        report_error(trainer, settings)
        try:
            interrupted = train(trainer, validation, settings, args, log)
        except Unwritable as error:  # what was learnt can be saved and reported all the same
            if comm is not None:  # the others go on, unless this ends them
                raise
            failure = error
    try:
        if args.save is not None:
            save(args.save, settings, trainer, validation)
        if not interrupted and failure is None:
            report_error(trainer, settings)
    finally:  # what was learnt is reported even where it could not be saved
        more = {} if validation is None else validation.report()
        show(trainer.report() | more, args.json, out)
    if failure is not None:
        raise failure
    if interrupted:
        where = f"saved in {args.save}" if args.save is not None else "not saved (see --save)"
        print(f"interrupted after update {trainer.updates}; {where}", file=sys.stderr)
    return 130 if interrupted else 0


def prepare(args, stack, comm):
    """Return settings, the trainer before its next update, and the validation or None.

    The trainer's meter is stopped when `stack` is left.
    """
    settings, saved = choose_settings(args, 1 if comm is None else comm.Get_size())
    if args.save_best is not None and settings.valid is None:
        raise ValueError(
            f"save_best is {args.save_best!r} without valid; give a held-out text, as --valid"
        )
    check_files(args, settings)
    for option in ("save", "save_best"):
        if getattr(args, option) is not None:
            check_writable(getattr(args, option), option)
    corpus, rest = load_corpus(settings)
    validation = None
    if rest is not None:
        validation = Validation(rest, settings.batch, settings.patience)
    meter = PeakMeter()  # from here on: neither the text nor what a backend imports is training
    stack.callback(meter.stop)
    trainer = make_trainer(settings, corpus, meter, comm)
    trainer.executor.verify = args.verify
    if saved is not None:
        restore(trainer, validation, saved, args.resume, settings.updates)
    return settings, trainer, validation


def check_files(args, settings):
    """Raise unless every file that is written is another one, and none that is read.

    But for --save on the file of --resume: what is there is gone on from.
    """
    given = vars(args)
    outputs = [(name, given[name]) for name in ("save", "save_best", "log")]
    outputs = [(name, path) for name, path in outputs if path is not None]
    inputs = [("config", path) for path in given.get("config", ())]
    inputs += [(name, getattr(settings, name)) for name in ("text", "valid")]
    inputs = [(name, path) for name, path in inputs if isinstance(path, str)]
    check_distinct(outputs, inputs)
    if args.resume is not None:
        others = [(name, path) for name, path in outputs if name != "save"]
        check_distinct(others, [("resume", args.resume)])


def open_log(args, trainer, comm):
    """Return the `Log` to write to, or None: where none is asked for, another process writes it."""
    if args.log is None or (comm is not None and comm.Get_rank() > 0):
        return None
    return Log(args.log, None if args.resume is None else trainer.updates)


def choose_settings(args, processes):
    """Return the settings, and the arrays of the checkpoint to go on from or None."""
    given = {name: value for name, value in vars(args).items() if hasattr(Settings, name)}
    if given.get("backend") == "auto":
        del given["backend"]
    if args.resume is None:
        if "backend" not in given:
            given["backend"] = best_backend(given.get("strategy", Settings.strategy))
        return Settings(**({"parts": processes} | given)), None
    settings, arrays = load_checkpoint(args.resume)
    return Settings.from_dict(settings, args.resume).resumed(given, args.resume), arrays


def best_backend(strategy):
    """Return the backend to run a strategy on: a GPU if there is one that can."""
    return "cupy" if strategy not in HOST_ONLY and usable("cupy") else "cython"


def restore(trainer, validation, saved, path, updates):
    """Go on from the arrays of a checkpoint."""
    try:
        trainer.restore(saved)
        if validation is not None:
            validation.restore(saved)
    except ValueError as error:
        raise ValueError(f"checkpoint {path!r} does not fit: {error}") from None
    if trainer.updates > updates:
        raise ValueError(
            f"updates is {updates}, checkpoint {path!r} has made {trainer.updates} already; give "
            f"--updates {trainer.updates} or more"
        )


def train(trainer, validation, settings, args, log):
    """Update until there are enough, or no better ones, or a signal; return whether one came."""
    path, saved_at = args.save, time.monotonic()
    bar = tqdm(
        total=settings.updates,
        initial=trainer.updates,
        unit="update",
        file=sys.stderr,
        mininterval=0.5 if sys.stderr.isatty() else 10,
        dynamic_ncols=True,
    )
    stopped = False
    with bar, Deferred() as interrupt:
        while trainer.updates < settings.updates and not (stopped or exhausted(validation)):
            update = trainer.update()
            bar.set_postfix_str(
                f"{update.bits:.3f} bits/char, {update.forward_steps} forward steps, "
                f"{format_bytes(update.peak_bytes)} of {format_bytes(trainer.schedule.budget)}",
                refresh=bar.n == bar.initial,  # the first one is worth waiting for
            )
            bar.update()
            if log is not None:
                log.update(update)
            if validation is not None and update.number % settings.eval_every == 0:
                bar.write(evaluate(trainer, validation, log), file=sys.stderr)
                if validation.improved and args.save_best is not None:
                    save(args.save_best, settings, trainer, validation, "save_best")
            due = time.monotonic() - saved_at > SAVE_SECONDS
            if path is not None and trainer.parts.agreed(due):
                try:
                    save(path, settings, trainer, validation)
                except Unwritable as error:  # there may be room again the next time
                    bar.write(f"membptt train: warning: {error}", file=sys.stderr)
                saved_at = time.monotonic()
            stopped = trainer.parts.agreed(interrupt.asked)
    if exhausted(validation):
        print(
            f"stopped after update {trainer.updates}: {validation.stale} evaluations without "
            f"improvement since update {validation.best_update}",
            file=sys.stderr,
        )
    return stopped


def report_error(trainer, settings):
    """Say how far the gradients are from exact ones, if internal states are reduced."""
    if settings.internal is None:
        return
    try:
        found = trainer.measure_error()
    except FloatingPointError as error:  # the next update would say so, and there may be none
        found = f"gradient error not measured: {error}"
    print(f"internal states in {settings.internal}, {found}", file=sys.stderr)


def exhausted(validation):
    """Return whether the patience with held-out text has come to its end."""
    return validation is not None and validation.exhausted


def evaluate(trainer, validation, log):
    """Evaluate on held-out text; return one line about it for people."""
    started = time.perf_counter()
    loss = validation.evaluate(trainer.cell, trainer.head, trainer.updates, trainer.parts)
    if log is not None:
        log.evaluation(trainer.updates, loss, time.perf_counter() - started)
    best = "the best so far" if validation.improved else f"best after {validation.best_update}"
    return f"update {trainer.updates}: {in_bits(loss):.3f} bits/char on held-out text, {best}"


def save(path, settings, trainer, validation, option="save"):
    """Write a checkpoint, or raise an Unwritable that says why it cannot be written."""
    arrays = trainer.arrays()
    if validation is not None:
        arrays |= validation.arrays()
    if trainer.parts.rank > 0:
        return  # one process writes
    try:
        save_checkpoint(path, asdict(settings), arrays)
    except OSError as error:
        raise Unwritable(
            f"{option} is {path!r}, which cannot be written ({error.strerror}); make room, or give "
            "another place; a file from before is kept"
        ) from None


def show(report, as_json, out):
    """Print the report for people to `out`, and as JSON to standard output."""
    print(table(report), file=out)
    if as_json:
        out.flush()
        print(json.dumps(report))


def describe(settings, trainer):
    """Return one line about what is going to be trained."""
    corpus = trainer.corpus
    layers = f", {settings.layers} layers," if settings.layers > 1 else ""
    internal = f" with internal states in {settings.internal}" if settings.internal else ""
    return (
        f"{corpus.name}: {len(corpus.tokens):,} characters, {len(corpus.alphabet)} distinct; "
        f"{settings.cell} {settings.hidden}{layers} on {settings.batch} x {settings.steps} steps, "
        f"{settings.dtype}{internal}, {settings.backend}; strategy {settings.strategy}, budget "
        f"{format_bytes(trainer.schedule.budget)}"
    )


def table(report):
    """Return the report for people."""

    def amount(name):
        nbytes = report[name]
        return "not measured" if nbytes is None else f"{format_bytes(nbytes)} ({nbytes:,} bytes)"

    peak, full = report["arena_peak_bytes"], report["full_bytes"]
    seconds, loss = report["seconds_per_update"], report["loss_first"]
    rows = [("budget", amount("budget_bytes")), ("arena used", amount("arena_peak_bytes"))]
    rows.append(("full BPTT", amount("full_bytes")))
    if peak is not None:
        rows.append(("saved", f"{1 - peak / full:.1%} of full BPTT's saved states"))
    rows.append(("measured peak", amount("measured_peak_bytes") + ", all arrays but the text"))
    rows.append(("forward steps", f"{report['forward_steps_per_update']:,} an update"))
    if "gradient_error_first" in report:
        errors = [report[f"gradient_error_{when}"] for when in ("first", "last")]
        first, last = ("not measured" if error is None else f"{error:.1e}" for error in errors)
        rows.append(("gradient error", f"{first} before the first update, {last} after the last"))
    if "disk_interval" in report:
        written, hidden = report["disk_written_bytes_per_update"], report["disk_hidden_fraction"]
        rows.append(("interval", f"{report['disk_interval']:,} steps between states on disk"))
        done = f"{format_bytes(written)} written an update, {hidden:.1%} of the time hidden"
        rows.append(("disk", done))
    if seconds is not None:
        rows.append(("time", f"{seconds:.3f} s an update (median)"))
    if loss is not None:
        last = report["bits_per_char_last"]
        rows.append(("bits per char", f"{in_bits(loss):.3f} -> {last:.3f}"))
    if report.get("valid_loss_last") is not None:
        last, best = report["valid_bits_per_char_last"], report["valid_bits_per_char_best"]
        when = f"best {best:.3f} after update {report['valid_updates_best']}"
        rows.append(("held out", f"{last:.3f} bits per char; {when}"))
    rows.append(("parameters", f"sha256 {report['parameters_sha256'][:16]}..."))
    title = f"after {report['updates']} updates"
    return "\n".join([title, *(f"  {name:<14} {value}" for name, value in rows)])
