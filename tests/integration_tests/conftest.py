"""Fixtures of the integration tests: the built programs, tiny random models in Diffusers' layout, and pictures.

    def test_draws(rocm_sd, tiny_model, tmp_path):
        rocm_sd("generate", "--model", tiny_model("sd15"), "--prompt", "a cat", "-o", tmp_path / "a.png")
        assert read_picture(tmp_path / "a.png").shape == (64, 64, 3)

`from pictures import psnr, read_picture, read_parameters` gives the helpers.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
for _folder in ("tools/checkpoints", "tools/report", "benchmarks", "tests/front_ends"):
    sys.path.insert(0, str(REPOSITORY / _folder))
sys.path.insert(0, str(Path(__file__).resolve().parent))

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test may reach for a model hub
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads spin, and tests run beside each other
os.environ.setdefault("ROCM_SD_TUNING", "off")  # no table of this machine may choose what is tested


class Cli:
    """The built rocm-sd. Calling it runs a command and returns the CompletedProcess with text streams.

    code: the expected exit code, or None to accept any. A mismatch fails the test and shows both streams.
    """

    def __init__(self, path: Path):
        self.path = path

    def __call__(self, *args, code: int | None = 0, timeout: float = 600, env: dict[str, str] | None = None,
                 stdin: str | None = None, cwd: Path | None = None) -> subprocess.CompletedProcess:
        command = [str(self.path), *map(str, args)]
        done = subprocess.run(command, capture_output=True, text=True, errors="backslashreplace", timeout=timeout,
                              env=os.environ | (env or {}), input=stdin if stdin is not None else "", cwd=cwd)
        if code is not None and done.returncode != code:
            shown = " ".join(command)
            pytest.fail(f"{shown}\nexit code {done.returncode}, expected {code}\n--- stdout\n{done.stdout[-4000:]}"
                        f"\n--- stderr\n{done.stderr[-4000:]}", pytrace=False)
        return done

    def started(self, model, folder: Path, until: str) -> subprocess.Popen:
        """A run of many steps into folder/a.png, after its first line of progress that names the stage `until`."""
        process = subprocess.Popen([str(self.path), "generate", "--model", str(model), "--steps", "1000", "-W", "64", "-H", "64",
                                    "-o", str(folder / "a.png"), "--progress", "json"],
                                   stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        for line in process.stderr:
            if f'"{until}"' in line:
                break
        return process


@pytest.fixture(scope="session")
def repository() -> Path:
    return REPOSITORY


@pytest.fixture(scope="session")
def build_dir() -> Path:
    """The build that is tested: ROCM_SD_BUILD_DIR, else build/cpu."""
    return Path(os.environ.get("ROCM_SD_BUILD_DIR", REPOSITORY / "build" / "cpu")).resolve()


@pytest.fixture(scope="session")
def program(build_dir):
    """program("rocm-sd"): the path of a built program. Fails, not skips, where it was not built."""

    def find(name: str) -> Path:
        for folder in ("bin", "apps/cli", "apps/server", "apps/bench", "."):
            path = build_dir / folder / name
            if path.is_file() and os.access(path, os.X_OK):
                return path
        pytest.fail(f"no program {name} in {build_dir}: run `make build` (or set ROCM_SD_BUILD_DIR)", pytrace=False)

    return find


@pytest.fixture(scope="session")
def rocm_sd(program) -> Cli:
    return Cli(program("rocm-sd"))


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    """tiny_model(kind, ...): path of a tiny random checkpoint, made once per session.

    kind: sd15, sd15-inpaint, sd15-pix2pix, sd21v, sdxl, refiner, sd15-wide. layout: "folder" (Diffusers) or "single" (LDM file).
    dtype: fp32, fp16, bf16, fp8. Folders bring a small vocabulary; single files have CLIP's 49,408 rows, because such a
    file has no vocabulary of its own (small_vocab=True overrides it, for tests that never run the tokenizer).
    The same kind and seed give the same values in either layout, except for the token embedding's number of rows.
    """
    made: dict[tuple, Path] = {}

    def make(kind: str, layout: str = "folder", dtype: str = "fp32", seed: int = 0,
             small_vocab: bool | None = None) -> Path:
        from make_random_checkpoint import write_checkpoint

        small = layout == "folder" if small_vocab is None else small_vocab
        key = (kind, layout, dtype, seed, small)
        if key not in made:
            name = f"{kind}-{dtype}-{seed}{'-small' if small else ''}"
            target = tmp_path_factory.mktemp("models") / (name + (".safetensors" if layout == "single" else ""))
            made[key] = write_checkpoint(kind, target, tiny=True, seed=seed, dtype=dtype, small_vocab=small)
        return made[key]

    return make


@pytest.fixture(scope="session")
def weights_main(program):
    path = program("weights_main")

    def call(*args, code=0):
        done = subprocess.run([str(path), *map(str, args)], capture_output=True, text=True, timeout=300)
        assert done.returncode == code, f"{args}: exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done

    return call
