"""Lets the examples run in a checkout without installing anything: finds the package and what `make` built."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads that wait sleep; read when PyTorch is imported (docs/reference/pytorch.md)
REPOSITORY = Path(__file__).resolve().parents[1]
DEMO_MODEL = REPOSITORY / "models" / "demo"


def use_checkout() -> None:
    """Does nothing where rocm_sd_ops is installed."""
    if importlib.util.find_spec("rocm_sd_ops") is not None:
        return
    sys.path.insert(0, str(REPOSITORY / "python"))
    build = Path(os.environ.get("ROCM_SD_BUILD_DIR", REPOSITORY / "build" / "cpu")).resolve()
    os.environ.setdefault("ROCM_SD_TORCH_LIBRARY", str(build / "lib" / "librocm_sd_torch.so"))
