"""benchmarks/bench_low_memory.py: what it reads of each program's output, what it skips and says, and a run of the engine on the CPU."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time

import bench_low_memory as bench
import device_memory
import low_memory_peers as peers
import pytest

ENGINE = """warning: memory: 2222.4 MB planned, the budget is 1073.7 MB: weights wait in host memory (--offload)
time: 3.500 s (plan 2.000 s, text 0.100 s, sample 1.200 s, decode 0.200 s)
arena used: 0.004 GB of 0.003 GB planned
device memory: 1.073 GB at most, 1.067 GB planned
out/1.png
time: 0.900 s (plan 0.001 s, text 0.099 s, sample 0.600 s, decode 0.200 s) on cuda
time: 1.100 s (plan 0.001 s, text 0.099 s, sample 0.800 s, decode 0.200 s)
device memory: 1.061 GB at most, 1.067 GB planned
"""
SD_CPP = """[INFO ] stable-diffusion.cpp:5296 - get_learned_condition completed, taking 0.50s
[INFO ] stable-diffusion.cpp:5711 - sampling completed, taking 4.00s
[INFO ] stable-diffusion.cpp:5711 - sampling completed, taking 2.00s
[INFO ] stable-diffusion.cpp:5723 - generating 2 latent images completed, taking 6.00s
[INFO ] stable-diffusion.cpp:5387 - latent 1 decoded, taking 1.50s
[INFO ] stable-diffusion.cpp:5387 - latent 2 decoded, taking 1.00s
[INFO ] stable-diffusion.cpp:5391 - decode_first_stage completed, taking 2.50s
[INFO ] stable-diffusion.cpp:5861 - generate_image completed in 9.00s
"""


def test_reads_the_engine():
    found = peers.read_engine(ENGINE, steps=20)
    assert found["seconds_first"] == 3.5 and found["seconds"] == pytest.approx(1.0) and found["step_ms"] == pytest.approx(35)
    assert found["own_peak_bytes"] == 1_073_000_000
    with pytest.raises(peers.Failed, match="out of memory"):
        peers.read_engine("model: x\nerror: out of memory\n", steps=20)


def test_reads_stable_diffusion_cpp():
    found = peers.read_sd_cpp(SD_CPP, steps=20)
    assert found["seconds_first"] == pytest.approx(6.0), "the text, the first sampling and the first decoding"
    assert found["seconds"] == pytest.approx(3.5) and found["step_ms"] == pytest.approx(100)
    with pytest.raises(peers.Failed, match="CUDA error: out of memory"):
        peers.read_sd_cpp("[ERROR] ggml: CUDA error: out of memory\n[INFO ] bye\n", steps=20)


def test_reads_comfyui():
    log = "  5%|5         | 1/20 [00:00<00:12,  1.55it/s]\r100%|#| 20/20 [00:05<00:00,  4.00it/s]\r100%|#| 20/20 [00:05<00:00,  3.80it/s]\n"
    assert peers.tqdm_step_ms(log, 20) == pytest.approx(1e3 / 3.8)
    assert peers.tqdm_step_ms(log + "100%|#| 20/20 [00:42<00:00,  2.10s/it]\n", 20) == pytest.approx(2100)
    assert peers.tqdm_step_ms(log, 10) == 0
    messages = [["execution_start", {"timestamp": 1000}], ["execution_cached", {"timestamp": 1001}], ["execution_success", {"timestamp": 3500}]]
    assert peers.comfyui_seconds({"status": {"status_str": "success", "messages": messages}}) == 2.5
    error = ["execution_error", {"node_type": "KSampler", "exception_message": "Allocation on device\nout of memory"}]
    with pytest.raises(peers.Failed, match="KSampler: Allocation on device out of memory"):
        peers.comfyui_seconds({"status": {"status_str": "error", "messages": [messages[0], error]}})


def test_budgets_and_options():
    assert bench.bytes_of("3G") == 3 << 30 and bench.bytes_of("1.5g") == 3 << 29 and bench.bytes_of("1000") == 1000
    for wrong in ("3T", "G", "much"):
        with pytest.raises(argparse.ArgumentTypeError):
            bench.bytes_of(wrong)
    assert bench.options_of(bench.MODES["sd.cpp"][1], 3 << 30)[-3:] == ["--max-vram", "3", "--stream-layers"]
    assert bench.options_of(bench.MODES["rocm-sd"][1], 1 << 30) == ["--vram-budget", str(1 << 30)]


def test_peak_of_device_memory():
    values = [100]
    with device_memory.Peak(lambda: values[0], interval=0.001) as peak:
        for value in (700, 300):
            values[0] = value
            time.sleep(0.05)
    assert peak.bytes == 600, "less what was in use before"
    with device_memory.Peak(None) as nothing:
        pass
    assert nothing.bytes == 0


def test_says_what_it_skips_and_measures_the_engine(program, repository, tmp_path):
    engine = program("rocm-sd")
    missing = bench.missing_peers({"ROCM_SD_PEER_COMFYUI": str(tmp_path)}, engine)
    assert "has no main.py" in missing["comfyui"] and "ROCM_SD_PEER_SDCPP is not set" in missing["sd.cpp"]
    out = tmp_path / "low-memory.json"
    environment = {key: value for key, value in os.environ.items() if not key.startswith("ROCM_SD_PEER")}
    done = subprocess.run([sys.executable, str(repository / "benchmarks" / "bench_low_memory.py"), "--sd15", str(repository / "models" / "demo"),
                           "--program", str(engine), "--device", "cpu", "--size", "64", "--steps", "2", "--images", "2", "--out", str(out)],
                          capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert "skipped: comfyui: ROCM_SD_PEER_COMFYUI is not set" in done.stderr and "skipped: sd.cpp: ROCM_SD_PEER_SDCPP is not set" in done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["options"] for row in rows] == [f"--vram-budget {1 << 30}", ""]
    assert all(row["seconds"] > 0 and row["step_ms"] > 0 for row in rows)
    data = json.loads(out.read_text())
    assert data["benchmark"] == "low_memory" and len(data["rows"]) == 2 and len(data["left_out"]) == 2
