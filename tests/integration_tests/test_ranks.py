"""Ranks that are processes (--devices ranks): the files of one process, whoever starts them and whoever is lost."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import numpy
import pytest
from pictures import read_parameters, read_picture

SMALL = ("--prompt", "a red apple", "-n", "a car", "--steps", "3", "-W", "64", "-H", "128", "--dtype", "f32", "--seed", "5", "--no-receipt")


class Ranks:
    """So many processes of `rocm-sd generate` that are ranks of one job, as a shell script would start them."""

    def __init__(self, program: Path, model: Path, folder: Path, count: int, *options, each=lambda rank: ()):
        self.job = uuid.uuid4().hex
        job = {"WORLD_SIZE": str(count), "ROCM_SD_JOB": self.job, "OMP_NUM_THREADS": "1"}
        self.processes = [
            subprocess.Popen([str(program), "generate", "--model", str(model), *SMALL, "-o", str(folder / "{index:03}-{seed}.png"),
                              "--devices", "ranks:cpu", *map(str, options), *map(str, each(rank))],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | job | {"RANK": str(rank)})
            for rank in range(count)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.communicate()

    def ended(self, rank: int, code: int) -> str:
        """What it wrote to stderr."""
        _, told = self.processes[rank].communicate(timeout=60)
        assert self.processes[rank].returncode == code, told
        return told

    def wait_for(self, rank: int, text: str) -> None:
        """Until the rank's stderr has a line with the text."""
        for line in self.processes[rank].stderr:
            if text in line:
                return
        pytest.fail(f"rank {rank} ended before it said {text!r}")


@pytest.fixture
def model(repository):
    return repository / "models" / "demo"


@pytest.fixture
def executable(program):
    return program("rocm-sd")


@pytest.fixture
def one(rocm_sd, model, tmp_path):
    """The folder of what one process draws with these options."""

    def draw(*options) -> Path:
        rocm_sd("generate", "--model", model, *SMALL, "-o", tmp_path / "one" / "{index:03}-{seed}.png", "--device", "cpu", *options)
        return tmp_path / "one"

    return draw


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.png")}


@pytest.mark.parametrize("split, count", [("guidance", 2), ("rows", 3), ("guidance-rows", 4), ("tensor", 2)])
def test_one_picture_on_several_processes(executable, model, one, tmp_path, split, count):
    want = one("--repeat", "2")
    with Ranks(executable, model, tmp_path / "ranks", count, "--split", split, "--repeat", "2") as ranks:
        for rank in range(count):
            ranks.ended(rank, 0)
    got = tmp_path / "ranks"
    assert sorted(files(got)) == sorted(files(want)), "rank 0 alone writes"
    for name in files(want):
        assert read_parameters(got / name) == read_parameters(want / name)
        assert numpy.abs(read_picture(got / name).astype(int) - read_picture(want / name).astype(int)).max() <= 1
    assert not list(Path("/dev/shm").glob(f"*{ranks.job}*")), "nothing is left"


def test_many_pictures_are_those_of_one_process(executable, model, one, tmp_path):
    want = files(one("--repeat", "6", "--batch", "2"))
    with Ranks(executable, model, tmp_path / "ranks", 3, "--repeat", "6", "--batch", "2") as ranks:
        told = [ranks.ended(rank, 0) for rank in range(3)]
    assert files(tmp_path / "ranks") == want
    assert sum(text.count("time:") for text in told) == 6, "each once"


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("lost, split", [(0, "rows"), (1, "rows"), (2, "tensor")])
def test_a_lost_rank_of_a_picture_is_named(executable, model, tmp_path, by, lost, split):
    with Ranks(executable, model, tmp_path, 3, "--split", split, "--steps", "1000", "--progress", "json") as ranks:
        ranks.wait_for(0, '"sample"')
        ranks.processes[lost].send_signal(by)
        begin = time.monotonic()
        for rank in {0, 1, 2} - {lost}:
            told = ranks.ended(rank, 4)
            assert f"rank {lost} (cpu): its process {ranks.processes[lost].pid}" in told
            assert ("killed" if by == signal.SIGKILL else "stopped") in told
        assert time.monotonic() - begin < 10
        if by == signal.SIGSTOP:
            ranks.processes[lost].send_signal(signal.SIGCONT)
            assert "stopped" in ranks.ended(lost, 4), "it learns what became of it"


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGSTOP])
def test_pictures_of_a_lost_rank_go_to_the_others(executable, model, one, tmp_path, by):
    want = files(one("--repeat", "12", "--steps", "8"))
    with Ranks(executable, model, tmp_path / "ranks", 3, "--repeat", "12", "--steps", "8", "--progress", "json") as ranks:
        ranks.wait_for(0, '"sample"')
        ranks.processes[0].send_signal(by)
        told = [ranks.ended(rank, 0) for rank in (1, 2)]
        assert any("rank 0 (cpu) is lost" in text and "the others draw its images" in text for text in told)
        assert files(tmp_path / "ranks") == want
        if by == signal.SIGSTOP:
            ranks.processes[0].send_signal(signal.SIGCONT)
            assert "the others have taken its images" in ranks.ended(0, 4)
            assert files(tmp_path / "ranks") == want


def test_what_differs_is_refused(executable, model, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(model, other)
    weights = next((other / "unet").glob("*.safetensors"))
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    with Ranks(executable, model, tmp_path, 2, each=lambda rank: ("--model", other) if rank else ()) as ranks:
        for rank in (0, 1):
            assert 'rank 1 (cpu) and rank 0 (cpu) differ: "weights: ' in ranks.ended(rank, 4)
    with Ranks(executable, model, tmp_path, 2, each=lambda rank: ("--split", "rows") if rank else ()) as ranks:
        for rank in (0, 1):
            assert 'differ: "split: rows" and "split: images"' in ranks.ended(rank, 4)
    with Ranks(executable, model, tmp_path, 2, "--split", "rows", each=lambda rank: ("--steps", 3 + rank)) as ranks:
        for rank in (0, 1):
            assert "was asked for another image than rank 0" in ranks.ended(rank, 2)
    copied = tmp_path / "copied"
    shutil.copytree(model, copied)  # other times, the same bytes
    with Ranks(executable, model, tmp_path, 2, each=lambda rank: ("--model", copied) if rank else ()) as ranks:
        for rank in (0, 1):
            ranks.ended(rank, 0)


def test_refusals(rocm_sd, model, executable, tmp_path):
    command = ("generate", "--model", model, *SMALL, "-o", tmp_path / "a.png", "--devices")
    assert "no launch: start it with torchrun" in rocm_sd(*command, "ranks", code=2).stderr
    alone = {"RANK": "0", "WORLD_SIZE": "1", "ROCM_SD_JOB": uuid.uuid4().hex}
    assert "expected several devices" in rocm_sd(*command, "ranks:cpu", "--split", "rows", code=2, env=alone).stderr
    assert "expected ranks, ranks:cpu" in rocm_sd(*command, "ranks:", code=2, env=alone).stderr
    assert "grid: one process writes it" in rocm_sd(*command, "ranks:cpu", "--grid", "2x2", code=2, env=alone).stderr
    far = alone | {"WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    assert "start them with Open MPI's mpirun" in rocm_sd(*command, "ranks:cpu", code=2, env=far).stderr
    late = alone | {"WORLD_SIZE": "2", "ROCM_SD_RANK_TIMEOUT": "0.3"}
    assert "rank 1 of 2 has not come within 0.3 s" in rocm_sd(*command, "ranks:cpu", code=4, env=late).stderr


def test_started_by_torchrun(executable, model, one, tmp_path):
    want = files(one("--repeat", "3"))
    subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python", executable,
                    "generate", "--model", model, *SMALL, "--repeat", "3", "-o", tmp_path / "ranks" / "{index:03}-{seed}.png",
                    "--devices", "ranks:cpu"], check=True, capture_output=True, timeout=120)
    assert files(tmp_path / "ranks") == want


@pytest.mark.skipif(not shutil.which("mpirun"), reason="mpirun (openmpi-bin) is not installed")
def test_started_by_mpirun(executable, model, one, tmp_path):
    want = files(one("--repeat", "3"))
    subprocess.run(["mpirun", "--oversubscribe", *(["--allow-run-as-root"] if os.geteuid() == 0 else []), "-n", "3", executable,
                    "generate", "--model", model, *SMALL, "--repeat", "3", "-o", tmp_path / "ranks" / "{index:03}-{seed}.png",
                    "--devices", "ranks:cpu"], check=True, capture_output=True, timeout=120)
    assert files(tmp_path / "ranks") == want
