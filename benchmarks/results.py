"""Measure anew what docs/results.md shows, and write it there.

    python benchmarks/results.py            some minutes; keep the machine quiet meanwhile
    python benchmarks/results.py --quick    short sequences, to try the command; writes nothing

Runs the other programs of this folder and puts their tables between two comments of the page, with
the machine, the versions and the date. Where OPENBLAS_CORETYPE is set, unset it for this command.
"""

import argparse
import datetime
import importlib.metadata
import importlib.util
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np

import membptt as mb
from membptt.kernels._kernels import available
from membptt.memory import format_bytes

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "results.md"
FIGURE = HERE.parent / "docs" / "truncation.svg"


def measured(program, *arguments):
    """Return the JSON object that one of the programs prints as its last line."""
    command = [sys.executable, str(HERE / program), *map(str, arguments), "--json"]
    print(" ".join(command[1:]), file=sys.stderr)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def table(heads, rows):
    """Return the lines of a Markdown table; all columns but the first are numbers."""
    yield f"| {' | '.join(heads)} |"
    yield f"|---|{'---:|' * (len(heads) - 1)}"
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |"
    yield ""


def machine():
    """Return the line that says where and when."""
    torch = f", PyTorch {version('torch')}" if importlib.util.find_spec("torch") else ""
    return (
        f"Measured on {datetime.date.today()}: {processor()}, {len(os.sched_getaffinity(0))} cores "
        f"({available()[0]} kernels), {platform.system()}; membptt {mb.__version__}, Python "
        f"{platform.python_version()}, NumPy {np.__version__}{torch}. Load before: "
        f"{os.getloadavg()[0]:.2f}."
    )


def version(package):
    """Return the version of an installed package."""
    return importlib.metadata.version(package)


def processor():
    """Return the processor's name as Linux knows it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def strategies(quick):
    """Yield the section on budgets and strategies."""
    sizes = ["--steps", 200, "--hidden", 64, "--repeats", 1] if quick else []
    found = measured("strategies.py", *sizes)
    yield "## Memory and time of the strategies\n"
    yield (
        f"One update's loss and gradients: LSTM on tokens, T = {found['steps']}, batch "
        f"{found['batch']}, hidden {found['hidden']}, float32, softmax head. A backward took "
        f"{found['backward_ratio']:.2f} times a forward; *predicted* is the cost model with that "
        "ratio. *Saved states* is what the executor counted, *peak* what NumPy allocated in all: "
        "parameters, gradients and workspace included, planning not.\n"
    )
    rows = [
        (
            f"`{row['strategy']}`",
            f"{row['budget_percent']:g} %",
            format_bytes(row["arena_peak_bytes"]),
            format_bytes(row["measured_peak_bytes"]),
            f"{row['forward_steps']:,}",
            f"{row['seconds']:.3f}",
            f"{row['slowdown']:.3f}",
            f"{row['predicted_slowdown']:.3f}",
        )
        for row in found["rows"]
    ]
    heads = "strategy", "budget", "saved states", "peak", "forward steps", "s", "slowdown"
    yield from table((*heads, "predicted"), rows)


def growth(quick):
    """Yield the section on longer sequences."""
    found = measured("growth.py", *(("--steps", 200, "--repeats", 1) if quick else ()))
    yield "## How memory and time grow\n"
    yield (
        f"Full BPTT beside `optimal` within {found['memory']}, batch 16, hidden 256, float32: "
        "saved states, and seconds of one update's loss and gradients.\n"
    )
    rows = [
        (
            row["cell"].upper(),
            f"{row['steps']:,}",
            format_bytes(row["full_bytes"]),
            f"{row['full_seconds_per_step'] * row['steps']:.3f}",
            format_bytes(row["optimal_bytes"]),
            f"{row['optimal_seconds_per_step'] * row['steps']:.3f}",
            f"{row['optimal_forward_steps_per_step']:.3f}",
            f"{row['slowdown']:.3f}",
        )
        for row in found["rows"]
    ]
    heads = "cell", "T", "`full`", "s", "`optimal`", "s", "forward steps per step", "slowdown"
    yield from table(heads, rows)


def lookahead(quick):
    """Yield the section on recomputing on a second core."""
    found = measured("lookahead.py", *(("--percent", 5, "--repeats", 1) if quick else ()))
    yield "## Look-ahead on two cores\n"
    yield (
        f"LSTM, T = {found['steps']}, float32, two threads: seconds of one update's loss and "
        "gradients over those of full BPTT with one or two threads, whichever was faster.\n"
    )
    rows = [
        (
            f"B{row['batch']} H{row['hidden']}",
            f"`{row['strategy']}`",
            f"{row['percent']:g} %",
            format_bytes(row["arena_peak_bytes"]),
            f"{row['forward_steps']:,}",
            f"{row['ratio']:.3f}",
        )
        for row in found["rows"]
        if row["strategy"] != "full"
    ]
    heads = "sizes", "strategy", "budget", "saved states", "forward steps", "slowdown"
    yield from table(heads, rows)


def disk(quick):
    """Yield the section on hidden states on disk, as fast as the folder is and throttled."""
    lengths = [1000] if quick else [1000, 10_000, 100_000]
    rounds = "--rounds", 1 if quick else 3
    longest = [] if quick else [1_000_000]
    found = measured("disk.py", "--steps", *lengths, *longest, *rounds)
    throttled = measured("disk.py", "--steps", *lengths, *rounds, "--throttle", 0.1)
    yield "## Sequences beyond memory\n"
    yield (
        f"LSTM, batch 1, hidden {found['hidden']}, float32, {found['memory']} of memory, hidden "
        "states on disk at intervals: microseconds a step. A forward step took "
        f"{found['forward_microseconds']:.2f} µs, a transfer at least "
        f"{found['latency_microseconds']:.0f} µs. What a run takes once, about half a "
        "millisecond, is part of the shortest length's number. *Waited*: the share of the run's "
        "time in which it waited for a transfer. Resident memory grew by "
        f"{format_bytes(found['resident_growth_bytes'])} after the first round of runs.\n"
    )
    rows = [
        (
            f"{row['steps']:,}",
            f"`{row['memory_strategy']}`",
            f"{row['memory_forward_steps_per_step']:.3f}",
            f"{row['memory_microseconds_per_step']:.2f}",
            f"{row['disk_forward_steps_per_step']:.3f}",
            f"{row['disk_microseconds_per_step']:.2f}",
            f"{row['disk_written_bytes']:,}",
            f"{row['disk_waited_fraction']:.1%}",
        )
        for row in found["rows"]
    ]
    heads = "T", "in memory", "forwards a step", "µs", "`disk`: forwards a step", "µs"
    yield from table((*heads, "bytes written", "waited"), rows)
    yield (
        "The same with a folder throttled to a tenth of the rate that just hides the transfers "
        "(one state in the time of an interval's forwards): the same schedule, which waits, "
        "beside the model of [states on disk](disk.md), and a schedule planned for so slow a "
        "folder. *Hidden*: the share of the transfers' time in which nobody waited.\n"
    )
    rows = [
        (
            f"{row['steps']:,}",
            row["throttled_interval"],
            f"{row['throttled_microseconds_per_step']:.2f}",
            f"{row['predicted_microseconds_per_step']:.2f}",
            f"{row['throttled_hidden_fraction']:.0%}",
            row["planned_interval"],
            f"{row['planned_forward_steps_per_step']:.3f}",
            f"{row['planned_microseconds_per_step']:.2f}",
            f"{row['planned_written_bytes']:,}",
        )
        for row in throttled["rows"]
    ]
    heads = "T", "interval", "µs", "predicted, µs", "hidden", "planned: interval"
    yield from table((*heads, "forwards a step", "µs", "bytes written"), rows)


def pytorch(quick):
    """Yield the section on PyTorch, or the reason why there is none."""
    yield "## Against PyTorch\n"
    if importlib.util.find_spec("torch") is None:
        yield "PyTorch was not installed.\n"
        return
    found = measured("against_pytorch.py", *(("--steps", 50, "--repeats", 1) if quick else ()))
    yield (
        "Full BPTT of one LSTM layer with all weight gradients against `torch.nn.LSTM` of PyTorch "
        f"{found['pytorch']} on the same processor, T = {found['steps']}, float32; rounds are "
        "interleaved, seconds are medians. A ratio above 1 means that membptt is faster.\n"
    )
    rows = [
        (
            f"B{row['batch']} H{row['hidden']} I{row['inputs']}",
            row["threads"],
            f"{row['membptt_seconds']:.3f}",
            f"{row['pytorch_seconds']:.3f}",
            f"{row['ratio']:.2f}",
            f"{row['gflops']:.0f}",
        )
        for row in found["rows"]
    ]
    heads = "sizes", "threads", "membptt, s", "PyTorch, s", "ratio", "membptt, Gflop/s"
    yield from table(heads, rows)


def truncation(quick):
    """Yield the section on truncated BPTT; draw its figure beside the page."""
    found = measured("truncation.py", *(("--quick",) if quick else ("--plot", FIGURE)))
    updates = found["updates"]
    yield "## Truncated or exact, at equal memory\n"
    yield (
        f"Losses after {updates['copy']} sequences of the copy task (a symbol kept for 100 steps) "
        f"and {updates['text']} of Shakespeare (400 steps each), by truncated BPTT with a "
        "window of k steps and by exact BPTT under an `optimal` schedule within the same bytes, k "
        "internal states: nats a prediction, the mean of the last tenth. *Every window*: "
        "truncated, with an update after every window. `python benchmarks/truncation.py` explains "
        "and repeats it.\n"
    )
    rows = [
        (
            row["task"],
            row["states"],
            format_bytes(row["bytes"]),
            f"{row['bytes'] / row['full_bytes']:.1%}",
            f"{row['exact_forward_steps_per_step']:.3f}",
            f"{row['exact_loss']:.3f}",
            f"{row['truncated_loss']:.3f}",
            "" if row["task"] == "copy" else f"{row['truncated_every_window_loss']:.3f}",
        )
        for row in found["rows"]
    ]
    heads = "task", "k", "saved states", "of full BPTT's", "forward steps per step, exact"
    yield from table((*heads, "exact", "truncated", "every window"), rows)
    yield "![Loss reached against memory, for both tasks and methods](truncation.svg)\n"


def written(page, name, lines):
    """Return the page with these lines between the comments that bear the name."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    before, _, rest = page.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        sys.exit(f"{PAGE} has lost the comments {begin} and {end}")
    return before + "\n".join((f"{begin}\n", *lines, end)) + after


# What stands between two comments of the page, in the order of the page.
PARTS = {"measured": (strategies, growth, lookahead, disk, pytorch), "truncation": (truncation,)}


def main():
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    page = PAGE.read_text(encoding="utf-8")
    for name, sections in PARTS.items():
        lines = [machine(), ""] if name == "measured" else []
        for section in sections:
            lines += section(quick)
        page = written(page, name, lines)
    if quick:
        print(page)
    else:
        PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
