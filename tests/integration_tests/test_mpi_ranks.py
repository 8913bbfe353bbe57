"""Ranks that pass messages by MPI, as those of several hosts do: forced on this host, whoever is lost."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy
import pytest
from pictures import read_picture

SMALL = ("--prompt", "a red apple", "-n", "a car", "--steps", "3", "-W", "64", "-H", "128", "--dtype", "f32", "--seed", "5", "--no-receipt")

pytestmark = pytest.mark.skipif(not shutil.which("mpirun"), reason="mpirun (openmpi-bin) is not installed")


class Job:
    """So many ranks of `rocm-sd generate` under mpirun, which takes messages by MPI."""

    def __init__(self, program: Path, model: Path, folder: Path, count: int, *options, mpirun=(), env=None):
        command = ["mpirun", "--oversubscribe", *(["--allow-run-as-root"] if os.geteuid() == 0 else []), "--tag-output", *mpirun,
                   "-n", count, program, "generate", "--model", model, *SMALL, "-o", folder / "{index:03}-{seed}.png",
                   "--devices", "ranks:cpu", *options]
        self.process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        env=os.environ | {"ROCM_SD_RANKS": "mpi", "OMP_NUM_THREADS": "1"} | (env or {}))
        self.told: list[str] = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.communicate()

    def wait_for(self, text: str) -> None:
        for line in self.process.stdout:
            self.told.append(line)
            if text in line:
                return
        pytest.fail(f"mpirun ended before {text!r} was said: {''.join(self.told)}")

    def ended(self, seconds: float) -> str:
        """What all ranks wrote."""
        try:
            rest, _ = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"mpirun has not ended in time: {''.join(self.told)}")
        return "".join(self.told) + rest

    def pid(self, rank: int) -> int:
        for child in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split():
            if f"OMPI_COMM_WORLD_RANK={rank}\0" in Path(f"/proc/{child}/environ").read_text():
                return int(child)
        pytest.fail(f"no process of rank {rank}")


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


@pytest.mark.parametrize("split, count", [("guidance", 2), ("rows", 3), ("tensor", 2)])
def test_one_picture(executable, model, one, tmp_path, split, count):
    want = one()
    with Job(executable, model, tmp_path / "ranks", count, "--split", split, env={"ROCM_SD_LOG": "info"}) as job:
        told = job.ended(60)
        assert job.process.returncode == 0, told
        assert f"ranks: {count} processes by mpirun, Open MPI" in told
    assert sorted(files(tmp_path / "ranks")) == sorted(files(want)), "rank 0 alone writes"
    for name in files(want):
        assert numpy.abs(read_picture(tmp_path / "ranks" / name).astype(int) - read_picture(want / name).astype(int)).max() <= 1


def test_many_pictures(executable, model, one, tmp_path):
    """Over TCP, as between hosts: each process believes that it is alone on its host."""
    want = files(one("--repeat", "6"))
    alone = ("--mca", "btl", "tcp,self", "-x", "OMPI_COMM_WORLD_LOCAL_SIZE=1")
    with Job(executable, model, tmp_path / "ranks", 3, "--repeat", "6", mpirun=alone) as job:
        told = job.ended(60)
        assert job.process.returncode == 0, told
        assert told.count("time:") == 6, "each once"
    assert files(tmp_path / "ranks") == want


def wait_until_gone(processes: list[int], seconds: float = 30) -> None:
    """What they had sent to a stopped rank and MPI had not delivered is lost then."""
    until = time.monotonic() + seconds
    while any(Path(f"/proc/{process}").exists() for process in processes):
        assert time.monotonic() < until, f"processes {processes} do not end"
        time.sleep(0.1)


RECOVER = ("--enable-recovery", "--mca", "orte_abort_on_non_zero_status", "0")


@pytest.mark.parametrize("by, lost, late", [(signal.SIGKILL, 1, False), (signal.SIGSTOP, 0, False), (signal.SIGSTOP, 0, True)])
def test_a_lost_rank_of_a_picture_is_named(executable, model, tmp_path, by, lost, late):
    with Job(executable, model, tmp_path, 3, "--split", "rows", "--steps", "1000", "--progress", "json", mpirun=RECOVER) as job:
        job.wait_for('"sample"')
        pid = job.pid(lost)
        others = {0, 1, 2} - {lost}
        processes = [job.pid(rank) for rank in others]
        os.kill(pid, by)
        begin = time.monotonic()
        while others:
            line = job.process.stdout.readline()
            assert line, f"mpirun ended: {''.join(job.told)}"
            job.told.append(line)
            if f"error: rank {lost} (cpu): its process {pid}" in line:
                assert ("killed" if by == signal.SIGKILL else "stopped") in line
                others -= {rank for rank in others if line.startswith(f"[1,{rank}]")}
        assert time.monotonic() - begin < 10
        if late:
            wait_until_gone(processes)
        if by == signal.SIGSTOP:
            os.kill(pid, signal.SIGCONT)
        assert "[1,%d]<stderr>:error: rank %d" % (lost, lost) in job.ended(20) or by == signal.SIGKILL, "it learns what became of it"


@pytest.mark.parametrize("by, lost, late", [(signal.SIGKILL, 0, False), (signal.SIGSTOP, 0, False), (signal.SIGSTOP, 1, True), (signal.SIGKILL, 2, False)])
def test_pictures_of_a_lost_rank_go_to_the_others(executable, model, one, tmp_path, by, lost, late):
    want = files(one("--repeat", "10", "--steps", "8"))
    with Job(executable, model, tmp_path / "ranks", 3, "--repeat", "10", "--steps", "8", "--progress", "json", mpirun=RECOVER) as job:
        job.wait_for(f"[1,{lost}]<stdout>:/")
        pid = job.pid(lost)
        processes = [job.pid(rank) for rank in {0, 1, 2} - {lost}]
        os.kill(pid, by)
        begin = time.monotonic()
        if late:
            wait_until_gone(processes)
        elif by == signal.SIGSTOP:
            while len(files(tmp_path / "ranks")) < len(want) and time.monotonic() - begin < 30:
                time.sleep(0.1)
            time.sleep(0.5)
        if by == signal.SIGSTOP:
            os.kill(pid, signal.SIGCONT)
        told = job.ended(40)
    assert f"rank {lost} (cpu) is lost" in told and "the others draw its images" in told
    assert files(tmp_path / "ranks") == want
    if by == signal.SIGSTOP:
        assert "the others have taken its images" in told


def test_refusals(executable, model, tmp_path):
    for env, text in (({"ROCM_SD_MPI": "libc.so.6"}, "libc.so.6 is not Open MPI"),
                      ({"ROCM_SD_MPI": "/nowhere.so"}, "Open MPI is not there"),
                      ({"ROCM_SD_RANKS": "pigeons"}, "ROCM_SD_RANKS: expected mpi or shared")):
        with Job(executable, model, tmp_path, 2, env=env) as job:
            assert text in job.ended(20)
    env = os.environ | {"ROCM_SD_RANKS": "mpi", "RANK": "1", "WORLD_SIZE": "3", "ROCM_SD_JOB": "x", "ROCM_SD_RANK_TIMEOUT": "20"}
    alone = subprocess.run([executable, "generate", "--model", model, *SMALL, "-o", tmp_path / "a.png", "--devices", "ranks:cpu"],
                           env=env, capture_output=True, text=True, timeout=60)
    assert alone.returncode == 2 and "MPI has started rank 0 of 1, the environment tells of rank 1 of 3" in alone.stderr
