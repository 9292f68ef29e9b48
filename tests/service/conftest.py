from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.service.support import Server, served, settings


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One real server for all tests that only ask and leave no mark."""
    directory = tmp_path_factory.mktemp("server")
    with served(settings(directory, body_bytes=8192, head_timeout=1.5, body_timeout=1.0, check_timeout=3.0)) as server:
        yield server
