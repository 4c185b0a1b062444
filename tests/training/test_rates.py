"""Learning rates against their formulas, at their corners, and against PyTorch."""

import math

import pytest

from membptt.training.rates import DECAYS, LearningRate


@pytest.mark.parametrize("decay", DECAYS)
@pytest.mark.parametrize("warmup", [0, 1, 4])
def test_corners(decay, warmup):
    rate = LearningRate(0.5, decay, decay_updates=10, decay_to=0.25, warmup=warmup)
    assert [rate(k) for k in range(1, warmup + 1)] == [
        0.5 * k / warmup for k in range(1, warmup + 1)
    ]
    assert rate(max(warmup, 1)) == 0.5
    after = [rate(k) for k in range(max(warmup, 1), 14)]
    if decay == "constant":
        assert set(after) == {0.5}
        return
    assert after == sorted(after, reverse=True)
    assert rate(9) > rate(10) == pytest.approx(0.125, rel=1e-15)
    assert rate(10) == rate(11) == rate(10**9)


def test_middle():
    half = 1 + (101 - 1) / 2
    assert LearningRate(1.0, "cosine", 101, 0.1)(half) == pytest.approx(0.55, rel=1e-15)
    assert LearningRate(1.0, "exponential", 101, 0.01)(half) == pytest.approx(0.1, rel=1e-15)


def test_one_update_is_one_of_the_end():
    assert LearningRate(1.0, "cosine", decay_updates=1, decay_to=0.1)(1) == pytest.approx(0.1)


@pytest.mark.parametrize("decay", ["cosine", "exponential"])
def test_the_same_as_pytorch(decay):
    torch = pytest.importorskip("torch")
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.3)
    if decay == "cosine":
        theirs = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20, eta_min=0.03)
    else:
        theirs = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.1 ** (1 / 20))
    ours = LearningRate(0.3, decay, decay_updates=21, decay_to=0.1)
    for k in range(1, 22):
        assert ours(k) == pytest.approx(theirs.get_last_lr()[0], rel=1e-12)
        optimizer.step()
        theirs.step()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"peak": 0}, "learning_rate is 0.0; give a number above 0$"),
        ({"peak": math.nan}, "learning_rate is nan"),
        ({"decay": "linear"}, "decay is 'linear'; give one of constant, cosine, exponential"),
        ({"decay": "cosine"}, "decay 'cosine' needs decay_updates"),
        ({"decay": "cosine", "decay_updates": 0}, "decay_updates is 0; give at least 1"),
        (
            {"decay": "cosine", "decay_updates": 9, "decay_to": 0},
            "decay_to is 0.0; give .* and at most 1",
        ),
        ({"decay": "cosine", "decay_updates": 9, "decay_to": 1.5}, "decay_to is 1.5"),
        ({"warmup": -1}, "warmup is -1; give at least 0"),
        (
            {"decay": "cosine", "decay_updates": 9, "warmup": 9},
            "warmup is 9 and the decay ends at update 9",
        ),
    ],
)
def test_refusals(given, message):
    with pytest.raises(ValueError, match=message):
        LearningRate(**({"peak": 0.1} | given))
