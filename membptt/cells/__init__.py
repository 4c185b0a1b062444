"""Recurrent cells: the equations, forward and backward side by side, in plain array code."""

from membptt.cells.base import Cell
from membptt.cells.custom import Custom
from membptt.cells.gru import GRU
from membptt.cells.lstm import LSTM
from membptt.cells.normalised import LayerNormGRU, LayerNormLSTM, LayerNormRNN
from membptt.cells.reduced import Reduced
from membptt.cells.rnn import RNN
from membptt.cells.stack import Stack

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "Cell",
    "Custom",
    "LayerNormGRU",
    "LayerNormLSTM",
    "LayerNormRNN",
    "Reduced",
    "Stack",
]
