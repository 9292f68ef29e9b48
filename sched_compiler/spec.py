"""The spec language's models: what a loaded spec is, before anything is built from it.

Formulas are kept as they were written (an integer or text); `sched_compiler.formula` parses them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, GetPydanticSchema, Tag
from pydantic_core import core_schema

#: An integer, or the text of a formula over run-time parameters. One fault is given where a value is neither,
#: rather than one for each alternative.
FormulaText = Annotated[
    int | str,
    GetPydanticSchema(
        lambda _source, _handler: core_schema.union_schema(
            [core_schema.int_schema(strict=True), core_schema.str_schema(strict=True)],
            custom_error_type="formula_type",
            custom_error_message="an integer or a formula",
        )
    ),
]


class Model(BaseModel):
    # a validator is built for what is validated: the whole spec, not each of its parts as well
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=True, defer_build=True)


class Param(Model):
    """A value known only at launch, with the range that is promised for it (both ends included).

    It is passed to the kernel, or the kernel asks NVSHMEM which processing element it runs on.
    """

    model_config = ConfigDict(populate_by_name=False)

    min: int
    max: int
    source: Literal["nvshmem"] | None = Field(default=None, alias="from")


class TableSource(Model):
    """A list of integers: exactly one of its elements, a file beside the spec, or its length, where it arrives at
    launch."""

    values: list[int] | None = None
    file: str | None = None
    length: FormulaText | None = None


class Split(Model):
    """Bands of `by` points; the last is short, or run in full (`pad`)."""

    by: FormulaText
    ragged: Literal["short", "pad"] = "short"


class Raster(Model):
    """Bands of `swizzle` tiles of one of two axes, each walked along the other, its tiles across the band fastest."""

    along: str  # an axis, or the word "auto"
    swizzle: FormulaText = 1


class Partitions(Model):
    """Index i runs on partition i % `count`; each partition walks `chunk` consecutive items at a time, or one range."""

    count: FormulaText
    chunk: FormulaText | None = None


class Order(Model):
    """A loop nest over the axes in scope: the axes it makes, and the order in which they are walked."""

    fuse: dict[str, list[str]] = Field(default_factory=dict)
    split: dict[str, Split] = Field(default_factory=dict)
    loops: list[str] | None = None
    reverse: list[str] = Field(default_factory=list)
    serpentine: dict[str, str] = Field(default_factory=dict)
    rotate: dict[str, FormulaText] = Field(default_factory=dict)
    pieces: list[Piece] | None = None
    curve: Literal["hilbert", "morton"] | None = None
    points: dict[str, str] | None = None  # axis -> table
    subset: bool | None = None
    raster: Raster | None = None
    partitions: Partitions | None = None


class Piece(Order):
    """A sub-box `[from, to)` of the axes in scope, with an order of its own; an axis not named is covered whole."""

    part: dict[str, tuple[FormulaText, FormulaText]] = Field(default_factory=dict)


class Cluster(Model):
    """Tiles of one cluster along each axis, first-named fastest in the CTA's rank."""

    shape: dict[str, int]
    ragged: Literal["pad", "reject"] = "pad"


class Single(Model):
    """One work item for each worker."""


class Static(Model):
    """Worker w takes items w, w + workers, w + 2*workers, ...; `grid` means as many as are launched."""

    workers: FormulaText  # the word "grid", or a formula


class Table(Model):
    """Worker w takes positions `indptr[w]` to below `indptr[w + 1]`, of the order or of the list `indices`.

    Both are names of tables. `subset` says that not every item needs a worker.
    """

    indptr: str
    indices: str | None = None
    subset: bool | None = None


class Dynamic(Model):
    """Worker w takes item w, then what a counter in global memory gives."""

    workers: FormulaText = "grid"


class ClusterLaunchControl(Model):
    """A cluster takes its own item, then what the hardware's queue of clusters answers, through a ring of slots."""

    depth: int = 1  # slots
    consumers: dict[str, int] = Field(default_factory=lambda: {"worker": 1})  # name -> threads of each CTA
    cta_group: int | None = None  # CTAs that take an item together; the cluster's by default
    fallback: Literal["dynamic"] | None = None  # a counter, where the hardware has no such queue
    finish_arrivals: int | None = None  # checked, not needed: it follows from the consumers


class Expect(Model):
    """What the order is meant for: tiles of these ranges `[from, to)` come after all others."""

    last: dict[str, tuple[FormulaText, FormulaText]]


class Dispatch(Model):
    """Exactly one of these is given."""

    single: Single | None = None
    static: Static | None = None
    table: Table | None = None
    dynamic: Dynamic | None = None
    clc: ClusterLaunchControl | None = None


class Kernel(Model):
    """A kernel of the user's own: CUDA C++ that includes `<sched/NAME.cuh>` and walks over tiles."""

    source: str  # a file beside the spec
    entry: str  # the kernel's name, or a name expression with template arguments
    block: tuple[int, int, int]  # threads along x, y, z
    shared_bytes: FormulaText = 0  # dynamic shared memory
    arguments: dict[str, str]  # name -> type, in order
    headers: list[Literal["cuda", "cccl", "cutlass"]] | None = None
    schedules: list[str] | None = None  # further specs, files beside this one
    defines: dict[str, FormulaText] | None = None
    options: list[Literal["fast-math", "line-info", "c++20"]] | None = None


class Spec(Model):
    """A composed spec: presets have been expanded into this form."""

    version: Literal[1]
    name: str
    params: dict[str, Param] = Field(default_factory=dict)
    tables: dict[str, TableSource] | None = None
    space: dict[str, FormulaText]
    order: Order | None = None
    map: dict[str, FormulaText] | None = None
    cluster: Cluster | None = None
    expect: Expect | None = None
    dispatch: Dispatch
    kernel: Annotated[
        Annotated[Literal["trace"], Tag("trace")] | Annotated[Kernel, Tag("own")],
        Discriminator(lambda value: "own" if isinstance(value, dict | Kernel) else "trace"),
    ] = "trace"
