"""benchmarks/mlperf_harness.py: on the real LoadGen, and its parts."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import mlperf_loadgen as lg
import numpy as np
import pytest

import mlperf_harness as harness


def test_captions(tmp_path):
    tsv = tmp_path / "captions.tsv"
    tsv.write_text("id\timage_id\tcaption\n11\t5\tA cat, asleep.\n12\t6\tTwo \"dogs\"\n")
    assert harness.read_captions(tsv)[0] == ("11", "A cat, asleep.")
    lines = tmp_path / "prompts.txt"
    lines.write_text("# comment\n\nfirst\nsecond\n")
    assert harness.read_captions(lines) == [("00000", "first"), ("00001", "second")]
    assert len(harness.read_captions(harness.FOLDER / "mlperf_prompts.txt")) == 12
    tsv.write_text("id\ttext\n1\tx\n")
    with pytest.raises(SystemExit, match="caption"):
        harness.read_captions(tsv)
    lines.write_text("# nothing\n")
    with pytest.raises(SystemExit, match="no prompts"):
        harness.read_captions(lines)


def arguments(out: Path, **more) -> argparse.Namespace:
    args = harness.parse(["--library", "x", "--model", "y", "--out", str(out), "--least-seconds", "0.1"])
    for name, value in more.items():
        setattr(args, name, value)
    return args


@pytest.mark.parametrize("scenario", harness.SCENARIOS)
def test_loadgen_runs_and_judges(scenario, tmp_path):
    captions = [(str(i), f"prompt {i}") for i in range(5)]
    drawn = []

    def draw(prompt: str) -> np.ndarray:
        drawn.append(prompt)
        return np.full((4, 4, 3), len(drawn) % 256, np.uint8)

    summary = harness.run(lg, arguments(tmp_path, scenario=scenario, queries=20, rate=200.0), draw, captions)
    assert summary["queries"] == len(drawn) >= 20 and set(drawn) <= {c for _, c in captions}
    assert summary["loadgen"]["Result is"] in ("VALID", "INVALID")
    assert json.loads((tmp_path / "summary.json").read_text()) == summary
    assert (tmp_path / "mlperf_log_detail.txt").exists()


def test_accuracy_draws_each_prompt_once(tmp_path):
    captions = [(f"id{i}", f"prompt {i}") for i in range(6)]
    drawn = []

    def draw(prompt: str) -> np.ndarray:
        drawn.append(prompt)
        return np.zeros((4, 4, 3), np.uint8)

    harness.run(lg, arguments(tmp_path, mode="accuracy"), draw, captions)
    assert sorted(drawn) == [c for _, c in captions]
    assert sorted(p.stem for p in (tmp_path / "pictures").iterdir()) == [name for name, _ in captions]


def test_a_failure_ends_the_run_and_is_told(tmp_path):

    def draw(prompt: str) -> np.ndarray:
        raise ValueError("the device is gone")

    with pytest.raises(ValueError, match="the device is gone"):
        harness.run(lg, arguments(tmp_path, queries=3), draw, [("0", "a")])


def test_draws_through_the_c_interface(build_dir, tiny_model):
    """The engine that the harness drives: rules' noise and options, errors with their sentence."""
    from engine import Engine, EngineError

    library = build_dir / "librocm_sd.so"
    if not library.exists():
        pytest.skip("this build has no librocm_sd.so")
    with Engine(library, model=tiny_model("sd15"), device="cpu", dtype="f32") as engine:
        request = dict(negative_prompt=harness.NEGATIVE, width=64, height=64, steps=2, cfg_scale=8.0, sampler="euler", seed=0,
                       rng="cpu", plain_prompt="true")
        first = engine.draw(prompt="a", **request)[0]
        assert first.shape == (64, 64, 3) and first.std() > 1
        assert (engine.draw(prompt="a", **request)[0] == first).all()
        assert (engine.draw(prompt="b", **request)[0] != first).any()
        both = engine.draw(prompt="a", batch=2, **request)
        assert len(both) == 2 and both[0].shape == both[1].shape and abs(both[0].astype(int) - first).max() <= 1
        second = engine.draw(prompt="a", **(request | dict(seed=1)))[0]
        assert abs(both[1].astype(int) - second).max() <= 1
        with pytest.raises(EngineError, match="colour"):
            engine.draw(prompt="a", colour="red")
    with pytest.raises(EngineError) as failed:
        Engine(library, model="/nowhere")
    assert failed.value.status == 3
