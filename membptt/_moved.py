"""Modules that were imported by another name in 0.1: the old names work for this release.

Whoever imports one is told the new name by a DeprecationWarning.
"""

import importlib
import importlib.abc
import importlib.machinery
import sys
import warnings

MOVED = {
    "membptt.blocks": "membptt.sequences.blocks",
    "membptt.executor.chain": "membptt.chains.registry",
    "membptt.executor.disk": "membptt.timing.disk",
    "membptt.executor.expand": "membptt.timing.expand",
    "membptt.executor.measure": "membptt.timing.moves",
    "membptt.executor.packed": "membptt.chains.ragged",
    "membptt.executor.plain": "membptt.chains.plain",
    "membptt.feed": "membptt.sequences.feed",
    "membptt.lengths": "membptt.sequences.lengths",
    "membptt.training.heads": "membptt.heads",
}


class Moved(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a module by its old name, and gives the module of the new one."""

    def find_spec(self, name, path=None, target=None):
        """Return a spec for an old name, else None."""
        if name not in MOVED:
            return None
        return importlib.machinery.ModuleSpec(name, self)

    def create_module(self, spec):
        """Have Python make an empty module, which the other one takes the place of."""

    def exec_module(self, module):
        """Put the module of the new name in the place of this one."""
        name = module.__name__
        warnings.warn(f"{name} is now {MOVED[name]}", DeprecationWarning, stacklevel=2)
        sys.modules[name] = importlib.import_module(MOVED[name])


def register():
    """Have the old names found, behind all that Python finds by itself."""
    sys.meta_path.append(Moved())
