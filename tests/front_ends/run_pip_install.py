#!/usr/bin/env python3
"""`pip install .` into a fresh virtual environment, then an operator, the types and the engine from there: make test-pip

    tests/front_ends/run_pip_install.py [--torch torch==2.13.0] [--archs none] [--keep FOLDER]

The environment gets PyTorch (a wheel of the index or of pip's find-links) and nothing else of ours; the checks run in an empty
folder, so that nothing of the checkout is found by accident. Exit code 0, or the first failing command's.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
CHECK = r"""
import importlib.metadata, pathlib, torch, rocm_sd_ops
from rocm_sd_ops.engine import ROCmOptimizedPipeline, engine_version
package = pathlib.Path(rocm_sd_ops.__file__).parent
assert "site-packages" in str(package), package
assert (package / "py.typed").is_file()
q = torch.randn(1, 2, 77, 40)
y = rocm_sd_ops.attention(q, q, q)
want = torch.nn.functional.scaled_dot_product_attention(q.double(), q.double(), q.double())
assert (y - want).abs().max() < 1e-5
told = rocm_sd_ops.explain("attention", q, q, q)
assert told.kernel != "pytorch", told
print("rocm-sd-ops", importlib.metadata.version("rocm-sd-ops"), "with PyTorch", torch.__version__, "-", told.kernel)
with ROCmOptimizedPipeline(r"MODEL", device="cpu") as pipe:
    image = pipe("a smiling cat", num_inference_steps=2, seed=1, output_type="np").images
print("engine", engine_version(), image.shape)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", default="torch==2.13.0", help="what pip installs as PyTorch")
    parser.add_argument("--archs", default="none", help="ROCM_SD_ARCHS: the GPU targets whose kernels are built")
    parser.add_argument("--keep", help="the environment's folder, which then stays")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rocm-sd-pip-") as folder:
        environment = Path(args.keep or Path(folder) / "venv")
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        python = environment / "bin" / "python"
        pip = [python, "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, args.torch, "scikit-build-core>=0.10", "ninja"], check=True)
        # Against the environment's own PyTorch: an isolated build would fetch a second one.
        subprocess.run([*pip, "--no-build-isolation", "-C", f"cmake.define.ROCM_SD_ARCHS={args.archs}", str(REPOSITORY)], check=True)
        env = {k: v for k, v in os.environ.items() if not k.startswith(("ROCM_SD_", "PYTHONPATH"))}
        check = CHECK.replace("MODEL", str(REPOSITORY / "models" / "demo"))
        return subprocess.run([python, "-c", check], cwd=folder, env=env).returncode


if __name__ == "__main__":
    raise SystemExit(main())
