"""What can go wrong in a toolchain: it refuses its input, or it is not installed."""

from __future__ import annotations

from sched_compiler.registry import BackendError, ToolMissingError


class ToolchainError(BackendError):
    """A compiler refused its input. Picklable, so that it can leave a worker process.

    `log` is what the compiler said; `line` and `column` (from 1, in characters) are where its first error
    stands in the text that it was given, or None where it did not say.
    """

    def __init__(self, log: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(log)
        self.line = line
        self.column = column

    def __reduce__(self) -> tuple[type[ToolchainError], tuple[str, int | None, int | None]]:
        return ToolchainError, (self.log, self.line, self.column)


class ToolMissing(ToolMissingError):  # noqa: N818 - a state of the machine, not an error of the input
    """A compiler's library is not installed; `distribution` is the package that brings it."""

    def __init__(self, distribution: str, reason: str) -> None:
        super().__init__(f"{reason}; the Python package {distribution} brings it")
        self.distribution = distribution
        self.reason = reason

    def __reduce__(self) -> tuple[type[ToolMissing], tuple[str, str]]:
        return ToolMissing, (self.distribution, self.reason)
