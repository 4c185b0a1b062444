"""Predicted = executed = exhaustive, counted by the executor itself."""

import numpy as np
import pytest

import membptt as mb
from membptt.chains.plain import INITIAL
from membptt.oracle.proof import CountingChain, Proof, count, prove
from membptt.solver import STRATEGIES


@pytest.mark.parametrize("alpha", [1, 2, 3, 4])
@pytest.mark.parametrize("steps", [1, 2, 6])
def test_optimal_in_units(steps, alpha):
    for units in range(alpha, 2 * alpha + 3):
        proof = prove(mb.schedule(steps, mb.Units(units, alpha)))
        assert proof.holds
        assert proof.predicted == proof.executed == proof.exhaustive
        assert (proof.network is None) == (alpha in (1, 4))
        if proof.network is not None:
            assert proof.network_steps == proof.predicted and proof.same_bits


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name != "disk"])
@pytest.mark.parametrize("alpha", [2, 3])
def test_every_strategy_is_executed(strategy, alpha):
    proof = prove(mb.schedule(5, mb.Units(5 * alpha, alpha), strategy))
    assert proof.holds and proof.same_bits
    assert proof.executed == proof.predicted >= proof.exhaustive


@pytest.mark.parametrize("price", [(0, 0.05), (0.3, 0.3)])
def test_expansions_are_counted_with_their_price(price):
    for units in (6, 7, 9):
        plan = mb.schedule(6, mb.Units(units, 3), "expand", expand_cost=mb.ExpandCost(*price))
        proof = prove(plan)
        assert proof.holds and proof.same_bits
        assert plan.expansions and proof.predicted < mb.forward_steps(6, units, "optimal", 3)


@pytest.mark.parametrize("kind", [mb.RNN, mb.LSTM, mb.GRU])
def test_on_the_users_cell(kind):
    cell = kind(4, 9)
    budget = 2 * cell.internal_nbytes(3) + cell.hidden_nbytes(3)
    proof = prove(mb.schedule(6, budget, cell=cell, batch=3), cell, 3)
    assert proof.holds and proof.same_bits
    assert proof.network == f"{kind.__name__} with 9 hidden units"


@pytest.mark.parametrize(
    "wrong",
    [{"executed": 12}, {"exhaustive": 12}, {"network_steps": 14}, {"same_bits": False}],
)
def test_a_contradiction_is_one(wrong):
    right = {
        "predicted": 13,
        "executed": 13,
        "exhaustive": 13,
        "optimal": True,
        "forward_steps": 13,
    }
    right |= {"network": "LSTM", "network_steps": 13, "same_bits": True}
    assert Proof(**right).holds
    assert not Proof(**(right | wrong)).holds


def test_the_counting_chain_notices_what_is_overwritten():
    made = mb.schedule(7, mb.Units(6, 3))
    assert count(made) == 13
    chain = CountingChain(7, 1, 3, np.zeros(6, np.uint8))
    with pytest.raises(LookupError, match="step 2 ran from the state after step 0"):
        chain.forward(1, 2)
    chain.forward(0, 1, 0)
    chain.arena[2] = 5
    with pytest.raises(LookupError, match="overwritten in part"):
        chain.backward(1, 0)
    chain.arena[:3] = 5
    with pytest.raises(LookupError, match="of step 1 was overwritten"):
        chain.backward(1, 0)


def test_too_long_or_with_a_disk():
    with pytest.raises(ValueError, match="steps is 9 for a proof"):
        prove(mb.schedule(9, mb.Units(3, 3)))
    with pytest.raises(ValueError, match="strategy is disk for a proof"):
        prove(mb.schedule(7, mb.Units(8, 3), "disk"))


def test_the_counting_chain_notices_a_block_from_the_wrong_states():
    chain = CountingChain(3, 1, 3, np.zeros(12, np.uint8))
    chain.arena[:] = 9
    with pytest.raises(LookupError, match="h_1 was overwritten"):
        chain.expand(0, 2, INITIAL, 0, 0, 3)
    chain.arena[:2] = 1, 2
    with pytest.raises(LookupError, match="step 2 expanded from the state after 0"):
        chain.expand(1, 3, INITIAL, 0, 1, 3)
    chain.expand(0, 3, INITIAL, 0, 0, 3)
    assert (
        chain.expanded == [2, 2, 3]
        and chain.arena[3:].tolist() == [129] * 3 + [130] * 3 + [131] * 3
    )
