"""On a device: every thread of every consumer of a work ring sees every item once, in launch after launch."""

from __future__ import annotations

import pytest

from backends.launch import Device
from tests.gpu.ring_walk import Case, cases, sources, walk
from tests.support.rings import ENTRY


@pytest.mark.parametrize("case", [*cases("counter"), *cases("hardware")], ids=str)
def test_every_consumer_sees_every_item_once(case: Case, device: Device) -> None:
    source = case.described.ring.source
    if source not in sources(device.arch):
        pytest.skip(f"{device.arch} has no {source} source")
    with device.kernel(case.cubin(device.arch), ENTRY) as kernel:
        assert walk(kernel, case.described) > 0
