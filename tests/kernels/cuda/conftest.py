"""Emulated devices (tests/emulator.py) that share what they compile."""

import pytest
from emulator import Compiler, EmulatedDevice


@pytest.fixture(scope="session")
def kernel_compiler(compiler, tmp_path_factory):
    return Compiler(compiler, tmp_path_factory.mktemp("cuda"))


@pytest.fixture(scope="session")
def emulated(kernel_compiler):
    """Return a factory of emulated devices."""
    return lambda **options: EmulatedDevice(kernel_compiler, **options)
