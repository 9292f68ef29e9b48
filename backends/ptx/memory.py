"""The memory of interpreted threads: regions that lie so far apart that no slip leads from one into another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]

#: Raises the trap for the access at this place among the accessing threads: place, address, reason.
Fault: TypeAlias = Callable[[int, int, str], NoReturn]

_REGION_BITS = 40  # a terabyte for each region; the first stays empty, so that small addresses are nobody's


class Region:
    """Bytes that threads may access, as a view of the array that lies there."""

    def __init__(self, array: Array, space: str) -> None:
        if not array.flags.c_contiguous:
            raise ValueError("an array that threads access must be contiguous")
        self.array = array  # kept, so that its bytes are
        self.space = space
        self.bytes: npt.NDArray[np.uint8] = array.reshape(-1).view(np.uint8)
        self._views: dict[np.dtype[Any], Array] = {}

    def view(self, dtype: np.dtype[Any]) -> Array:
        """The region as elements of `dtype`, without what is left over at its end."""
        found = self._views.get(dtype)
        if found is None:
            whole = len(self.bytes) // dtype.itemsize * dtype.itemsize
            found = self._views[dtype] = self.bytes[:whole].view(dtype)
        return found


#: A shared address has the offset in its lower bits; above them, 1 + the rank of the CTA that it was mapped to.
SHARED_BITS = 24


class Memory:
    """Regions by address. Every access is checked: inside one region, aligned, writable, of the right space."""

    def __init__(self) -> None:
        self._regions: list[Region] = []
        self._shared = 0  # where the blocks' shared memories lie, one after another
        self.window = 0  # bytes of each

    def share(self, blocks: int, size: int) -> None:
        """Give each block `size` bytes of shared memory, with a value in them that shows."""
        self.window = size
        self._shared = self.bind(np.full(blocks * size, 0xA5, dtype=np.uint8), "shared")

    def shared_addresses(self, addresses: Array, blocks: Array, ranks: Array, fault: Fault) -> Array:
        """Addresses in the shared memory of these blocks, or of others of their clusters, as `load` takes them."""
        mapped, offsets = addresses >> SHARED_BITS, (addresses & ((1 << SHARED_BITS) - 1)).astype(np.int64)
        outside = offsets >= self.window
        if outside.any():
            place = int(outside.argmax())
            fault(place, int(addresses[place]), f"outside the {self.window} bytes of shared memory")
        owners = np.where(mapped == 0, blocks, blocks - ranks + mapped.astype(np.int64) - 1)
        return (self._shared + owners * self.window + offsets).astype(np.uint64)

    def bind(self, array: Array, space: str = "global") -> int:
        """Give `array` an address; the same array twice has one address."""
        for number, region in enumerate(self._regions):
            if region.array is array:
                return (number + 1) << _REGION_BITS
        self._regions.append(Region(array, space))
        return len(self._regions) << _REGION_BITS

    def copy(self) -> Memory:
        """The same regions, to which others can be added."""
        other = Memory()
        other._regions = list(self._regions)
        other._shared, other.window = self._shared, self.window
        return other

    def load(self, addresses: Array, dtype: np.dtype[Any], count: int, space: str, fault: Fault) -> list[Array]:
        """`count` elements of `dtype` from each address: one array, in the order of the addresses, for each."""
        loaded = [np.empty(len(addresses), dtype) for _ in range(count)]
        for region, which, first in self._parts(addresses, dtype.itemsize, count, space, fault):
            view = region.view(dtype)
            for number, values in enumerate(loaded):
                values[which] = view[first + number]
        return loaded

    def store(self, addresses: Array, values: list[Array], space: str, fault: Fault) -> None:
        """Write the arrays of `values`, each in the order of the addresses, one behind the other at each address."""
        dtype = values[0].dtype
        for region, which, first in self._parts(addresses, dtype.itemsize, len(values), space, fault, write=True):
            view = region.view(dtype)
            for number, value in enumerate(values):
                view[first + number] = value[which]

    def exchange(self, addresses: Array, dtype: np.dtype[Any], space: str, fault: Fault, change: Callable[..., int],
                 operands: list[Array]) -> Array:  # fmt: skip
        """Atomically replace the element at each address, one address after another: `change` gets the old value and
        this thread's operands and gives the new one. Returns the old values."""
        old = np.empty(len(addresses), dtype)
        wrap = (1 << 8 * dtype.itemsize) - 1
        places: Array = np.arange(len(addresses))
        for region, which, first in self._parts(addresses, dtype.itemsize, 1, space, fault, write=True):
            view = region.view(dtype)
            for place, element in zip(places[which], first, strict=True):
                old[place] = view[element]
                view[element] = change(int(old[place]), *(int(operand[place]) for operand in operands)) & wrap
        return old

    def _parts(
        self, addresses: Array, size: int, count: int, space: str, fault: Fault, write: bool = False
    ) -> Iterator[tuple[Region, Any, Array]]:
        """The accesses by region: the region, which of the addresses lie there, and their first element's number."""
        width = size * count
        misaligned = addresses & (width - 1) != 0
        if misaligned.any():
            place = int(misaligned.argmax())
            fault(place, int(addresses[place]), f"not aligned to {width} bytes")
        numbers = addresses >> _REGION_BITS
        whole = bool((numbers == numbers[0]).all())
        for number in numbers[:1] if whole else np.unique(numbers):
            which: Any = slice(None) if whole else numbers == number
            here = addresses[which]
            place = 0 if whole else int(which.argmax())
            if not 1 <= number <= len(self._regions):
                fault(place, int(here[0]), "nothing lies there")
            region = self._regions[int(number) - 1]
            offsets = here & ((1 << _REGION_BITS) - 1)
            outside = offsets + width > len(region.bytes)
            if outside.any():
                place = int(np.flatnonzero(outside)[0] if whole else np.flatnonzero(which)[outside.argmax()])
                fault(place, int(addresses[place]), f"outside the {len(region.bytes)} bytes that lie there")
            if space and space != region.space:
                fault(place, int(here[0]), f"this is {region.space} memory")
            if write and (region.space == "const" or not region.array.flags.writeable):
                fault(place, int(here[0]), "this memory is read-only")
            yield region, which, offsets // size
