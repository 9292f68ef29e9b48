"""The cache's promises, one test for each."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from service.cache import Entry, MemoryCache, encode_manifest, is_key
from tests.service.caching import Cache, entry
from tests.service.support import ROOT


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    made = Cache(tmp_path / "cache")
    made.prepare()
    return made


def files(cache: Cache, directory: str) -> set[str]:
    return {path.name for path in (cache._root / directory).rglob("*") if path.is_file()}


def test_what_is_put_can_be_got_by_another_process(cache: Cache) -> None:
    assert cache.put(entry("a"))
    assert Cache(cache._root).get(entry("a").key) == entry("a")
    assert cache.get(entry("b").key) is None
    assert cache.faults == []


def test_layout(cache: Cache) -> None:
    e = entry("a")
    cache.put(e)
    assert (cache._root / "blobs" / e.digest[:2] / e.digest).read_bytes() == e.blob
    document = json.loads((cache._root / "manifests" / e.key[:2] / e.key).read_text())
    assert document["description"]["digest"] == e.digest
    assert files(cache, "tmp") == set()


@pytest.mark.parametrize("damage", [b"", b"artifac", b"artifacs", b"artifact\n"])
def test_a_damaged_blob_is_dropped_counted_and_rebuilt(cache: Cache, damage: bytes) -> None:
    e = entry("a")
    cache.put(e)
    cache.blob(e).write_bytes(damage)
    assert cache.get(e.key) is None
    assert cache.faults == ["bad_blob"]
    assert not cache.manifest(e).exists()
    assert cache.put(e)
    assert cache.get(e.key) == e
    assert cache.faults == ["bad_blob"]


@pytest.mark.parametrize("kind", ["blob", "manifest"])
def test_what_is_no_regular_file_is_dropped_without_waiting(cache: Cache, kind: str) -> None:
    e = entry("a")
    cache.put(e)
    path = cache.blob(e) if kind == "blob" else cache.manifest(e)
    path.unlink()
    os.mkfifo(path)
    assert cache.get(e.key) is None
    assert cache.put(e)
    assert cache.get(e.key) == e


def test_a_missing_blob_is_a_miss(cache: Cache) -> None:
    e = entry("a")
    cache.put(e)
    cache.blob(e).unlink()
    assert cache.get(e.key) is None
    assert cache.faults == ["bad_blob"]


def _bit_flip(data: bytes) -> bytes:
    return data.replace(b'"entry":"a"', b'"entry":"b"')


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data[: len(data) // 2],
        lambda data: b"\xff" + data,
        lambda data: b"[]",
        lambda data: b'"text"',
        lambda data: b"[" * 100_000,
        lambda data: b'{"description": {}, "sha256": ""}',
        lambda data: encode_manifest(entry("another")),
        _bit_flip,
    ],
)
def test_a_damaged_manifest_is_dropped_counted_and_rebuilt(cache: Cache, damage) -> None:  # type: ignore[no-untyped-def]
    e = entry("a")
    cache.put(e)
    cache.manifest(e).write_bytes(damage(cache.manifest(e).read_bytes()))
    assert cache.get(e.key) is None
    assert cache.faults == ["bad_manifest"]
    assert not cache.manifest(e).exists()
    assert cache.put(e)
    assert cache.get(e.key) == e


def test_a_digest_in_a_manifest_is_no_path(cache: Cache, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    good = entry("a", b"secret")
    bad = Entry(good.key, "cubin", "../../../secret", good.manifest, good.blob)
    cache.put(good)
    cache.manifest(good).write_bytes(encode_manifest(bad))
    assert cache.get(good.key) is None
    assert cache.faults == ["bad_manifest"]


def test_dropping_spares_an_entry_that_was_mended_meanwhile(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    e = entry("a")
    cache.put(e)
    cache.blob(e).write_bytes(b"damaged")
    drop = cache._drop

    def mend_then_drop(key, why) -> None:  # type: ignore[no-untyped-def]
        Cache(cache._root).put(e)
        drop(key, why)

    monkeypatch.setattr(cache, "_drop", mend_then_drop)
    assert cache.get(e.key) is None  # read before it was mended
    assert cache.get(e.key) == e
    assert cache.faults == []


def test_two_keys_may_share_a_blob(cache: Cache) -> None:
    a, b = entry("a"), entry("b")
    cache.put(a)
    cache.put(b)
    assert len(files(cache, "blobs")) == 1
    assert len(files(cache, "manifests")) == 2


def test_eviction_drops_the_least_recently_used(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit=10_000)
    entries = [entry(str(n), bytes([n]) * 2000) for n in range(6)]
    for age, e in zip(range(600, 0, -100), entries, strict=True):
        cache.put(e)
        cache.age(e, age)
        cache._touched.clear()
        cache.get(entries[0].key)  # used again and again
    last = entry("last", b"x" * 2000)
    cache.put(last)
    kept = [e for e in [*entries, last] if cache.get(e.key)]
    assert entries[0] in kept
    assert last in kept
    assert entries[1] not in kept
    assert cache.evicted >= 3
    used = sum(path.stat().st_size for d in ("blobs", "manifests") for path in (tmp_path / d).rglob("*/*"))
    assert used <= 10_000
    assert cache.bytes == used


def test_eviction_spares_what_was_just_written(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit=3000)
    old = entry("old", b"o" * 2000)
    cache.put(old)
    cache.age(old, -3600)  # a clock that went backwards: everything else looks older
    new = entry("new", b"n" * 2000)
    cache.put(new)
    assert cache.get(new.key) == new
    assert cache.get(old.key) is None
    assert cache.faults == []


def test_eviction_spares_a_blob_that_another_manifest_names(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit=9000)
    first, second = entry("first", b"s" * 2000), entry("second", b"s" * 2000)
    for e, age in ((first, 300), (entry("other", b"t" * 4000), 200), (second, 100)):
        cache.put(e)
        cache.age(e, age)
    cache.put(entry("more", b"m" * 3000))
    assert cache.get(first.key) is None
    assert cache.get(second.key) == second


def test_an_entry_larger_than_the_cache_is_not_stored(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit=1000)
    small = entry("small", b"s")
    cache.put(small)
    assert not cache.put(entry("large", b"l" * 1000))
    assert cache.faults == ["too_large"]
    assert cache.get(small.key) == small


def test_leftovers_of_crashed_writers_are_cleared(cache: Cache) -> None:
    (cache._root / "tmp" / "half-written").write_bytes(b"x")
    orphan = entry("orphan", b"without a manifest")
    cache.put(orphan)
    cache.manifest(orphan).unlink()
    Cache(cache._root, limit=10).prepare()
    assert files(cache, "tmp") == set()
    assert files(cache, "blobs") == set()


def test_what_is_not_ours_is_left_alone(cache: Cache) -> None:
    for stranger in ("lost+found/x", "blobs/lost+found/x", "blobs/ab/notes.txt", "manifests/README"):
        path = cache._root / stranger
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    Cache(cache._root, limit=1).prepare()
    assert (cache._root / "blobs/ab/notes.txt").exists()
    assert (cache._root / "blobs/lost+found/x").exists()
    assert (cache._root / "manifests/README").exists()


def test_a_full_disk_is_reported_and_leaves_no_half_entry(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.open

    class Full:
        def __init__(self, file) -> None:  # type: ignore[no-untyped-def]
            self.file = file

        def __enter__(self):  # type: ignore[no-untyped-def]
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()

        def write(self, data: bytes) -> None:
            self.file.write(data[:3])
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "open", lambda self, *a, **k: Full(real(self, *a, **k)))
    assert not cache.put(entry("a"))
    monkeypatch.undo()
    assert cache.faults == ["write"]
    assert not cache.writable
    assert files(cache, "tmp") == files(cache, "blobs") == files(cache, "manifests") == set()
    assert cache.put(entry("a"))
    assert cache.writable


def test_a_directory_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    cache = Cache(tmp_path / "file")
    cache.prepare()
    assert not cache.put(entry("a"))
    assert cache.get(entry("a").key) is None
    assert not cache.writable
    assert cache.faults == ["write", "write", "read"]


def test_a_read_only_directory_still_serves(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.put(entry("a"))

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    really_open = os.open

    def open_to_read(path: Path, flags: int, *rest: int) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            refuse()
        return really_open(path, flags, *rest)

    for name in ("utime", "mkdir"):
        monkeypatch.setattr(os, name, refuse)
    monkeypatch.setattr(os, "open", open_to_read)
    assert cache.get(entry("a").key) == entry("a")
    assert not cache.put(entry("b"))


def test_threads_may_write_and_evict_at_once(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit=20_000)
    failures = []

    def work(number: int) -> None:
        for turn in range(15):
            e = entry(f"{number}-{turn % 5}", f"{turn % 3}".encode() * 1500)
            cache.put(e)
            got = cache.get(e.key)
            if got is not None and got != e:
                failures.append(e)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert cache.faults == []


WRITER = """
import hashlib, sys
from pathlib import Path
from tests.service.caching import Cache, entry
cache = Cache(Path(sys.argv[1]), limit=30_000)
for turn in range(30):
    # every process writes the same keys, half of them with shared blobs
    e = entry(str(turn % 10), str(turn % 5).encode() * 2000)
    cache.put(e)
    got = cache.get(e.key)
    assert got is None or got == e
assert cache.faults == [], cache.faults
"""


def test_processes_may_share_the_directory(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    writers = [subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) for _ in range(3)]
    assert [writer.wait(30) for writer in writers] == [0, 0, 0]


@pytest.mark.parametrize("text", ["", "a" * 63, "a" * 65, "A" * 64, "g" * 64, "../" + "a" * 61, "a" * 64 + "\n"])
def test_what_is_no_key(text: str) -> None:
    assert not is_key(text)
    assert is_key("0123456789abcdef" * 4)


def test_memory_keeps_the_recently_used_within_its_limit() -> None:
    memory = MemoryCache(3 * entry("x", b"x" * 1000).size)
    entries = [entry(str(n), b"x" * 1000) for n in range(4)]
    for e in entries[:3]:
        memory.put(e)
    memory.get(entries[0].key)
    memory.put(entries[3])
    assert [memory.get(e.key) is not None for e in entries] == [True, False, True, True]
    memory.put(entries[3])
    assert memory.bytes == 3 * entries[0].size
    nothing = MemoryCache(0)
    nothing.put(entries[0])
    assert nothing.get(entries[0].key) is None
    assert nothing.bytes == 0
