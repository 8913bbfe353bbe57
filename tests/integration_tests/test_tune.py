"""`rocm-sd tune` as a user meets it: progress, budgets, a kill in the middle, tables that travel, tables that lie."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time

import pytest

from pictures import psnr, read_picture

SHAPES = """# op problem
linear 64x64x64 f32 bias
linear 128x64x64 f32
conv2d 1x16x16x32->32 3x3 s1 p1,1,1,1 f32 bias
attention f32 [1,2,64x64,40]
layer_norm f32 [12,320]
"""
HEADER = "# rocm-sd tuning table 2"


def checksum(body: str) -> str:
    value = 0xCBF29CE484222325
    for byte in body.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def records(path) -> list[list[str]]:
    lines = path.read_text().splitlines()
    assert lines[0] == HEADER
    fields = [line.split("\t") for line in lines[1:]]
    assert all(len(f) == 13 and f[12] == checksum("\t".join(f[:12])) for f in fields)
    return fields


@pytest.fixture
def shapes(tmp_path):
    path = tmp_path / "shapes.txt"
    path.write_text(SHAPES)
    return path


def tune(rocm_sd, shapes, table, *more, code=0):
    return rocm_sd("tune", "--device", "cpu", "--shapes", shapes, "--table", table, "--per-shape", 0.02, *more, code=code)


@pytest.fixture
def table(rocm_sd, shapes, tmp_path):
    path = tmp_path / "own.tsv"
    tune(rocm_sd, shapes, path)
    return path


def test_keeps_a_choice_a_shape_and_knows_it_the_next_time(rocm_sd, shapes, tmp_path):
    path = tmp_path / "cache" / "deeper" / "host.tsv"
    first = tune(rocm_sd, shapes, path)
    assert "tuning 0/5 shapes, " in first.stderr and " s left: " in first.stderr
    assert "4 shapes with a choice; 4 tuned now, 0 known, 0 left" in first.stdout
    found = records(path)
    assert sorted(f[4] for f in found) == ["attention", "conv2d", "linear", "linear"]
    assert all(f[10] == "measured" and float(f[8]) <= float(f[9]) for f in found)
    assert "0 tuned now, 4 known, 0 left" in tune(rocm_sd, shapes, path).stdout
    assert "4 tuned now, 0 known" in tune(rocm_sd, shapes, path, "--again").stdout


def test_bench_tunes_the_costliest(rocm_sd, shapes, tmp_path):
    """`bench --mode tune` puts its shapes' choices into the user's table."""
    done = rocm_sd("bench", "--mode", "tune", "--device", "cpu", "--shapes", shapes, "--top", 1, "--seconds", 0.02, "--json", "-",
                   env={"XDG_CACHE_HOME": str(tmp_path)})
    report = json.loads(done.stdout)
    assert (report["mode"], report["problems"], report["tuned"], report["left"], report["wrong"]) == ("tune", 1, 1, 0, 0)
    assert 0 < report["tuned_ms"] <= report["untuned_ms"]
    (record,) = records(tmp_path / "rocm-sd" / "tuning" / "host.tsv")
    # The one with most operations: 2 x 256 x 9 x 32 x 32; attention has 4 x 2 x 64 x 64 x 40.
    assert report["table"] == str(tmp_path / "rocm-sd" / "tuning" / "host.tsv") and record[4] == "conv2d"


def test_shapes_of_a_model_by_its_name(rocm_sd):
    """`--shapes sdxl` and `--model sdxl` are the same shapes; both together are each shape once."""
    listed = [rocm_sd("bench", "--mode", "list", "--op", "attention", "--device", "cpu", *more).stdout
              for more in (("--shapes", "sdxl"), ("--model", "sdxl"), ("--shapes", "sdxl", "--model", "sdxl"))]
    listed = ["\n".join(line for line in text.splitlines() if not line.startswith("driver ")) for text in listed]  # it holds the time
    assert "4096x4096,64" in listed[0] and listed[0] == listed[1]
    names = [[line.split(" x")[0] for line in text.splitlines()] for text in listed]
    assert names[0] == names[2]
    assert "cannot open" in rocm_sd("bench", "--mode", "list", "--shapes", "sdxxl", code=3).stderr
    assert "models/demo" in rocm_sd("bench", "--mode", "list", "--model", "demo", code=2).stderr
    scenario = rocm_sd("bench", "--scenario", "unet", "--model", "sdxl", code=2).stderr
    assert "expected a checkpoint's path" in scenario and "make_random_checkpoint.py" in scenario


def test_prints_the_problems_of_a_model_as_it_reads_them(rocm_sd, tmp_path):
    """64 x 128 pixels are latents of 8 x 16: 128 places, 8 heads of 40, guidance's two images."""
    text = rocm_sd("bench", "--mode", "shapes", "--model", "sd15", "-W", 64, "-H", 128).stdout
    assert "# f16 sd15 64x128 unet\n" in text and "# f16 sd15 64x128 vae-encode\n" in text
    assert "# bf16 sd15 64x128 unet\n" in rocm_sd("bench", "--mode", "shapes", "--model", "sd15", "-W", 64, "-H", 128, "--dtype", "bf16").stdout
    assert "expected --dtype f16 or bf16" in rocm_sd("bench", "--mode", "shapes", "--dtype", "f32", code=2).stderr
    assert "attention f16 [2,8,128x128,40]\n" in text and "conv2d 2x16x8x4->320 3x3 s1 p1,1,1,1 f16 bias\n" in text
    problems = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert len(problems) == len(set(problems)) > 60
    (tmp_path / "shapes.txt").write_text(text)
    listed = rocm_sd("bench", "--mode", "list", "--shapes", tmp_path / "shapes.txt", "--op", "attention", "--device", "cpu", "--quiet").stdout
    assert all(problem.split(" ", 1)[1] in listed for problem in problems if problem.startswith("attention"))
    assert "it takes no --shapes" in rocm_sd("bench", "--mode", "shapes", "--ops", "linear", code=2).stderr
    assert "expected sd15" in rocm_sd("bench", "--mode", "shapes", "--model", "models/demo", code=2).stderr
    assert "multiples of 8" in rocm_sd("bench", "--mode", "shapes", "--model", "sd15,sdxl", "-H", 12, code=3).stderr


def test_goes_on_after_a_kill(rocm_sd, tmp_path):
    shapes = tmp_path / "many.txt"
    shapes.write_text("".join(f"linear {rows}x64x64 f32\n" for rows in range(64, 264)))
    path = tmp_path / "own.tsv"
    command = [str(rocm_sd.path), "tune", "--device", "cpu", "--shapes", str(shapes), "--table", str(path), "--per-shape", "0.02"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 300
        while time.monotonic() < end and not (path.exists() and path.read_text().count("\n") > 5):
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    finally:
        process.wait()
    before = path.read_text().count("\n") - 1
    assert 5 <= before < 200
    again = tune(rocm_sd, shapes, path, "--quiet")
    assert "200 shapes with a choice" in again.stdout or "199 shapes with a choice" in again.stdout
    assert f"{before} known" in again.stdout or f"{before - 1} known" in again.stdout
    assert len(records(path)) >= 199


def test_a_budget_ends_it_and_an_interrupt_too(rocm_sd, tmp_path):
    path = tmp_path / "own.tsv"
    done = rocm_sd("tune", "--device", "cpu", "--model", "sd15", "--dtype", "f32", "--budget", "1s", "--table", path)
    assert "0 left" not in done.stdout and " left" in done.stdout
    process = subprocess.Popen([str(rocm_sd.path), "tune", "--device", "cpu", "--model", "sd15", "--table", str(path)],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert "tuning " in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    assert process.wait(300) == 6
    assert "goes on where this ended" in process.communicate()[1]


def test_tables_travel(rocm_sd, table, tmp_path):
    assert "4 choices" in rocm_sd("tune", "show", table).stdout
    linear = rocm_sd("tune", "show", table, "--op", "linear").stdout
    assert "2 choices" in linear and "conv2d" not in linear
    assert "4 right, 0 refused, 0 wrong" in rocm_sd("tune", "verify", table, "--device", "cpu").stdout
    env = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    rocm_sd("tune", "import", table, "--device", "cpu", env=env)
    own = tmp_path / "cache" / "rocm-sd" / "tuning" / "host.tsv"
    assert records(own) == records(table)
    shown = rocm_sd("tune", "show", "--device", "cpu", env=env | {"ROCM_SD_TUNING": ""})
    assert str(own) in shown.stdout and "4 choices" in shown.stdout
    out = tmp_path / "out.tsv"
    rocm_sd("tune", "export", out, "--device", "cpu", env=env | {"ROCM_SD_TUNING": ""})
    assert records(out) == records(table)
    other = tmp_path / "other.tsv"
    body = "\t".join(["Other", "sm_90", "132", "x", "linear", "8x8x8 f32", "gpu 1", "", "1", "1", "measured", "2026-01-01"])
    other.write_text(f"{HEADER}\n{body}\t{checksum(body)}\ndamaged\n")
    merged = tmp_path / "merged.tsv"
    done = rocm_sd("tune", "merge", merged, table, other)
    assert "5 choices" in done.stdout and "1 damaged" in done.stdout
    assert len(records(merged)) == 5
    rocm_sd("tune", "export", tmp_path / "gemm.csv", "--from", table, "--format", "tunableop")
    assert (tmp_path / "gemm.csv").read_text().splitlines() == ["GemmAndBiasTunableOp_float_TN,tn_64_64_64_ld_64_64_64",
                                                                "GemmTunableOp_float_TN,tn_64_128_64_ld_64_64_64"]


@pytest.mark.bad_input
def test_bad_tables_and_arguments_are_told(rocm_sd, shapes, tmp_path):
    bad = tmp_path / "bad.tsv"
    bad.write_text("not a table\n")
    for command in (["show", bad], ["verify", bad, "--device", "cpu"], ["import", bad, "--device", "cpu"], ["merge", tmp_path / "x", bad]):
        assert "expected a first line" in rocm_sd("tune", *command, code=3).stderr
    assert "expected --model" in rocm_sd("tune", "--device", "cpu", code=2).stderr
    assert "budget" in tune(rocm_sd, shapes, tmp_path / "t", "--budget", "soon", code=2).stderr
    assert "sd15" in rocm_sd("tune", "--device", "cpu", "--model", "sd16", code=2).stderr
    # Planned in bf16 on any CPU, whose products may then be those of f32.
    assert "linear" in rocm_sd("bench", "--device", "cpu", "--model", "sd15", "--op", "linear", "--dtype", "bf16", "--mode", "list").stdout
    for command in ("tune", "bench"):
        told = rocm_sd(command, "--device", "cpu", "--model", "sd15", "--op", "linear,attn", code=2).stderr
        assert '"attn"' in told and "attention,linear,conv2d" in told
        assert "no problem of group_norm" in rocm_sd(command, "--device", "cpu", "--shapes", shapes, "--op", "group_norm",
                                                     code=2).stderr
    assert "begins with gpux" in rocm_sd("bench", "--device", "cpu", "--shapes", shapes, "--impl", "gpux", "--mode", "check",
                                         code=2).stderr
    wrong = tmp_path / "wrong.txt"
    wrong.write_text("linear 64x64 f32\n")
    assert "wrong.txt:1: " in rocm_sd("tune", "--device", "cpu", "--shapes", wrong, "--table", tmp_path / "t", code=3).stderr


def test_no_table_changes_what_is_right(rocm_sd, tiny_model, tmp_path):
    """Every choice of a table replaced by others, sound and not: the picture stays what it is."""
    model = tiny_model("sd15")
    draw = ["generate", "--model", model, "--device", "cpu", "--dtype", "f32", "--steps", "2", "-W", "64", "-H", "64",
            "--seed", "1", "--no-receipt"]
    rocm_sd(*draw, "-o", tmp_path / "plain.png")
    path = tmp_path / "own.tsv"
    done = rocm_sd("tune", "--device", "cpu", "--model", model, "--dtype", "f32", "-W", 64, "-H", 64, "--per-shape", 0.001,
                   "--table", path)
    assert " 0 left" in done.stdout
    tuned = records(path)
    assert len(tuned) > 10
    for choice in ("onednn", "ref", "gpu 128x128x64", "\\x00 nonsense"):
        hostile = tmp_path / "hostile.tsv"
        lines = [HEADER, "garbage", "\t" * 40]
        for fields in tuned:
            body = "\t".join([*fields[:6], choice, *fields[7:12]])
            lines.append(f"{body}\t{checksum(body)}")
        hostile.write_text("\n".join(lines))
        log = rocm_sd(*draw, "-o", tmp_path / "hostile.png", env={"ROCM_SD_TUNING": str(hostile), "ROCM_SD_LOG": "dispatch"})
        if choice in ("onednn", "ref"):
            assert f"-> {choice} (tuned)" in log.stderr
        else:
            assert "(tuned)" not in log.stderr and "is not followed" in log.stderr
        assert psnr(read_picture(tmp_path / "plain.png"), read_picture(tmp_path / "hostile.png")) > 60
    log = rocm_sd(*draw, "-o", tmp_path / "off.png", env={"ROCM_SD_TUNING": "off", "ROCM_SD_LOG": "dispatch"})
    assert "(tuned)" not in log.stderr
    assert (tmp_path / "off.png").read_bytes() == (tmp_path / "plain.png").read_bytes()


def test_tunes_behind_pictures_within_its_budget(rocm_sd, tiny_model, tmp_path):
    """`generate --tune`: the picture first and unchanged, then so much time; the next run goes on where it stopped."""
    draw = ["generate", "--model", tiny_model("sd15"), "--device", "cpu", "--steps", "1", "-W", "64", "-H", "64", "--seed", "1", "--no-receipt"]
    env = {"XDG_CACHE_HOME": str(tmp_path)}
    rocm_sd(*draw, "-o", tmp_path / "plain.png")
    known = 0
    for budget in ("0.5", "0.5s", "10m"):
        done = rocm_sd(*draw, "--tune", budget, "-o", tmp_path / "a.png", env=env)
        told = re.search(r"tuning: (\d+) shapes tuned, (\d+) known, (\d+) left; for the next run", done.stderr)
        assert int(told[1]) > 0 and int(told[2]) == known, done.stderr
        known += int(told[1])
        assert len(records(tmp_path / "rocm-sd" / "tuning" / "host.tsv")) == known
        assert (tmp_path / "a.png").read_bytes() == (tmp_path / "plain.png").read_bytes()
    assert told[3] == "0"
    assert "--tune" in rocm_sd(*draw, "--tune", "5x", code=2).stderr


def test_emulated_gpus_are_tuned_by_their_counts(rocm_sd, shapes, tmp_path):
    if "emu:gfx1100" not in rocm_sd("devices").stdout:
        pytest.skip("no kernels for gfx1100, or no emulator, in this build")
    small = tmp_path / "small.txt"
    small.write_text("linear 128x128x128 f16 bias\nlayer_norm f16 [12,320]\n")
    path = tmp_path / "gfx1100.tsv"
    done = rocm_sd("tune", "--device", "emu:gfx1100", "--shapes", small, "--table", path)
    assert "by the model: nothing was timed" in done.stdout
    found = records(path)
    assert len(found) == 1 and found[0][10] == "model" and found[0][6].startswith("gpu ")
    assert found[0][1] == "gfx1100" and "+" in found[0][3]
    assert "1 right" in rocm_sd("tune", "verify", path, "--device", "emu:gfx1100").stdout
    assert not [name for name in os.listdir("/tmp") if name.startswith(f"rocm-sd-counts.{os.getpid()}")]


def test_a_model_chooses_for_cards_that_are_not_here(rocm_sd, tmp_path):
    """Marked as a model's, for every product of an architecture, and a measurement takes its place."""
    if not (rocm_sd.path.parents[2] / "lib" / "kernels_gfx1100.rsk").exists():
        pytest.skip("this build has no kernels for gfx1100")
    shapes, path = tmp_path / "shapes.txt", tmp_path / "gfx1100.tsv"
    shapes.write_text("linear 128x1280x5120 f16 bias residual\nconv2d 2x16x16x64->64 3x3 s1 p1,1,1,1 f16 bias\n"
                      "attention f16 [2,8,256x256,40]\nlayer_norm f16 [12,320]\n")
    done = rocm_sd("tune", "--modelled", "gfx1100", "--shapes", shapes, "--table", path)
    assert "RX 7900 XTX (gfx1100): 3 choices" in done.stdout and "by the model: nothing was run" in done.stdout
    rows = records(path)
    assert {(row[0], row[2]) for row in rows} == {("RX 7900 XTX", "48"), ("RX 7900 XT", "42"), ("Radeon PRO W7900", "48")}
    assert {row[10] for row in rows} == {"model"}
    assert all(row[6].startswith("gpu ") and 0 < float(row[8]) <= float(row[9]) for row in rows)
    shown = rocm_sd("tune", "show", path).stdout
    assert shown.count("model's 20") == 9 and "measured" not in shown
    # The same card, measured: its record is the only one that is left of the two.
    row = next(row for row in rows if row[0] == "RX 7900 XT" and row[4] == "linear")
    body = "\t".join([*row[:6], row[7], row[7], "1000", "1000", "measured", "2020-01-01"])
    measured, merged = tmp_path / "measured.tsv", tmp_path / "merged.tsv"
    measured.write_text(f"{HEADER}\n{body}\t{checksum(body)}\n")
    for tables in ((path, measured), (measured, path)):
        rocm_sd("tune", "merge", merged, *tables)
        there = [r for r in records(merged) if r[0] == "RX 7900 XT" and r[4] == "linear"]
        assert [r[10] for r in there] == ["measured"]
    assert "neither a product" in rocm_sd("tune", "--modelled", "RX 7990", "--shapes", shapes, "--table", path, code=2).stderr
    assert "--table" in rocm_sd("tune", "--modelled", "gfx1100", "--shapes", shapes, code=2).stderr


def test_the_time_model_chooses_for_the_card_that_it_plays(rocm_sd, tmp_path):
    """gfx1100's code on another card: its records; of several candidates those that are best by the quicker model."""
    if not (rocm_sd.path.parents[2] / "lib" / "kernels_gfx1100.rsk").exists() or "emu:gfx1100" not in rocm_sd("devices").stdout:
        pytest.skip("this build has no emulated gfx1100")
    shapes = tmp_path / "shapes.txt"
    shapes.write_text("linear 512x320x320 f16 bias\nattention f16 [1,2,128x128,64]\n")
    env = {"ROCM_SD_EMULATOR_TIME": str(tmp_path / "times.jsonl"), "ROCM_SD_EMULATOR_MACHINE": "RX 7800 XT"}

    def rows(name, *more):
        path = tmp_path / name
        done = rocm_sd("tune", "--device", "emu:gfx1100", "--shapes", shapes, "--table", path, "--quiet", *more, env=env)
        assert "2 shapes with a choice; 2 tuned now" in done.stdout and "by the model: nothing was timed" in done.stdout
        return {row[4]: row for row in records(path)}

    every = rows("all.tsv")
    played = (tmp_path / "times.jsonl").read_text().count("\n")
    few = rows("few.tsv", "--played", "1")
    assert (tmp_path / "times.jsonl").read_text().count("\n") - played < played
    for table in (every, few):
        assert {(row[0], row[1], row[2], row[10]) for row in table.values()} == {("RX 7800 XT", "gfx1101", "30", "model")}
    for op, row in every.items():
        # Another than the untuned choice has to gain 3 %, and more candidates find nothing slower.
        assert row[6] == row[7] or float(row[8]) * 1.03 <= float(row[9])
        assert float(row[8]) <= float(few[op][8]) and row[9] == few[op][9]
