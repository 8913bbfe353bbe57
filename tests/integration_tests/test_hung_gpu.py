"""A GPU that stops answering within a kernel: the others name it within 10 s, and the command ends or goes on."""

from __future__ import annotations

import os
import subprocess
import time

import pytest

SMALL = ("--prompt", "a red apple", "-n", "a car", "--steps", "2", "-W", "64", "-H", "64", "--seed", "5", "--no-receipt")
PATIENCE = 9  # seconds; an emulated kernel of this size takes less than one, and so does a plan


@pytest.fixture
def draw(rocm_sd, repository, tmp_path):
    """Starts `rocm-sd generate` on two emulated GPUs, of which the second one hangs, and waits for its end."""
    if "emu:gfx1100" not in rocm_sd("devices").stdout:
        pytest.skip("this build has no emulated GPU")

    def run(launch: int, *options) -> tuple[int, str, float]:
        env = os.environ | {"ROCM_SD_EMULATOR_HANG": f"1:{launch}", "ROCM_SD_RANK_TIMEOUT": str(PATIENCE)}
        process = subprocess.Popen([str(rocm_sd.path), "generate", "--model", str(repository / "models" / "demo"), *SMALL, *map(str, options),
                                    "--devices", "emu:gfx1100,emu:gfx1100", "-o", str(tmp_path / "{index:03}.png")],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env)
        told, hung, named = "", None, None
        try:
            for line in process.stderr:
                told += line
                if "hangs in" in line and "ROCM_SD_EMULATOR_HANG" in line:
                    hung = time.monotonic()
                elif hung and not named and "no sign of life" in line:
                    named = time.monotonic()
            code = process.wait(timeout=30)
        finally:
            process.kill()
        assert hung, told
        assert named, told
        return code, told, named - hung

    return run


def test_a_pair_names_the_gpu_that_hangs_and_ends(draw, tmp_path):
    code, told, seconds = draw(700, "--split", "tensor")
    assert code == 4, told
    assert f"rank 1 (emu:gfx1100): no sign of life for {PATIENCE} s" in told
    assert seconds < PATIENCE + 1
    assert not list(tmp_path.glob("*.png")), "nothing is left half drawn"


def test_the_other_gpu_draws_all_images(draw, tmp_path):
    code, told, seconds = draw(450, "--repeat", 3)
    assert code == 0, told
    assert f"no sign of life for {PATIENCE} s" in told
    assert seconds < PATIENCE + 1
    assert sorted(path.name for path in tmp_path.glob("*.png")) == ["001.png", "002.png", "003.png"]
