"""One update of the character model end to end: window, gradients, clipping, Adam.

The sizes of `membptt train`, T = 1000, batch 16, hidden 256, inside 2 MiB, on random characters out
of a hundred. PyTorch's baseline stores everything and reads tokens as one-hot rows.
"""

import numpy as np

from membptt.training.corpus import Corpus
from membptt.training.settings import Settings, make_trainer

from . import pytorch

ALPHABET = [chr(code) for code in range(32, 132)]


class Update:
    """Ours: in the budget, and with everything stored."""

    params = ("full", "optimal")
    param_names = ("strategy",)

    def setup(self, strategy):
        settings = Settings(strategy=strategy)
        characters = np.random.default_rng(0).choice(ALPHABET, 16 * 1001)
        self.trainer = make_trainer(settings, Corpus("".join(characters)))
        self.trainer.update()

    def time_update(self, strategy):
        self.trainer.update()

    def peakmem_update(self, strategy):
        self.trainer.update()

    def track_peak_of_saved_states(self, strategy):
        return self.trainer.report()["arena_peak_bytes"]

    track_peak_of_saved_states.unit = "bytes"


class PyTorch:
    """The same network, loss, clipping and optimizer."""

    def setup(self):
        self.torch = torch = pytorch()
        self.layer, self.output = torch.nn.LSTM(100, 256), torch.nn.Linear(256, 100)
        self.params = [*self.layer.parameters(), *self.output.parameters()]
        self.adam = torch.optim.Adam(self.params, lr=0.02)
        generator = torch.Generator().manual_seed(0)
        tokens = torch.randint(100, (1001, 16), generator=generator)
        self.x = torch.nn.functional.one_hot(tokens[:-1], 100).float()
        self.targets = tokens[1:].flatten()
        self.time_update()

    def time_update(self):
        self.adam.zero_grad()
        y = self.output(self.layer(self.x)[0]).flatten(0, 1)
        self.torch.nn.functional.cross_entropy(y, self.targets).backward()
        self.torch.nn.utils.clip_grad_norm_(self.params, 1.0)
        self.adam.step()
