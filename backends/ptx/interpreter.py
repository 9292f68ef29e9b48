"""Runs PTX without a GPU: an independent reading of what the emitter prints.

One thread stands for each block. All threads advance together, one NumPy operation for each instruction: those whose
next instruction comes first in the text go first, so that threads that took different ways meet again as early as
they can. Every access to memory is checked, and every operand was when the module was read.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from .arithmetic import UNSIGNED
from .memory import Array, Memory
from .operands import Frame, Mask, Step
from .parser import parse
from .semantics import Control, compile_function
from .syntax import Function, Instruction, Parameter, PtxError, PtxTrap, Source

__all__ = ["Module", "PtxError", "PtxTrap"]

#: Instructions that one launch may carry out, each counted once for all threads that carry it out together.
STEP_LIMIT = 10_000_000

_END = sys.maxsize  # the place of a thread that has returned
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
        step_limit: int = STEP_LIMIT,
    ) -> None:
        """Run thread 0 of each of these blocks of a grid of `nctaid` blocks in x, whole clusters one after another.

        An integer argument is passed as it is; an array is what a pointer argument points to, and is written in place.
        Raises PtxTrap for a fault of the program, and ValueError for a launch that a device would refuse.
        """
        function = self._function(entry, is_entry=True)
        if len(args) != len(function.parameters):
            raise ValueError(f"{entry} takes {len(function.parameters)} arguments, not {len(args)}")
        specials = _specials(function, ctaids, nctaid, cluster_size)
        memory = self._memory.copy()
        if self._source.shared_bytes:
            memory.share(len(ctaids), self._source.shared_bytes)
        spaces = [_argument(p, memory.bind(a) if isinstance(a, np.ndarray) else a)
                  for p, a in zip(function.parameters, args, strict=True)]  # fmt: skip
        run = _Run(self._source.functions, self._code, memory, specials, len(ctaids), step_limit)
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
            self._source.functions, self._code, self._memory.copy(), {"%ctaid.x": nowhere, "%tid.x": nowhere}, lanes,
            step_limit,
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
        lanes: int,
        step_limit: int,
    ) -> None:
        self.functions = functions
        self.code = code
        self.memory = memory
        self.specials = specials
        self.lanes = lanes
        self.left = step_limit
        self.depth = 0
        self.exited = np.zeros(lanes, dtype=np.bool_)

    def frame(self, function: Function, spaces: Sequence[Array]) -> Frame:
        """A new frame, whose first variables in parameter space are given."""
        registers = [np.full(self.lanes * (bits + 7 >> 3), _UNSET if bits > 1 else 0, np.uint8).view(UNSIGNED[bits])
                     for bits in function.registers]  # fmt: skip
        rest = [np.full((self.lanes, size), _UNSET, np.uint8) for size in function.spaces[len(spaces) :]]
        return Frame(registers, [*spaces, *rest], self.specials, self.memory)

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
            group = places == place
            others = places[~group]
            if others.size:
                self._advance(function, code, length, frame, places, place, int(others.min()), group)
            else:
                self._advance(function, code, length, frame, places, place, _END, None)

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
            if taken is _NOBODY:
                place += 1
                continue
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


def _specials(function: Function, ctaids: Array, nctaid: int, cluster_size: int) -> dict[str, Array]:
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

    blocks = np.asarray(ctaids).astype(np.uint32)
    threads = function.required_threads or (1, 1, 1)
    zero, one = constant(0), constant(1)
    found = {"%laneid": zero, "%cluster_ctarank": blocks % cluster_size, "%cluster_nctarank": constant(cluster_size)}
    for axis, in_block in zip("xyz", threads, strict=True):
        first = axis == "x"
        found[f"%tid.{axis}"] = zero
        found[f"%ntid.{axis}"] = constant(in_block)
        found[f"%ctaid.{axis}"] = blocks if first else zero
        found[f"%nctaid.{axis}"] = constant(nctaid) if first else one
        found[f"%cluster_ctaid.{axis}"] = blocks % cluster_size if first else zero
        found[f"%cluster_nctaid.{axis}"] = constant(cluster_size) if first else one
        found[f"%clusterid.{axis}"] = blocks // cluster_size if first else zero
        found[f"%nclusterid.{axis}"] = constant(nctaid // cluster_size) if first else one
    return found
