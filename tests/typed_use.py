"""A user's script, as typed as a careful user would write it: `mypy tests/typed_use.py` reads it.

It runs, too: tests/test_types.py does both.
"""

import numpy as np
from numpy.typing import NDArray

import membptt as mb


class Squared:
    """A head of the user's own."""

    def __init__(self) -> None:
        self.params: dict[str, NDArray[np.float32]] = {}

    def forward_backward(
        self, step: int, h: NDArray[np.float32], grads: dict[str, NDArray[np.float32]]
    ) -> tuple[float, NDArray[np.float32]]:
        return float((h**2).sum()) / 2, h.copy()


class Rows:
    """A reader of the user's own."""

    def __init__(self, array: NDArray[np.float32]) -> None:
        self.array = array
        self.shape = array.shape
        self.dtype = array.dtype

    def __getitem__(self, index: slice) -> NDArray[np.float32]:
        return self.array[index]


def under_a_budget(cell: mb.Cell, text: NDArray[np.int64], batch: int) -> mb.Result:
    head = mb.SoftmaxHead(hidden_size=8, outputs=5)
    schedule: mb.Schedule = mb.schedule(len(text) - 1, "4 KiB", cell=cell, batch=batch)
    saved: float = schedule.saved_fraction
    assert 0 < saved < 1
    return mb.bptt(cell, text[:-1], head.with_targets(text[1:]), schedule, record=True)


def main() -> float:
    generator = np.random.default_rng(0)
    text = generator.integers(5, size=(41, 2))
    cell = mb.Stack([mb.LSTM(5, 8), mb.GRU(8, 8, zoneout=0.1)])
    result = under_a_budget(cell, text, 2)
    grads: dict[str, NDArray[np.float32]] = result.grads
    steps: int = result.stats.forward_steps
    mb.Adam(cell.params, mb.LearningRate(0.01)).step({name: grads[name] for name in cell.params})

    dense = Rows(generator.standard_normal((6, 2, 3)).astype(np.float32))
    rnn = mb.RNN(3, 4, dtype="float32", backend="numpy")
    full = mb.full_bptt(rnn, dense, Squared(), input_grads=True)
    loss, state = mb.evaluate(rnn, dense, Squared())
    again = mb.bptt(rnn, dense, Squared(), mb.schedule(6, 640, cell=rnn, batch=2), state)
    report = mb.check_gradients(rnn)
    if not report.ok:
        raise SystemExit(f"differs by {report.max_difference}")
    least: int = mb.forward_steps(1000, 77, "optimal", alpha=3)
    plan = mb.schedule(1000, mb.Units(77, alpha=3), strategy="optimal")
    factor: float = plan.time_factor(backward_ratio=2.0)
    shapes: list[tuple[int, ...]] = [array.shape for array in mb.to_torch(rnn).values()]
    pair = mb.from_torch(mb.to_torch((rnn, rnn)), bidirectional=True)
    both = mb.bptt_bidirectional(
        pair,
        dense,
        mb.LinearHead(8, 1).with_targets(np.zeros((6, 2, 1), np.float32)),
        mb.schedule(6, 640, cell=rnn, batch=2),
    )
    lengths = np.array([6, 4])
    packed: mb.PackedSchedule = mb.packed_schedule([6, 4], 640, rnn)
    last = mb.LinearHead(4, 1).at_last(np.ones((2, 1), np.float32), lengths)
    ended = mb.full_bptt(rnn, dense, last, lengths=lengths)
    mb.bptt_bidirectional(
        pair,
        dense.array,
        mb.LinearHead(8, 1).with_targets(np.zeros((6, 2, 1), np.float32), lengths=lengths),
        packed,
        lengths=lengths,
    )
    assert ended.loss > 0 and packed.row_steps >= 10
    ends: list[NDArray[np.float32]] = [state[0] for state in both.state]
    assert len(ends) == 2 and type(mb.from_torch(mb.to_torch(rnn)).hidden_size) is int
    return full.loss + loss + again.loss + least + factor + steps + len(shapes)


if __name__ == "__main__":
    print(main())
