"""Programs that tests run: those installed with Python before those of the machine."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"


def require(*names: str) -> None:
    """Skip the test where a program is not installed."""
    for name in names:
        if shutil.which(name, path=PATH) is None:
            pytest.skip(f"{name} is not installed")


def environment(**more: str) -> dict[str, str]:
    """This process's, with `PATH` as above, and not that of a running Make."""
    kept = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    return {**kept, "PATH": PATH, **more}
