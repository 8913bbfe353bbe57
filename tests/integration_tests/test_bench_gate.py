"""benchmarks/bench_gate.py: what counts as a slow-down, and what a baseline is."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import bench_gate


def report(times: dict[str, float], device="cuda:0: NVIDIA H200, sm_90", spread=0.01, origin="measured") -> dict:
    rows = [{"op": "linear", "problem": problem, "choice": "gpu 128x128x64", "chosen": True, "median_us": time, "spread": spread}
            for problem, time in times.items()]
    rows.append({"op": "linear", "problem": "8x8x8 f16", "choice": "gpu gemv", "chosen": False, "median_us": 1.0, "spread": 0})
    return {"device": device, "origin": origin, "rows": rows}


@pytest.fixture
def gate(repository, tmp_path):
    def run(now, *args):
        (tmp_path / "now.json").write_text(now if isinstance(now, str) else json.dumps(now))
        return subprocess.run([sys.executable, repository / "benchmarks" / "bench_gate.py", tmp_path / "now.json", "--baseline",
                               tmp_path / "base" / "line.json", *args], capture_output=True, text=True)

    assert run(report({"a f16": 100.0, "b f16": 50.0}), "--update").returncode == 0
    return run


def test_as_fast_or_faster_passes(gate):
    for times in ({"a f16": 100.0, "b f16": 50.0}, {"a f16": 60.0, "b f16": 54.0}):
        done = gate(report(times))
        assert done.returncode == 0 and "2 problems" in done.stdout


def test_a_slow_down_fails_unless_it_is_explained(gate):
    slow = report({"a f16": 125.0, "b f16": 50.0})
    done = gate(slow)
    assert done.returncode == 1 and "SLOWER: linear a f16: 100.00 -> 125.00 us (+25.0%)" in done.stdout
    assert gate(slow, "--explain", "linear b f16=another").returncode == 1
    done = gate(slow, "--explain", "linear a f16=a new epilogue", "--update")
    assert done.returncode == 0 and "a new epilogue" in done.stdout
    assert gate(slow).returncode == 0  # the baseline now


def test_a_slow_down_within_the_spread_passes(gate):
    assert gate(report({"a f16": 125.0, "b f16": 50.0}, spread=0.3)).returncode == 0


def test_an_unexplained_slow_down_does_not_become_the_baseline(gate):
    slow = report({"a f16": 125.0})
    assert gate(slow, "--update").returncode == 1
    done = gate(slow)
    assert done.returncode == 1 and "not timed any more: linear b f16" in done.stdout


def test_the_first_run_says_how_to_keep_it(gate, tmp_path):
    (tmp_path / "base" / "line.json").unlink()
    done = gate(report({"a f16": 100.0}))
    assert done.returncode == 2 and "no baseline of NVIDIA H200, sm_90 yet" in done.stderr and "UPDATE=1" in done.stderr
    assert not (tmp_path / "base" / "line.json").exists()


def test_another_device_is_no_baseline(gate):
    assert gate(report({"a f16": 1.0}, device="cuda:0: RTX 4090, sm_89")).returncode == 2
    assert gate(report({"a f16": 1.0}, origin="model")).returncode == 2
    assert gate(report({"a f16": 100.0}, device="cuda:3: NVIDIA H200, sm_90")).returncode == 0
    for broken in ("{", "[]", '{"device": "x", "origin": "measured"}', json.dumps(report({}))):
        assert gate(broken).returncode == 2


def test_baselines_are_chosen_by_the_devices_name(repository, tmp_path):
    own, shipped = tmp_path / "own", tmp_path / "shipped"

    def run(now, *args):
        (tmp_path / "now.json").write_text(json.dumps(now))
        return subprocess.run([sys.executable, repository / "benchmarks" / "bench_gate.py", tmp_path / "now.json", "--baselines", own,
                               "--baselines", shipped, *args], capture_output=True, text=True)

    assert run(report({"a f16": 100.0})).returncode == 2 and not own.exists()
    shipped.mkdir()
    (shipped / "NVIDIA_H200.json").write_text(json.dumps(report({"a f16": 100.0}, device="cuda:4: NVIDIA H200, sm_90")))
    assert run(report({"a f16": 101.0})).returncode == 0
    done = run(report({"a f16": 150.0}))
    assert done.returncode == 1 and "SLOWER: linear a f16" in done.stdout
    assert run(report({"a f16": 150.0}), "--keep-first").returncode == 1  # there is one
    assert run(report({"a f16": 150.0}), "--update", "--explain", "linear a f16=a slower host").returncode == 0
    assert (own / "NVIDIA_H200.json").is_file() and run(report({"a f16": 150.0})).returncode == 0  # its own comes first
    other = report({"a f16": 9.0}, device="hip:0: AMD Radeon RX 7900 XTX, gfx1100")
    assert run(other).returncode == 2 and run(other, "--keep-first").returncode == 0
    assert (own / "AMD_Radeon_RX_7900_XTX.json").is_file() and run(other).returncode == 0


def test_the_repositorys_baselines_are_reports_of_their_device(repository):
    for path in (repository / "benchmarks" / "baselines").glob("*.json"):
        data = json.loads(path.read_text())
        assert path.stem == bench_gate.product_of(bench_gate.device_of(data["device"])) and data["rows"] and data["schema"] == 1, path
