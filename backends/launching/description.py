"""What a manifest says of a launch, read once: each value's places in the kernel's parameters, and the formulas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from backends.launching.types import bounds
from sched_compiler.dispatch import WORKERS
from sched_compiler.formula import Formula, FormulaError, Number, evaluate, names, parse_printed
from sched_compiler.launching import LaunchError, LaunchFault

#: The schema of manifests that is understood.
SCHEMA = 1
#: Roles of what no user has named: the trace kernel's own parameters, and counters.
_MADE = ("output", "trace", "counter")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value stands in the kernel's parameters. `offset` and `size` in bytes, `lo` to `hi` what it may be."""

    name: str
    type: str
    role: str
    offset: int
    size: int
    lo: int | None = None  # of an integer; of a table, of its elements
    hi: int | None = None
    length: Formula | None = None  # of a table
    sha256: str | None = None  # of a table whose elements stand in the spec

    @property
    def element(self) -> str | None:
        """What a pointer points to; None for another type."""
        return self.type.removesuffix("*") if self.type.endswith("*") else None


@dataclass(frozen=True)
class Description:
    """How a kernel is launched. Formulas are over parameters, `$workers`, and the values that `where` defines."""

    name: str
    entry: str
    arch: str
    places: tuple[Place, ...]  # in the order of the kernel's parameters, a struct's fields one by one
    parameters: tuple[tuple[int, int], ...]  # offset and size of each of the kernel's parameters
    structs: Mapping[str, tuple[str, ...]]  # of each struct of a schedule, what fills it
    grid: tuple[Formula, Formula, Formula]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    shared: Formula
    workers: Formula
    items: Formula
    where: Mapping[str, str]
    static_shared: int
    co_resident: bool

    @cached_property
    def size(self) -> int:
        """Bytes of all parameters."""
        return max((offset + size for offset, size in self.parameters), default=0)

    @cached_property
    def by_name(self) -> Mapping[str, tuple[Place, ...]]:
        """The places of each value that a launch gives. A counter need not be given."""
        found: dict[str, tuple[Place, ...]] = {}
        for place in self.places:
            found[place.name] = (*found.get(place.name, ()), place)
        return found

    @cached_property
    def any_workers(self) -> bool:
        """Whether any number of workers may be launched."""
        return any(n.name == WORKERS for n in names(self.workers))

    @property
    def ctas(self) -> int:
        """CTAs of a cluster."""
        return self.cluster[0] * self.cluster[1] * self.cluster[2]

    def value(self, formula: Formula, values: Mapping[str, int]) -> int | None:
        """The formula's value; None where it needs a value that no launch gives."""
        known = dict(values)

        def value_of(name: str) -> int:
            if name not in known:
                known[name] = evaluate(parse_printed(self.where[name]), value_of)
            return known[name]

        try:
            return evaluate(formula, value_of)
        except (KeyError, FormulaError):
            return None


@lru_cache
def capability_of(arch: str) -> tuple[int, int]:
    """Major and minor compute capability: (9, 0) for `sm_90a`. Raises ValueError for what is no architecture."""
    digits = arch.removeprefix("sm_").rstrip("af")
    return int(digits[:-1]), int(digits[-1:])


def described(manifest: Mapping[str, Any]) -> Description:
    """Read a manifest. Raises LaunchError where it is none of a cubin, or of a schema that is not understood."""
    name = str(manifest.get("name", "?")) if isinstance(manifest, Mapping) else "?"
    try:
        faults = [
            LaunchFault(f"manifest's {field}", repr(manifest[field]), repr(wanted))
            for field, wanted in (("schema", SCHEMA), ("emit", "cubin"))
            if manifest[field] != wanted
        ]
        if "nvshmem" in manifest["versions"]:
            faults.append(LaunchFault("kernel", "one that asks NVSHMEM", "to be loaded and launched by NVSHMEM's host"))
        if faults:
            raise LaunchError(name, faults)
        return _read(manifest)
    except (KeyError, TypeError, ValueError, AttributeError) as e:  # FormulaError is a ValueError
        raise LaunchError(
            name, [LaunchFault("manifest", f"{type(e).__name__}: {e}", "what docs/manifest.md says")]
        ) from None


def _read(manifest: Mapping[str, Any]) -> Description:
    launch, schedule, parameters = manifest["launch"], manifest["schedule"], manifest["parameters"]
    x, y, z = (_formula(text) for text in launch["grid"])
    capability_of(manifest["arch"])
    places: list[Place] = []
    filled: dict[str, tuple[str, ...]] = {}
    passed = [f for p in parameters for f in ((p, *p["fields"]) if p["role"] == "schedule" else (p,))]
    several = sum(f["role"] == "counter" for f in passed) > 1
    taken = {f["name"] for f in passed if f["role"] not in _MADE}

    def called(field: Mapping[str, Any], apart: str) -> str:
        """The name of a value: what no user has named makes way for what one has."""
        name = str(field["name"])
        if field["role"] not in _MADE:
            return name
        if name in taken or (several and field["role"] == "counter"):
            name = f"{apart}_{name}"
        while name in taken:
            name += "_"
        taken.add(name)
        return name

    for p in parameters:
        if p["role"] != "schedule":
            places.append(_place(p, 0, called(p, "trace")))
            continue
        fields = [_place(field, p["offset"], called(field, p["name"])) for field in p["fields"]]
        places += fields
        filled[p["name"]] = tuple(place.name for place in fields)
    kinds = {(place.name, place.element is None) for place in places}
    if len(kinds) != len({name for name, _ in kinds}):
        raise ValueError("a name is a pointer's and a value's")
    return Description(
        name=manifest["name"],
        entry=manifest["entry"],
        arch=manifest["arch"],
        places=tuple(places),
        parameters=tuple((p["offset"], p["size"]) for p in parameters),
        structs=filled,
        grid=(x, y, z),
        block=_three(launch["block"]),
        cluster=_three(launch["cluster"]),
        shared=_formula(launch["dynamic_shared_bytes"]),
        workers=_formula(launch["workers"]),
        items=_formula(schedule["items"]),
        where=schedule["where"],
        static_shared=(manifest["resources"] or {}).get("static_shared_bytes", 0),
        co_resident=bool(launch["co_resident"]),
    )


def _formula(text: str | int) -> Formula:
    return Number(text) if isinstance(text, int) else parse_printed(text)


def _three(numbers: Any) -> tuple[int, int, int]:
    x, y, z = (int(n) for n in numbers)
    return x, y, z


def _place(p: Mapping[str, Any], base: int, name: str) -> Place:
    lo, hi = p.get("min"), p.get("max")
    if limits := bounds(p["type"]):
        lo = limits[0] if lo is None else max(lo, limits[0])
        hi = limits[1] if hi is None else min(hi, limits[1])
    return Place(
        name=name,
        type=p["type"],
        role=p["role"],
        offset=base + p["offset"],
        size=p["size"],
        lo=lo,
        hi=hi,
        length=_formula(p["length"]) if p["role"] == "table" else None,
        sha256=p.get("sha256"),
    )
