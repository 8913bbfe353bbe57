"""rocm-sd emu as a user meets it: buffers from and to NumPy, traces, stops, counts, and messages for what does not fit."""

from __future__ import annotations

import json

import numpy as np
import pytest

TARGETS = ["gfx1100", "gfx1201", "gfx942"]


@pytest.fixture(params=TARGETS)
def kernels(request, build_dir):
    """Code object of tests/unit_tests/emulator/kernels/basic.hip."""
    path = build_dir / "emulator" / request.param / "basic.O3.co"
    if not path.exists():
        pytest.skip(f"{path} was not built: no compiler for {request.param}, or no LLVM 19")
    return path


@pytest.fixture
def vectors(tmp_path):
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((2, 1000)).astype(np.float32)
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    return a, b


def struct(folder, extra="i32:1000"):
    return f"{{in:{folder}/a.npy,in:{folder}/b.npy,out:f32[10,100]:{folder}/c.npy,{extra}}}"


def run(rocm_sd, kernels, folder, *more, **options):
    return rocm_sd("emu", "run", kernels, "vector_add", "--grid", "4", "--block", "256", "--arg", struct(folder), *more, **options)


def test_runs_a_kernel_on_numpy_files(rocm_sd, kernels, vectors, tmp_path):
    done = run(rocm_sd, kernels, tmp_path, "--check")
    c = np.load(tmp_path / "c.npy")
    assert c.shape == (10, 100) and c.dtype == np.float32
    assert np.array_equal(c.ravel(), vectors[0] + vectors[1])
    assert "c.npy: " in done.stdout and f"{c.flat[0]:.4g}"[:4] in done.stdout


def test_in_place_and_untouched_buffers(rocm_sd, kernels, vectors, tmp_path):
    # Only the first 600 elements are written: the others keep the pattern of "out" and the zeros of "zeros".
    for kind, rest in (("out", np.isnan), ("zeros", lambda x: x == 0)):
        rocm_sd("emu", "run", kernels, "vector_add", "--grid", 3, "--block", 256, "--arg",
                f"{{in:{tmp_path}/a.npy,in:{tmp_path}/b.npy,{kind}:f32[1000]:{tmp_path}/d.npy,i32:600}}")
        d = np.load(tmp_path / "d.npy")
        assert np.array_equal(d[:600], (vectors[0] + vectors[1])[:600]) and rest(d[600:]).all()
    rocm_sd("emu", "run", kernels, "vector_add", "--grid", 4, "--block", 256, "--arg",
            f"{{in:{tmp_path}/a.npy,in:{tmp_path}/b.npy,inout:{tmp_path}/b.npy,i32:1000}}")
    assert np.array_equal(np.load(tmp_path / "b.npy"), vectors[0] + vectors[1])


def test_counts_trace_and_disassembly(rocm_sd, kernels, vectors, tmp_path):
    report = json.loads(run(rocm_sd, kernels, tmp_path, "--count").stdout)
    waves = 4 * 256 // (64 if report["target"] == "gfx942" else 32)
    assert report["waves"] == waves and report["kernel"] == "vector_add"
    assert sum(report["by_class"].values()) == report["instructions"] > 0
    listing = run(rocm_sd, kernels, tmp_path, "--disasm").stdout
    entry = next(line for line in listing.splitlines() if line.split()[-1] != "vector_add:" and not line.startswith(";"))
    assert listing.startswith("vector_add:\n") and int(entry.split()[0]) == waves
    assert "basic.hip:" in listing and "s_endpgm" in listing
    trace = run(rocm_sd, kernels, tmp_path, "--trace", "--group", 1, "--wave", 1).stdout
    assert "s_endpgm" in trace and "exec_lo = " not in trace.splitlines()[0]
    nobody = run(rocm_sd, kernels, tmp_path, "--trace", "--group", "9").stderr
    assert "there is no wave 0 of group 9" in nobody


def test_models_a_launch_and_draws_its_waves(rocm_sd, kernels, vectors, tmp_path):
    card = {"gfx1100": "RX 7900 XTX", "gfx1201": "RX 9070 XT", "gfx942": "MI300X"}[kernels.parent.name]
    report = json.loads(run(rocm_sd, kernels, tmp_path, "--time").stdout)
    assert report["machine"] == card and report["modelled"] and report["groups"] == 4
    assert report["microseconds"] > report["bound_microseconds"] > 0 and 0 < report["busy"] <= 1
    assert 0 < sum(report["stalls"].values()) < 1 and not (tmp_path / "c.npy").exists()
    done = run(rocm_sd, kernels, tmp_path, "--timeline", tmp_path / "t.json")
    trace = json.loads((tmp_path / "t.json").read_text())
    names = [e["name"] for e in trace["traceEvents"] if e["ph"] == "X"]
    assert "s_endpgm" in names and "stall: wait for loads" in names and "modelled, not measured" in done.stderr
    assert trace["otherData"]["launch"]["microseconds"] == json.loads(done.stdout)["microseconds"]
    other = "RX 7900 XTX" if card == "MI300X" else "MI300X"
    assert f"is made for {kernels.parent.name}" in run(rocm_sd, kernels, tmp_path, "--time", "--machine", other, code=2).stderr
    assert "no description of X1" in run(rocm_sd, kernels, tmp_path, "--time", "--machine", "X1", code=2).stderr


def test_models_ops_in_place_of_running_them(rocm_sd, tmp_path):
    if "emu:gfx1100" not in rocm_sd("devices").stdout:
        pytest.skip("no emulated gfx1100")
    times = {}
    for card in ("RX 7900 XTX", "Radeon 8060S"):
        env = {"ROCM_SD_EMULATOR_TIME": str(tmp_path / "times.jsonl"), "ROCM_SD_EMULATOR_MACHINE": card}
        problem = "linear 512x512x512 f16"
        rows = json.loads(rocm_sd("bench", "--device", "emu:gfx1100", "--json", "-", "--quiet", problem, env=env).stdout)
        assert rows["origin"] == "model" and "error" not in rows["rows"][0]
        times[card] = rows["rows"][0]["median_us"]
    assert 4 < times["RX 7900 XTX"] < 1000 and 4 < times["Radeon 8060S"] < 1000
    lines = [json.loads(line) for line in (tmp_path / "times.jsonl").read_text().splitlines()]
    assert {line["machine"] for line in lines} == set(times) and all(line["microseconds"] > 0 for line in lines)


def test_stops_before_an_address_or_a_line(rocm_sd, kernels, vectors, tmp_path, repository):
    source = (repository / "tests/unit_tests/emulator/kernels/basic.hip").read_text().splitlines()
    line = 1 + next(i for i, text in enumerate(source) if "p.c[i] = p.a[i] + p.b[i]" in text)
    done = run(rocm_sd, kernels, tmp_path, "--break", f"basic.hip:{line}", "--wave", 1)
    first = done.stdout.splitlines()[0]
    assert first.startswith("group (0, 0, 0) wave 1 before 0x") and f"basic.hip:{line})" in first
    assert "exec_lo = ffffffff" in done.stdout and not (tmp_path / "c.npy").exists()
    address = first.split()[7]
    assert run(rocm_sd, kernels, tmp_path, "--break", address).stdout.split()[7] == address
    assert "no code comes from line 99999" in run(rocm_sd, kernels, tmp_path, "--break", "99999", code=2).stderr
    assert "there is no instruction at 0x1" in run(rocm_sd, kernels, tmp_path, "--break", "0x1", code=2).stderr


def test_lists_kernels(rocm_sd, kernels):
    text = rocm_sd("emu", "list", kernels).stdout
    assert "vector_add(0: 32 bytes)" in text and "bytes of LDS" in text
    report = json.loads(rocm_sd("emu", "list", kernels, "--json").stdout)
    names = [kernel["name"] for kernel in report[0]["kernels"]]
    assert "vector_add" in names and "histogram" in names


@pytest.mark.bad_input
@pytest.mark.parametrize("arguments, code, message", [
    (["{in:{t}/a.npy,in:{t}/b.npy,out:f32[10],i32:1000}"], 1, "bytes after the end of a buffer of 40"),
    (["{in:{t}/a.npy,in:{t}/b.npy,null,i32:1000}"], 1, "which no buffer holds"),
    (["{in:{t}/a.npy,in:{t}/b.npy}"], 2, "has 16 bytes, expected 32: vector_add(0: 32 bytes)"),
    ([], 2, "0 arguments given, the kernel takes 1: vector_add(0: 32 bytes)"),
    (["in:{t}/missing.npy"], 3, "missing.npy: cannot open"),
    (["in:{t}/text.npy"], 3, "text.npy: not a .npy file"),
    (["f128:1"], 2, 'no element type "f128"'),
    (["i8:300"], 2, '"300" is no i8'),
])
def test_what_does_not_fit_is_said(rocm_sd, kernels, vectors, tmp_path, arguments, code, message):
    (tmp_path / "text.npy").write_text("this is no array")
    options = [part for a in arguments for part in ("--arg", a.replace("{t}", str(tmp_path)))]
    done = rocm_sd("emu", "run", kernels, "vector_add", "--grid", 4, "--block", 256, *options, code=code)
    assert message in done.stderr and done.stderr.startswith("error: ")


@pytest.mark.bad_input
def test_bad_launches_and_files(rocm_sd, kernels, vectors, tmp_path):
    for more, message in ((["--grid", "0"], "an empty launch"), (["--grid", "1,x"], "--grid: expected X"),
                          (["--block", "64,64"], "at most 1024"), (["--lds", "70000"], "bytes of LDS")):
        done = rocm_sd("emu", "run", kernels, "vector_add", "--arg", struct(tmp_path), *more, code=2)
        assert message in done.stderr
    assert "which kernel: there are" in rocm_sd("emu", "run", kernels, code=2).stderr
    assert "no kernel vector_sub: there are" in rocm_sd("emu", "run", kernels, "vector_sub", code=2).stderr
    cut = tmp_path / "cut.hsaco"
    cut.write_bytes(kernels.read_bytes()[:3000])
    rocm_sd("emu", "list", cut, code=3)
    rocm_sd("emu", "run", cut, "vector_add", code=3)
    cut.write_bytes(b"__CLANG_OFFLOAD_BUNDLE__" + b"\xff" * 64)
    assert "a bundle of" in rocm_sd("emu", "list", cut, code=3).stderr


@pytest.mark.parametrize("target", TARGETS)
def test_kernel_archives(rocm_sd, build_dir, target):
    archive = build_dir / "lib" / f"kernels_{target}.rsk"
    if not archive.exists():
        pytest.skip(f"{archive} was not built")
    listing = json.loads(rocm_sd("emu", "list", archive, "--json").stdout)
    assert {entry["target"] for entry in listing} == {target}
    name = listing[0]["kernels"][0]["name"]
    done = rocm_sd("emu", "run", f"{archive}:{name}", code=2)
    assert f"0 arguments given, the kernel takes 1: {name}(0: " in done.stderr
    assert "near it: " + name in rocm_sd("emu", "run", f"{archive}:{name}x", code=2).stderr


def test_limits_and_what_was_never_written(rocm_sd, build_dir, tmp_path):
    """An endless loop and a barrier that nobody else comes to end with where the waves stand; unread output is counted."""
    code = build_dir / "emulator" / "gfx1100" / "others.O3.co"
    if not code.exists():
        pytest.skip(f"{code} was not built")
    run_ = ["emu", "run", code]
    stuck = rocm_sd(*run_, "endless", "--grid", 2, "--block", 128, "--limit", "0.5s", "--arg", "{null,zeros:u32[4],i32:0,i32:1}", code=1)
    assert "no end after 0.5 seconds; its waves stand at" in stuck.stderr
    assert ": waits, " in stuck.stderr and ": runs, " in stuck.stderr and "others.hip:" in stuck.stderr
    assert "--limit: expected seconds" in rocm_sd(*run_, "endless", "--limit", "5x", "--arg", "{null,zeros:u32[4],i32:0,i32:0}", code=2).stderr
    done = rocm_sd(*run_, "grid_barrier", "--grid", 8, "--block", 64, "--threads", 2, "--arg", "{null,zeros:u32[4],i32:4,i32:8}")
    assert "8 8 8 8" in done.stdout
    done = rocm_sd(*run_, "counters", "--block", 128, "--check", "--arg", "{null,out:u32[300],i32:0,i32:0}")
    assert "(168 of 1200 bytes never written)" in done.stdout
    read = rocm_sd(*run_, "frames", "--block", 64, "--check", "--arg", "{out:u32[600],out:u32[100],i32:5,i32:0}", code=1)
    assert "was never written" in read.stderr
