"""rocm_sd_ops.tuning: tables as `rocm-sd tune` writes them, and what PyTorch's TunableOp gets."""

from __future__ import annotations

import os

import pytest
from torch_ops import load_package

pytestmark = pytest.mark.in_python


@pytest.fixture(scope="module")
def tuning(build_dir):
    return load_package(build_dir).tuning


@pytest.fixture
def records(tuning):
    def record(op, problem, choice="gpu 128x160x64/2"):
        return tuning.Record("NVIDIA H200", "sm_90", 132, "0.1.0+0123456789abcdef", op, problem, choice, "gpu 64x64x64/1", 12.5,
                             14.25, "measured", "2026-11-21")

    return [record("linear", "8192x320x640 f16"), record("linear", "77x2560x320 bf16 bias geglu"),
            record("linear", "1x320x1280 f32 bias silu"), record("attention", "f16 [2,8,4096x4096,40]"),
            record("linear", "8192x320x640 f16", "tiled")]


def test_round_trip(tuning, records, tmp_path):
    tuning.export(records, tmp_path / "t.tsv")
    table = tuning.load(tmp_path / "t.tsv")
    assert table.records == records and table.bad_lines == 0
    assert len(table.of_op("attention")) == 1
    text = (tmp_path / "t.tsv").read_text()
    # FNV-1a by its definition, of a line written out by hand
    body = "\t".join(["NVIDIA H200", "sm_90", "132", "0.1.0+0123456789abcdef", "attention", "f16 [2,8,4096x4096,40]",
                      "gpu 128x160x64/2", "gpu 64x64x64/1", "12.5", "14.25", "measured", "2026-11-21"])
    value = 14695981039346656037
    for byte in body.encode():
        value = ((value ^ byte) * 1099511628211) % 2 ** 64
    assert f"{body}\t{value:016x}\n" in text


def test_damaged_lines_are_counted(tuning, records, tmp_path):
    tuning.export(records, tmp_path / "t.tsv")
    lines = (tmp_path / "t.tsv").read_text().split("\n")
    lines[1] = lines[1].replace("12.5", "11.5")
    lines[2] = lines[2][:40]
    (tmp_path / "t.tsv").write_text("\n".join(lines))
    table = tuning.load(tmp_path / "t.tsv")
    assert table.bad_lines == 2 and table.records == records[2:]


def test_tunable_op(tuning, records, tmp_path):
    """m, n, k of a column-major product: columns of the weight, rows of the input, depth."""
    assert tuning.export_tunable_op(records, tmp_path / "gemm.csv") == 3
    assert (tmp_path / "gemm.csv").read_text() == (
        "GemmAndBiasTunableOp_BFloat16_TN,tn_2560_77_320_ld_320_320_2560\n"
        "GemmAndBiasTunableOp_float_TN,tn_320_1_1280_ld_1280_1280_320\n"
        "GemmTunableOp_Half_TN,tn_320_8192_640_ld_640_640_320\n")


def test_use(tuning, records, tmp_path, monkeypatch):
    monkeypatch.setenv("ROCM_SD_TUNING", "before")
    tuning.export(records, tmp_path / "t.tsv")
    tuning.use(tmp_path / "t.tsv")
    assert os.environ["ROCM_SD_TUNING"] == str(tmp_path / "t.tsv")
    tuning.use(None)
    assert os.environ["ROCM_SD_TUNING"] == "off"


@pytest.mark.bad_input
def test_bad_tables(tuning, records, tmp_path):
    (tmp_path / "t.tsv").write_text("something else\n")
    with pytest.raises(ValueError, match="expected a tuning table"):
        tuning.load(tmp_path / "t.tsv")
    with pytest.raises(OSError):
        tuning.load(tmp_path / "missing.tsv")
    import dataclasses

    with pytest.raises(ValueError, match="control character"):
        tuning.export([dataclasses.replace(records[0], choice="a\tb")], tmp_path / "u.tsv")
    assert not (tmp_path / "u.tsv").exists()
