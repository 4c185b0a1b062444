"""The emulated device finds the mistakes that it is there to find."""

import numpy as np
import pytest

SHARED = """
#define KERNEL __global__ void
KERNEL __launch_bounds__(THREADS) own(int64_t *out)
{
    __shared__ int64_t value[32];
    const int x = threadIdx.x;
    value[x] = x;
    %s
    out[x] = value[(x + 1) %% 32];
}
"""


def outcome(device, size=32):
    """Run the test's own kernel on new memory; return what it wrote."""
    out = device.take(8 * size)
    device.launch(device.kernel("own", "own", None, 0), (1, 1), 32, (out,))
    return device.fetch(out, size, np.int64)


def test_a_barrier_orders_threads(build_source):
    text = SHARED % "__syncthreads();"
    for backwards in (False, True):
        assert (outcome(build_source(text, backwards=backwards)) == np.roll(range(32), -1)).all()


def test_a_race_gives_other_bits_backwards(build_source):
    text = SHARED % ""
    forwards, backwards = (outcome(build_source(text, backwards=b)) for b in (False, True))
    assert (forwards != backwards).any()


def test_a_barrier_that_some_threads_miss_is_an_error(build_source):
    device = build_source(SHARED % "if (x < 7) __syncthreads();")
    with pytest.raises(RuntimeError, match="own: threads wait at a barrier"):
        outcome(device)


def test_writing_beyond_a_buffer_is_found(build_source):
    device = build_source(SHARED % "__syncthreads();")
    outcome(device, size=31)
    with pytest.raises(AssertionError):
        device.check_guards()


def test_memory_begins_as_nan_and_work_waits_until_something_is_fetched(emulated):
    device = emulated()
    at = device.take(40)
    assert np.isnan(device.fetch(at, 5, np.float64)).all()
    host = np.arange(5.0)
    device.upload(at, host, np.float64)
    host[:] = 7  # the copy has not run yet, but the host may go on
    assert len(device.queue) == 2
    assert (device.fetch(at, 5, np.float64) == np.arange(5)).all()


def test_a_graph_holds_kernels_alone(emulated):
    device = emulated()
    at = device.take(8)
    with pytest.raises(AssertionError, match="a graph cannot hold this"):
        device.capture(lambda: device.clear(at, 8))
