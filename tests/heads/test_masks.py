"""Losses at some rows and steps only: masks, and one target at the end of each sequence."""

import numpy as np
import pytest

import membptt as mb
from membptt import arrays

T, B, I, H, V = 21, 4, 5, 7, 6  # noqa: E741


def window(kind, backend="cython", dtype="float64"):
    """Return a cell, inputs, a head and targets of every step; 300 rows are two blocks or more."""
    generator = np.random.default_rng(0)
    cell = mb.LSTM(I, H, dtype, 0, backend)
    inputs = generator.integers(I, size=(T, B))
    if kind == "softmax":
        return (
            cell,
            inputs,
            mb.SoftmaxHead(H, V, dtype, 0, backend),
            generator.integers(V, size=(T, B)),
        )
    targets = generator.standard_normal((T, B, V)).astype(dtype)
    return cell, inputs, mb.LinearHead(H, V, dtype, 0, backend), targets


def some(seed=1):
    """Return a mask with steps that are all, partly and not at all scored."""
    mask = np.random.default_rng(seed).random((T, B)) < 0.5
    mask[3:6], mask[9], mask[-2:] = False, True, False
    return mask


def spoilt(targets, mask):
    """Return the targets with nonsense where the mask is False."""
    targets = targets.copy()
    targets[~mask] = np.nan if targets.dtype.kind == "f" else V + 99
    return targets


@pytest.mark.parametrize("backend", ["numpy", "cython"])
@pytest.mark.parametrize("kind", ["softmax", "linear"])
def test_the_loss_is_the_mean_over_what_is_scored(kind, backend, bits):
    """Every scored row alone, as a loss of its own: loss and gradients are their means."""
    cell, inputs, head, targets = window(kind, backend)
    mask = some()
    result = mb.full_bptt(cell, inputs, head.with_targets(spoilt(targets, mask), mask))
    loss, grads = 0.0, {name: 0.0 for name in result.grads}
    for step, row in np.argwhere(mask):
        alone = np.zeros_like(mask)
        alone[step, row] = True
        one = mb.full_bptt(cell, inputs, head.with_targets(targets, alone))
        loss += one.loss / mask.sum()
        for name in grads:
            grads[name] = grads[name] + one.grads[name] / mask.sum()
    assert result.loss == pytest.approx(loss, rel=1e-12)
    for name, gradient in grads.items():
        np.testing.assert_allclose(result.grads[name], gradient, rtol=1e-9, atol=1e-15)
    every = mb.full_bptt(cell, inputs, head.with_targets(targets, np.ones_like(mask)))
    assert bits(every) == bits(mb.full_bptt(cell, inputs, head.with_targets(targets)))


@pytest.mark.parametrize("kind", ["softmax", "linear"])
def test_plain_and_compiled_agree(kind):
    for bind in (
        lambda head, targets: head.with_targets(spoilt(targets, some()), some()),
        lambda head, targets: head.at_last(targets[-1], T),
        lambda head, targets: head.at_last(targets[-1], np.array([T, 1, 7, T])),
    ):
        found = []
        for backend in ("numpy", "cython"):
            cell, inputs, head, targets = window(kind, backend)
            found.append(mb.full_bptt(cell, inputs, bind(head, targets)))
        plain, compiled = found
        assert compiled.loss == pytest.approx(plain.loss, rel=1e-12)
        for name, gradient in plain.grads.items():
            np.testing.assert_allclose(compiled.grads[name], gradient, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("backend", ["numpy", "cython"])
@pytest.mark.parametrize("kind", ["softmax", "linear"])
def test_the_last_step_is_a_mask_with_one_step(kind, backend):
    cell, inputs, head, targets = window(kind, backend)
    ends = np.array([T, 3, 10, 1])
    last = mb.full_bptt(cell, inputs, head.at_last(targets[-1], ends.astype(float)))
    mask = np.arange(1, T + 1)[:, None] == ends
    full = np.broadcast_to(targets[-1], targets.shape).copy()
    masked = mb.full_bptt(cell, inputs, head.with_targets(full, mask))
    assert last.loss == pytest.approx(masked.loss, rel=1e-13)
    for name, gradient in masked.grads.items():
        np.testing.assert_allclose(last.grads[name], gradient, rtol=1e-12, atol=1e-16)


@pytest.mark.parametrize("backend", ["numpy", "cython"])
@pytest.mark.parametrize("kind", ["softmax", "linear"])
def test_the_same_bits_under_every_schedule(kind, backend, bits):
    cell, inputs, head, targets = window(kind, backend, "float32")
    heads = [
        head.with_targets(spoilt(targets, some()), some()),
        head.at_last(targets[0], T),
        head.at_last(targets[0], np.array([T, 1, 7, 3])),
    ]
    for bound in heads:
        wanted = bits(mb.full_bptt(cell, inputs, bound))
        for strategy in ("hsm", "ism", "optimal", "expand", "lookahead", "disk"):
            plan = mb.schedule(T, 11 * cell.internal_nbytes(B), strategy, cell, B)
            for threads in (1, 2):
                assert bits(mb.bptt(cell, inputs, bound, plan, threads=threads)) == wanted


@pytest.mark.parametrize("kind", ["softmax", "linear"])
def test_differences_agree(kind):
    cell, inputs, head, targets = window(kind)
    for bound in (head.with_targets(targets, some()), head.at_last(targets[2], T)):
        report = mb.check_gradients(cell, inputs, bound, samples=20)
        assert report.ok, report


def test_pytorch_ignores_the_same_rows():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra: torch)")
    cell, _, head, targets = window("softmax")
    x = np.random.default_rng(0).standard_normal((T, B, I))
    mask = some()
    layer = torch.nn.LSTM(I, H, dtype=torch.float64)
    layer.load_state_dict({name: torch.from_numpy(a) for name, a in mb.to_torch(cell).items()})
    h, _ = layer(torch.from_numpy(x))
    W_y, b_y = (torch.from_numpy(head.params[name]) for name in ("W_y", "b_y"))
    labels = torch.from_numpy(np.where(mask, targets, -100).reshape(-1))  # what it ignores
    loss = torch.nn.functional.cross_entropy((h @ W_y + b_y).reshape(T * B, V), labels)
    loss.backward()
    result = mb.full_bptt(cell, x, head.with_targets(targets, mask))
    assert result.loss == pytest.approx(loss.item(), rel=1e-12)
    wanted = layer.weight_hh_l0.grad.numpy().T
    np.testing.assert_allclose(result.grads["W_h"], wanted, rtol=1e-9, atol=1e-14)


def test_many_blocks_of_steps_with_and_without_a_loss(bits):
    """The compiled head flushes its gradients block by block, and skips blocks without a loss."""
    generator = np.random.default_rng(0)
    for steps, batch in ((1300, 1), (70, 40)):
        cell, plain = mb.GRU(I, H), mb.GRU(I, H, backend="numpy")
        head = mb.SoftmaxHead(H, V)
        inputs = generator.integers(I, size=(steps, batch))
        targets = generator.integers(V, size=(steps, batch))
        for first, last in ((0, 5), (steps - 3, steps), (steps // 2, steps // 2 + 2)):
            mask = np.zeros((steps, batch), bool)
            mask[first:last] = True
            bound = head.with_targets(targets, mask)
            compiled = mb.full_bptt(cell, inputs, bound)
            wanted = mb.full_bptt(plain, inputs, bound)
            assert compiled.loss == pytest.approx(wanted.loss, rel=1e-5)
            for name, gradient in wanted.grads.items():
                scale = np.abs(gradient).max() + 1e-30
                assert np.abs(compiled.grads[name] - gradient).max() <= 2e-5 * scale
            again = mb.full_bptt(cell, inputs, bound)  # nothing is left from the run before
            assert bits(again) == bits(compiled)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            lambda h, t: h.with_targets(t, np.ones((T, 2), bool)),
            ValueError,
            r"mask has shape \(21, 2\)",
        ),
        (
            lambda h, t: h.with_targets(t, np.ones((T, B), int)),
            TypeError,
            "mask is int64; give bool",
        ),
        (lambda h, t: h.with_targets(t, np.zeros((T, B), bool)), ValueError, "False everywhere"),
        (lambda h, t: h.with_targets(t + V, np.ones((T, B), bool)), ValueError, "targets"),
        (lambda h, t: h.at_last(t, T), ValueError, r"give \[batch\], those of the last step"),
        (lambda h, t: h.at_last(t[0], 0), ValueError, "steps is 0"),
        (lambda h, t: h.at_last(t[0], np.array([1, 2])), ValueError, "the step at which it ends"),
        (lambda h, t: h.at_last(t[0], np.array([1, 2, 0, 3])), ValueError, r"steps\[2\] is 0"),
        (lambda h, t: h.at_last(t[0], [1, 2, 2.5, 3]), ValueError, r"steps\[2\] is 2.5"),
        (lambda h, t: h.at_last(t[0], iter([1, 2, 3, 3])), TypeError, "give a list or an array"),
        (lambda h, t: h.at_last(t[0], []), ValueError, "steps are empty"),
    ],
)
def test_what_does_not_fit_is_named(change, error, message):
    _, _, head, targets = window("softmax")
    with pytest.raises(error, match=message):
        change(head, targets)


def test_a_sequence_that_ends_beyond_the_window():
    cell, inputs, head, targets = window("softmax")
    with pytest.raises(ValueError, match=f"steps up to {T + 1}"):
        mb.full_bptt(cell, inputs, head.at_last(targets[0], np.array([1, 2, T + 1, 3])))


def test_a_mask_that_is_filled_anew_is_read_anew():
    cell, inputs, head, targets = window("softmax")
    mask = some()
    bound = head.with_targets(targets, mask)
    first = mb.full_bptt(cell, inputs, bound)
    mask[...] = True
    assert mb.full_bptt(cell, inputs, bound).loss == pytest.approx(
        mb.full_bptt(cell, inputs, head.with_targets(targets)).loss
    )
    mask[...] = some()
    assert mb.full_bptt(cell, inputs, bound).loss == first.loss


def test_on_a_device(monkeypatch, bits):
    import standin

    found = []
    for backend in ("numpy", "cupy"):
        if backend == "cupy":
            monkeypatch.setattr(arrays, "device_module", standin.device_module)
        for kind in ("softmax", "linear"):
            cell, inputs, head, targets = window(kind, backend, "float32")
            for bound in (
                head.with_targets(spoilt(targets, some()), some()),
                head.at_last(targets[0], np.array([T, 1, 7, 3])),
            ):
                result = mb.full_bptt(cell, inputs, bound)
                grads = {name: arrays.to_host(value) for name, value in result.grads.items()}
                found.append((result.loss, [grads[name].tobytes() for name in sorted(grads)]))
    assert found[:4] == found[4:]
