"""`load`: a cubin and its manifest as a callable."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from backends.launching import streams
from backends.launching.description import Description, described
from backends.launching.device import DeviceFacts, unsuitable
from backends.launching.driver import Driver
from backends.launching.plan import Launch, plan
from sched_compiler.artifact import JSON, Artifact
from sched_compiler.launching import LaunchError, LaunchFault, Loadable

#: Bytes between counters, so that no two share a line of the cache; and how many are allocated at a time.
_APART, _COUNTERS = 128, 64


def load(artifact: Loadable, device: int | None = None) -> Kernel:
    """See `sched_compiler.load`."""
    blob, manifest = _parts(artifact)
    description = described(manifest)
    if hashlib.sha256(blob).hexdigest() != manifest.get("digest"):
        found, expected = "bytes of another artifact", "those whose SHA-256 the manifest has as `digest`"
        raise LaunchError(description.name, [LaunchFault("cubin", found, expected)])
    driver = Driver(description, device)
    faults = unsuitable(description, driver.facts)
    if faults:
        raise LaunchError(description.name, faults)
    driver.load(blob)
    return Kernel(description, manifest, driver)


def _parts(artifact: Loadable) -> tuple[bytes, Mapping[str, JSON]]:
    """The cubin and its manifest. Raises LaunchError for files that are not there, or hold no such thing."""
    if isinstance(artifact, Artifact):
        return artifact.blob, artifact.manifest
    if isinstance(artifact, tuple):
        blob, manifest = artifact
        return blob, manifest
    path = Path(artifact)
    beside = path.with_name(f"{path.name}.json")
    try:
        return path.read_bytes(), json.loads(beside.read_bytes())
    except OSError as e:
        found, expected = f"{e.strerror or e}: {e.filename}", f"a cubin, and its manifest {beside.name} beside it"
    except ValueError:
        found, expected = f"{beside.name} is no JSON", "the manifest that was written with the cubin"
    raise LaunchError(path.name, [LaunchFault("artifact", found, expected)])


class Kernel:
    """A kernel that was loaded: see `sched_compiler.launching.Kernel`.

    What it allocates stays where it is, so that a captured graph finds it again: one counter for each stream and
    counter of the kernel, from memory that was zeroed when the kernel was loaded; one copy of each table's elements.
    """

    def __init__(self, description: Description, manifest: Mapping[str, JSON], driver: Driver) -> None:
        self.description, self.manifest = description, manifest
        self._driver = driver
        self._allocated: list[int] = []
        self._counters: dict[tuple[str, int], int] = {}
        self._free: Iterator[int] = iter(())
        self._tables: dict[bytes, int] = {}
        #: A keyword that is also an argument's name is the argument's; the launch's own then ends in an underscore.
        self._stream = "stream_" if "stream" in description.by_name else "stream"
        self._workers = "workers_" if "workers" in description.by_name else "workers"
        if any(place.role == "counter" for place in description.places):
            self._free = self._zeroed()

    @property
    def device(self) -> DeviceFacts:
        return self._driver.facts

    def __repr__(self) -> str:
        return f"<{self.description.entry} of {self.description.name} on device {self.device.number}>"

    def plan(self, /, **given: Any) -> Launch:
        """What a call with the same arguments would tell the driver. Raises LaunchError."""
        given.pop(self._stream, None)
        return plan(self.description, given, self.device, given.pop(self._workers, None))

    def __call__(self, /, **given: Any) -> None:
        stream = streams.handle(given.get(self._stream), self.device.number)
        if stream is None:
            found, expected = f"a {type(given[self._stream]).__name__}", "a stream, or its handle"
            raise LaunchError(self.description.name, [LaunchFault(self._stream, found, expected)])
        launch = self.plan(**given)
        if launch.empty:
            return
        for offset, table in launch.uploads:
            _write(launch.parameters, offset, self._uploaded(table.tobytes()))
        for offset, name in launch.counters:
            _write(launch.parameters, offset, self._counter(name, stream))
        self._driver.launch(launch, stream)

    def _uploaded(self, data: bytes) -> int:
        key = hashlib.sha256(data).digest()
        if key not in self._tables:
            self._tables[key] = self._allocate(data)
        return self._tables[key]

    def _counter(self, name: str, stream: int) -> int:
        """Launches on one stream follow one another and leave the counter at zero, so they can share it."""
        if (name, stream) not in self._counters:
            found = next(self._free, None)
            if found is None:
                self._free = self._zeroed()
                found = next(self._free)
            self._counters[name, stream] = found
        return self._counters[name, stream]

    def _zeroed(self) -> Iterator[int]:
        base = self._allocate(bytes(_APART * _COUNTERS))
        return iter(range(base, base + _APART * _COUNTERS, _APART))

    def _allocate(self, data: bytes) -> int:
        self._allocated.append(self._driver.upload(data))
        return self._allocated[-1]

    def close(self) -> None:
        """See `sched_compiler.launching.Kernel`."""
        while self._allocated:
            self._driver.free(self._allocated.pop())
        self._driver.close()


def _write(parameters: bytearray, offset: int, address: int) -> None:
    parameters[offset : offset + 8] = address.to_bytes(8, "little")
