"""What the tests of the cache are made of; light, because processes that share a cache load it too."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from service.cache import DiskCache, Entry, Fault


def entry(name: str, blob: bytes = b"artifact") -> Entry:
    digest = hashlib.sha256(blob).hexdigest()
    return Entry(hashlib.sha256(name.encode()).hexdigest(), "cubin", digest, {"digest": digest, "entry": name}, blob)


class Cache(DiskCache):
    """Remembers its faults."""

    def __init__(self, root: Path, limit: int = 1 << 20) -> None:
        self.faults: list[Fault] = []
        super().__init__(root, limit, self.faults.append)

    def blob(self, e: Entry) -> Path:
        return self._blob(e.digest)

    def manifest(self, e: Entry) -> Path:
        return self._manifest(e.key)

    def age(self, e: Entry, seconds: float) -> None:
        before = self.manifest(e).stat().st_mtime - seconds
        os.utime(self.manifest(e), (before, before))
