"""What is not installed is named with the extra that brings it; without extras all else works."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import membptt as mb
from membptt.schedules import trade_off
from membptt.training.parallel import communicator
from membptt.training.tasks import digits
from membptt.view.curve import save_curve

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path(mb.__file__).parent

# What users import, where it is not the distribution's name.
MODULES = {"cupy-cuda12x": "cupy", "mpi4py": "mpi4py", "scikit-learn": "sklearn"}

# Extras of which the package imports nothing: they are for its tests, pages and measurements.
# Weights pass to and from PyTorch as arrays; torch is what they are for.
NOT_IMPORTED = {"test", "lint", "torch", "browser", "bench", "docs"}


def use_mpi(folder, monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    communicator()


USES = {
    "cupy": lambda folder, _: mb.LSTM(3, 4, backend="cupy"),
    "matplotlib": lambda folder, _: save_curve(trade_off(5), folder / "curve.png"),
    "mpi4py": use_mpi,
    "safetensors": lambda folder, _: mb.save_params(
        folder / "weights.safetensors", {"b": np.zeros(1, np.float32)}
    ),
    "sklearn": lambda folder, _: digits(),
}


def project():
    with open(ROOT / "pyproject.toml", "rb") as file:
        return tomllib.load(file)["project"]


def module_of(requirement):
    """Return what is imported of a line such as "matplotlib>=3.8"."""
    name = re.match(r"[\w-]+", requirement)[0]
    return MODULES.get(name, name)


def extras():
    """Return the extra of each module that the package may import."""
    return {
        module_of(requirement): extra
        for extra, requirements in project()["optional-dependencies"].items()
        if extra not in NOT_IMPORTED
        for requirement in requirements
    }


def imported_modules():
    """Return the top names of all that the package's Python files import, anywhere in them."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {name.name.split(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add(node.module.split(".")[0])
    return found


def test_every_import_is_declared_and_every_extra_is_tried_below():
    required = {module_of(requirement) for requirement in project()["dependencies"]}
    optional = imported_modules() - set(sys.stdlib_module_names) - {"membptt"} - required
    assert optional == set(extras()) == set(USES)
    assert set(project()["optional-dependencies"]) >= NOT_IMPORTED


@pytest.mark.parametrize("module", USES)
def test_what_is_missing_is_named_with_its_extra(module, tmp_path, monkeypatch):
    for name in [module, *(name for name in sys.modules if name.startswith(f"{module}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ValueError, match=re.escape(f"membptt[{extras()[module]}]")) as caught:
        USES[module](tmp_path, monkeypatch)
    message = str(caught.value)
    assert f"pip install 'membptt[{extras()[module]}]'" in message
    assert "\n" not in message
    assert list(tmp_path.iterdir()) == []


WITHOUT = """
import importlib, pkgutil, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in sys.argv[1:]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import membptt
names = [found.name for found in pkgutil.walk_packages(membptt.__path__, "membptt.")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
print(len(names))
"""


def test_every_module_can_be_imported_without_extras():
    groups = project()["optional-dependencies"].values()
    blocked = {module_of(requirement) for group in groups for requirement in group}
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", WITHOUT, *blocked],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 90
