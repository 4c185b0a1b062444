"""A schedule as a table to follow with a finger.

One line per action: what it does in words, where the working state is after it, what lies on the
stack (``h4`` a hidden state, ``[4]`` an internal one, the top at the right), how much memory that
takes, and how often each step has run.
"""

from membptt.memory import format_bytes
from membptt.schedules.actions import (
    Advance,
    AdvanceSaveHidden,
    AdvanceSaveInternal,
    Backward,
    Drop,
    Expand,
    Fetch,
    Free,
    Prefetch,
    Restore,
    Store,
)

MOST_COUNTED = 40  # steps; beyond, a column of one digit per step is no help


def words(action):
    """Return what an action does, in words.

    Examples
    --------
    >>> from membptt.schedules import AdvanceSaveInternal
    >>> words(AdvanceSaveInternal(4, 6))
    'run steps 5-6, save internal [6]'
    """
    match action:
        case Advance(start, stop):
            return _run(start, stop)
        case AdvanceSaveHidden(start, stop):
            return f"{_run(start, stop)}, save h{stop}"
        case AdvanceSaveInternal(start, stop):
            return f"{_run(start, stop)}, save internal [{stop}]"
        case Restore(step):
            return f"go back to h{step}"
        case Expand(start, stop):
            return f"expand steps {start + 1}-{stop} at once"
        case Backward(step):
            return f"backward of step {step}"
        case Free(step, internal):
            return f"free {_state((step, internal))}"
        case Store(step):
            return f"store h{step} on disk"
        case Prefetch(step):
            return f"begin to read h{step}"
        case Fetch(step):
            return f"go back to h{step} from disk"
        case Drop(step):
            return f"drop h{step}"


def table(schedule):
    """Yield the lines of the table of a schedule.

    Parameters
    ----------
    schedule : membptt.schedules.Schedule
        Any length; the lines stream.

    Yields
    ------
    str
        A heading, then a line for each action.
    """
    names = headings(schedule)
    action_width = len(words(AdvanceSaveInternal(schedule.steps - 1, schedule.steps))) + 1
    action_width = max(action_width, len(words(AdvanceSaveInternal(0, schedule.steps))))
    runs_width = len(names[4]) if len(names) == 6 else 0

    def line(number, action, working, used, *rest):
        runs = f"  {rest[0]:{runs_width}}" if runs_width else ""
        return f"{number:>5}  {action:{action_width}}  {working:7}  {used:>6}{runs}  {rest[-1]}"

    yield line("", *names[1:])
    for cells in lines(schedule):
        yield line(*cells)


def headings(schedule):
    """Return what stands above the columns of `lines`."""
    counted = [f"runs of step 1...{schedule.steps}"] if schedule.steps <= MOST_COUNTED else []
    return ["", "action", "working", "in use", *counted, "saved states"]


def lines(schedule):
    """Yield the cells of the table of a schedule, as text, action by action."""
    machine = schedule.machine()
    counted = schedule.steps <= MOST_COUNTED
    for number, action in enumerate(schedule, start=1):
        machine.fault(action)
        yield (
            str(number),
            words(action),
            "-" if machine.working is None else f"h{machine.working}",
            amount(machine.used, schedule.unit),
            *([_digits(machine.executions)] if counted else []),
            " ".join(_state(state) for state in machine.stack) or "-",
        )


def title(schedules):
    """Return what a page or a drawing of the schedules is called."""
    names = ", ".join(schedule.strategy for schedule in schedules)
    steps = schedules[0].steps
    word = "step" if steps == 1 else "steps"
    return f"{'Schedules' if len(schedules) > 1 else 'Schedule'} {names} for {steps} {word}"


def summary(schedule):
    """Return the lines that say what a schedule costs and saves."""
    per_step = schedule.forward_steps / schedule.steps
    blocks = ""
    if schedule.expand_cost is not None:
        blocks = (
            f"; {schedule.expanded_steps} steps in {schedule.expansions} blocks computed at once"
        )
    peak, full, budget = (
        amount(size, schedule.unit)
        for size in (schedule.peak_bytes, schedule.full_bytes, schedule.budget)
    )
    unit = " units" if schedule.unit == "units" else ""
    certificate = ""
    if schedule.lower_bound is not None:
        gap = schedule.forward_steps / schedule.lower_bound - 1
        certificate = (
            f"\ncertificate: no schedule runs fewer than {schedule.lower_bound} forward steps; "
            f"this one is at most {gap:.2%} above the least"
        )
    cores = " on two cores" if schedule.lanes == 2 else ""
    return (
        f"{schedule.strategy}: {schedule.forward_steps} forward steps for {schedule.steps} steps, "
        f"{per_step:.3f} per step{blocks}\n"
        f"saved states: {peak}{unit} at most, of {budget}{unit} allowed; full BPTT {full}{unit}; "
        f"{saved(schedule)} saved\n"
        f"time{cores}: {schedule.time_factor():.3f} of full BPTT's, "
        "where a backward takes two forwards"
        f"{certificate}"
    )


def saved(schedule):
    """Return the share of full BPTT's memory that a schedule saves, never rounded up to all."""
    percent = min(100 * schedule.saved_fraction, 99.999)
    return f"{percent:.{1 if percent <= 99.9 else 3}f}%"


def _run(start, stop):
    return f"run step {stop}" if stop == start + 1 else f"run steps {start + 1}-{stop}"


def _state(state):
    step, internal = state
    return f"[{step}]" if internal else f"h{step}"


def amount(size, unit):
    """Return a size; the reader knows where units are meant."""
    return format_bytes(size) if unit == "bytes" else str(size)


def quantity(size, unit):
    """Return a size with its unit."""
    return format_bytes(size) if unit == "bytes" else f"{size} unit{'s' * (size != 1)}"


def _digits(executions):
    return "".join("." if n == 0 else str(n) if n < 10 else "+" for n in executions.tolist())
