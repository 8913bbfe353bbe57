"""benchmarks/tables.py and its tables and plots: documents say what docs/benchmarks holds."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import analysis_tables
import cost_tables
import tables as benchmarks
import plot_svg
import record

FACTS = {"schema": 1, "benchmark": "bench", "command": "`bench`", "device": "a card", "driver": "580.1", "system": "Linux", "commit": "abc1234",
         "date": "2026-11-23T03:50:00Z", "clocks": None, "peers": []}


@pytest.fixture
def root(tmp_path) -> Path:
    (tmp_path / "docs" / "benchmarks").mkdir(parents=True)
    write(tmp_path, "card.json", FACTS | {"tables": {"times": {
        "columns": [{"key": "work", "title": "work"}, {"key": "ms", "title": "ms", "digits": 2}, {"key": "x", "title": "", "unit": "x"}],
        "rows": [{"work": "UNet", "ms": 5.6, "x": 1.5}, {"work": "VAE", "ms": "off"}]}}})
    (tmp_path / "BENCHMARKS.md").write_text("# B\n\n<!-- card.json facts -->\n<!-- end -->\n\ntext\n\n"
                                            "<!-- card.json table times -->\nold\n<!-- end -->\nrest\n")
    return tmp_path


def write(root: Path, name: str, data: dict) -> None:
    (root / "docs" / "benchmarks" / name).write_text(json.dumps(data))


def run(root: Path, *words: str) -> int:
    return benchmarks.main(["--root", str(root), *words])


def test_writes_and_checks(root):
    assert run(root, "--check") == 1 and run(root) == 0 and run(root, "--check") == 0
    text = (root / "BENCHMARKS.md").read_text()
    assert "- Command: `bench`\n- Device: a card, driver 580.1\n- System: Linux\n- Commit: abc1234, 2026-11-23T03:50:00Z\n" in text
    assert "| work | ms |\n" not in text and "| work | ms | |\n|---|---|---|\n| UNet | 5.60 | 1.5x |\n| VAE | off | |\n<!-- end -->\nrest" in text
    (root / "BENCHMARKS.md").write_text(text.replace("5.60", "4.60"))
    assert run(root, "--check") == 1


@pytest.mark.parametrize("change,words", [
    (lambda d: d.pop("device"), "without its device"),
    (lambda d: d.update(commit=" "), "without its commit"),
    (lambda d: d["tables"].pop("times"), "no table times"),
    (lambda d: d["tables"]["times"]["rows"][0].update(other=1), "other"),
])
def test_refuses(root, change, words, capsys):
    path = root / "docs" / "benchmarks" / "card.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    assert run(root) == 1 and words in capsys.readouterr().err


RECORD = {"schema": 1, "benchmark": "pictures", "command": "`gpu_record.py`", "device": "a card", "driver": "580.1", "system": "Linux",
          "commit": "abc1234", "date": "2026-11-23T03:00:00Z", "peers": ["eager"], "left_out": ["compile: late"],
          "clocks": {"source": "NVML", "core_mhz": {"min": 1710, "median": 1905, "max": 1980}, "watts_max": 650},
          "tables": {"programs": {"columns": [{"key": "program", "title": "program"}, {"key": "s", "title": "seconds"}],
                                  "rows": [{"program": "ours", "s": 0.5}, {"program": "eager", "s": 1.5}]}},
          "plots": {"seconds": {"table": "programs", "title": "Seconds", "unit": "s", "label": "program", "value": "s"}}}


def test_a_record_that_may_be_missing(root):
    path = root / "BENCHMARKS.md"
    path.write_text(path.read_text() + "".join(f"\n<!-- new.json? {what} -->\n<!-- end -->\n" for what in ("facts", "table programs", "plot seconds")))
    assert run(root) == 0 and "Not measured yet" in path.read_text()
    write(root, "new.json", RECORD)
    assert run(root, "--check") == 1 and run(root) == 0 and run(root, "--check") == 0
    text = path.read_text()
    assert "- Device: a card, driver 580.1\n" in text and "- Commit: abc1234, 2026-11-23T03:00:00Z\n" in text
    assert "- Clocks: core 1710 to 1980 MHz, median 1905, 650 W at most (NVML)\n" in text and "- Left out: compile: late\n" in text
    assert "| ours | 0.5 |" in text and "](docs/images/new-seconds.svg)" in text and "Not measured yet" not in text
    assert "ours" in (root / "docs" / "images" / "new-seconds.svg").read_text()


@pytest.mark.parametrize("change,words", [
    (lambda d: d.pop("driver"), "a record without its driver"), (lambda d: d.pop("date"), "without its date"),
    (lambda d: d.pop("clocks"), "without its clocks"), (lambda d: d.pop("peers"), "without its peers"),
    (lambda d: d.update(clocks={"source": "NVML"}), "clocks: expected"), (lambda d: d.update(schema=2), "schema 2: expected 1"),
    (lambda d: d.update(schema=0), "schema 0: expected 1"), (lambda d: d.pop("commit"), "without its commit"),
    (lambda d: d["tables"]["programs"]["rows"][0].update(other=1), "a row has other")])
def test_a_record_is_whole(change, words, tmp_path):
    data = json.loads(json.dumps(RECORD))
    change(data)
    assert words in "; ".join(record.problems("new.json", data))
    with pytest.raises(record.Problem):
        record.write(tmp_path / "new.json", data)
    assert not list(tmp_path.iterdir())
    record.write(tmp_path / "new.json", RECORD | {"x": [float("nan"), 1 / 3]})
    assert record.read(tmp_path / "new.json")["x"] == [None, 0.333333] and len(list(tmp_path.iterdir())) == 1


def test_the_documents_records_are_whole(repository):
    for path in (repository / "docs" / "benchmarks").glob("*.json"):
        record.read(path)


def test_a_file_that_nobody_shows(root, capsys):
    run(root)
    write(root, "forgotten.json", FACTS)
    assert run(root, "--check") == 1 and "forgotten.json: no document shows it" in capsys.readouterr().err


def timed(group: str, name: str, us: float, **more) -> dict:
    return {"group": group, "name": name, "us": us, "error": 0} | more


MEASURED = FACTS | {"benchmark": "analysis", "arch": "sm_90", "peak": {"gpu": "Card", "gb_per_s": 4000}, "rows": [
    timed("read", "4 bytes, stride 1", 100, width=4, stride=1, offset=0, bytes=2e8),
    timed("read", "4 bytes, stride 8", 100, width=4, stride=8, offset=0, bytes=2.5e7),
    timed("row sums", "a row per lane", 50, bytes=1e8), timed("transpose", "direct", 400, bytes=2e8),
    timed("lds", "stride 1", 10, stride=1, lds_bytes=1e8), timed("lds", "stride 32", 320, stride=32, lds_bytes=1e8),
    *(timed("product", f"{kind} {n}", us, flops=2.0 * n**3) for kind, us in (("naive", 100), ("library", 2)) for n in (512, 1024)),
    timed("attention", "fused 1024", 10, flops=1e9),
    timed("fusion", "a + b, apart", 30, bytes_saved=1e7), timed("fusion", "a + b, fused", 20, bytes_saved=1e7),
    timed("vae", "whole", 2e4, arena_bytes=1e9, flops=1e13), timed("vae", "tiles 9", 3e4, arena_bytes=3e8, flops=1.5e13, psnr_db=41.2)]}


def counted(group: str, name: str, lines: int, lds: int = 0, conflicts: int = 0, **more) -> dict:
    return {"group": group, "name": name, "lines64": lines, "lines128": lines, "bytes_asked_for": 6400, "lds_cycles": lds,
            "lds_conflict_cycles": conflicts, "instructions": 7} | more


COUNTED = FACTS | {"benchmark": "analysis", "arch": "gfx1100", "rows": [
    counted("read", "4 bytes, stride 1", 100, width=4, stride=1, offset=0), counted("read", "4 bytes, stride 4", 400, width=4, stride=4, offset=0),
    counted("row sums", "a row per lane", 200), counted("transpose", "through LDS", 200, 64, 60),
    counted("lds", "stride 1", 0, 10, 0, stride=1), counted("lds", "stride 32", 0, 320, 310, stride=32),
    counted("product", "naive 128", 999), counted("attention", "fused 128", 99)]}


def test_tables_of_times():
    tables = analysis_tables.tables(MEASURED)
    assert [row["share"] for row in tables["read"]["rows"]] == [50.0, 6.25]
    assert tables["lds"]["rows"][1]["times"] == 32 and tables["lds"]["rows"][0]["rate"] == 10.0
    shown = benchmarks.table(tables["product"])
    assert shown[0] == "| | 512 wide, us | TFLOP/s | 1024 wide, us | TFLOP/s |" and len(shown) == 4
    assert benchmarks.table(tables["fusion"])[2] == "| a + b | 30.0 | 20.0 | 1.50x | 10.0 |"
    assert tables["vae"]["rows"][1]["times"] == 1.5 and benchmarks.table(tables["vae"])[3].endswith("| 41.2 dB |")


def test_tables_of_counts():
    tables = analysis_tables.tables(COUNTED)
    assert [row["share"] for row in tables["read"]["rows"]] == [100, 25]
    assert tables["lds"]["rows"][1] == {"what": "stride 32", "cycles": 320, "conflicts": 310, "times": 32}
    assert "vae" not in tables and len(benchmarks.table(tables["attention"])) == 3


@pytest.mark.parametrize("data,name", [(MEASURED, n) for n in ("read", "lds", "product", "attention", "vae")] + [(COUNTED, "read"), (COUNTED, "lds")])
def test_plots_are_svg_and_repeat(data, name):
    _, title, svg = analysis_tables.plot(data, name)
    assert title and analysis_tables.plot(data, name)[2] == svg
    tree = ElementTree.fromstring(svg)
    width, height = float(tree.get("width")), float(tree.get("height"))
    for element in tree.iter():
        tag = element.tag.rsplit("}", 1)[-1]
        if tag == "circle":
            assert 0 <= float(element.get("cx")) <= width and 0 <= float(element.get("cy")) <= height
        if tag == "rect":
            assert float(element.get("x", 0)) + float(element.get("width")) <= width
    assert len(svg) < 20000


def test_plots_reach_the_documents(root):
    write(root, "card2.json", MEASURED)
    path = root / "BENCHMARKS.md"
    path.write_text(path.read_text() + "\n<!-- card2.json plot lds -->\n<!-- end -->\n")
    assert run(root) == 0 and run(root, "--check") == 0
    assert "](docs/images/card2-lds.svg)" in path.read_text()
    (root / "docs" / "lab").mkdir()
    (root / "docs" / "lab" / "performance-analysis.md").write_text("<!-- card2.json plot lds -->\n<!-- end -->\n")
    assert run(root) == 0 and "](../images/card2-lds.svg)" in (root / "docs" / "lab" / "performance-analysis.md").read_text()
    (root / "docs" / "images" / "card2-lds.svg").write_text("other")
    assert run(root, "--check") == 1


def test_scales():
    assert plot_svg.nice_steps(9.3) == [0, 2, 4, 6, 8, 10] and plot_svg.nice_steps(0) == [0, 1] and plot_svg.nice_steps(1e-3)[-1] >= 1e-3
    assert [plot_svg.short(x) for x in (0, 5, 1234.5, 0.01234, 41.26, 3e7)] == ["0", "5", "1234", "0.0123", "41.3", "3.00e+07"]
    with pytest.raises(ValueError, match="nothing to plot"):
        plot_svg.Chart("t", "x", "y").line("a", [(1, float("nan"))]).canvas()


def test_a_report_is_kept_with_its_facts(root, tmp_path, capsys):
    report = tmp_path / "report.json"
    report.write_text(json.dumps({"benchmark": "analysis", "device": "cuda:0", "arch": "sm_90", "peak": {"gb_per_s": 4000.0},
                                  "rows": [timed("read", "a", 1.23456789, bytes=536870912.0)]}))
    words = ("--keep", str(report), "--as", "kept.json", "--command", "`c`", "--system", "Linux")
    assert run(root, *words) == 1 and "without its commit" in capsys.readouterr().err
    assert not (root / "docs" / "benchmarks" / "kept.json").exists()
    assert run(root, *words, "--commit", "abc", "--check") == 1  # no document shows it yet
    kept = json.loads((root / "docs" / "benchmarks" / "kept.json").read_text())
    assert [kept[fact] for fact in benchmarks.FACTS] == ["`c`", "cuda:0", "Linux", "abc"]
    assert kept["rows"] == [{"group": "read", "name": "a", "us": 1.23457, "error": 0, "bytes": 536870912}]
    report.write_text("{}")
    assert run(root, "--keep", str(report), "--as", "other.json") == 1 and "no report" in capsys.readouterr().err


def test_bench_cpu_writes_a_record(tmp_path, monkeypatch, capsys):
    """With stand-ins for what takes minutes: the record is whole, and is there after the first part."""
    import bench_cpu

    target, seen = tmp_path / "cpu_mine.json", []
    monkeypatch.setattr(bench_cpu.Bench, "make_model", lambda self: None)
    monkeypatch.setattr(bench_cpu.Bench, "floor", lambda self: {"f32": {"gflops": 100.0}, "threads": 2, "onednn": "2.6.3"})
    monkeypatch.setattr(bench_cpu.Bench, "flops", lambda self, size: {"step": 1e12, "decode": 2e12})
    monkeypatch.setattr(bench_cpu.Bench, "ours", lambda self, dtype, size, batch=1: seen.append(target.exists()) or {
        "step": 5.0, "decode": 20.0, "peak": 5e9, "image": "ours"})
    monkeypatch.setattr(bench_cpu.Bench, "torch", lambda self, dtype, size: {"step": 10.0, "decode": 15.0, "peak": 6e9, "image": "torch"})
    monkeypatch.setattr(bench_cpu, "distance", lambda a, b: 83.0)
    monkeypatch.setattr("sys.argv", ["bench_cpu.py", "--build", str(tmp_path), "--dtypes", "f32", "--rounds", "2", "--sizes", "256", "--batches", "1",
                                     "--record", str(target)])
    assert bench_cpu.main() == 0 and seen == [False, False, True]
    data = record.read(target)
    step, decode = data["tables"]["stages"]["rows"]
    assert step["seconds"] == 5 and step["times_floor"] == 0.5 and step["ahead"] == 2 and decode["ahead"] == 0.75
    assert data["tables"]["process"]["rows"] == [{"program": "rocm-sd", "type": "f32", "peak": 5, "psnr": 83}, {"program": "PyTorch", "type": "f32", "peak": 6}]
    assert data["command"] == "`make bench-cpu BENCH_ARGS='--dtypes f32 --rounds 2 --sizes 256 --batches 1'`" and data["clocks"] is not None
    assert "| rocm-sd | f32 | 5.00 GB | 83.0 dB |" in capsys.readouterr().out


def test_costs_are_priced_and_sourced(repository):
    folder = repository / "share" / "published"
    cards, tables_ = json.loads((folder / "cards.json").read_text()), cost_tables.tables(folder)
    for card in cards["cards"]:
        assert card["price"] > 0 and card["watts"] > 0
        for key in ("price_source", "watts_source"):
            assert card[key]["url"].startswith("https://") and card[key]["date"] >= "2022"
    for m in cards["modelled"]:
        assert m["command"].startswith("rocm-sd predict") and m["seconds"] > 0 and m["commit"] and m["date"]
    for name in ("sd15", "sdxl"):
        rows = tables_[name]["rows"]
        assert len(rows) >= 4 and {row["kind"] for row in rows} <= set(cost_tables.KINDS.values())
        assert any("not measured" in row["kind"] for row in rows) and all(row["source"] for row in rows)
    # 36 s of 100 W are 0.001 kWh; of 3 years of 8 hours a day, 36 s an image are 876 000 images.
    got = cost_tables.cost({"price": 876, "watts": 100}, 36.0, {"dollars_per_kwh": 0.5, "years": 3, "hours_per_day": 8})
    assert got == pytest.approx({"electricity": 0.5, "card": 1.0})
