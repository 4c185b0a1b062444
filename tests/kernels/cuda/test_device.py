"""What every device does alike: the way of inputs through two stages."""

import numpy as np
import pytest

from membptt.kernels.cuda import device as device_module


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float32])
def test_an_upload_larger_than_the_stages_arrives_whole(emulated, monkeypatch, dtype):
    monkeypatch.setattr(device_module, "STAGE_NBYTES", 64)
    device = emulated()
    values = np.arange(100).astype(dtype).reshape(20, 5)
    at = device.take(100 * 4)
    for turn in (values, values[:, ::-1]):
        device.upload(at, turn, np.int32)
        assert (device.fetch(at, (20, 5), np.int32) == turn).all()
    assert sum(stage.size for stage in device.stages) == 128
    device.check_guards()
