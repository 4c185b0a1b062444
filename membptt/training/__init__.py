"""Text, heads, optimizers, the training loop and its checkpoints."""

from membptt.heads import LinearHead, SoftmaxHead
from membptt.training.corpus import Corpus, Windows
from membptt.training.loop import Trainer, Update, all_params
from membptt.training.optimizers import SGD, Adam, AdamW, clip_by_norm
from membptt.training.rates import LearningRate

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "Corpus",
    "LearningRate",
    "LinearHead",
    "SoftmaxHead",
    "Trainer",
    "Update",
    "Windows",
    "all_params",
    "clip_by_norm",
]
