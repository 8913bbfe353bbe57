"""Fixtures of the integration tests: the built programs, tiny random models in Diffusers' layout, and pictures.

    def test_draws(rocm_sd, tiny_model, tmp_path):
        rocm_sd("generate", "--model", tiny_model("sd15"), "--prompt", "a cat", "-o", tmp_path / "a.png")
        assert read_picture(tmp_path / "a.png").shape == (64, 64, 3)

`from pictures import psnr, read_picture, read_parameters` gives the helpers.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
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


KEPT_CHECKPOINTS = 512 << 20  # bytes of random checkpoints that a worker keeps from one file of tests to the next
NEEDED_SPACE = 3 << 30  # bytes that the files of two workers take at their peak, 1.5 GB, and room to spare


def pytest_report_header() -> str | None:
    """Names a disk that is too full: there hundreds of tests would fail, each in its own words."""
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    if free < NEEDED_SPACE:
        return f"WARNING: {folder} has {free / 2**30:.1f} GiB free, the tests need {NEEDED_SPACE >> 30} GiB: set TMPDIR, or make room"
    return None


@pytest.fixture(scope="session")
def random_checkpoints(tmp_path_factory):
    from random_checkpoints import RandomCheckpoints

    folder = tmp_path_factory.mktemp("models")
    yield RandomCheckpoints(folder)
    shutil.rmtree(folder)


@pytest.fixture(scope="module", autouse=True)
def few_large_files(request, tmp_path_factory, random_checkpoints):
    """After a file of tests: its own folders go (unless a test of it failed), and all but a few random checkpoints.

    pytest deletes what a passed test wrote (pytest.ini), never what a fixture of a whole file wrote: 15 GB in one run.
    """
    folders, failed = [], request.session.testsfailed

    def noting(name, *args, mktemp=tmp_path_factory.mktemp, **options):
        path = mktemp(name, *args, **options)
        if not name.startswith("test_"):  # tmp_path's, which pytest deletes
            folders.append(path)
        return path

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tmp_path_factory, "mktemp", noting)
        yield
    random_checkpoints.shrink(KEPT_CHECKPOINTS)
    if request.session.testsfailed == failed:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def tiny_model(random_checkpoints):
    """tiny_model(kind, ...): path of a tiny random checkpoint, made when it is first asked for, kept while a file of tests runs.

    kind: sd15, sd15-inpaint, sd15-pix2pix, sd21v, sdxl, refiner, sd15-wide. layout: "folder" (Diffusers) or "single" (LDM file).
    dtype: fp32, fp16, bf16, fp8. Folders bring a small vocabulary; single files have CLIP's 49,408 rows, because such a
    file has no vocabulary of its own (small_vocab=True overrides it, for tests that never run the tokenizer).
    The same kind and seed give the same values in either layout, except for the token embedding's number of rows.
    """

    def make(kind: str, layout: str = "folder", dtype: str = "fp32", seed: int = 0,
             small_vocab: bool | None = None) -> Path:
        return random_checkpoints.get(kind, layout, dtype, seed, layout == "folder" if small_vocab is None else small_vocab)

    return make


@pytest.fixture(scope="session")
def weights_main(program):
    path = program("weights_main")

    def call(*args, code=0):
        done = subprocess.run([str(path), *map(str, args)], capture_output=True, text=True, timeout=300)
        assert done.returncode == code, f"{args}: exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done

    return call
