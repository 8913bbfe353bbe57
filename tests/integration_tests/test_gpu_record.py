"""benchmarks/gpu_record.py: whole and at once with stand-ins for the programs; what fails, hangs or dies leaves the others their time.
benchmarks/torch_peer.py with a tiny model."""

from __future__ import annotations

import io
import json
import os
import sys
import time
from pathlib import Path

import pytest

import clocks
import gpu_record
import peer_process
import record
import record_parts
import tables

FAKE_PEER = '''#!{python}
import json, sys, time
work, names = sys.argv[1], sys.argv[3].split(",")
def say(**what): print(json.dumps(what), flush=True)
print("a library's own words")
for name in names:
    if name == "compiled" and "sd15" in work:
        time.sleep(1000)
    if name == "compiled":
        say(failed=name, why="RuntimeError: no compiler")
        continue
    say(ready=name, seconds=1.0, psnr=None if name == "eager" else 70.0, ms=2.0)
say(prepared=True)
for line in sys.stdin:
    name, count = line.split()
    if name == "channels_last" and "vae" in work:
        sys.exit("out of memory")
    ms = {{"eager": 4.0, "channels_last": 3.0, "optimized": 1.5}}[name]
    say(implementation=name, waited_ms=[ms] * int(count), in_turn_ms=ms)
'''

FAKE_BENCH_MODEL = '''#!{python}
import json, sys
work = sys.argv[-1]
assert sys.argv[1:4] == ["cuda", "f16", "--json"], sys.argv
row = {{"work": work, "failure": "no room"}} if "vae" in work else {{"work": work, "ms": 1.1, "sustained_ms": 1.0, "joules": 2.0, "held_bytes": 1900000000}}
open(sys.argv[4], "w").write(json.dumps({{"rows": [row]}}))
'''

FAKE_ROCM_SD = '''#!{python}
import json, sys
words = sys.argv[1:]
if "sdxl" in words: sys.exit("error: lost the device")
row = {{"op": "linear", "problem": "1x2x3 f16", "choice": "gpu", "chosen": True, "launches": 20, "median_us": 100.0, "spread": 0.01}}
rows = [row | {{"peer": "cublaslt", "ratio_to_peer": 1.25}}, row | {{"problem": "2x2x2 f16"}}]
clocks = {{"source": "NVML", "core_mhz": {{"min": 1, "median": 2, "max": 3}}}}
head = {{"schema": 1, "benchmark": "bench", "command": "x", "device": "cuda:0: NVIDIA H200, sm_90", "driver": "580", "system": "Linux",
        "commit": "abc1234", "date": "2026-11-23T00:00:00Z", "origin": "measured"}}
open(words[words.index("--json") + 1], "w").write(json.dumps(head | {{"clocks": clocks, "rows": rows}}))
'''


def script(path: Path, text: str) -> Path:
    path.write_text(text.format(python=sys.executable))
    path.chmod(0o755)
    return path


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """run(words): gpu_record.main() with stand-ins in place of PyTorch, bench_model_gpu and rocm-sd."""
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    script(bundle / "bench_model_gpu", FAKE_BENCH_MODEL)
    script(bundle / "rocm-sd", FAKE_ROCM_SD)
    (bundle / "commit").write_text("abc1234\n")
    peer = script(tmp_path / "peer.py", FAKE_PEER)
    monkeypatch.setattr(peer_process, "PEER", peer)
    monkeypatch.setattr(gpu_record.Machine, "describe", lambda self: ("NVIDIA H200", "Linux 6.18, PyTorch 2.11.0", True))
    monkeypatch.setattr(gpu_record.Machine, "driver", lambda self: "580.159.04")

    def run(*words: str) -> tuple[int, Path]:
        out = tmp_path / "out"
        return gpu_record.main(["--bundle", str(bundle), "--out", str(out), *words]), out

    return run


def test_one_call_leaves_every_record(machine, tmp_path, capsys):
    code, out = machine("--parts", "models", "gate", "ops", "--works", "sd15-unet:512x512:1", "vae:512x512:1", "sd15-unet:512x512:4",
                        "--minutes", "2", "--compile-share", "0.02", "--jobs", "2")
    assert code == 0
    data = record.read(out / "h200_models.json")
    rows = {row["work"]: row for row in data["tables"]["models"]["rows"]}
    assert rows["SD 1.5 UNet, 512 x 512"] == {
        "work": "SD 1.5 UNet, 512 x 512", "own_ms": 1, "optimized_ms": 1.5, "channels_last_ms": 3, "eager_ms": 4, "own_ahead": 3,
        "optimized_ahead": 2, "psnr": 70, "held_gb": 1.9}
    assert rows["VAE decoder, 512 x 512"] == {"work": "VAE decoder, 512 x 512", "eager_ms": 4}  # the process died, ours refused
    assert "SD 1.5 UNet, 512 x 512, 4 images" in rows
    assert data["commit"] == "abc1234" and data["driver"] == "580.159.04" and "--parts models" in data["command"]
    reasons = "\n".join(data["left_out"])
    for words in ("torch.compile (reduce-overhead, channels_last), SD 1.5 UNet, 512 x 512: not ready when", "VAE decoder, 512 x 512: RuntimeError: no compiler",
                  "bench_model_gpu vae:512x512:1: no room", "VAE decoder, 512 x 512: ended with exit code 1: out of memory"):
        assert words in reasons, reasons
    op = record.read(out / "h200_ops.json")["tables"]["ops"]["rows"]
    assert op == [{"work": "SD 1.5, 512 x 512: linear", "problems": 2, "all_ms": 4, "compared": 1, "ours_ms": 2, "peer_ms": 2.5, "ratio": 1.25,
                   "ahead": "1 of 1"}]
    assert json.loads((out / "baselines" / "NVIDIA_H200.json").read_text())["rows"]
    printed = capsys.readouterr().out
    assert "== h200_models.json models" in printed and "left out: ops-sdxl: exit code 1: error: lost the device" in printed

    root = tmp_path / "checkout"
    assert gpu_record.main(["--keep", str(out), "--root", str(root)]) == 0
    assert (root / "docs" / "benchmarks" / "h200_models.json").is_file() and (root / "benchmarks" / "baselines" / "NVIDIA_H200.json").is_file()
    (root / "BENCHMARKS.md").write_text("".join(f"<!-- h200_{part}.json facts -->\n<!-- end -->\n<!-- h200_{part}.json table {part} -->\n<!-- end -->\n"
                                                for part in ("models", "ops")))
    assert tables.main(["--root", str(root)]) == 0
    text = (root / "BENCHMARKS.md").read_text()
    assert "| SD 1.5 UNet, 512 x 512 | 1.00 | 1.50 | | 3.00 | 4.00 | 3.00x | 2.00x | 70.0 dB | 1.90 GB |" in text


def test_a_call_without_time_or_programs_ends(machine, capsys):
    begin = time.monotonic()
    code, out = machine("--parts", "models", "gate", "--minutes", "0.1", "--works", "sd15-unet:512x512:1")
    assert code == 1 and time.monotonic() - begin < 20 and "no time was left" in capsys.readouterr().out


def test_without_pytorch_ours_alone_is_measured(machine, monkeypatch):
    monkeypatch.setattr(gpu_record.Machine, "describe", lambda self: self.left_out.append("PyTorch: none") or ("NVIDIA H200", "Linux", False))
    code, out = machine("--parts", "models", "pictures", "--works", "sd15-unet:512x512:1", "--minutes", "2")
    data = record.read(out / "h200_models.json")
    assert code == 0 and data["peers"] == [] and data["tables"]["models"]["rows"][0]["own_ms"] == 1
    assert "PyTorch: none" in data["left_out"] and "own_ahead" not in data["tables"]["models"]["rows"][0]


@pytest.mark.bad_input
@pytest.mark.parametrize("words,message", [([], "--out: expected"), (["--out", "x", "--bundle", "/nowhere"], "no file or folder /nowhere"),
                                           (["--out", "x", "--parts", "all"], "invalid choice")])
def test_bad_options(words, message, capsys):
    with pytest.raises(SystemExit) as exit_:
        gpu_record.main(words)
    assert exit_.value.code == 2 and message in capsys.readouterr().err


def test_names_of_devices():
    assert record_parts.slug("NVIDIA H200") == "h200" and record_parts.slug("AMD Radeon RX 7900 XTX") == "radeon_rx_7900_xtx"


def test_clocks_from_files(tmp_path):
    sensors = tmp_path / "sys/class/hwmon/hwmon3"
    (sensors / "device").mkdir(parents=True)
    for name, text in {"name": "amdgpu", "freq1_input": "2304000000", "power1_input": "250000000", "device/pp_dpm_sclk": "0: 500Mhz\n1: 2482Mhz *"}.items():
        (sensors / name).write_text(text + "\n")
    meter = clocks.Amdgpu(tmp_path)
    assert meter.read() == {"core_mhz": 2304.0, "memory_mhz": None, "watts": 250.0, "celsius": None} and meter.core_max_mhz() == 2482
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("cpu MHz : 2394.3\ncpu MHz : 2600.5\n")
    assert clocks.Cpu(tmp_path).read() == {"core_mhz": 2600.5}
    with clocks.ClockLog(meter, 0.001) as log:
        time.sleep(0.05)
    assert log.summary() == {"source": "amdgpu", "core_mhz": {"min": 2304, "median": 2304, "max": 2304}, "core_max_mhz": 2482, "watts_max": 250}
    assert clocks.ClockLog(None).summary() is None


@pytest.mark.parametrize("end,why", [("os.kill(os.getpid(), 9)", "ended with exit code -9: no message"), ("time.sleep(60)", "no answer within 1 s"),
                                     ("sys.exit('out of memory')", "ended with exit code 1: out of memory")])
def test_how_a_peer_ended(tmp_path, monkeypatch, end, why):
    """A driver that kills the process is no limit of time."""
    text = ("import json, os, sys, time\nprint(json.dumps(dict(ready='eager', ms=1.0)))\nprint(json.dumps(dict(prepared=True)), flush=True)\n"
            f"sys.stdin.readline()\n{end}\n")
    (tmp_path / "peer.py").write_text(text)
    monkeypatch.setattr(peer_process, "PEER", tmp_path / "peer.py")
    peer = peer_process.PeerProcess("tiny-unet:64x64:1", ["eager"], tmp_path, "cpu", "f32", 10, dict(os.environ))
    while not peer.prepared:
        peer.poll()
        time.sleep(0.01)
    assert peer.measure("eager", 3, 1.0 if "sleep" in end else 30.0) is None and peer.failures == {"eager": why}


def test_a_peer_measures_what_it_prepared(tmp_path, monkeypatch, capsys):
    import torch_peer

    monkeypatch.setattr(sys, "stdin", io.StringIO("eager 2\nchannels_last 3\noptimized 1\n"))
    monkeypatch.setattr(sys, "argv", ["torch_peer.py", "tiny-unet:64x64:1", "--implementations", "eager,channels_last", "--device", "cpu", "--dtype",
                                      "f32", "--reference", str(tmp_path / "eager.pt")])
    assert torch_peer.main() == 0
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert [m.get("ready") for m in said[:2]] == ["eager", "channels_last"] and said[2] == {"prepared": True}
    assert said[1]["psnr"] > 90 and len(said[3]["waited_ms"]) == 2 and len(said[4]["waited_ms"]) == 3 and said[4]["in_turn_ms"] > 0
    assert said[5] == {"failed": "optimized", "why": "not prepared"}
    assert os.path.getsize(tmp_path / "eager.pt") > 64 * 64 * 4 * 2 / 64


@pytest.mark.bad_input
def test_a_peer_refuses_other_works(capsys):
    import torch_peer

    for work in ("sd15-unet", "sd99-unet:512x512:1", "vae:512:1"):
        with pytest.raises(SystemExit, match="expected MODEL"):
            torch_peer.parse_work(work)
