"""Triton's kernels of rocm_sd_ops on the CPU, by Triton's interpreter, against float64."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.in_python


def test_kernels_by_the_interpreter(build_dir):
    done = subprocess.run([sys.executable, str(Path(__file__).with_name("triton_cases.py"))], capture_output=True, text=True, timeout=300,
                          env=os.environ | {"TRITON_INTERPRET": "1", "ROCM_SD_BUILD_DIR": str(build_dir)})
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    lines = done.stdout.splitlines()
    assert [sum(line.startswith(name) for line in lines) for name in ("attention", "group_norm", "geglu")] == [10, 12, 9]
    assert "in place of ours" in lines and "left alone" in lines and "bad operands" in lines


def test_without_triton(build_dir):
    """The package does without; who asks for the kernels is told what to install."""
    code = ("import sys; sys.modules['triton'] = None\n"
            "from pathlib import Path; import os\nfrom torch_ops import load_package\n"
            "ops = load_package(Path(os.environ['ROCM_SD_BUILD_DIR']))\n"
            "try: ops.use_triton()\nexcept ImportError as error: print(error)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=Path(__file__).parent,
                          env=os.environ | {"ROCM_SD_BUILD_DIR": str(build_dir)})
    assert "the package triton" in done.stdout, done.stdout + done.stderr
