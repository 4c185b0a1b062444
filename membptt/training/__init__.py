"""Text, heads, optimizer, the training loop and its checkpoints."""

from membptt.training.corpus import Corpus, Windows
from membptt.training.heads import LinearHead, SoftmaxHead
from membptt.training.loop import Trainer, Update, all_params
from membptt.training.optimizers import Adam, clip_by_norm

__all__ = [
    "Adam",
    "Corpus",
    "LinearHead",
    "SoftmaxHead",
    "Trainer",
    "Update",
    "Windows",
    "all_params",
    "clip_by_norm",
]
