"""The Python examples run as they stand, on a CPU with the demo model."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from PIL import Image
from torch_ops import REPOSITORY

pytestmark = pytest.mark.in_python


def run(script: str, build_dir, folder, *args: str) -> subprocess.CompletedProcess:
    libraries = {"ROCM_SD_TORCH_LIBRARY": build_dir / "lib" / "librocm_sd_torch.so", "ROCM_SD_LIBRARY": engine_library(build_dir)}
    environment = os.environ | {name: str(path) for name, path in libraries.items()}
    return subprocess.run([sys.executable, str(REPOSITORY / "examples" / script), *args], cwd=folder, env=environment,
                          capture_output=True, text=True)


def engine_library(build_dir):
    library = build_dir / "librocm_sd.so"
    if not library.exists():
        pytest.fail(f"no {library}: run `make build`", pytrace=False)
    return library


def test_basic_inference(build_dir, tmp_path):
    done = run("basic_inference.py", build_dir, tmp_path, "a smiling cat", "--device", "cpu", "--steps", "2", "-o", "cat.png")
    assert done.returncode == 0, done.stderr
    picture = Image.open(tmp_path / "cat.png")
    assert min(picture.size) > 0 and len(set(picture.convert("L").getdata())) > 8  # not of one colour
    assert "Steps: 2" in done.stdout and done.stdout.rstrip().endswith("cat.png")


@pytest.mark.bad_input
def test_basic_inference_says_what_is_wrong(build_dir, tmp_path):
    done = run("basic_inference.py", build_dir, tmp_path, "-m", "nowhere")
    assert done.returncode not in (0, 1) and "error:" in done.stderr and "Traceback" not in done.stderr


def test_optimized_pipeline(build_dir, tmp_path):
    done = run("optimized_pipeline.py", build_dir, tmp_path, "--steps", "2", "-o", "cat.png")
    assert done.returncode == 0, done.stderr
    same = re.search(r"the same picture to (the last bit|([\d.]+) dB)", done.stdout)
    assert same and (same[2] is None or float(same[2]) >= 60), done.stdout
    assert "residual blocks" in done.stdout and "rocm_sd::" in done.stdout and (tmp_path / "cat.png").is_file()


def test_benchmark_comparison(build_dir, tmp_path):
    done = run("benchmark_comparison.py", build_dir, tmp_path, "--steps", "2", "--rounds", "1", "--size", "64", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^\| ([\w +,]+) \| ([\d.e-]+) \| ([\d.]+)x \| (inf|[\d.]+) dB \|$", done.stdout, re.M)
    assert [row[0] for row in rows] == ["Diffusers", "Diffusers, optimize_sd_model", "C++ engine"], done.stdout
    assert all(float(row[1]) > 0 and float(row[3]) > 60 for row in rows), done.stdout


def test_examples_stand_alone():
    """An example is read, copied and run by itself: it imports nothing from the workshop's folders."""
    for script in (REPOSITORY / "examples").glob("*.py"):
        workshop = {path.stem for folder in ("tools", "benchmarks", "training", "tests") for path in (REPOSITORY / folder).rglob("*.py")}
        names = set(re.findall(r"^\s*(?:from|import) (\w+)", script.read_text(), re.M))
        assert not (names & (workshop - {"conftest"})) and "sys.path" not in script.read_text().replace(
            'sys.path.insert(0, str(REPOSITORY / "python"))', ""), script.name
