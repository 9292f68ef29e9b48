"""The loop of a cubin's kernel, by disassembly."""

from __future__ import annotations

import re
import subprocess
import tempfile
from importlib.metadata import files
from pathlib import Path


def nvdisasm() -> Path:
    """The disassembler of the package nvidia-cuda-nvdisasm. Raises PackageNotFoundError without it."""
    return Path(str(next(f.locate() for f in files("nvidia-cuda-nvdisasm") or () if f.name == "nvdisasm")))


def disassembled(cubin: bytes) -> str:
    """What nvdisasm prints of the code."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return subprocess.run([nvdisasm(), "-c", file.name], capture_output=True, text=True, check=True).stdout


def loop(text: str, mark: str) -> list[str]:
    """The instructions of the innermost loop that holds `mark`, wherever they stand, and of functions it calls.

    A kernel without such a loop is given whole.
    """
    code: list[str] = []
    labels: dict[str, int] = {}
    for line in text.splitlines():
        if label := re.match(r"\s*([.$\w]+):", line):
            labels[label[1]] = len(code)
        elif instruction := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;", line):
            code.append(instruction[1])
    after = [_successors(n, code, labels) for n in range(len(code))]
    found: list[set[int]] = []
    for latch, targets in enumerate(after):
        for head in (t for t in targets if t < latch):  # a jump to itself ends the code
            body, waiting = {head}, [latch]
            while waiting:
                n = waiting.pop()
                if n not in body:
                    body.add(n)
                    waiting += [m for m, succ in enumerate(after) if n in succ]
            if any(mark in code[n] for n in body):
                found.append(body)
    if not found:
        last = max(n for n, instruction in enumerate(code) if "EXIT" in instruction)
        return [instruction for instruction in code[: last + 1] if instruction != "NOP"]
    inner = min(found, key=len)
    for n in sorted(inner):
        if "CALL" in code[n]:
            waiting = [_target(code[n], labels)]
            while waiting:
                m = waiting.pop()
                if m not in inner:
                    inner.add(m)
                    waiting += after[m]
    return [code[n] for n in sorted(inner)]


def registers(code: list[str]) -> int:
    """How many general registers these instructions name: what they read and write, pairs as two."""
    named: set[int] = set()
    for instruction in code:
        operation, *operands = re.sub(r"@\S+", "", instruction).replace(",", " ").split()
        wide = operation.startswith("IMAD.WIDE")
        for place, operand in enumerate(operands):
            for number, suffix in re.findall(r"\bR(\d+)\b((?:\.\w+)*)", operand):
                pair = ".64" in suffix or (wide and place in (0, len(operands) - 1))
                named |= {int(number), int(number) + pair}
    return len(named)


def _target(instruction: str, labels: dict[str, int]) -> int:
    found = re.search(r"`\(([.$\w]+)\)", instruction)
    return labels[found[1]] if found else -1


def _successors(n: int, code: list[str], labels: dict[str, int]) -> list[int]:
    instruction, following = code[n], [n + 1] if n + 1 < len(code) else []
    always = not instruction.startswith("@")
    operation = instruction.split()[0 if always else 1].split(".")[0]
    if operation == "BRA":
        sure = always and not re.search(r"BRA\S* U?P\d|BRA\S* !U?P\d", instruction)
        return [_target(instruction, labels), *([] if sure else following)]
    if operation in ("EXIT", "RET"):
        return [] if always else following
    return following
