"""`rocm-sd bench --scenario scaling` with ranks on the CPU, and its plots."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest


def test_measures_ranks_and_plots_them(rocm_sd, repository, tmp_path):
    path = tmp_path / "scaling.json"
    told = rocm_sd("bench", "--scenario", "scaling", "--model", repository / "models" / "demo", "--device", "cpu", "--dtype", "f32", "-W", 64,
                   "-H", 136, "--steps", 2, "--ranks", "2,4", "--splits", "images,guidance,rows,displaced:1", "--queries", 1, "--warm-up", 0,
                   "--json", path, "--quiet").stdout
    data = json.loads(path.read_text())
    rows = {(row["split"], row["ranks"]): row for row in data["rows"]}
    assert set(rows) == {("images", 1)} | {(split, n) for split in ("images", "guidance", "rows", "displaced:1") for n in (2, 4)}
    for (split, ranks), row in rows.items():
        assert row["scaling"] == ("weak" if split == "images" else "strong")
        assert row["efficiency"] == pytest.approx(row["speedup"] / ranks)
        assert row["oversubscribed"] == (ranks > (os.cpu_count() or 1))
        assert (row["bytes"] > 0) == (split != "images") == (row["messages"] > 0)
        assert 0 <= row["transfer_share"] <= 1
        one = rows["images", 1]["median_seconds"]
        assert row["speedup"] == pytest.approx(one / row["median_seconds"] * (ranks if split == "images" else 1))
        if split == "images":
            assert row["most_off_of_255"] == 0 and row["psnr_db"] is None, "the bytes of one rank"
        elif not split.startswith("displaced"):
            assert row["most_off_of_255"] <= 1
        else:
            assert row["psnr_db"] > 5 and row["most_off_of_255"] > 0, "an approximation, and it says how near"
    assert rows["rows", 4]["bytes"] > rows["rows", 2]["bytes"] > rows["guidance", 2]["bytes"]
    assert "PSNR" in told and ("share them" in told) == any(row["oversubscribed"] for row in rows.values())

    done = subprocess.run([sys.executable, str(repository / "benchmarks" / "scaling_plots.py"), str(path), "--out", str(tmp_path)],
                          capture_output=True, text=True, check=True)
    plots = [tmp_path / f"scaling-{name}.svg" for name in ("speedup", "efficiency", "transfers")]
    assert done.stdout.split() == [str(plot) for plot in plots]
    for plot in plots:
        text = plot.read_text()
        assert "guidance" in text and "images (weak)" in text and "<polyline" in text


def test_leaves_out_what_does_not_go_together(rocm_sd, repository, tmp_path):
    demo = ("bench", "--scenario", "scaling", "--model", repository / "models" / "demo", "-W", 64, "-H", 64, "--steps", 1, "--queries", 1,
            "--warm-up", 0, "--quiet")
    told = rocm_sd(*demo, "--devices", "cpu,cpu", "--ranks", "3", "--splits", "guidance", "--json", tmp_path / "s.json").stdout
    assert "left out: guidance on 3 ranks" in told and "pairs of devices" in told
    assert [row["ranks"] for row in json.loads((tmp_path / "s.json").read_text())["rows"]] == [1]
    assert "checkpoint's path" in rocm_sd("bench", "--scenario", "scaling", "--model", "sdxl", code=2).stderr
    assert "split" in rocm_sd(*demo, "--device", "cpu", "--ranks", "2", "--splits", "columns").stdout
    rocm_sd(*demo, "--device", "cpu", "--ranks", "0", code=2)


def test_savings_beside_one_exact_picture(rocm_sd, repository, tmp_path):
    path = tmp_path / "saved.json"
    demo = ("bench", "--scenario", "scaling", "--model", repository / "models" / "demo", "--device", "cpu", "--dtype", "f32", "-W", 64, "-H", 64,
            "--ranks", "2", "--queries", 1, "--warm-up", 0, "--quiet")
    told = rocm_sd(*demo, "--steps", 12, "--sampler", "Euler", "--splits", "guidance", "--savings", "deep-cache=3,token-merge=0.5", "--savings", "sada",
                   "--savings", "t-gate=2", "--json", path).stdout
    data = json.loads(path.read_text())
    rows = {(row["split"], row["savings"]): row for row in data["rows"]}
    assert list(rows) == [("images", ""), ("guidance", ""), ("guidance", "deep-cache=3,token-merge=0.5"), ("guidance", "sada")]
    assert rows["guidance", ""]["most_off_of_255"] <= 1, "the exact picture"
    for savings in ("deep-cache=3,token-merge=0.5", "sada"):
        row = rows["guidance", savings]
        assert row["most_off_of_255"] > 1 and row["psnr_db"] > 5
        assert f"guidance + {savings} " in told
        assert row["speedup"] == pytest.approx(rows["images", ""]["median_seconds"] / row["median_seconds"])
    assert rows["guidance", "sada"]["messages"] < rows["guidance", ""]["messages"], "what is foretold passes nothing"
    assert "guidance + t-gate=2 on 2 ranks: t-gate: not with a picture" in told
    done = subprocess.run([sys.executable, str(repository / "benchmarks" / "scaling_plots.py"), str(path), "--out", str(tmp_path)],
                          capture_output=True, text=True, check=True)
    assert "guidance + sada" in (tmp_path / "saved-speedup.svg").read_text() and done.stdout

    assert "expected deep-cache" in rocm_sd(*demo, "--savings", "steps=3", code=2).stderr
    assert "token-merge" in rocm_sd(*demo, "--savings", "token-merge=2", code=2).stderr
