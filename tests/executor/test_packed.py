"""Rows of several lengths: the gradients of each sequence on its own, the bits of full BPTT under
every schedule, and never a byte over the budget."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import membptt as mb
from membptt.solver import STRATEGIES

ONE_LANE = [strategy for strategy in STRATEGIES if strategy != "lookahead"]
LENGTHS = np.array([3, 7, 1, 5])


def stack(I, H, **options):  # noqa: E741
    return mb.Stack([mb.GRU(I, H + 3, **options), mb.LSTM(H + 3, H, **options)])


def custom(I, H, dtype="float32", backend="numpy"):  # noqa: E741
    """A step of the user's, on rows of H by 2."""
    weights = np.random.default_rng(1).standard_normal((I, 2 * H)).astype(dtype)

    def new(params, x, h):
        return np.tanh((x @ params["W"]).reshape(h.shape) + h / 2)

    def forward(params, x, state):
        return (new(params, x, state[0]),), ()

    def backward(params, x, state, saved, dstate, grads):
        da = dstate[0] * (1 - new(params, x, state[0]) ** 2)
        grads["W"] += x.T @ da.reshape(len(x), -1)
        return (da / 2,)

    return mb.Custom(forward, backward, {"W": weights}, I, {"h": (H, 2)})


def int8(I, H, **options):  # noqa: E741
    return mb.Reduced(mb.LSTM(I, H, **options), "int8")


CELLS = {
    "rnn": mb.RNN,
    "lstm": mb.LSTM,
    "gru": mb.GRU,
    "stack": stack,
    "ln-lstm": mb.LayerNormLSTM,
    "int8": int8,
}


class Case:
    """A cell, a window whose rows have lengths, and a head; what is behind the ends is nonsense."""

    def __init__(
        self,
        make,
        lengths,
        I=3,  # noqa: E741
        H=5,
        V=4,
        backend="cython",
        dtype="float32",
        kind="softmax",
        dense=True,
        seed=0,
    ):
        numbers = np.random.default_rng(seed)
        self.lengths = lengths = np.array(lengths)
        T, B = int(lengths.max()), len(lengths)
        self.cell = make(I, H, dtype=dtype, backend=backend)
        self.kind = kind
        head = mb.LinearHead if kind == "dense" else mb.SoftmaxHead
        self.head = head(H, V, dtype, backend=backend)
        ended = np.arange(1, T + 1)[:, None] > lengths
        if dense:
            self.inputs = numbers.standard_normal((T, B, I)).astype(dtype)
            self.inputs[ended] = np.nan
        else:
            self.inputs = numbers.integers(I, size=(T, B))
            self.inputs[ended] = -7
        if kind == "dense":
            self.targets = numbers.standard_normal((T, B, V)).astype(dtype)
            self.targets[ended] = np.nan
        else:
            self.targets = numbers.integers(V, size=(T, B))
            self.targets[ended] = 99
        self.classes = numbers.integers(V, size=B)
        self.state = tuple(
            numbers.standard_normal(shape).astype(dtype) for shape in self.cell.hidden_shapes(B)
        )

    def bound(self):
        if self.kind == "last":
            return self.head.at_last(self.classes, self.lengths)
        return self.head.with_targets(self.targets, lengths=self.lengths)

    def full(self, **options):
        return mb.full_bptt(
            self.cell, self.inputs, self.bound(), self.state, lengths=self.lengths, **options
        )

    def run(self, schedule, **options):
        return mb.bptt(
            self.cell,
            self.inputs,
            self.bound(),
            schedule,
            self.state,
            lengths=self.lengths,
            **options,
        )

    def alone(self, row):
        """Return full BPTT of one sequence by itself, and what it counts for in the batch."""
        n = int(self.lengths[row])
        if self.kind == "last":
            bound, share = self.head.at_last(self.classes[[row]], n), 1 / len(self.lengths)
        else:
            bound = self.head.with_targets(self.targets[:n, [row]])
            share = n / self.lengths.sum()
        state = tuple(array[[row]] for array in self.state)
        dense = self.inputs.ndim == 3
        found = mb.full_bptt(self.cell, self.inputs[:n, [row]], bound, state, input_grads=dense)
        return found, share


@pytest.mark.parametrize("backend", ["numpy", "cython"])
@pytest.mark.parametrize("kind, dense", [("softmax", False), ("dense", True), ("last", True)])
@pytest.mark.parametrize("name", [name for name in CELLS if name != "int8"])
def test_gradients_are_the_sums_over_the_sequences(name, kind, dense, backend):
    case = Case(CELLS[name], LENGTHS, dtype="float64", kind=kind, dense=dense, backend=backend)
    both = case.full(input_grads=dense)
    loss, sums = 0, {key: np.zeros_like(value) for key, value in both.grads.items()}
    close = {"rtol": 1e-9, "atol": 1e-12}
    for row, n in enumerate(LENGTHS):
        one, share = case.alone(row)
        loss += share * one.loss
        for key in sums:
            sums[key] += share * one.grads[key]
        for mine, theirs in zip(both.state, one.state, strict=True):
            np.testing.assert_allclose(mine[row], theirs[0], **close)
        for mine, theirs in zip(both.state_grad, one.state_grad, strict=True):
            np.testing.assert_allclose(mine[row], share * theirs[0], **close)
        if dense:
            wanted = share * one.input_grads[:, 0]
            np.testing.assert_allclose(both.input_grads[:n, row], wanted, **close)
            assert (both.input_grads[n:, row] == 0).all()
    assert both.loss == pytest.approx(loss, rel=1e-12)
    for key, value in both.grads.items():
        np.testing.assert_allclose(value, sums[key], **close)


def amounts(case):
    hidden = case.cell.hidden_nbytes(len(LENGTHS))
    internal = case.cell.internal_nbytes(len(LENGTHS))
    return internal, internal + hidden, 2 * internal + 1, 4 * internal, 99 * internal


@pytest.mark.parametrize("backend", ["numpy", "cython"])
@pytest.mark.parametrize("name", CELLS)
def test_bits_do_not_depend_on_the_schedule(name, backend, bits):
    case = Case(CELLS[name], LENGTHS, backend=backend, dense=name != "lstm")
    wanted = bits(case.full())
    ran = 0
    for memory in amounts(case):
        packed = mb.packed_schedule(LENGTHS, memory, case.cell)
        plans = [packed]
        for strategy in ONE_LANE:
            try:
                plans.append(mb.schedule(7, memory, strategy, case.cell, 4))
            except ValueError:
                continue
        for plan in plans:
            for slow in (False, True):
                executor = mb.Executor(case.cell, plan, 4, step_through=slow, verify=True)
                result = executor.run(case.inputs, case.bound(), case.state, LENGTHS)
                assert bits(result) == wanted
                assert result.stats.peak_bytes <= len(executor.arena.buffer) <= memory
                assert result.stats.forward_steps == plan.forward_steps
                ran += 1
        assert result.stats.backward_steps == 7
        assert case.run(packed).stats.peak_bytes == packed.peak_bytes <= memory
    assert ran > 60


@pytest.mark.parametrize("name", ["lstm", "stack"])
def test_blocks_of_steps_and_threads(name, bits):
    # 13 rows: blocks of 39 steps of deltas, so that rows end in many of them.
    lengths = np.random.default_rng(3).integers(1, 200, 13)
    case = Case(CELLS[name], lengths, I=9, H=40, V=11)
    wanted = bits(case.full())
    packed = mb.packed_schedule(lengths, 6 * case.cell.internal_nbytes(13), case.cell)
    for threads in (1, 2, 3):
        assert bits(case.run(packed, threads=threads, verify=True)) == wanted
    plain = Case(CELLS[name], lengths, I=9, H=40, V=11, backend="numpy").full()
    for key, value in case.full().grads.items():
        np.testing.assert_allclose(value, plain.grads[key], rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("backend", ["numpy", "cython"])
def test_a_padded_batch_has_the_same_gradients_where_the_padding_is_finite(backend):
    case = Case(mb.LSTM, LENGTHS, dtype="float64", backend=backend)
    packed = case.full()
    zeroed = np.nan_to_num(case.inputs)
    padded = mb.full_bptt(case.cell, zeroed, case.bound(), case.state)
    assert padded.loss == pytest.approx(packed.loss, rel=1e-12)
    for key, value in padded.grads.items():
        np.testing.assert_allclose(value, packed.grads[key], rtol=1e-9, atol=1e-13)


def test_the_order_of_the_rows_does_not_matter(bits):
    case = Case(mb.LSTM, LENGTHS)
    wanted = case.full()
    order = np.array([1, 3, 0, 2])  # the longest first: nothing is put in another order inside
    case.lengths, case.state = LENGTHS[order], tuple(array[order] for array in case.state)
    case.inputs = np.ascontiguousarray(case.inputs[:, order])
    case.targets = np.ascontiguousarray(case.targets[:, order])
    found = case.full()
    assert all((found.grads[key] == wanted.grads[key]).all() for key in wanted.grads)
    assert (found.state[0] == wanted.state[0][order]).all()


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_random_lengths_and_budgets(bits, data):
    lengths = data.draw(st.lists(st.integers(1, 25), min_size=1, max_size=7))
    case = Case(
        CELLS[data.draw(st.sampled_from(sorted(CELLS)))],
        lengths,
        H=data.draw(st.integers(1, 20)),
        kind=data.draw(st.sampled_from(["softmax", "dense", "last"])),
        dense=data.draw(st.booleans()),
        backend=data.draw(st.sampled_from(["numpy", "cython"])),
    )
    wanted = case.full()
    internal = case.cell.internal_nbytes(len(lengths))
    memory = data.draw(st.integers(internal, 27 * internal))
    packed = mb.packed_schedule(lengths, memory, case.cell)
    packed.replay()
    result = case.run(packed)
    assert bits(result) == bits(wanted)
    assert result.stats.peak_bytes == packed.peak_bytes <= memory
    loss, state = mb.evaluate(case.cell, case.inputs, case.bound(), case.state, lengths)
    assert loss == pytest.approx(wanted.loss, rel=1e-5)
    assert all((mine == kept).all() for mine, kept in zip(state, wanted.state, strict=True))


class Reader:
    """An array that is read in blocks."""

    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, array.dtype

    def __getitem__(self, steps):
        return self.array[steps]


@pytest.mark.parametrize("how", [np.asfortranarray, Reader, lambda a: a[:, ::-1][:, ::-1]])
def test_inputs_and_targets_that_are_not_read_where_they_lie(how, bits):
    case = Case(mb.LSTM, LENGTHS, kind="dense")
    wanted = bits(case.full())
    case.inputs, case.targets = how(case.inputs), how(case.targets)
    packed = mb.packed_schedule(LENGTHS, 2 * case.cell.internal_nbytes(4), case.cell)
    assert bits(case.run(packed)) == wanted


@pytest.mark.parametrize("backend", ["numpy", "cython"])
def test_masks_hold_inside_the_rows(backend):
    case = Case(mb.GRU, LENGTHS, dtype="float64", backend=backend)
    mask = np.random.default_rng(5).random((7, 4)) < 0.6
    mask[0] = True
    bound = case.head.with_targets(case.targets, mask, LENGTHS)
    packed = mb.full_bptt(case.cell, case.inputs, bound, lengths=LENGTHS)
    both = mask & (np.arange(1, 8)[:, None] <= LENGTHS)
    padded = mb.full_bptt(
        case.cell, np.nan_to_num(case.inputs), case.head.with_targets(case.targets, both)
    )
    assert packed.loss == pytest.approx(padded.loss, rel=1e-12)
    for key, value in padded.grads.items():
        np.testing.assert_allclose(value, packed.grads[key], rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("backend", ["numpy", "cython"])
def test_a_row_keeps_its_own_noise(backend):
    """Whatever the lengths: h of a row up to its end is that of a batch of rows of one length."""
    options = {"zoneout": 0.3, "recurrent_dropout": 0.4, "backend": backend}
    cell = mb.LSTM(3, 6, **options)
    head = mb.SoftmaxHead(6, 4, backend=backend)
    numbers = np.random.default_rng(0)
    inputs, targets = numbers.integers(3, size=(7, 4)), numbers.integers(4, size=(7, 4))
    found = mb.full_bptt(cell, inputs, head.with_targets(targets, lengths=LENGTHS), lengths=LENGTHS)
    for row, n in enumerate(LENGTHS):
        even = mb.full_bptt(cell, inputs[:n], head.with_targets(targets[:n]))
        np.testing.assert_allclose(found.state[0][row], even.state[0][row], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("backend", ["numpy", "cython"])
def test_a_head_and_a_cell_of_ones_own(backend, bits):
    seen = []

    class Sum:
        """The sum of h and of its squares, each row weighed by its number."""

        kernel = None
        params = {"scale": np.ones(1, np.float32)}  # noqa: RUF012

        def forward_backward(self, step, h, grads, rows):
            seen.append((step, rows.tolist()))
            weights = (1 + rows).reshape(-1, *[1] * (h.ndim - 1))
            grads["scale"] += (weights * h * h).sum()
            return float((weights * h * h).sum()), (2 * weights * h).astype(h.dtype)

    for make in (mb.LSTM, custom):
        case = Case(make, LENGTHS, backend=backend)
        arguments = case.cell, case.inputs, Sum()
        full = mb.full_bptt(*arguments, case.state, lengths=LENGTHS)
        assert seen[:7] == [(7, [1]), (6, [1]), *((t, [1, 3]) for t in (5, 4)), (3, [1, 3, 0]),
                            (2, [1, 3, 0]), (1, [1, 3, 0, 2])]  # fmt: skip
        packed = mb.packed_schedule(LENGTHS, 2 * case.cell.internal_nbytes(4), case.cell)
        result = mb.bptt(*arguments, packed, case.state, lengths=LENGTHS)
        assert bits(result) == bits(full)
        seen.clear()


def test_an_executor_goes_from_lengths_to_others_and_to_none(bits):
    case = Case(mb.LSTM, LENGTHS, dense=False)
    case.inputs = np.abs(case.inputs) % 3
    case.targets = case.targets % 4
    schedule = mb.schedule(7, 3 * case.cell.internal_nbytes(4), cell=case.cell, batch=4)
    executor = mb.Executor(case.cell, schedule, 4)
    for lengths in (LENGTHS, np.array([7, 7, 2, 2]), None, LENGTHS):
        bound = case.head.with_targets(case.targets, lengths=lengths)
        full = mb.full_bptt(case.cell, case.inputs, bound, case.state, lengths=lengths)
        result = executor.run(case.inputs, bound, case.state, lengths)
        assert bits(result) == bits(full)


def test_nothing_that_was_given_is_changed():
    case = Case(mb.LSTM, LENGTHS)
    given = [case.inputs, case.targets, case.lengths, *case.state]
    before = [array.copy() for array in given]
    for array in given:
        array.flags.writeable = False
    case.run(mb.packed_schedule(LENGTHS, 2 * case.cell.internal_nbytes(4), case.cell))
    for array, kept in zip(given, before, strict=True):
        np.testing.assert_array_equal(array, kept)


def refusal(case, schedule=None, error=ValueError, **changes):
    arguments = {"head": case.bound(), "lengths": LENGTHS} | changes
    with pytest.raises(error) as raised:
        if schedule is None:
            mb.full_bptt(case.cell, case.inputs, state=case.state, **arguments)
        else:
            mb.bptt(case.cell, case.inputs, schedule=schedule, **arguments)
    return str(raised.value)


def test_refusals():
    case = Case(mb.LSTM, LENGTHS)
    memory = 3 * case.cell.internal_nbytes(4)
    packed = mb.packed_schedule(LENGTHS, memory, case.cell)
    told = case.head.with_targets(np.zeros((7, 4), int))
    assert "the head knows none" in refusal(case, head=told)
    other = case.head.with_targets(case.targets, lengths=[2, 7, 1, 5])
    assert "lengths[0] is 3, the head's is 2" in refusal(case, head=other)
    late = case.head.at_last(case.classes, [3, 7, 2, 5])
    assert "row 2 has its loss at step 2 and ends with step 1" in refusal(case, head=late)
    wrong = (
        "schedule is for Lengths([3, 7, 1, 5]), in any order, and given are Lengths([5, 7, 1, 5])"
    )
    assert wrong in refusal(
        case, packed, head=case.head.at_last(case.classes, 1), lengths=[5, 7, 1, 5]
    )
    assert "and given are none" in refusal(case, packed, lengths=None)
    two = mb.schedule(7, memory, "lookahead", case.cell, 4)
    assert "packed_schedule" in refusal(case, two)
    wider = mb.packed_schedule(LENGTHS, 10 * memory, mb.LSTM(3, 6))
    assert "plan it with packed_schedule" in refusal(case, wider)
    more = mb.packed_schedule([*LENGTHS, 2], 10 * memory, case.cell)
    assert "batch is 4; give 5" in refusal(case, more)

    class Short:
        kernel, params = None, {}

        def forward_backward(self, step, h, grads):
            raise AssertionError("not called")

    assert "does not take four arguments" in refusal(case, error=TypeError, head=Short())
    with pytest.raises(ValueError, match=r"targets have shape \(7,\)"):
        case.head.with_targets(np.zeros(7, int), lengths=LENGTHS)


def test_lengths_of_a_plan_serve_everywhere(bits):
    case = Case(mb.LSTM, LENGTHS, kind="last")
    wanted = bits(case.full())
    packed = mb.packed_schedule(LENGTHS, 3 * case.cell.internal_nbytes(4), case.cell)
    case.lengths = packed.lengths
    assert bits(case.full()) == bits(case.run(packed)) == wanted
    case.kind = "softmax"
    case.targets = np.where(packed.lengths.mask(7), 1, -1)
    case.full()


@pytest.mark.parametrize("dense", [True, False])
def test_an_iterator_of_lengths_is_refused(dense):
    """It would be at its end when the second argument asks for it."""
    case = Case(mb.LSTM, LENGTHS, dense=dense)
    assert "give a list or an array" in refusal(case, error=TypeError, lengths=iter(LENGTHS))


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("backend", ["numpy", "cython"])
def test_what_is_not_finite_is_named_where_it_counts(backend):
    case = Case(mb.LSTM, LENGTHS, backend=backend)
    case.inputs[4, 3] = np.inf  # the last step of row 3
    with pytest.raises(ValueError, match="infinity at step 5, row 3"):
        case.full()
    case.inputs[4, 3] = 1
    case.inputs[5:, 3] = np.inf
    assert np.isfinite(case.full().loss)


@pytest.mark.parametrize("name", ["rnn", "lstm", "gru"])
def test_pytorch_packs_the_same(name):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra: torch)")
    rnn = torch.nn.utils.rnn
    case = Case(CELLS[name], LENGTHS, dtype="float64")
    module = getattr(torch.nn, name.upper())(3, 5, dtype=torch.float64)
    weights = mb.to_torch(case.cell)
    module.load_state_dict({key: torch.from_numpy(value) for key, value in weights.items()})
    dense = torch.from_numpy(np.nan_to_num(case.inputs))
    packed = rnn.pack_padded_sequence(dense, torch.from_numpy(LENGTHS), enforce_sorted=False)
    state = tuple(torch.from_numpy(array)[None] for array in case.state)
    outputs, last = module(packed, state if name == "lstm" else state[0])
    h, _ = rnn.pad_packed_sequence(outputs)
    live = torch.from_numpy(np.arange(1, 8)[:, None] <= LENGTHS)
    W_y, b_y = (torch.from_numpy(case.head.params[key]) for key in ("W_y", "b_y"))
    wanted = torch.from_numpy(case.targets)[live]
    loss = torch.nn.functional.cross_entropy((h @ W_y + b_y)[live], wanted)
    loss.backward()
    mine = case.full()
    assert mine.loss == pytest.approx(loss.item(), rel=1e-9)
    for ours, theirs in zip(mine.state, last if name == "lstm" else (last,), strict=True):
        np.testing.assert_allclose(ours, theirs[0].detach().numpy(), rtol=1e-9)
    for ours, theirs in (("W_x", module.weight_ih_l0), ("W_h", module.weight_hh_l0)):
        np.testing.assert_allclose(mine.grads[ours], theirs.grad.numpy().T, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("name", ["rnn", "lstm", "gru", "stack"])
def test_blocks_that_are_expanded_where_rows_end(name, bits):
    """Hidden states side by side, of fewer and fewer rows."""
    lengths = np.array([24, 1, 2, 3, 5, 8, 9, 12, 15, 18, 20, 22])
    case, expanded = Case(CELLS[name], lengths), 0
    wanted = bits(case.full())
    for count in (2, 3, 4, 6, 8, 12):
        plan, _ = mb.expand_schedule(
            24, count * case.cell.internal_nbytes(12), case.cell, 12, cost=mb.ExpandCost(0.1, 0.1)
        )
        result = case.run(plan)
        assert bits(result) == wanted
        expanded += result.stats.expanded_steps
    assert expanded > 0
