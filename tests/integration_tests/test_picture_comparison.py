"""benchmarks/picture_comparison.py on the demo model: everything draws the same picture, the report holds what was measured; other
programs by stand-ins with their command lines and answers."""

from __future__ import annotations

import json
import os
import sys

import pytest
from torch_ops import load_package

import comparison_report as reports

pytestmark = pytest.mark.in_python

FAKE_SD_CPP = '''#!{python}
import sys
from PIL import Image
words = sys.argv[1:]
value = lambda name: words[words.index(name) + 1]
assert value("--rng") == "cpu" and value("--sampling-method") == "euler" and value("--prediction") == "v", words
Image.open({picture!r}).resize((int(value("-W")), int(value("-H")))).save(value("-o"))
print("[INFO ] stable-diffusion.cpp:1: generate_image completed in 12.5s")
'''

FAKE_COMFYUI = '''
import http.server, json, sys
port = int(sys.argv[sys.argv.index("--port") + 1])
seeds = []
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *words): pass
    def answer(self, data, kind="application/json"):
        self.send_response(200); self.send_header("Content-Type", kind); self.send_header("Content-Length", str(len(data)))
        self.end_headers(); self.wfile.write(data)
    def do_POST(self):
        graph = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["prompt"]
        assert graph["sample"]["inputs"]["sampler_name"] == "euler" and graph["sample"]["inputs"]["scheduler"] == "normal"
        seeds.append(graph["sample"]["inputs"]["seed"])
        assert len(set(seeds)) == len(seeds), "a cached result"
        self.answer(json.dumps({{"prompt_id": str(len(seeds))}}).encode())
    def do_GET(self):
        if self.path.startswith("/view"):
            return self.answer(open({picture!r}, "rb").read(), "image/png")
        if self.path.startswith("/history"):
            done = {{"status": {{"status_str": "success"}}, "outputs": {{"save": {{"images": [{{"filename": "a.png", "subfolder": "", "type": "output"}}]}}}}}}
            return self.answer(json.dumps({{self.path.rsplit("/", 1)[1]: done}}).encode())
        self.answer(b"{{}}")
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
'''


@pytest.fixture(scope="module")
def example(build_dir, repository):
    """The program as a module, over the tested build."""
    os.environ["ROCM_SD_LIBRARY"] = str(build_dir / "librocm_sd.so")
    load_package(build_dir)  # fails where the operators were not built
    import picture_comparison

    return picture_comparison


@pytest.fixture
def run(example, monkeypatch, capsys):
    def call(*words) -> str:
        monkeypatch.setattr(sys, "argv", ["picture_comparison.py", "--device", "cpu", *map(str, words)])
        example.main()
        return capsys.readouterr().out

    return call


def test_the_demo_model(run, tmp_path):
    out = tmp_path / "report"
    first = run("--steps", 2, "--rounds", 1, "--size", 64, "--programs", "diffusers", "--out", tmp_path / "one")
    picture = tmp_path / "one" / "pictures" / "Diffusers.png"
    assert "| Diffusers | f32 |" in first and picture.is_file()

    checkpoint, fake, comfyui = tmp_path / "demo.safetensors", tmp_path / "sd-cli", tmp_path / "ComfyUI"
    checkpoint.write_bytes(b"")
    fake.write_text(FAKE_SD_CPP.format(python=sys.executable, picture=str(picture)))
    fake.chmod(0o755)
    comfyui.mkdir()
    (comfyui / "main.py").write_text(FAKE_COMFYUI.format(picture=str(picture)))
    done = run("--steps", 2, "--rounds", 2, "--size", 64, "--out", out, "--checkpoint", checkpoint, "--sd-cpp", fake, "--sd-cpp-args",
               "--prediction v", "--comfyui", comfyui)
    report = json.loads((out / "comparison.json").read_text())
    programs = {p["name"]: p for p in report["programs"]}
    assert list(programs) == ["Diffusers", "Diffusers, channels_last", "Diffusers, optimize_sd_model", "C++ engine", "stable-diffusion.cpp", "ComfyUI"]
    assert report["left_out"] == [] and report["rounds"] == 2 and report["width"] == 64 and report["commit"]
    for name, program in programs.items():
        assert len(program["seconds"]) == 2 and all(s > 0 for s in program["seconds"]), name
        assert program["steps_per_second"] == pytest.approx(2 / program["median"])
        assert program["psnr_db"] is None or program["psnr_db"] > 60, name  # None: equal
    assert programs["stable-diffusion.cpp"]["seconds"] == [12.5, 12.5]
    tables, plots = reports.record_tables(report)
    rows = {row["program"]: row for row in tables["programs"]["rows"]}
    assert rows["stable-diffusion.cpp"]["ratio"] == pytest.approx(programs["Diffusers"]["median"] / 12.5) and plots["seconds"]["value"] == "seconds"
    text = (out / "comparison.md").read_text()
    assert "PSNR is to Diffusers' in float32" in text and "No figure of RTX 4090" in text and text.splitlines()[0] in done
    assert (out / "seconds.svg").read_text().startswith("<svg") and len(list((out / "pictures").iterdir())) == 7


def test_one_that_fails_is_left_out_and_named(run, tmp_path):
    broken, checkpoint = tmp_path / "sd-cli", tmp_path / "a.safetensors"
    checkpoint.write_bytes(b"")
    broken.write_text("#!/bin/sh\necho no such option\nexit 1\n")
    broken.chmod(0o755)
    done = run("--steps", 1, "--rounds", 1, "--size", 64, "--programs", "engine", "--checkpoint", checkpoint, "--sd-cpp", broken,
               "--out", tmp_path / "out")
    report = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert [p["name"] for p in report["programs"]] == ["C++ engine"] and report["left_out"][0].startswith("sd.cpp: ")
    assert "Left out: sd.cpp" in done


@pytest.mark.bad_input
@pytest.mark.parametrize("words,message", [
    (["--programs", "magic"], "expected diffusers"), (["--baseline", "RTX 9999"], "figures are there of"),
    (["--rounds", "0"], "1 or more"), (["--sd-cpp", "/nowhere"], "need --checkpoint"),
    (["--comfyui", "/nowhere", "--checkpoint", "/nowhere"], "no file")])
def test_bad_options(example, words, message, capsys):
    with pytest.raises(SystemExit) as exit_:
        example.parse(words)
    assert exit_.value.code == 2 and message in capsys.readouterr().err


def test_published_figures_are_whole():
    figures = reports.published_figures()
    assert len(figures) >= 30 and {"RTX 4090", "RX 7900 XTX", "H100"} <= {f["gpu"] for f in figures}
    for figure in figures:
        assert figure["url"].startswith("https://") and figure["date"] >= "2022" and figure["value"] > 0
        assert figure["measures"] in ("loop", "whole", "gemm", "attention") and figure["accumulate"] in ("fp16", "fp32", "unknown")
        assert figure["precision"] and figure["software"] and figure["work"]


def test_percentages():
    figures = [{"gpu": "A", "work": "sd15 512x512", "measures": "loop", "value": 50.0}, {"gpu": "A", "work": "gemm", "measures": "gemm", "value": 9},
               {"gpu": "B", "work": "sd15 512x512", "measures": "loop", "value": 10.0}]
    summary = reports.summarise([2.0, 1.0, 4.0], 100)
    assert summary["median"] == 2 and summary["spread"] == 1.5
    found = reports.percentages([{"name": "ours"} | summary], "sd15 512x512", "A", figures)
    assert [(p["program"], p["percent"]) for p in found] == [("ours", 100.0)]
    program = {"name": "ours", "dtype": "f16", "psnr_db": float("inf")} | summary
    report = {"command": "c", "device": "d", "system": "s", "commit": "x", "model": "m", "work": "sd15 512x512", "width": 512, "height": 512,
              "steps": 100, "guidance": 7, "rounds": 3, "reference": "r", "programs": [program], "baseline": "A", "left_out": [],
              "published": [p | {"figure": p["figure"] | {"software": "S", "precision": "fp16", "accumulate": "fp32", "title": "T", "url": "U", "date": "D"}}
                            for p in found]}
    text = reports.markdown(report)
    assert "| ours | f16 | 2 | 150% | 50 | 1.00x | equal |" in text and "| ours | 100% | S | 50.0 | loop | fp16, fp32 | [T](U), D |" in text
    assert reports.finite(report)["programs"][0]["psnr_db"] is None
