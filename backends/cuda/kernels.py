"""The kernels that a text of C++ seems to define, for a user who has named none of them.

Read without a compiler, which has no list of templates that nobody has instantiated: by words and braces alone, so that
what is found is a hint.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

#: Comments and strings, which are skipped; scopes; kernels, which may have `__launch_bounds__(64)` before their names.
_WORD = re.compile(
    r"//[^\n]*|/\*.*?\*/|\"(?:[^\"\\\n]|\\.)*\""
    r"|\bnamespace\s+(?P<space>[A-Za-z_][\w:]*)?[^{};]*\{|(?P<open>\{)|(?P<close>\})"
    r"|(?:template\s*<(?P<template>[^<>]*)>\s*)?(?:(?:extern\s*\"C\"|static|inline)\s+)*__global__\b"
    r"(?:[^;{}()]|\([^;{}]*?\)(?=\s*[A-Za-z_]))*?\b(?P<kernel>[A-Za-z]\w*)\s*\(",
    re.DOTALL,
)


def kernels(texts: Iterable[str]) -> list[str]:
    """Names with namespaces, and with the parameters of templates in angle brackets; in order, once each."""
    found: list[str] = []
    for text in texts:
        scopes: list[str] = []
        for word in _WORD.finditer(text):
            if word["kernel"]:
                parameters = "" if word["template"] is None else f"<{' '.join(word['template'].split())}>"
                found.append("::".join([*filter(None, scopes), f"{word['kernel']}{parameters}"]))
            elif word["close"]:
                scopes = scopes[:-1]
            elif word[0].endswith("{"):
                scopes.append(word["space"] or "")
    return list(dict.fromkeys(found))


def mended(entry: str, texts: Iterable[str]) -> str | None:
    """What a user may have meant who wrote the name of a kernel that is not there."""
    found = kernels(texts)
    names = {_last(name): name for name in reversed(found)}
    match = difflib.get_close_matches(_last(entry), names, 1)
    if match:
        meant = names[match[0]]
        if meant.split("<")[0] == entry.split("<")[0].removeprefix("::"):
            return f"with template arguments it is `{meant}`" if "<" in meant else None
        return f"did you mean `{meant}`?"
    return f"the source has: {', '.join(f'`{name}`' for name in found[:8])}" if found else None


def _last(name: str) -> str:
    """A name without its namespaces and template arguments."""
    return name.split("<")[0].split("::")[-1]
