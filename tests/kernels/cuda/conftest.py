"""Emulated devices (tests/emulator.py) that share what they compile."""

import pytest
from emulator import EmulatedDevice, build


@pytest.fixture(scope="session")
def emulated(compiler, tmp_path_factory):
    """Return a factory of emulated devices that share what they compile."""
    libraries, folder = {}, tmp_path_factory.mktemp("cuda")
    return lambda **options: EmulatedDevice(compiler, libraries, folder, **options)


@pytest.fixture(scope="session")
def build_source(compiler, tmp_path_factory):
    """Return a function that makes a device with one kernel of the test's own."""

    def make(text, backwards=False):
        folder = tmp_path_factory.mktemp("cuda")
        library = build(compiler, folder / "own", text, {})
        return EmulatedDevice(compiler, {("own", None, 0, None): library}, folder, backwards)

    return make
