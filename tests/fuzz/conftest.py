"""Cases of the fuzzer: each is made from seed and number, so that one that fails can be repeated.

python -m pytest tests/fuzz                                        a few of each kind
python -m pytest tests/fuzz --fuzz-cases 5000                      5000 of each kind
python -m pytest "tests/fuzz/test_files.py::test_logs[4711]" --fuzz-cases 5000
"""

import random
import shutil

import pytest
from fuzz.program import Program

from membptt.cli import main

USUAL_CASES = 20

TOML = 'text = "text"\nsteps = 5\nbatch = 2\nhidden = 3\nupdates = 2\nmemory = "2kB"\n'


def pytest_addoption(parser):
    parser.addoption(
        "--fuzz-cases", type=int, default=USUAL_CASES, metavar="N", help="cases of each kind"
    )
    parser.addoption("--fuzz-seed", type=int, default=0, metavar="N", help="for other cases")


def pytest_generate_tests(metafunc):
    if "number" in metafunc.fixturenames:
        count = metafunc.config.getoption("fuzz_cases", USUAL_CASES)
        one_of = getattr(metafunc.module, "ONE_OF", 1)
        metafunc.parametrize("number", range(-(-count // one_of)))


@pytest.fixture
def rng(request, number):
    """Return the case's own source of chance."""
    seed = request.config.getoption("fuzz_seed", 0)
    return random.Random(f"{request.node.originalname} {seed} {number}")


@pytest.fixture(scope="session")
def originals(tmp_path_factory):
    """Return a folder with a text, settings, a checkpoint and a log of each kind, and no files."""
    folder = tmp_path_factory.mktemp("originals")
    (folder / "text").write_text("abc dé\n" * 60, encoding="utf-8")
    (folder / "valid").write_text("é cab" * 20, encoding="utf-8")
    (folder / "run.toml").write_text(TOML)
    (folder / "empty").write_bytes(b"")
    (folder / "bytes").write_bytes(bytes(range(256)))
    (folder / "sub").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        words = ["train", "--config", "run.toml", "--valid", "valid", "--eval-every", "1"]
        for log in ("log.csv", "log.jsonl"):
            assert main([*words, "--save", "model.npz", "--log", log]) == 0
    return folder


@pytest.fixture
def folder(originals, tmp_path, monkeypatch):
    """Return a copy of `originals` to work in, with links that lead to a file, nowhere, round."""
    place = tmp_path / "place"
    shutil.copytree(originals, place)
    (place / "link").symlink_to("text")
    (place / "dangling").symlink_to("nowhere")
    (place / "loop").symlink_to("loop")
    monkeypatch.chdir(place)
    return place


@pytest.fixture
def program(folder, monkeypatch):
    return Program(folder, monkeypatch)
