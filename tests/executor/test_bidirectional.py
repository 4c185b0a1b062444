"""Networks that read in both directions: the gradients of the joint network, inside a budget."""

import numpy as np
import pytest

import membptt as mb

# steps, batch, inputs, units forward and backward, classes
T, B, D, H, K, V = 13, 3, 4, 5, 6, 3
KINDS = {"rnn": mb.RNN, "lstm": mb.LSTM, "gru": mb.GRU}


def network(
    kind="lstm", backend="cython", dtype="float64", sizes=(H, K), outputs="softmax", **noise
):
    """Return cells, inputs, a bound head and a state for each cell."""
    rng = np.random.default_rng(1)
    cells = tuple(
        KINDS[kind](D, size, dtype, seed, backend, **noise)
        for seed, size in enumerate(sizes, start=1)
    )
    inputs = rng.normal(size=(T, B, D)).astype(dtype)
    if outputs == "softmax":
        head = mb.SoftmaxHead(sum(sizes), V, dtype, backend=backend)
        targets = rng.integers(V, size=(T, B))
    else:
        head = mb.LinearHead(sum(sizes), V, dtype, backend=backend)
        targets = rng.normal(size=(T, B, V)).astype(dtype)
    states = tuple(
        tuple(rng.normal(size=shape).astype(dtype) for shape in cell.hidden_shapes(B))
        for cell in cells
    )
    return cells, inputs, head.with_targets(targets), states


def plans(cells, strategy="optimal", states=3):
    """Return a schedule for each cell, within so many internal states."""
    return tuple(
        mb.schedule(T, states * cell.internal_nbytes(B), strategy, cell, B) for cell in cells
    )


def loss_of(cells, inputs, head, states):
    """Return the loss by two loops that keep everything."""
    W, b = head.params["W_y"], head.params["b_y"]
    (forward, backward), (f, g) = cells, states
    ahead, behind = [], []
    for step, x in enumerate(inputs, start=1):
        f, _ = forward.at(step).forward_step(x, f)
        ahead.append(f[0])
    for step, x in enumerate(inputs[::-1], start=1):
        g, _ = backward.reseeded().at(step).forward_step(x, g)
        behind.append(g[0])
    size = forward.hidden_size
    return sum(
        head.loss_of(t, h @ W[:size] + k @ W[size:] + b)[0]
        for t, (h, k) in enumerate(zip(ahead, behind[::-1], strict=True), start=1)
    )


@pytest.mark.parametrize(
    ("outputs", "noise"),
    [
        ("softmax", {}),
        ("squared error", {}),
        ("softmax", {"recurrent_dropout": 0.5, "zoneout": 0.3}),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_loss_and_gradients_are_those_of_the_whole_network(kind, outputs, noise):
    cells, inputs, head, states = network(kind, "numpy", outputs=outputs, **noise)
    found = mb.bptt_bidirectional(cells, inputs, head, plans(cells), states)
    assert found.loss == pytest.approx(loss_of(cells, inputs, head, states), rel=1e-13)
    owners = {"forward": cells[0].params, "backward": cells[1].params}
    assert set(found.grads) == {
        *(f"{direction}.{name}" for direction in owners for name in owners[direction]),
        "W_y",
        "b_y",
    }
    for name, gradient in found.grads.items():
        direction, _, rest = name.rpartition(".")
        value = owners.get(direction, head.params)[rest]
        for index in [(0,) * value.ndim, tuple(n // 2 for n in value.shape)]:
            kept, losses = value[index], []
            for moved in (kept + 1e-5, kept - 1e-5):
                value[index] = moved
                losses.append(loss_of(cells, inputs, head, states))
            value[index] = kept
            wanted = (losses[0] - losses[1]) / 2e-5
            assert gradient[index] == pytest.approx(wanted, rel=1e-6, abs=1e-9), name


def test_directions_with_one_seed_have_masks_of_their_own():
    noise = {"recurrent_dropout": 0.5, "zoneout": 0.3}
    layers = [mb.GRU(D, H, seed=7, **noise), mb.LSTM(H, H, seed=8)]
    stack, ones = mb.Stack(layers, dropout=0.5, seed=7), np.ones((20, 30))
    other = stack.reseeded()
    pairs = [(stack.noise.between, other.noise.between)]
    pairs += [
        (one.noise.recurrent, two.noise.recurrent)
        for one, two in zip(stack.layers[:1], other.layers[:1], strict=True)
    ]
    for one, two in pairs:
        more = (1,) if one.__name__ == "between" else ()
        assert 0.3 < (one(ones, *more) == two(ones, *more)).mean() < 0.7
    # One cell for both directions, on a sequence that reads the same from both ends.
    cell = mb.LSTM(D, H, "float64", zoneout=0.5)
    inputs = np.ones((T, B, D))
    head = mb.LinearHead(2 * H, V, "float64").with_targets(np.zeros((T, B, V)))
    found = mb.bptt_bidirectional((cell, cell), inputs, head, plans((cell, cell)))
    assert (found.state[0][0] != found.state[1][0]).any()
    cell.set_noise(None)
    found = mb.bptt_bidirectional((cell, cell), inputs, head, plans((cell, cell)))
    assert (found.state[0][0] == found.state[1][0]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_pytorch_has_the_same(kind):
    torch = pytest.importorskip("torch", reason="pip install torch")
    name = {"rnn": "RNN", "lstm": "LSTM", "gru": "GRU"}[kind]
    _, inputs, head, _ = network(kind, sizes=(H, H))
    torch.manual_seed(0)
    module = getattr(torch.nn, name)(D, H, bidirectional=True).double()
    cells = mb.from_torch(module.state_dict(), bidirectional=True)
    W = torch.tensor(head.params["W_y"], requires_grad=True)
    h, _ = module(torch.from_numpy(inputs))
    y = (h @ W + torch.from_numpy(head.params["b_y"])).reshape(T * B, V)
    loss = torch.nn.functional.cross_entropy(y, torch.from_numpy(head.targets).reshape(-1))
    loss.backward()
    found = mb.bptt_bidirectional(cells, inputs, head, plans(cells))
    assert found.loss == pytest.approx(loss.item(), rel=1e-12)
    np.testing.assert_allclose(found.grads["W_y"], W.grad, rtol=1e-9, atol=1e-12)
    for direction, suffix in (("forward", ""), ("backward", "_reverse")):
        for ours, theirs in (("W_x", "weight_ih_l0"), ("W_h", "weight_hh_l0"), ("b", "bias_ih_l0")):
            wanted = getattr(module, theirs + suffix).grad.numpy().T
            np.testing.assert_allclose(
                found.grads[f"{direction}.{ours}"], wanted, rtol=1e-9, atol=1e-12
            )
    again = getattr(torch.nn, name)(D, H, bidirectional=True).double()
    again.load_state_dict({k: torch.from_numpy(v) for k, v in mb.to_torch(cells).items()})
    np.testing.assert_allclose(again(torch.from_numpy(inputs))[0].detach(), h.detach(), rtol=1e-12)


@pytest.mark.parametrize("backend", ["numpy", "cython"])
def test_every_schedule_gives_the_same_bits_within_its_budget(backend):
    cells, inputs, head, states = network(backend=backend, dtype="float32")
    full = mb.bptt_bidirectional(cells, inputs, head, plans(cells, "full", T), states)
    assert full.stats.forward_steps == 3 * T  # two chains and the sweep
    assert full.stats.outputs_bytes == T * B * V * 4
    for strategy in ("optimal", "ism", "hsm", "msm", "disk"):
        for units in (2, 4, 7):
            chosen = plans(cells, strategy, units)
            found = mb.bptt_bidirectional(cells, inputs, head, chosen, states)
            budget = max(plan.budget for plan in chosen)
            assert found.stats.peak_bytes <= found.stats.arena_bytes <= budget
            assert found.loss == full.loss
            for name, wanted in full.grads.items():
                assert (found.grads[name] == wanted).all(), (strategy, units, name)
            for mine, theirs in zip(found.state, full.state, strict=True):
                assert all((a == b).all() for a, b in zip(mine, theirs, strict=True))


class Elsewhere:
    """An array of another library: NumPy can take it, and its dtype is none of NumPy's."""

    dtype = object()

    def __init__(self, array):
        self.array, self.shape = array, array.shape

    def __getitem__(self, steps):
        return self.array[steps]

    def __array__(self, dtype=None, copy=None):
        return self.array


class Reader:
    """Inputs that are read by slices alone."""

    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, array.dtype

    def __getitem__(self, steps):
        assert isinstance(steps, slice)
        return self.array[steps]


def test_inputs_as_they_come_and_nothing_is_changed(tmp_path):
    cells, inputs, head, states = network()
    chosen = plans(cells)
    wanted = mb.bptt_bidirectional(cells, inputs, head, chosen, states)
    kept = inputs.copy()
    inputs.flags.writeable = head.targets.flags.writeable = False
    for array in (*states[0], *states[1]):
        array.flags.writeable = False
    strided = np.repeat(inputs, 2, axis=0)[::2]
    room = np.memmap(tmp_path / "outputs", np.float64, "w+", shape=(T, B, V))
    layouts = inputs, strided, np.asfortranarray(inputs)
    for given in (*layouts, inputs.tolist(), Elsewhere(inputs), Reader(inputs)):
        found = mb.bptt_bidirectional(cells, given, head, chosen, states, outputs=room)
        for name in wanted.grads:
            assert (found.grads[name] == wanted.grads[name]).all()
    assert (inputs == kept).all()


def test_tokens_stacks_and_masks():
    rng = np.random.default_rng(2)
    cells = (
        mb.Stack([mb.GRU(9, 4, "float64", 1), mb.LSTM(4, H, "float64", 2)]),
        mb.RNN(9, K, "float64", 3),
    )
    tokens = rng.integers(9, size=(T, B))
    mask = rng.random((T, B)) < 0.5
    targets = rng.integers(V, size=(T, B))
    head = mb.SoftmaxHead(H + K, V, "float64").with_targets(targets, mask)
    found = mb.bptt_bidirectional(cells, tokens, head, plans(cells))
    states = tuple(cell.zero_state(B) for cell in cells)
    assert found.loss == pytest.approx(loss_of(cells, tokens, head, states), rel=1e-12)
    again = mb.bptt_bidirectional(cells, tokens, head, plans(cells, "full", T))
    assert all((again.grads[name] == value).all() for name, value in found.grads.items())
    assert "forward.0.W_x" in found.grads


def test_misuse_is_named():
    cells, inputs, head, _ = network()
    chosen = plans(cells)
    with pytest.raises(TypeError, match=r"cells is .* give a pair"):
        mb.bptt_bidirectional(cells[0], inputs, head, chosen)
    with pytest.raises(ValueError, match="give two of one dtype"):
        other = mb.LSTM(D, K, "float32")
        mb.bptt_bidirectional((cells[0], other), inputs, head, chosen)
    with pytest.raises(ValueError, match="hidden_size is 11; give 10, both cells' together"):
        mb.bptt_bidirectional((cells[0], cells[0]), inputs, head, chosen)
    with pytest.raises(TypeError, match="give a SoftmaxHead or LinearHead with its targets"):
        mb.bptt_bidirectional(cells, inputs, head.head, chosen)
    with pytest.raises(ValueError, match="targets have shape"):
        mb.bptt_bidirectional(cells, inputs, head.head.with_targets(head.targets[1:]), chosen)
    with pytest.raises(ValueError, match=r"outputs are float64 .*; give float64"):
        mb.bptt_bidirectional(cells, inputs, head, chosen, outputs=np.zeros((T, B, V + 1)))
    with pytest.raises(ValueError, match="give 13 steps and batch 3, as the schedule's"):
        mb.bptt_bidirectional(cells, inputs[:-1], head.head.with_targets(head.targets[1:]), chosen)
    cells[0].params["W_h"][0, 0] = np.nan
    with pytest.raises(ValueError, match=r"forward cell .* at step 1: parameter W_h holds NaN"):
        mb.bptt_bidirectional(cells, inputs, head, chosen)
    cells[0].params["W_h"][0, 0] = 0
    cells[1].params["W_h"][0, 0] = np.nan
    with pytest.raises(ValueError, match="the backward cell, whose step 1 is the last one"):
        mb.bptt_bidirectional(cells, inputs, head, chosen)


LENGTHS = np.array([3, 7, 1, 5])


def tagged(kind, backend, dense, dtype="float64"):
    """Return cells, inputs, a head, targets and states of rows with LENGTHS, nonsense behind."""
    numbers = np.random.default_rng(0)
    cells = mb.GRU(3, 4, dtype, 1, backend), mb.LSTM(3, 5, dtype, 2, backend)
    head = (mb.LinearHead if kind == "dense" else mb.SoftmaxHead)(9, 6, dtype, backend=backend)
    ended = np.arange(1, 8)[:, None] > LENGTHS
    if dense:
        inputs = numbers.standard_normal((7, 4, 3)).astype(dtype)
        inputs[ended] = np.nan
    else:
        inputs = numbers.integers(3, size=(7, 4))
        inputs[ended] = -1
    if kind == "dense":
        targets = numbers.standard_normal((7, 4, 6)).astype(dtype)
        targets[ended] = np.nan
    else:
        targets = numbers.integers(6, size=(7, 4))
        targets[ended] = 77
    states = tuple(
        tuple(numbers.standard_normal(shape).astype(dtype) for shape in cell.hidden_shapes(4))
        for cell in cells
    )
    return cells, inputs, head, targets, states


@pytest.mark.parametrize("backend", ["numpy", "cython"])
@pytest.mark.parametrize("kind, dense", [("tags", False), ("dense", True), ("last", True)])
def test_rows_of_several_lengths_are_read_from_their_own_ends(kind, dense, backend):
    cells, inputs, head, targets, states = tagged(kind, backend, dense)
    classes, steps = np.array([5, 0, 2, 2]), np.array([2, 7, 1, 1])

    def run(lengths, rows=slice(None)):
        n = int(LENGTHS[rows].max())
        window = inputs[:n, rows]
        if kind == "last":
            bound = head.at_last(classes[rows], steps[rows])
        else:
            bound = head.with_targets(targets[:n, rows], lengths=lengths)
        plans = [mb.schedule(n, "1 MiB", cell=cell, batch=window.shape[1]) for cell in cells]
        state = tuple(tuple(array[rows] for array in part) for part in states)
        return mb.bptt_bidirectional(cells, window, bound, plans, state, lengths=lengths)

    together, loss, sums = run(LENGTHS), 0, {}
    for row, n in enumerate(LENGTHS):
        one = run(None, [row])
        share = 1 / 4 if kind == "last" else n / LENGTHS.sum()
        loss += share * one.loss
        for name, value in one.grads.items():
            sums[name] = sums.get(name, 0) + share * value
        for side in range(2):
            for mine, theirs in zip(together.state[side], one.state[side], strict=True):
                np.testing.assert_allclose(mine[row], theirs[0], rtol=1e-9)
            pairs = zip(together.state_grad[side], one.state_grad[side], strict=True)
            for mine, theirs in pairs:
                np.testing.assert_allclose(mine[row], share * theirs[0], rtol=1e-9, atol=1e-14)
    assert together.loss == pytest.approx(loss, rel=1e-12)
    for name, value in together.grads.items():
        np.testing.assert_allclose(value, sums[name], rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("backend", ["numpy", "cython"])
def test_packed_plans_do_not_change_the_bits_of_both_directions(backend):
    cells, inputs, head, targets, states = tagged("tags", backend, True, "float32")
    mask = np.random.default_rng(1).random((7, 4)) < 0.7
    mask[0] = True
    targets = np.where(mask, targets, -5)
    bound = head.with_targets(targets, mask, LENGTHS)
    found = set()
    for memory in (1, 2, 100):
        plans = [mb.packed_schedule(LENGTHS, memory * c.internal_nbytes(4), c) for c in cells]
        result = mb.bptt_bidirectional(cells, inputs, bound, plans, states, lengths=LENGTHS)
        both = [np.float64(result.loss), *(result.grads[name] for name in sorted(result.grads))]
        found.add(b"".join(array.tobytes() for array in both))
        assert result.stats.peak_bytes <= memory * max(c.internal_nbytes(4) for c in cells)
    assert len(found) == 1


def test_lengths_are_refused_where_rows_cannot_be_turned_around():
    cells, inputs, head, targets, _ = tagged("tags", "cython", True)
    plans = [mb.packed_schedule(LENGTHS, "1 MiB", cell) for cell in cells]
    bound = head.with_targets(targets, lengths=LENGTHS)

    class Reader:
        shape, dtype = inputs.shape, inputs.dtype

        def __getitem__(self, steps):
            return inputs[steps]

    with pytest.raises(ValueError, match="inputs are a reader, and with lengths"):
        mb.bptt_bidirectional(cells, Reader(), bound, plans, lengths=LENGTHS)
    with pytest.raises(ValueError, match="the head knows none"):
        untold = head.with_targets(np.zeros((7, 4), int))
        mb.bptt_bidirectional(cells, inputs, untold, plans, lengths=LENGTHS)
