"""The command `rocm-sd` of an installed wheel. A package of its own, because importing rocm_sd_ops imports PyTorch."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path


def main() -> None:
    """Becomes the program in the package rocm_sd_ops, with the kernels beside the package's libraries."""
    found = importlib.util.find_spec("rocm_sd_ops")
    package = Path(found.origin).parent if found and found.origin else Path(__file__).resolve().parent
    program = package / "bin" / "rocm-sd"
    if not program.is_file():
        raise SystemExit(f"rocm-sd: no {program}: this package was built without the program")
    os.environ.setdefault("ROCM_SD_KERNELS", str(package / "lib"))
    os.execv(program, [str(program), *sys.argv[1:]])
