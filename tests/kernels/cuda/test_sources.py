"""Every .cu file compiles for real devices, with the roundings that the source has and no other."""

import re

import pytest

from membptt.kernels.cuda import sources

FLAT = ("hidden", "loss", "sums")


def tiles_of(file):
    if file in FLAT:
        return (None,)
    return sources.FORWARD_TILES if file == "forward" else sources.TILES


@pytest.fixture(scope="module")
def compile_cuda():
    """Return a function that gives the PTX of a source, or the compiler's own words."""
    pytest.importorskip(
        "cupy", reason="CuPy brings the binding of the compiler", exc_type=Exception
    )
    from cupy_backends.cuda.libs import nvrtc

    try:
        nvrtc.getVersion()
    except Exception as error:
        pytest.skip(f"NVRTC is not to be had: {str(error).strip().splitlines()[0]}")

    def compile_one(text, options):
        program = nvrtc.createProgram(text, "kernel.cu", (), ())
        try:
            nvrtc.compileProgram(program, options)
        except nvrtc.NVRTCError:
            pytest.fail(nvrtc.getProgramLog(program))
        ptx = nvrtc.getPTX(program)
        nvrtc.destroyProgram(program)
        return ptx if isinstance(ptx, str) else ptx.decode()

    return compile_one


@pytest.mark.parametrize("arch, tiles", [("sm_90", slice(None)), ("sm_80", slice(2, None))])
@pytest.mark.parametrize("itemsize", [4, 8])
@pytest.mark.parametrize("file", sources.KERNELS)
def test_nvrtc_compiles_every_file(compile_cuda, file, itemsize, arch, tiles):
    for cell in ("rnn", "lstm", "gru"):
        text = sources.source(file, cell)
        for tile in tiles_of(file)[tiles] or (None,):
            options = sources.options(file, itemsize, tile)
            ptx = compile_cuda(text, (*options, f"--gpu-architecture={arch}"))
            assert tuple(re.findall(r"\.entry (\w+)", ptx)) == sources.KERNELS[file]
            # log() begins its division from an approximation; nothing else is inexact.
            inexact = set(re.findall(r"\b[\w.]*(?:\.ftz|\.approx|div\.full)[\w.]*", ptx))
            assert inexact <= ({"rcp.approx.ftz.f64"} if file == "loss" else set())
            assert ".local" not in ptx  # every array of a thread is in registers
        if 'include "cell.h"' not in (sources.FOLDER / f"{file}.cu").read_text(encoding="utf-8"):
            break  # the same for every cell


def test_products_are_fused_only_where_the_source_says_so(compile_cuda):
    text = sources.source("hidden", "rnn").replace(
        "cell_hidden(internal, state, at, size);", "state[at] = internal[at] * internal[0] + 1;"
    )
    options = (*sources.options("hidden", 4, None), "--gpu-architecture=sm_80")
    assert "fma" not in compile_cuda(text, options)
    fusing = tuple(option for option in options if not option.startswith("--fmad"))
    assert "fma" in compile_cuda(text, fusing)


def test_tiles_divide_into_threads_and_fit_shared_memory():
    for tile in (*sources.TILES, *sources.FORWARD_TILES):
        assert tile.rows % tile.thread_rows == tile.columns % tile.thread_columns == 0
        assert tile.threads % 32 == 0 and tile.threads <= 1024
    assert sources.choose_tile(sources.TILES, 64, 512, 132).rows == 16  # 128 blocks
    assert sources.choose_tile(sources.TILES, 256, 1024, 132).rows == 16
    assert sources.choose_tile(sources.TILES, 512, 4096, 132).rows == 64
    assert sources.choose_tile(sources.TILES, 1, 10, 132).rows == 4


def test_headers_are_pasted_into_the_source():
    for file in sources.KERNELS:
        assert '#include "' not in sources.source(file, "lstm")
    assert sources.source("forward", "rnn") != sources.source("forward", "lstm")
