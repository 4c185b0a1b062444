"""The report: figures as SVG, one HTML page that needs no network, and every number as JSON."""

import json
from html import escape
from pathlib import Path

from membptt.files import replacing
from membptt.memory import Units, format_bytes
from membptt.paper.costs import ALPHA, STEPS
from membptt.paper.disk import RATIO_STEPS, UNITS
from membptt.schedules import schedule
from membptt.view.chart import Axis, chart
from membptt.view.svg import draw
from membptt.view.viewer import html_table

STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 0 auto; padding: 1rem; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { text-align: left; vertical-align: top; padding: 0.2rem 1rem 0.2rem 0; }
thead th { font-weight: normal; opacity: 0.7; }
figure { margin: 1.5rem 0; overflow-x: auto; } svg { max-width: 100%; height: auto; }
.scrolls { overflow-x: auto; }
"""

PER_STEP = "forward steps per step"
LENGTH = Axis("T, steps of the sequence", log=True, ticks="{:,.0f}".format)
MEMORY = Axis(
    f"all saved states in units of one hidden state; full BPTT needs {STEPS * ALPHA:,}", log=True
)

TIME = Axis("time of an iteration, of full BPTT's")
RATIO = Axis("ρ, time of a transfer over that of a forward step", log=True)

# Name of the figure: its title, its axes, and what it shows.
FIGURES = {
    "hsm": (
        "Hidden state memorisation",
        (LENGTH, Axis(PER_STEP, limits=(1, 12))),
        "hsm against T; m counts saved hidden states, the initial one included. Section 3.1.",
    ),
    "ism": (
        "Internal state memorisation",
        (LENGTH, Axis(PER_STEP, limits=(1, 12))),
        "ism against T; m counts internal states, the working one included. Section 3.2.",
    ),
    "msm": (
        "Mixed state memorisation",
        (LENGTH, Axis(PER_STEP, limits=(1, 12))),
        f"msm against T for α = {ALPHA}; m counts hidden states' memory, without the initial and "
        "the working internal state. Section 3.3.",
    ),
    "equal-memory": (
        f"Equal memory, T = {STEPS}",
        (MEMORY, Axis(PER_STEP, limits=(1, 6))),
        f"All at equal memory, the working internal state counted for each; α = {ALPHA}. "
        "Chen's √T scheme (chen) and its recursive one have one budget each; more does not help.",
    ),
    "equal-memory-length": (
        "Equal memory, 60 hidden states",
        (LENGTH, Axis(PER_STEP)),
        "The same at one budget, 60 hidden states, against T; and hidden states on disk at "
        "intervals (Kukreja et al. 2018), whose cost a step does not grow with T.",
    ),
    "bound": (
        "The bound",
        (LENGTH, Axis(PER_STEP, log=True)),
        "hsm beside the paper's bound, C(t, m) ≤ m t^(1 + 1/m): a line and its bound for each m.",
    ),
    "msm-excess": (
        f"msm above the optimum, T = {STEPS}",
        (
            Axis("saved states, of full BPTT's", log=True, ticks=lambda x: f"{100 * x:g} %"),
            Axis("forward steps above the optimum", ticks="{:g} %".format),
        ),
        "How many forward steps more the paper's msm takes than an optimal schedule.",
    ),
    "measured-time": (
        "Time, measured",
        (LENGTH, Axis("seconds an iteration", log=True)),
        "Time of an iteration against T on this machine.",
    ),
    "measured-memory": (
        "Memory, measured",
        (LENGTH, Axis("MiB allocated at most", log=True)),
        "Peak of all that an iteration allocates, parameters and inputs excepted.",
    ),
    "disk-length": (
        "States on disk: time against length",
        (LENGTH, TIME),
        "By the model: with a disk, for three ρ, the interval long enough that nobody waits; and "
        "Revolve and the optimum in memory alone.",
    ),
    "disk-ratio": (
        f"States on disk: time against ρ, T = {RATIO_STEPS:,}",
        (RATIO, Axis(TIME.label, limits=(1, 4))),
        "By the model. An interval that fits grows with ρ; with the shortest one transfers are "
        "waited for, and time grows without end.",
    ),
    "disk-measured-length": (
        "Time against length, measured",
        (LENGTH, TIME),
        "The disk as fast as it is, beside memory alone.",
    ),
    "disk-measured-ratio": (
        "Time against ρ, measured",
        (RATIO, TIME),
        "The folder throttled; beside each line what the model says.",
    ),
}

WHY = """In the paper's recurrence a saved hidden state keeps its memory until every step after it
is back-propagated. But when the last run from it begins, and that run's first step is itself
saved as an internal state, the hidden state has had its last use: the internal state gives
all that it could give. An optimal schedule frees it then, and its memory becomes a part of the
internal state. With α = 1 this brings nothing; from α = 2 on it does, and for α = 3 the
first case is seven steps within six units, drawn below: msm first, the optimum beneath it."""

ABOUT = """The figures and numbers of Gruslys, Munos, Danihelka, Lanctot and Graves (2016) that this
program can state. Costs are exact and the same on every machine. Where the paper's own number is
known for sure it stands beside ours; its curves are drawn anew from its recurrences. A backward
step is taken to last as long as two forward steps. Every number is in numbers.json."""

ABOUT_DISK = f"""Kukreja, Hückelheim and Gorman (2018) let a large, slow tier take part: hidden
states go there at intervals and come back in time. What their abstract states stands beside what
the cost model says, and beside what this machine takes with its folder for temporary files, also
throttled to a chosen ρ: the time to transfer one hidden state over that of one forward step. The
memory is {UNITS} hidden states throughout, those on their way included; times are over full
BPTT's."""


def write_report(folder, numbers):
    """Write figures, report.html and numbers.json.

    Parameters
    ----------
    folder : str or path
        Made if it is not there.
    numbers : dict
        From `membptt.paper.all_costs`, with `measured` from `membptt.paper.measure`, `disk` from
        `membptt.paper.disk_costs` and `disk_measured` from `membptt.paper.measure_disk`.

    Returns
    -------
    list of str
        The files written.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    drawings = draw_figures(numbers)
    files = {f"{name}.svg": text for name, text in drawings.items()}
    files["report.html"] = html(numbers, drawings)
    files["numbers.json"] = json.dumps(numbers, indent=1, ensure_ascii=False) + "\n"
    for name, text in files.items():
        with replacing(folder / name) as file:
            file.write(text)
    return sorted(files)


def draw_figures(numbers):
    """Return the text of each figure by its name."""
    lines = numbers["figures"] | measured_lines(numbers["measured"])
    lines |= numbers["disk"]["figures"] | disk_lines(numbers["disk_measured"])
    drawings = {}
    for name, (title, (across, upwards), _) in FIGURES.items():
        series = {line: _numeric(*points) for line, points in lines[name].items()}
        drawings[name] = chart(series, title, across, upwards)
    return drawings


def measured_lines(measured):
    """Return the lines of the two measured figures."""
    time, memory = {}, {}
    for row in measured["rows"]:
        for lines, value in ((time, row["seconds"]), (memory, row["measured_bytes"] / 2**20)):
            across, upwards = lines.setdefault(row["strategy"], ([], []))
            across.append(row["steps"])
            upwards.append(value)
    return {"measured-time": time, "measured-memory": memory}


def disk_lines(measured):
    """Return the lines of the two measured figures with states on disk."""
    names = ("disk", "optimal", "revolve")
    lengths = [row["steps"] for row in measured["by_length"]]
    by_length = {
        name: (lengths, [row[f"{name}_time_factor"] for row in measured["by_length"]])
        for name in names
    }
    shortest = min(row["interval"] for row in measured["by_ratio"])
    # A row whose interval need not grow stands on both lines.
    kinds = {
        f"interval {shortest}": lambda row: row["interval"] == shortest,
        "interval fits": lambda row: row["interval"] == max(shortest, round(row["ratio"])),
    }
    by_ratio = {}
    for key, suffix in (("time_factor", ""), ("predicted_time_factor", ", model")):
        for kind, chosen in kinds.items():
            rows = [row for row in measured["by_ratio"] if chosen(row)]
            by_ratio[kind + suffix] = [row["ratio"] for row in rows], [row[key] for row in rows]
    return {"disk-measured-length": by_length, "disk-measured-ratio": by_ratio}


def tables(numbers):
    """Return title, headings and rows of each table."""
    yield claims_table("Claims", numbers["claims"])
    yield (
        f"T = {STEPS}, 95 % of the memory saved",
        ("strategy", PER_STEP, "time, of full BPTT's", "paper"),
        [
            (
                row["strategy"],
                f"{row['forward_steps_per_step']:.3f}",
                f"{row['factor']:.3f}",
                "1.33" if row["strategy"] == "msm" else "",
            )
            for row in numbers["at_five_percent"]
        ],
    )
    yield (
        f"The schemes of Chen et al. (2016), α = {ALPHA}, and optimal beside them",
        ("T", "scheme", "units", "forward steps", "optimal, same memory", "units, same cost"),
        [
            (
                f"{row['steps']:,}",
                row["strategy"],
                f"{row['units']:,}",
                f"{row['forward_steps']:,}",
                f"{row['optimal_forward_steps_same_memory']:,}",
                f"{row['optimal_units_same_cost']:,}",
            )
            for row in numbers["chen"]
        ],
    )
    yield (
        "Where the paper's msm is not optimal: every budget, every T up to 40",
        ("α", "cases", "above the optimum", "first case", "worst case"),
        [
            (
                row["alpha"],
                f"{row['cases']:,}",
                f"{row['worse']:,}",
                _case(row["first"]),
                _case(row["worst"]),
            )
            for row in numbers["msm_not_optimal"]
        ],
    )
    measured = numbers["measured"]
    yield (
        f"Measured: LSTM, hidden {measured['hidden']}, batch {measured['batch']}, float32, budget "
        f"{format_bytes(measured['budget_bytes'])}",
        (
            "T",
            "strategy",
            "forward steps",
            "seconds",
            "of full",
            "saved states",
            "saved",
            "all bytes",
        ),
        [
            (
                f"{row['steps']:,}",
                row["strategy"],
                f"{row['forward_steps']:,}",
                f"{row['seconds']:.4f}",
                f"{row['time_factor']:.2f}",
                f"{row['arena_peak_bytes']:,}",
                f"{row['saved_fraction']:.1%}",
                f"{row['measured_bytes']:,}",
            )
            for row in measured["rows"]
        ],
    )
    yield claims_table("Claims of Kukreja et al. (2018)", numbers["disk"]["claims"])
    disk = numbers["disk_measured"]
    sizes = (
        f"LSTM, hidden {disk['hidden']}, batch {disk['batch']}, one thread, "
        f"{format_bytes(disk['memory_bytes'])}"
    )
    yield (
        f"States on disk, measured: {sizes}",
        ("T", "full, s", "interval", "disk", "optimal", "revolve", "forward steps of each"),
        [
            (
                f"{row['steps']:,}",
                f"{row['full_seconds']:.3f}",
                row["interval"],
                *(f"{row[f'{name}_time_factor']:.2f}" for name in ("disk", "optimal", "revolve")),
                ", ".join(
                    f"{row[f'{name}_forward_steps']:,}" for name in ("disk", "optimal", "revolve")
                ),
            )
            for row in disk["by_length"]
        ],
    )
    yield (
        f"The folder throttled, T = {disk['by_ratio'][0]['steps']:,}",
        ("ρ", "interval", "time, of full BPTT's", "by the model"),
        [
            (
                f"{row['ratio']:g}",
                row["interval"],
                f"{row['time_factor']:.2f}",
                f"{row['predicted_time_factor']:.2f}",
            )
            for row in disk["by_ratio"]
        ],
    )


def claims_table(title, claims):
    """Return title, headings and rows of a table of claims."""
    heads = "claim", "paper", "this program", "holds"
    rows = [
        (one["claim"], one["paper"] or "-", one["ours"], "yes" if one["holds"] else "no")
        for one in claims
    ]
    return title, heads, rows


def text(numbers):
    """Yield the tables as lines for a terminal."""
    for title, heads, rows in tables(numbers):
        cells = [heads, *rows]
        widths = [max(len(str(row[k])) for row in cells) for k in range(len(heads))]
        yield f"\n{title}\n"
        for row in cells:
            columns = zip(row, widths, strict=True)
            yield "  " + "  ".join(f"{cell!s:{width}}" for cell, width in columns).rstrip()


def html(numbers, drawings):
    """Return the page."""
    machine = numbers["measured"]
    parts = [
        '<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        "<title>Gruslys et al. 2016 and Kukreja et al. 2018, once more</title>",
        f"<style>{STYLE}</style></head>\n<body>",
        "<h1>Memory-Efficient Backpropagation Through Time, once more</h1>",
        f"<p>{escape(ABOUT)} Written by membptt {escape(machine['membptt'])}.</p>",
    ]
    every = list(tables(numbers))
    parts += [_html_table(*every[0]), _html_table(*every[1])]
    for name in ("hsm", "ism", "msm", "equal-memory", "equal-memory-length", "bound"):
        parts.append(_figure(name, drawings))
    parts += [_html_table(*every[2]), "<h2>Where and why msm is not optimal</h2>"]
    parts += [f"<p>{escape(WHY)}</p>", _html_table(*every[3]), _figure("msm-excess", drawings)]
    for strategy, units in (("msm", 3), ("optimal", 6)):
        parts.append(f"<figure>{draw(schedule(7, Units(units, 3), strategy))}</figure>")
    parts += [
        "<h2>Measured on this machine</h2>",
        f"<p>{escape(machine['system'])} on {escape(machine['machine'])}, {machine['cpus']} "
        f"processors, {machine['threads']} threads; Python {escape(machine['python'])}, NumPy "
        f"{escape(machine['numpy'])}.</p>",
        _figure("measured-time", drawings),
        _figure("measured-memory", drawings),
        _html_table(*every[4]),
        "<h2>Beyond memory constraints with constant overheads, once more</h2>",
        f"<p>{escape(ABOUT_DISK)}</p>",
        _html_table(*every[5]),
        _figure("disk-length", drawings),
        _figure("disk-ratio", drawings),
        _figure("disk-measured-length", drawings),
        _html_table(*every[6]),
        _figure("disk-measured-ratio", drawings),
        _html_table(*every[7]),
        "</body>\n</html>\n",
    ]
    return "\n".join(parts)


def _html_table(title, heads, rows):
    return f"<h3>{escape(title)}</h3>\n{html_table(heads, rows)}"


def _figure(name, drawings):
    title, _, caption = FIGURES[name]
    return (
        f"<figure><figcaption><b>{escape(title)}.</b> {escape(caption)}</figcaption>\n"
        f"{drawings[name]}</figure>"
    )


def _case(case):
    if case is None:
        return "-"
    return (
        f"T = {case['steps']}, {case['units']} units: {case['msm']} against {case['optimal']} "
        f"(+{case['msm'] / case['optimal'] - 1:.1%})"
    )


def _numeric(across, upwards):
    return across, [float("nan") if value is None else value for value in upwards]
