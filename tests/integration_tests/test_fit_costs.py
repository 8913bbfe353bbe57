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
