"""Runs PTX without a GPU: an independent reading of what the emitter prints.

One thread stands for each block, or all of a block's where they have to do with one another. All threads advance
together, one NumPy operation for each instruction: those whose next instruction comes first in the text go first, so
that threads that took different ways meet again as early as they can. Every access to memory is checked, and every
operand was when the module was read.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from .arithmetic import UNSIGNED
from .memory import Array, Memory
from .operands import Control, Frame, Mask, Step
from .parser import parse
from .semantics import compile_function
from .syntax import Function, Instruction, Parameter, PtxError, PtxTrap, Source
from .waiting import WARP, Threads

__all__ = ["Module", "PtxError", "PtxTrap"]

#: Instructions that one launch may carry out, each counted once for all threads that carry it out together.
STEP_LIMIT = 10_000_000

_END = sys.maxsize  # the place of a thread that has returned
_WAITS = _END - 1  # that of a thread that is set aside
_DEPTH_LIMIT = 64  # of calls
_UNSET = 0xA5  # every byte of a register before it is written: a wrong value, and a visible one


class Module:
    """A loaded PTX module. Variables of the module keep their values from launch to launch, as on a device."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._memory = Memory()
        addresses = {}
        for variable in source.variables.values():
            array = np.frombuffer(bytearray(variable.data), dtype=np.uint8)
            addresses[variable.name] = self._memory.bind(array, variable.space)
        addresses |= source.shared
        self._code = {name: compile_function(function, addresses) for name, function in source.functions.items()}
        for function in source.functions.values():
            for step in self._code[function.name]:
                if isinstance(step, Control) and step.kind == "call":
                    self._check_call(step)

    @classmethod
    def parse(cls, text: str) -> Module:
        """Read a module. Raises PtxError for what is not PTX, or not of the part of PTX that is interpreted."""
        return cls(parse(text))

    @property
    def entries(self) -> tuple[str, ...]:
        return tuple(function.name for function in self._source.functions.values() if function.entry)

    def launch(
        self,
        entry: str,
        ctaids: npt.NDArray[np.int64],
        nctaid: int,
        args: Sequence[int | Array],
        cluster_size: int = 1,
        *,
        threads: int = 1,
        answers: Mapping[int, Sequence[int]] | None = None,
        step_limit: int = STEP_LIMIT,
    ) -> None:
        """Run the first `threads` of each of these blocks of a grid of `nctaid` blocks in x, whole clusters in turn.

        `answers` are what the queue of clusters answers each cluster: CTA ids, 4294967295 where none is left. An
        integer argument is passed as it is; an array is what a pointer argument points to, and is written in place.
        Raises PtxTrap for a fault of the program, and ValueError for a launch that a device would refuse.
        """
        function = self._function(entry, is_entry=True)
        if len(args) != len(function.parameters):
            raise ValueError(f"{entry} takes {len(function.parameters)} arguments, not {len(args)}")
        specials = _specials(function, ctaids, nctaid, cluster_size, threads)
        memory = self._memory.copy()
        if self._source.shared_bytes:
            memory.share(len(ctaids), self._source.shared_bytes)
        spaces = [_argument(p, memory.bind(a) if isinstance(a, np.ndarray) else a)
                  for p, a in zip(function.parameters, args, strict=True)]  # fmt: skip
        first = int(ctaids[0]) // cluster_size if len(ctaids) else 0
        group = Threads(len(ctaids) * threads, threads, cluster_size, first, answers or {})
        run = _Run(self._source.functions, self._code, memory, specials, group, step_limit)
        run.execute(function, run.frame(function, spaces), None)

    def call(self, name: str, args: Sequence[Array], *, step_limit: int = STEP_LIMIT) -> npt.NDArray[np.uint8]:
        """Call a device function once for each row of the arguments: arrays of the parameters' widths, of one length.

        Returns the bytes of the function's result, one row for each call.
        """
        function = self._function(name, is_entry=False)
        if len(args) != len(function.parameters) or len(function.results) != 1:
            raise ValueError(f"{name} takes {len(function.parameters)} arguments and gives {len(function.results)}")
        lanes = len(args[0]) if args else 1
        nowhere = np.zeros(lanes, np.uint32)
        run = _Run(
            self._source.functions, self._code, self._memory.copy(), {"%ctaid.x": nowhere, "%tid.x": nowhere},
            Threads(lanes), step_limit,
        )  # fmt: skip
        rows = [np.ascontiguousarray(a).reshape(lanes, -1).view(np.uint8) for a in args]
        return run.call(function, rows, None)[0]

    def _function(self, name: str, is_entry: bool) -> Function:
        function = self._source.functions.get(name)
        if function is None or function.entry != is_entry:
            raise ValueError(f"the module has no {'entry' if is_entry else 'function'} {name!r}")
        return function

    def _check_call(self, control: Control) -> None:
        callee = self._source.functions.get(control.function)
        line, text = control.instruction.line, control.instruction.text
        if callee is None or callee.entry:
            raise PtxError(f"{text}: the module has no function {control.function}", line)
        if len(callee.parameters) != len(control.arguments) or len(callee.results) != len(control.results):
            raise PtxError(f"{text}: the numbers of arguments or results differ from the function's", line)


class _Run:
    """One launch."""

    def __init__(
        self,
        functions: Mapping[str, Function],
        code: Mapping[str, list[Step | Control]],
        memory: Memory,
        specials: Mapping[str, Array],
        threads: Threads,
        step_limit: int,
    ) -> None:
        self.functions = functions
        self.code = code
        self.memory = memory
        self.specials = specials
        self.threads = threads
        self.lanes = lanes = threads.lanes
        self.held = np.zeros(lanes, dtype=np.int64)  # where those wait that are set aside
        self.left = step_limit
        self.depth = 0
        self.exited = np.zeros(lanes, dtype=np.bool_)

    def frame(self, function: Function, spaces: Sequence[Array]) -> Frame:
        """A new frame, whose first variables in parameter space are given."""
        registers = [np.full(self.lanes * (bits + 7 >> 3), _UNSET if bits > 1 else 0, np.uint8).view(UNSIGNED[bits])
                     for bits in function.registers]  # fmt: skip
        rest = [np.full((self.lanes, size), _UNSET, np.uint8) for size in function.spaces[len(spaces) :]]
        return Frame(registers, [*spaces, *rest], self.specials, self.memory, self.threads)

    def call(self, function: Function, rows: Sequence[Array], mask: Mask) -> list[npt.NDArray[np.uint8]]:
        """Run a device function on these bytes for each argument; gives the bytes of each result."""
        frame = self.frame(function, [])
        for parameter, given in zip(function.parameters, rows, strict=True):
            if given.shape[1] != parameter.size:
                raise ValueError(f"{function.name} takes {parameter.size} bytes as {parameter.name}")
            if parameter.register is not None:
                frame.registers[parameter.register.slot].view(np.uint8).reshape(self.lanes, -1)[...] = given
            else:
                frame.spaces[parameter.slot][...] = given
        self.execute(function, frame, mask)
        return [
            frame.spaces[result.slot]
            if result.register is None
            else frame.registers[result.register.slot].view(np.uint8).reshape(self.lanes, -1)
            for result in function.results
        ]

    def execute(self, function: Function, frame: Frame, mask: Mask) -> None:
        """Run the threads of `mask` until each has returned."""
        code, length = self.code[function.name], len(function.body)
        places = np.full(self.lanes, _END)
        places[slice(None) if mask is None else mask] = 0
        while True:
            place = int(places.min()) if self.lanes else _END
            if place == _END:
                return
            if place == _WAITS:
                self._wake(function, code, frame, places)
                continue
            group = places == place
            others = places[~group]
            if others.size:
                self._advance(function, code, length, frame, places, place, int(others.min()), group)
            else:
                self._advance(function, code, length, frame, places, place, _END, None)

    def _wake(self, function: Function, code: list[Step | Control], frame: Frame, places: Array) -> None:
        """Nobody else can go on: those do whose wait is over."""
        self.threads.ended = places == _END
        waiting = np.flatnonzero(places == _WAITS)
        held = self.held[waiting]
        some = False
        for place in np.unique(held).tolist():
            step, lanes = code[place], waiting[held == place]
            assert isinstance(step, Control)
            assert step.ready is not None
            lanes = lanes[step.ready(frame, lanes)]
            if not len(lanes):
                continue
            some = True
            places[lanes] = place + 1
            if step.passed is not None:
                mask = np.zeros(self.lanes, dtype=np.bool_)
                mask[lanes] = True
                step.passed(frame, mask)
        if not some:
            mask = places == _WAITS
            self._trap(function.body[int(held[0])], "every thread that is left waits", mask)

    def _advance(
        self,
        function: Function,
        code: list[Step | Control],
        length: int,
        frame: Frame,
        places: Array,
        place: int,
        waiting: int,
        mask: Mask,
    ) -> None:
        """Run the threads of `mask`, all at `place`, until they part or come to where the next others wait."""
        everyone: Mask | slice = slice(None) if mask is None else mask
        while place < waiting:
            if place >= length:
                places[everyone] = _END
                return
            step = code[place]
            self.left -= 1
            if self.left < 0:
                self._trap(function.body[place], "the limit of steps is reached: is this loop endless?", mask)
            if not isinstance(step, Control):
                step(frame, mask)
                place += 1
                continue
            taken, part = self._taken(step, frame, mask)
            if step.kind == "bra":
                if not part:
                    place = step.target if taken is not _NOBODY else place + 1
                    continue
                places[everyone] = place + 1
                places[taken] = step.target
                return
            if taken is _NOBODY or (step.threaded and self.threads.block == 1):
                place += 1
                continue
            if step.kind == "wait":
                places[everyone] = place + 1
                aside: Mask | slice = slice(None) if taken is None else taken
                places[aside], self.held[aside] = _WAITS, place
                return
            if step.kind == "call":
                self._call(step, frame, taken)
                if not self.exited.any():
                    place += 1
                    continue
            elif step.kind == "trap":
                self._trap(step.instruction, "the program says so", taken)
            places[everyone] = place + 1
            if step.kind in ("ret", "exit"):
                places[slice(None) if taken is None else taken] = _END
            if step.kind == "exit":
                self.exited[slice(None) if taken is None else taken] = True
            places[self.exited] = _END
            return
        places[everyone] = place

    @staticmethod
    def _taken(step: Control, frame: Frame, mask: Mask) -> tuple[Mask, bool]:
        """Which threads of the group a guard lets pass, and whether it holds others of the group back."""
        if step.guard is None:
            return mask, False
        passing = step.guard(frame)
        if mask is not None:
            passing = passing & mask
        if not passing.any():
            return _NOBODY, False
        if passing.all() or (mask is not None and bool((passing == mask).all())):
            return mask, False
        return passing.copy(), True

    def _call(self, step: Control, frame: Frame, mask: Mask) -> None:
        callee = self.functions[step.function]
        self.depth += 1
        if self.depth > _DEPTH_LIMIT:
            self._trap(step.instruction, "calls are nested too deeply", mask)
        results = self.call(callee, [read(frame) for read in step.arguments], mask)
        self.depth -= 1
        for put, rows in zip(step.results, results, strict=True):
            put(frame, mask, rows)

    @staticmethod
    def _trap(instruction: Instruction, reason: str, mask: Mask) -> NoReturn:
        raise PtxTrap(reason, instruction.line, instruction.text, 0 if mask is None else int(mask.argmax()))


_NOBODY: Array = np.zeros(0, dtype=np.bool_)


def _argument(parameter: Parameter, value: int) -> Array:
    """An argument's bytes, in one row for all threads. It must fit as an unsigned or as a signed integer."""
    bits = 8 * parameter.size
    if not -(1 << bits - 1) <= value < 1 << bits:
        raise ValueError(f"{value} does not fit the {parameter.size} bytes of {parameter.name}")
    data = (int(value) & (1 << bits) - 1).to_bytes(parameter.size, "little")
    return np.frombuffer(data, dtype=np.uint8).reshape(1, -1)


def _specials(function: Function, ctaids: Array, nctaid: int, cluster_size: int, threads: int) -> dict[str, Array]:
    """The special registers, for a grid in x. Raises ValueError for a grid that a device would refuse."""
    if nctaid < 1 or nctaid >= 1 << 31:
        raise ValueError(f"a grid has 1 to 2147483647 blocks in x, not {nctaid}")
    if len(ctaids) and (int(ctaids.min()) < 0 or int(ctaids.max()) >= nctaid):
        raise ValueError(f"a block's number is outside 0..{nctaid - 1}")
    if cluster_size < 1 or nctaid % cluster_size:
        raise ValueError(f"{nctaid} blocks are not whole clusters of {cluster_size}")
    declared = function.cluster
    if declared is not None and declared != (cluster_size, 1, 1):
        raise ValueError(f"{function.name} is compiled for clusters of {declared}, not of {(cluster_size, 1, 1)}")

    def constant(value: int) -> Array:
        return np.array([value], dtype=np.uint32)

    blocks = np.repeat(np.asarray(ctaids).astype(np.uint32), threads)
    shape = function.required_threads or (threads, 1, 1)
    zero, one = constant(0), constant(1)
    thread = zero if threads == 1 else np.tile(np.arange(threads, dtype=np.uint32), len(ctaids))
    found = {
        "%laneid": thread % WARP,
        "%cluster_ctarank": blocks % cluster_size,
        "%cluster_nctarank": constant(cluster_size),
    }
    for axis, in_block in zip("xyz", shape, strict=True):
        first = axis == "x"
        found[f"%tid.{axis}"] = thread if first else zero
        found[f"%ntid.{axis}"] = constant(in_block)
        found[f"%ctaid.{axis}"] = blocks if first else zero
        found[f"%nctaid.{axis}"] = constant(nctaid) if first else one
        found[f"%cluster_ctaid.{axis}"] = blocks % cluster_size if first else zero
        found[f"%cluster_nctaid.{axis}"] = constant(cluster_size) if first else one
        found[f"%clusterid.{axis}"] = blocks // cluster_size if first else zero
        found[f"%nclusterid.{axis}"] = constant(nctaid // cluster_size) if first else one
    return found
