"""The command line as a user meets it: outputs, metadata, progress, cancelling."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess

import pytest
from PIL import Image

from pictures import psnr, read_parameters, read_picture

FAST = ["--steps", "2", "-W", "64", "-H", "64", "--seed", "1"]


@pytest.fixture(scope="module")
def model(tiny_model):
    return tiny_model("sd15")


def test_writes_a_picture_with_a111s_parameters(rocm_sd, model, tmp_path):
    done = rocm_sd("generate", "--model", model, "--prompt", "a cat, \U0001f431", "--negative-prompt", "dog", *FAST, "--sampler",
                   "Euler a", "-o", tmp_path / "a.png")
    assert done.stdout.strip() == str(tmp_path / "a.png")
    text = read_parameters(tmp_path / "a.png")
    lines = text.split("\n")
    assert lines[0] == "a cat, \U0001f431" and lines[1] == "Negative prompt: dog"
    assert re.match(r"Steps: 2, Sampler: Euler a, Schedule type: \w.*, CFG scale: 7, Seed: 1, Size: 64x64, Model: ", lines[2])
    assert "Version: rocm-sd" in lines[2]
    assert rocm_sd("params", tmp_path / "a.png").stdout.rstrip("\n") == text


def test_converts_there_and_back(rocm_sd, model, tmp_path):
    """A single file has no place for a model's own vocabulary: both ways say so, and --vocabulary mends it."""
    single, back = tmp_path / "one.safetensors", tmp_path / "back"
    assert "--vocabulary" in rocm_sd("convert", model, single).stderr
    types = [json.loads(rocm_sd("inspect", path, "--json").stdout)["type"] for path in (single, model)]
    assert types == ["sd1", "sd1"]
    assert re.search(r"the vocabulary has 49408 tokens.*--vocabulary", rocm_sd("convert", single, back).stderr)
    assert not (back / "tokenizer").exists()
    rocm_sd("convert", single, back, "--overwrite", "--vocabulary", model / "tokenizer")
    for name, folder in ("a", model), ("b", back):
        rocm_sd("generate", "--model", folder, "--prompt", "a cat", *FAST, "--no-metadata", "-o", tmp_path / f"{name}.png")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_names_a_single_file_by_its_hash(rocm_sd, model, tiny_model, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    single = tiny_model("sd15", layout="single")
    rocm_sd("generate", "--model", single, *FAST, "-o", tmp_path / "a.png")
    digest = hashlib.sha256(single.read_bytes()).hexdigest()
    assert f", Size: 64x64, Model hash: {digest[:10]}, Model: {single.stem}, " in read_parameters(tmp_path / "a.png")
    assert digest in (tmp_path / "cache" / "rocm-sd" / "hashes.json").read_text()


def test_formats_patterns_and_batches(rocm_sd, model, tmp_path):
    rocm_sd("generate", "--model", model, *FAST, "--batch", 2, "--repeat", 2, "-o", tmp_path / "{index:03}-{seed}.webp")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["001-1.webp", "002-2.webp", "003-3.webp", "004-4.webp"]
    rocm_sd("generate", "--model", model, *FAST, "-o", tmp_path / "a.jpg", "--no-metadata")
    assert "exif" not in Image.open(tmp_path / "a.jpg").info
    rocm_sd("generate", "--model", model, *FAST, "-o", tmp_path / "b.jpg")
    assert "Seed: 1" in read_parameters(tmp_path / "b.jpg")
    assert psnr(read_picture(tmp_path / "a.jpg"), read_picture(tmp_path / "b.jpg")) == float("inf")


def test_memory_plan_comes_first_and_holds(rocm_sd, model, tmp_path):
    done = rocm_sd("generate", "--model", model, *FAST, "-o", tmp_path / "a.png")
    plan = re.search(r"memory plan: [\d.]+ GB = weights .* arena ([\d.]+) GB", done.stderr)
    used = re.search(r"arena used: ([\d.]+) GB of ([\d.]+) GB planned", done.stderr)
    assert plan and used and done.stderr.index("memory plan") < done.stderr.index("sample:")
    assert float(used[1]) >= 0.98 * float(plan[1]) and float(used[1]) <= float(plan[1])


def test_progress_styles(rocm_sd, model, tmp_path):
    plain = rocm_sd("generate", "--model", model, *FAST, "-o", tmp_path / "a.png").stderr
    assert re.search(r"sample: 100%\|#{10}\| 2/2 \[00:0\d<00:00, .*(it/s|s/it)\]", plain)
    assert plain.count("sample:") == 1 and "decode:" not in plain  # no terminal: a line per picture, not per step
    steps = rocm_sd("generate", "--model", model, *FAST, "-o", tmp_path / "a.png", "--progress", "plain").stderr
    assert steps.count("sample:") >= 2
    lines = rocm_sd("generate", "--model", model, *FAST, "-o", tmp_path / "a.png", "--progress", "json", "--quiet").stderr
    assert lines == "", "--quiet prints file names only"
    lines = rocm_sd("generate", "--model", model, *FAST, "-o", tmp_path / "a.png", "--progress", "json").stderr.splitlines()
    steps = [json.loads(line) for line in lines if line.startswith("{")]
    assert [s["step"] for s in steps if s["stage"] == "sample"] == [1, 2]


def test_profile_and_trace(rocm_sd, model, tmp_path):
    done = rocm_sd("generate", "--model", model, *FAST, "-o", tmp_path / "a.png", "--profile", "--trace", tmp_path / "t.json")
    assert re.search(r"^conv2d +\d+ ", done.stderr, re.M) and re.search(r"^attention +\d+ ", done.stderr, re.M)
    names = {e["name"] for e in json.loads((tmp_path / "t.json").read_text())["traceEvents"]}
    assert {"conv2d", "linear", "attention", "group_norm"} <= names


def test_sheet(rocm_sd, model, tmp_path):
    (tmp_path / "prompts.txt").write_text("one\n# a comment\ntwo\nthree\n")
    rocm_sd("generate", "--model", model, *FAST, "--prompts-file", tmp_path / "prompts.txt", "--grid", "2x2", "--grid-labels", "-o",
            tmp_path / "sheet.png")
    sheet = read_picture(tmp_path / "sheet.png")
    assert sheet.shape[1] == 2 * 72 and sheet.shape[0] > 2 * 72


def test_config_file(rocm_sd, model, tmp_path):
    (tmp_path / "config.toml").write_text(f'model = "{model}"\nsteps = 2\nwidth = 64\nheight = 64\nseed = 9\n')
    rocm_sd("generate", "--config", tmp_path / "config.toml", "-o", tmp_path / "a.png")
    assert "Seed: 9" in read_parameters(tmp_path / "a.png")
    (tmp_path / "config.toml").write_text("no_such_option = 3\n")
    assert "no-such-option" in rocm_sd("generate", "--config", tmp_path / "config.toml", "--model", model, code=2).stderr


def test_ctrl_c_stops_within_a_step(rocm_sd, model, tmp_path):
    process = rocm_sd.started(model, tmp_path, "sample")
    process.send_signal(signal.SIGINT)
    rest = process.stderr.read()
    assert process.wait(timeout=30) == 6
    assert "cancelled" in rest
    assert list(tmp_path.iterdir()) == [], "a cancelled run leaves no file"


def test_devices(rocm_sd, model, tmp_path):
    lines = rocm_sd("devices").stdout.splitlines()
    assert re.match(r"cpu +host: .*threads", lines[0])
    for line in lines[1:]:
        assert re.match(r"((hip|cuda)(:\d+)?|emu:gfx\w+) +\S", line)
    rocm_sd("generate", "--model", model, *FAST, "--device", "cpu", "-o", tmp_path / "a.png")
    assert "Device: \"host: " in read_parameters(tmp_path / "a.png") or "Device: host" in read_parameters(tmp_path / "a.png")


def test_doctor(rocm_sd, tmp_path):
    assert "device      cpu" in rocm_sd("doctor").stdout
    card = tmp_path / "sys/bus/pci/devices/0000:03:00.0"
    card.mkdir(parents=True)
    for name, text in {"class": "0x030000", "vendor": "0x1002", "device": "0x744c"}.items():
        (card / name).write_text(text + "\n")
    report = json.loads(rocm_sd("doctor", "--json", "--root", str(tmp_path)).stdout)
    assert [c["device"] for c in report["cards"]] == [0x744C]
    problem = next(f for f in report["findings"] if f["subject"] == "0000:03:00.0")
    assert problem["severity"] == "problem" and "no driver" in problem["what"] and "modprobe" in problem["fix"]


def test_doctor_links(rocm_sd, tmp_path):
    for bus in ("03", "43"):
        card = tmp_path / "sys/devices/pci0000:00/0000:00:01.1" / f"0000:{bus}:00.0"
        card.mkdir(parents=True)
        for name, text in {"class": "0x030000", "vendor": "0x1002", "device": "0x744c", "numa_node": "0"}.items():
            (card / name).write_text(text + "\n")
        (tmp_path / "sys/bus/pci/devices").mkdir(parents=True, exist_ok=True)
        (tmp_path / "sys/bus/pci/devices" / card.name).symlink_to(card)
    report = json.loads(rocm_sd("doctor", "--links", "--json", "--root", str(tmp_path), "--devices", "cpu,cpu").stdout)
    assert [pair["meets"] for pair in report["pairs"]] == ["at the port 0000:00:01.1"]
    test, = report["tests"]
    assert (test["from"], test["to"], test["problem"]) == ("cpu", "cpu", "")
    assert 0 < test["microseconds"] < 1e6 and test["bytes_per_second"] > 1e6
    text = rocm_sd("doctor", "--links", "--root", str(tmp_path)).stdout
    assert "they meet at the port 0000:00:01.1; peer access ?" in text and "measured    nothing" in text
    assert "--devices needs --links" in rocm_sd("doctor", "--devices", "cpu", code=2).stderr


def test_predict(rocm_sd, tmp_path):
    bad = rocm_sd("predict", "--gpu", "RX 7900 XTZ", code=2)
    assert "RX 7900 XTX?" in bad.stderr
    gpu = {"name": "mine", "arch": "gfx803", "compute_units": 9, "gigahertz": 1, "memory_gb": 8, "bandwidth_gb_per_s": 99}
    (tmp_path / "gpu.json").write_text(json.dumps(gpu))
    assert "gfx803" in rocm_sd("predict", "--gpu-file", str(tmp_path / "gpu.json"), code=2).stderr
    (tmp_path / "gpu.json").write_text('{"name": 3}')
    assert "name" in rocm_sd("predict", "--gpu-file", str(tmp_path / "gpu.json"), code=3).stderr
    # --help's own example is right.
    shown = re.search(r"\{.*?\}", " ".join(rocm_sd("predict", "--help").stdout.split())).group(0)
    (tmp_path / "gpu.json").write_text(shown)
    (tmp_path / "none").mkdir()
    named = rocm_sd("predict", "--gpu-file", str(tmp_path / "gpu.json"), code=4, env={"ROCM_SD_KERNELS": str(tmp_path / "none")})
    assert "mine" in named.stderr and "kernels_gfx1100.rsk" in named.stderr


def test_predict_of_several_gpus(rocm_sd):
    def refused(*options: str) -> str:
        return rocm_sd("predict", "--gpu", "RX 7900 XTX", *options, code=2).stderr

    assert "--link pcie3" in refused("--gpus", "2")
    assert "pcie9" in refused("--gpus", "2", "--link", "pcie9")
    assert "--gpus" in refused("--link", "pcie4")
    assert "pairs of devices" in refused("--gpus", "3", "--link", "pcie4", "--split", "guidance")
    assert "1024x768" in refused("--gpus", "2", "--link", "pcie4", "--size", "1024")
    assert "--way" in refused("--gpus", "2", "--link", "pcie4", "--way", "mail")
    assert "one card's name" in rocm_sd("predict", "--gpus", "2", "--link", "pcie4", code=2).stderr


def test_predict_leaves_out_what_has_no_kernels(rocm_sd, build_dir, tmp_path):
    assert "kernels for no GPU" in rocm_sd("predict", code=4, env={"ROCM_SD_KERNELS": str(tmp_path)}).stderr
    (tmp_path / "kernels_gfx1100.rsk").symlink_to(build_dir / "lib" / "kernels_gfx1100.rsk")
    done = rocm_sd("predict", env={"ROCM_SD_KERNELS": str(tmp_path)})
    assert "RX 7900 XTX" in done.stdout and "RX 7600" in done.stdout and "MI300X" not in done.stdout
    assert "left out" in done.stderr and "MI300X" in done.stderr and "RX 9070 XT" in done.stderr


def test_budget_and_offload_draw_the_same_picture(rocm_sd, model, tmp_path):
    args = ["generate", "--model", model, "--device", "cpu", "--dtype", "f32", "--steps", "1", "-W", "512", "-H", "512", "--seed", "1"]
    plain = rocm_sd(*args, "-o", tmp_path / "a.png").stderr
    plan = re.search(r"memory plan: ([\d.]+) GB = weights ([\d.]+) GB \+ arena ([\d.]+) GB", plain)
    assert re.search(r"device memory: [\d.]+ GB at most, [\d.]+ GB planned", plain)
    budget = int((float(plan[1]) - 0.3 * float(plan[3])) * 1e9)
    banded = rocm_sd(*args, "--vram-budget", budget, "-o", tmp_path / "b.png").stderr
    assert re.search(r"the VAE works in \d+ bands", banded)
    assert psnr(read_picture(tmp_path / "a.png"), read_picture(tmp_path / "b.png")) >= 60
    rocm_sd(*args, "--offload", "-o", tmp_path / "c.png")
    assert (read_picture(tmp_path / "a.png") == read_picture(tmp_path / "c.png")).all()
    assert "budget" in rocm_sd(*args, "--vram-budget", "1M", "-o", tmp_path / "d.png", code=5).stderr


def test_lists(rocm_sd):
    samplers = rocm_sd("list", "samplers").stdout
    assert "DPM++ 2M" in samplers and "euler_a" in samplers
    assert "karras" in rocm_sd("list", "schedules").stdout
    assert re.match(r"\d+\.\d+\.\d+", rocm_sd("--version").stdout)
    assert "--cfg-scale" in rocm_sd("generate", "--help").stdout


def test_markup_plain_terminal_and_closed_streams(rocm_sd, model, tmp_path):
    prompt = "<script>alert('1')</script> &lt;b&gt;"  # locale_test.cpp draws under a decimal comma
    rocm_sd("generate", "--model", model, *FAST, "--prompt", prompt, "--cfg-scale", "7.5", "-o", tmp_path / "a.png",
            env={"LC_ALL": "C", "TERM": "dumb"})
    assert "CFG scale: 7.5" in read_parameters(tmp_path / "a.png") and read_parameters(tmp_path / "a.png").startswith(prompt + "\n")
    done = subprocess.run(f"'{rocm_sd.path}' list samplers | head -1", shell=True, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == ""


def test_two_runs_at_once(rocm_sd, model, tmp_path):
    command = [str(rocm_sd.path), "generate", "--model", str(model), *FAST, "-o", str(tmp_path / "same.png")]
    runs = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(3)]
    assert [run.wait(timeout=120) for run in runs] == [0, 0, 0]
    assert read_picture(tmp_path / "same.png").shape == (64, 64, 3)


def test_unknown_options_are_listed_in_their_order(rocm_sd):
    assert "not expected: --first 1 --second=2 third\n" in rocm_sd("generate", "--first", "1", "--second=2", "third", code=2).stderr


@pytest.mark.parametrize("no_color, coloured", [(None, True), ("", True), ("1", False)])
def test_no_color_leaves_messages_plain(rocm_sd, model, tmp_path, no_color, coloured):
    ours, terminal = os.openpty()
    env = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | {"TERM": "xterm-256color", "ROCM_SD_LOG": "dispatch"}
    if no_color is not None:
        env["NO_COLOR"] = no_color
    process = subprocess.Popen([str(rocm_sd.path), "generate", "--model", str(model), "--prompt", "x", *FAST, "-q", "-o",
                                str(tmp_path / "a.png")], stderr=terminal, stdout=subprocess.DEVNULL, env=env)
    os.close(terminal)
    written = b""
    while True:
        try:
            part = os.read(ours, 1 << 16)
        except OSError:  # Linux: the other end is closed
            break
        written += part
    os.close(ours)
    assert process.wait() == 0 and b"dispatch: " in written
    assert (b"\x1b[" in written) == coloured, written[:500]
