"""benchmarks/fit_costs.py finds the relative costs that made the times, and keeps what nothing was timed of."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import fit_costs  # noqa: E402

ESTIMATES = {"a": ("waves", 10.0), "b": ("tma", 8.0), "c": ("tma", 9.0), "d": ("wgmma", 12.0)}


def candidates(scale):
    return [{"choice": c, "cost_name": name, "cost": cost * scale} for c, (name, cost) in ESTIMATES.items()]


def test_the_costs_that_made_the_times_are_found():
    # What a unit of the estimate really takes, by cost; microseconds of each problem.
    truth = {"waves": 3e-6, "tma": 4.5e-6, "wgmma": 1.5e-6}
    rates = []
    for scale in (1, 5, 40):
        times = {c: truth[name] * cost * scale for c, (name, cost) in ESTIMATES.items()}
        rates.append(fit_costs.excess(times, candidates(scale)))
    new = fit_costs.fit(rates, {"waves": 1, "tma": 0.6, "wgmma": 0.8, "large_d": 2})
    assert new == {"waves": 1, "tma": pytest.approx(0.9), "wgmma": pytest.approx(0.4), "large_d": 2}


def test_a_problem_without_the_reference_compares_nothing():
    rates = [fit_costs.excess({"b": 1.0}, candidates(1))]
    assert fit_costs.fit(rates, {"waves": 1, "tma": 0.6}) == {"waves": 1, "tma": 0.6}


def test_times_of_a_model_are_refused(tmp_path):
    record = tmp_path / "record.json"
    record.write_text(json.dumps({"origin": "model", "rows": []}))
    done = subprocess.run([sys.executable, str(BENCHMARKS / "fit_costs.py"), str(record), "--family", "hopper"],
                          capture_output=True, text=True)
    assert done.returncode != 0 and "model" in done.stderr


# A program whose estimates are matrix + bytes * byte_ns, of three kernels that differ in both.
PROGRAM = """#!{python}
import json, os, sys
model = json.load(open(os.environ["ROCM_SD_COST"] + "/toy.json"))["conv"]
depth = int(sys.argv[sys.argv.index("--explain") + 1].split()[1])
cost = lambda tiles, moved: tiles * depth / model["mma_per_ns"] + moved / model["bytes_per_ns"] + model["f32"]["reduce_ns"] * 0
kernels = dict(a=(4, 1000), b=(1, 9000), c=(2, 3000))
print(json.dumps(dict(implementations=[dict(impl="gpu", candidates=[
    dict(choice=n, cost=cost(*k), cost_name="") for n, k in kernels.items()]), dict(impl="scalar", candidates=[])])))
"""
TRUTH = {"mma_per_ns": 500.0, "bytes_per_ns": 40.0}


def toy_record(origin="measured"):
    rows = [{"op": "conv2d", "problem": str(depth), "choice": "gpu " + name,
             "median_us": 7.0 * (tiles * depth / TRUTH["mma_per_ns"] + moved / TRUTH["bytes_per_ns"])}
            for depth in (1000, 20000, 300000) for name, (tiles, moved) in dict(a=(4, 1000), b=(1, 9000), c=(2, 3000)).items()]
    rows.append({"op": "attention", "problem": "x", "choice": "gpu a", "median_us": 1.0})
    return {"origin": origin, "rows": rows, "device": "toy", "driver": "1", "date": "2026-01-02T03", "commit": "abc", "command": "bench"}


def test_a_sections_numbers_follow_the_times_and_say_where_they_come_from(tmp_path):
    (tmp_path / "cli").write_text(PROGRAM.format(python=sys.executable))
    (tmp_path / "cli").chmod(0o755)
    (tmp_path / "costs").mkdir()
    conv = {"source": "guess", "mma_per_ns": 90, "bytes_per_ns": 40, "f32": {"reduce_ns": 25}}
    (tmp_path / "costs" / "toy.json").write_text(json.dumps({"family": "toy", "sources": {"guess": {"origin": "guessed"}}, "conv": conv}))
    (tmp_path / "record.json").write_text(json.dumps(toy_record()))
    command = [sys.executable, str(BENCHMARKS / "fit_costs.py"), str(tmp_path / "record.json"), "--family", "toy", "--section", "conv",
               "--cli", str(tmp_path / "cli"), "--costs", str(tmp_path / "costs"), "--write"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    model = json.loads((tmp_path / "costs" / "toy.json").read_text())
    new = model["conv"]
    # Only the ratio decides; the last step is 5 percent.
    assert new["mma_per_ns"] / new["bytes_per_ns"] == pytest.approx(TRUTH["mma_per_ns"] / TRUTH["bytes_per_ns"], rel=0.06)
    assert new["f32"]["reduce_ns"] == 25  # changes no estimate
    assert new["source"] == "conv" and model["sources"]["conv"]["device"] == "toy" and "3 problems" in model["sources"]["conv"]["note"]


def test_zeros_and_shapes_are_no_costs():
    section = {"source": "x", "wgmma_per_cycle": 0, "step_ns": [1.5, 0], "steps": [{"rows": 64, "columns": 160, "alone_ns": 3}]}
    assert sorted(map(str, fit_costs.numbers_of(section))) == ["('step_ns', 0)", "('steps', 0, 'alone_ns')"]
