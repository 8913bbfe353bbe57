"""Finds and loads the C++ half of the package."""

from __future__ import annotations

import os
from pathlib import Path

import torch

LIBRARY = "librocm_sd_torch.so"
MINIMUM = (2, 10)  # of PyTorch: the stable ABI that the library is built for


def library_path() -> Path:
    """The library: $ROCM_SD_TORCH_LIBRARY if set, else the one in this package. Raises ImportError where it is missing."""
    named = os.environ.get("ROCM_SD_TORCH_LIBRARY")
    path = Path(named) if named else Path(__file__).resolve().parent / "lib" / LIBRARY
    if not path.is_file():
        raise ImportError(f"rocm_sd_ops: no {path}: install the package with `pip install .`, or name a built {LIBRARY} "
                          "in ROCM_SD_TORCH_LIBRARY")
    return path


def load() -> Path:
    """Loads the library into this process's PyTorch and returns its path."""
    version = tuple(int("".join(c for c in part if c.isdigit()) or 0) for part in torch.__version__.split(".")[:2])
    if version < MINIMUM:
        raise ImportError(f"rocm_sd_ops needs PyTorch {MINIMUM[0]}.{MINIMUM[1]} or later, this is {torch.__version__}")
    path = library_path()
    torch.ops.load_library(path)
    return path
