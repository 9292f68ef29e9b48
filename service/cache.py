"""The artifact cache: content-addressed files on local disk, and the most recent artifacts in memory.

    blobs/ab/abcdef...        the artifact's bytes, named by their SHA-256
    manifests/ab/abcdef...    JSON, named by the key of the inputs; names the blob's digest; written last
    tmp/                      files that are being written, renamed into place when complete
    lock                      held shared by writers, exclusively by whoever removes something

The rules that keep it right:

- Blob first, manifest last, each by an atomic rename: a manifest never names bytes that were not there.
- Whatever is read is checked: the manifest against its own digest, the blob against the digest in the manifest. An
  entry that fails is removed, counted, and counts as a miss.
- Nothing is removed while anybody writes (the lock is per machine, so processes may share the directory). Under the
  exclusive lock every file in tmp/ is a leftover, every blob without a manifest is garbage, and an entry about to be
  dropped is read once more first: it may have been replaced by a good one.
- Eviction drops the least recently used manifests, then the blobs that no manifest names. The entry whose writing
  caused the eviction is never dropped; an entry larger than the whole cache is not stored.
- Reading takes no lock. When the directory cannot be written the artifact is served all the same.

The time of last use is the manifest's mtime, moved at most once a minute. Each process adds up what it writes and looks
at the directory again whenever it has written 1/16 of the limit, so n processes may exceed it by n/16 for a while.

`cuda.core`'s `FileStreamProgramCache` has atomic files and eviction too, but loads the CUDA bindings to be imported,
keeps no manifest or digest beside the bytes, and may remove an entry that another process writes at that moment.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import stat
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import structlog

from sched_compiler.artifact import JSON, Emit

log = structlog.get_logger()

_HEX64 = re.compile(r"[0-9a-f]{64}")
_SCHEMA = 1
EMITS: tuple[Emit, ...] = get_args(Emit)
_TOUCH_SECONDS = 60.0
_TOUCHED_ENTRIES = 4096

#: What can go wrong with the cache without failing a request; each is counted.
Fault = Literal["bad_manifest", "bad_blob", "read", "write", "too_large"]


def is_key(text: str) -> bool:
    """Whether `text` can name an artifact: 64 lower-case hex digits."""
    return _HEX64.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Entry:
    """One artifact with everything that is said about it. `digest` is the SHA-256 of `blob` (hex)."""

    key: str
    emit: Emit
    digest: str
    manifest: dict[str, JSON]
    blob: bytes

    @property
    def size(self) -> int:
        """What the entry weighs in memory: its bytes, and a guess for the rest."""
        return len(self.blob) + 4096


class BadEntryError(Exception):
    """What stands on disk is not what was written."""

    def __init__(self, fault: Fault, why: str) -> None:
        super().__init__(why)
        self.fault: Fault = fault


def _canonical(value: JSON) -> bytes:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode("ascii")


def encode_manifest(entry: Entry) -> bytes:
    """The manifest file: the description and, so that it can be checked by itself, the description's digest."""
    description: dict[str, JSON] = {
        "schema": _SCHEMA,
        "key": entry.key,
        "emit": entry.emit,
        "digest": entry.digest,
        "size": len(entry.blob),
        "manifest": entry.manifest,
    }
    return _canonical({"description": description, "sha256": hashlib.sha256(_canonical(description)).hexdigest()})


def decode_manifest(data: bytes, key: str) -> dict[str, Any]:
    """The description in a manifest file; raises `BadEntryError`."""
    try:
        document = json.loads(data)
        description: dict[str, Any] = document["description"]
        intact = document["sha256"] == hashlib.sha256(_canonical(description)).hexdigest()
        intact = intact and is_key(description["digest"]) and description["emit"] in EMITS
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadEntryError("bad_manifest", f"the manifest cannot be read: {error!r}") from None
    if not intact or description.get("schema") != _SCHEMA or description.get("key") != key:
        raise BadEntryError("bad_manifest", "the manifest is not the one that was written for this key")
    return description


class DiskCache:
    """The cache's files. Methods block; they may be called from several threads and processes."""

    def __init__(self, root: Path, limit: int, on_fault: Callable[[Fault], None]) -> None:
        self._root, self._limit, self._on_fault = root, limit, on_fault
        self._blobs, self._manifests, self._tmp = root / "blobs", root / "manifests", root / "tmp"
        self._unseen = limit  # bytes written since the last look at the directory: look at the first chance
        self._touched: dict[str, float] = {}  # so that most uses of a key need not ask the file system
        self.bytes = 0
        self.evicted = 0
        self.writable = True

    def prepare(self) -> None:
        """Create the directories and clear what earlier processes left behind; failing that, `writable` is False."""
        try:
            self._make_room(keep=None)
        except OSError as error:
            self._report("write", error, action="prepare")

    def get(self, key: str) -> Entry | None:
        """The entry for `key`, checked; None when there is none, or none that is intact (and then it is removed)."""
        try:
            entry = self._read(key)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._report("read", error, key=key)
            return None
        except BadEntryError as error:
            self._drop(key, error)
            return None
        self.touch(key)
        return entry

    def touch(self, key: str) -> None:
        """Note that `key` was used just now."""
        now = time.monotonic()
        if now - self._touched.get(key, -_TOUCH_SECONDS) < _TOUCH_SECONDS:
            return
        if len(self._touched) >= _TOUCHED_ENTRIES:
            self._touched.clear()
        self._touched[key] = now
        path = self._manifest(key)
        with contextlib.suppress(OSError):  # evicted meanwhile, or a directory that may not be written
            if time.time() - path.stat().st_mtime > _TOUCH_SECONDS:
                os.utime(path)

    def put(self, entry: Entry) -> bool:
        """Store `entry`, and make room if it takes some; False (logged and counted) when it cannot be stored."""
        manifest = encode_manifest(entry)
        size = len(manifest) + len(entry.blob)
        if size > self._limit:
            log.warning("cache_entry_too_large", key=entry.key, bytes=size, limit=self._limit)
            self._on_fault("too_large")
            return False
        try:
            with self._locked(fcntl.LOCK_SH):
                # Written even if a blob of this name exists: should that one be damaged, it is mended.
                self._write(self._blob(entry.digest), entry.blob)
                self._write(self._manifest(entry.key), manifest)
            self.writable = True
            self.bytes += size
            self._unseen += size
            if self.bytes > self._limit or self._unseen * 16 >= self._limit:
                self._make_room(keep=entry.key)
        except OSError as error:
            self._report("write", error, key=entry.key)
            return False
        return True

    def _manifest(self, key: str) -> Path:
        return self._manifests / key[:2] / key

    def _blob(self, digest: str) -> Path:
        return self._blobs / digest[:2] / digest

    def _read(self, key: str) -> Entry:
        """Raises `FileNotFoundError` (no such entry), `OSError`, `BadEntryError`."""
        description = decode_manifest(_read(self._manifest(key)), key)
        digest = description["digest"]
        try:
            blob = _read(self._blob(digest))
        except FileNotFoundError:
            raise BadEntryError("bad_blob", "the blob is missing") from None
        if hashlib.sha256(blob).hexdigest() != digest:
            raise BadEntryError("bad_blob", "the blob's digest is another")
        return Entry(key, description["emit"], digest, description["manifest"], blob)

    def _drop(self, key: str, why: BadEntryError) -> None:
        """Remove a bad entry, unless it has been replaced or evicted since it was read."""
        try:
            with self._locked(fcntl.LOCK_EX):
                try:
                    self._read(key)
                except BadEntryError:
                    # The blob may serve other manifests, whose readers will see for themselves; without any it is
                    # garbage, and is collected with the rest.
                    self._manifest(key).unlink()
                else:
                    return
        except FileNotFoundError:
            return
        except OSError as error:
            self._report("write", error, key=key, action="drop")
        log.warning("cache_entry_bad", key=key, fault=why.fault, reason=str(why))
        self._on_fault(why.fault)

    def _report(self, fault: Fault, error: OSError, **where: str) -> None:
        if fault == "write":
            self.writable = False
        log.error("cache_" + fault + "_failed", reason=str(error), **where)
        self._on_fault(fault)

    @contextlib.contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        self._root.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, how)  # one descriptor for each holder: it also keeps threads apart
            yield
        finally:
            os.close(descriptor)

    def _write(self, path: Path, data: bytes) -> None:
        for directory in (self._tmp, path.parent):
            directory.mkdir(parents=True, exist_ok=True)
        temporary = self._tmp / f"{path.name[:16]}-{os.getpid()}-{secrets.token_hex(8)}"
        try:
            with temporary.open("xb") as file:
                file.write(data)
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):  # the first error is the one to report
                temporary.unlink()
            raise

    def _make_room(self, keep: str | None) -> None:
        """Add up the directory, clear leftovers, and evict until 7/8 of the limit is used, if it is exceeded."""
        with self._locked(fcntl.LOCK_EX):
            for directory in (self._tmp, self._blobs, self._manifests):
                directory.mkdir(parents=True, exist_ok=True)
            for leftover in self._tmp.iterdir():
                leftover.unlink()
            blobs = {path.name: status.st_size for path, status in _files(self._blobs)}
            found = sorted(((s.st_mtime_ns, s.st_size, path) for path, s in _files(self._manifests)), reverse=True)
            self._unseen = 0
            self.bytes = sum(blobs.values()) + sum(size for _, size, _ in found)
            if self.bytes > self._limit:
                self._evict(blobs, found, keep)

    def _evict(self, blobs: dict[str, int], found: list[tuple[int, int, Path]], keep: str | None) -> None:
        """`found` are the manifests (mtime, size, path), the most recently used first. The lock is held."""
        goal = self._limit * 7 // 8
        kept: set[str] = set()
        used = 0
        full = False
        for _, size, path in sorted(found, key=lambda item: item[2].name != keep):
            digest = _digest_in(path)
            more = size + (0 if digest is None or digest in kept else blobs.get(digest, 0))
            full = full or (used + more > goal and path.name != keep)  # once full, all that are older go
            if digest is None or full:
                path.unlink()
                self.evicted += 1
            else:
                kept.add(digest)
                used += more
        for name in blobs.keys() - kept:
            self._blob(name).unlink()
        log.info("cache_evicted", bytes_before=self.bytes, bytes_after=used)
        self.bytes = used


def _read(path: Path) -> bytes:
    """The bytes of a regular file. Raises OSError for anything else: opening a FIFO, say, must not wait."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return file.read()


def _files(directory: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """The files two levels down whose names can be ours; anything else, such as lost+found, is left alone."""
    for shelf in directory.glob("[0-9a-f][0-9a-f]"):
        for file in shelf.glob(f"{shelf.name}*"):
            if is_key(file.name):
                yield file, file.stat()


def _digest_in(manifest: Path) -> str | None:
    try:
        digest: str = decode_manifest(_read(manifest), manifest.name)["digest"]
    except (BadEntryError, OSError):
        return None
    return digest


class MemoryCache:
    """The most recently used entries, up to `limit` bytes of them. For one thread."""

    def __init__(self, limit: int) -> None:
        self._limit, self._entries, self.bytes = limit, OrderedDict[str, Entry](), 0

    def get(self, key: str) -> Entry | None:
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
        return entry

    def put(self, entry: Entry) -> None:
        old = self._entries.pop(entry.key, None)
        self.bytes += entry.size - (old.size if old else 0)
        self._entries[entry.key] = entry
        while self.bytes > self._limit:
            _, dropped = self._entries.popitem(last=False)
            self.bytes -= dropped.size
