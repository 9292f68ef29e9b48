"""The device that these tests need; without one they are skipped with the reason."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from backends.launch import Device
from sched_compiler.registry import ToolMissingError


@pytest.fixture(scope="session")
def device() -> Iterator[Device]:
    try:
        with Device() as found:
            yield found
    except ToolMissingError as e:
        pytest.skip(f"no GPU: {e}")
