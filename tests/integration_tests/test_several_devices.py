"""Several devices from the command line and from Python: the files and bytes of one device, in the same order."""

from __future__ import annotations

import json
from pathlib import Path

import numpy
import pytest
from pictures import read_parameters, read_picture
from test_engine_python import engine  # noqa: F401

SMALL = ("--steps", "2", "-W", "64", "-H", "64", "--dtype", "f32", "--seed", "5")


def draw(rocm_sd, model, folder: Path, *options, code: int = 0):
    folder.mkdir(exist_ok=True)
    return rocm_sd("generate", "--model", model, *SMALL, "-o", folder / "{index:03}-{seed}.png", *options, code=code)


@pytest.fixture
def model(repository):
    return repository / "models" / "demo"


def test_files_are_those_of_one_device(rocm_sd, model, tmp_path):
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("a red apple\na blue car\na smiling cat\n")
    what = ("--prompts-file", prompts, "--repeat", "3", "--batch", "2", "-n", "a cup", "--no-receipt")
    one = draw(rocm_sd, model, tmp_path / "one", *what, "--device", "cpu")
    for devices in ("cpu,cpu", "cpu,cpu,cpu"):
        folder = tmp_path / devices
        several = draw(rocm_sd, model, folder, *what, "--devices", devices)
        names = [Path(line).name for line in several.stdout.splitlines()]
        assert names == [Path(line).name for line in one.stdout.splitlines()], "in the same order"
        assert len(names) == 18
        for name in names:
            assert (folder / name).read_bytes() == (tmp_path / "one" / name).read_bytes(), name
        assert several.stderr.count("device: cpu: host") == len(devices.split(","))


@pytest.mark.parametrize("more", [(), ("--token-merge", "0.5", "--dtype", "f32")])
def test_a_pair_draws_one_image(rocm_sd, model, tmp_path, more):
    draw(rocm_sd, model, tmp_path / "one", "--prompt", "a red apple", *more)
    done = draw(rocm_sd, model, tmp_path / "pair", "--prompt", "a red apple", "--devices", "cpu,cpu", "--split", "guidance",
                "--progress", "json", *more)
    one, pair = tmp_path / "one" / "001-5.png", tmp_path / "pair" / "001-5.png"
    assert read_parameters(one) == read_parameters(pair)
    assert numpy.abs(read_picture(one).astype(int) - read_picture(pair).astype(int)).max() <= 1
    steps = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    assert {step["device"] for step in steps if step["stage"] == "sample"} == {"cpu+cpu"}
    assert [step["step"] for step in steps if step["stage"] == "sample"] == [1, 2], "one rank reports"


def test_grids_and_plans(rocm_sd, model, tmp_path):
    for folder, devices in (("one", ()), ("two", ("--devices", "cpu,cpu"))):
        draw(rocm_sd, model, tmp_path / folder, "--prompt", "a cat", "--repeat", "4", "--grid", "2x2", *devices)
    assert (tmp_path / "one" / "001-0.png").read_bytes() == (tmp_path / "two" / "001-0.png").read_bytes()
    plan = draw(rocm_sd, model, tmp_path / "plan", "--prompt", "a cat", "--devices", "cpu,cpu", "--plan").stderr
    assert plan.count("memory plan of cpu:") == 2
    assert not list((tmp_path / "plan").iterdir())


@pytest.mark.parametrize("options, message", [
    (("--devices", "cpu,,cpu"), "expected all, or names with commas"),
    (("--devices", "cpu,nothing"), "expected cpu, auto, hip"),
    (("--devices", "cpu", "--device", "cpu"), "device, devices: expected one of them"),
    (("--devices", "cpu,cpu", "--split", "patches"), "split: expected images, guidance, rows, guidance-rows"),
    (("--devices", "cpu", "--split", "guidance"), "expected pairs of devices"),
    (("--split", "guidance"), "expected pairs of devices"),
    (("--devices", "cpu,cpu", "--split", "guidance", "--cfg-scale", "1"), "expected guidance, or --split images"),
    *((("--devices", "cpu,cpu", "--split", split, "--token-merge", "0.5"), "token-merge: on several devices with --split guidance or images")
      for split in ("tensor", "rows", "pipeline")),
    (("--devices", "cpu,cpu", "--profile"), "profile: with --device"),
    (("--devices", "ranks:cpu", "--trace", "t.json"), "trace: not with --devices ranks"),
    (("--devices", "cpu,cpu", "--tune", "1"), "tune: with --device"),
])
def test_refusals(rocm_sd, model, tmp_path, options, message):
    assert message in draw(rocm_sd, model, tmp_path, "--prompt", "a cat", *options, code=2).stderr
    assert not list(tmp_path.glob("*.png"))


def calls(count: int):
    return ({"prompt": f"a cat number {i}", "width": 64, "height": 64, "num_inference_steps": 2, "seed": i, "output_type": "np"}
            for i in range(count))


def test_python_draws_on_all(engine, model):  # noqa: F811
    alone = engine.ROCmOptimizedPipeline(model, device="cpu", dtype="f32")
    want = [alone(**arguments).images for arguments in calls(5)]
    with engine.ROCmOptimizedPipeline(model, devices="cpu,cpu", dtype="f32") as pipe:
        got = [output.images for output in pipe.draw_each(calls(5))]
        assert len(got) == 5 and all((a == b).all() for a, b in zip(got, want))
        assert next(pipe.draw_each(calls(9))).images.shape == (1, 64, 64, 3), "the others are cancelled"
        with pytest.raises(engine.EngineError, match="sampler"):
            list(pipe.draw_each([{"prompt": "a", "sampler": "none such"}] * 3))
        seen = []

        def again(stage, *_):
            seen.append(stage)
            pipe("another", num_inference_steps=1)

        with pytest.raises(engine.EngineError, match="a callback can only cancel"):
            pipe(**next(calls(1)), callback=again)
        assert (pipe(**next(calls(1))).images == want[0]).all()
    pair = engine.ROCmOptimizedPipeline(model, devices="cpu,cpu", split="guidance", dtype="f32")
    with pytest.raises(engine.EngineError, match="a callback can only cancel"):
        pair(**next(calls(1)), callback=lambda *_: pair("another"))
    assert numpy.abs(pair(**next(calls(1))).images.astype(int) - want[0].astype(int)).max() <= 1
