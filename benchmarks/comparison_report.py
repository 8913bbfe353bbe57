"""The report of benchmarks/picture_comparison.py: medians, spread, percentages of published figures; JSON, Markdown, plots.

    write(report, folder)     folder/comparison.{json,md}, seconds.svg, distance.svg, pictures/

A report is a dict as picture_comparison.py makes it. Percentages compare with share/published/figures.json, which others
measured on other machines: they say where a result stands, not which program is better.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from statistics import median

from plot_svg import bars

PUBLISHED = Path(__file__).resolve().parents[1] / "share" / "published" / "figures.json"


def published_figures(path: Path = PUBLISHED) -> list[dict]:
    """The figures, each with its source's url, date and title."""
    data = json.loads(path.read_text(encoding="utf-8"))
    return [figure | {key: data["sources"][figure["source"]][key] for key in ("url", "date", "title")}
            for figure in data["figures"]]


def summarise(seconds: list[float], steps: int) -> dict:
    """spread: of all rounds, as a share of the median."""
    middle = median(seconds)
    return {"seconds": seconds, "median": middle, "spread": (max(seconds) - min(seconds)) / middle,
            "steps_per_second": steps / middle}


def percentages(programs: list[dict], work: str, baseline: str, figures: list[dict]) -> list[dict]:
    """Each program's steps a second as a share of each figure of that GPU for this work."""
    return [{"program": program["name"], "percent": 100 * program["steps_per_second"] / figure["value"], "figure": figure}
            for figure in figures
            if figure["gpu"] == baseline and figure["work"] == work and figure["measures"] in ("loop", "whole")
            for program in programs]


def number(x: float | None, digits: int = 3) -> str:
    if x is None:
        return ""
    return "equal" if math.isinf(x) else f"{x:.{digits}g}" if x < 1000 else f"{x:.0f}"


def table(header: list[str], rows: list[list[str]]) -> list[str]:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def markdown(report: dict) -> str:
    programs = report["programs"]
    base = programs[0]["median"]
    lines = [f"# {report['model']}, {report['width']} x {report['height']}, {report['steps']} steps, guidance {report['guidance']}", ""]
    lines += [f"- Command: `{report['command']}`", f"- Device: {report['device']}", f"- System: {report['system']}",
              f"- Commit: {report['commit']}", "",
              f"{report['rounds']} rounds after one that is not counted, the programs in turns; Euler's method on the normal "
              f"schedule from the same noise. Seconds are of a whole picture. PSNR is to {report['reference']}.", ""]
    rows = [[p["name"], p["dtype"], number(p["median"]), f"{100 * p['spread']:.0f}%", number(p["steps_per_second"]),
             f"{base / p['median']:.2f}x", "" if p["psnr_db"] is None else f"{p['psnr_db']:.1f} dB" if p["psnr_db"] < 1e3 else "equal",
             p.get("note", "")] for p in programs]
    lines += table(["program", "type", "seconds, median", "spread", "steps a second", f"against {programs[0]['name']}", "PSNR", ""], rows)
    lines += ["", "![seconds a picture](seconds.svg)", ""]
    for problem in report.get("left_out", []):
        lines += [f"Left out: {problem}", ""]
    if report["published"]:
        lines += [f"## Percentages of published figures ({report['baseline']})", "",
                  "Others measured these, at other times, with other software. A figure of the sampling loop alone leaves out the "
                  "text encoder and the decoder, which ours contain: against those the percentage is a lower bound.", ""]
        lines += table(["program", "percent", "of", "steps a second", "measures", "type, accumulated in", "source"],
                       [[p["program"], f"{p['percent']:.0f}%", p["figure"]["software"], str(p["figure"]["value"]), p["figure"]["measures"],
                         f"{p['figure']['precision']}, {p['figure']['accumulate']}",
                         f"[{p['figure']['title']}]({p['figure']['url']}), {p['figure']['date']}"] for p in report["published"]])
    elif report["baseline"]:
        lines += [f"No figure of {report['baseline']} is published for {report['work']} ({PUBLISHED.name} has none)."]
    return "\n".join(lines).rstrip() + "\n"


def record_tables(report: dict) -> tuple[dict, dict]:
    """The tables and plots of a record (benchmarks/record.py), which documents show by benchmarks/tables.py."""
    base = next((p["median"] for p in report["programs"] if p["name"] == "Diffusers"), report["programs"][0]["median"])
    rows = [{"program": p["name"], "dtype": p["dtype"], "seconds": p["median"], "spread": 100 * p["spread"], "steps": p["steps_per_second"],
             "ratio": base / p["median"], "psnr": None if p["psnr_db"] is None or not math.isfinite(p["psnr_db"]) else p["psnr_db"]}
            for p in report["programs"]]
    columns = [{"key": "program", "title": "program"}, {"key": "dtype", "title": "type"},
               {"key": "seconds", "title": "seconds an image, median", "significant": 3}, {"key": "spread", "title": "spread", "digits": 0, "unit": "%"},
               {"key": "steps", "title": "steps a second", "significant": 3}, {"key": "ratio", "title": "against Diffusers, eager", "digits": 2, "unit": "x"},
               {"key": "psnr", "title": f"PSNR to {report['reference']}", "digits": 1, "unit": " dB"}]
    tables = {"programs": {"columns": columns, "rows": [{k: v for k, v in row.items() if v is not None} for row in rows]}}
    plots = {"seconds": {"table": "programs", "title": "Seconds an image, median (less is better)", "unit": "s", "label": "program", "value": "seconds"},
             "psnr": {"table": "programs", "title": f"PSNR to {report['reference']} (more is better)", "unit": "dB", "label": "program", "value": "psnr"}}
    return tables, plots


def plots(report: dict, folder: Path) -> list[Path]:
    programs = report["programs"]
    made = [bars("Seconds a picture, median (less is better)", "s", {p["name"]: {"s": p["median"]} for p in programs})
            .save(folder / "seconds.svg")]
    distances = {p["name"]: {"dB": p["psnr_db"]} for p in programs if p["psnr_db"] is not None and math.isfinite(p["psnr_db"])}
    if distances:
        made.append(bars(f"PSNR to {report['reference']} (more is better)", "dB", distances).save(folder / "distance.svg"))
    best: dict[str, dict[str, float]] = {}
    for p in report["published"]:
        best.setdefault(p["figure"]["software"], {})[p["program"]] = p["percent"]
    if best:
        made.append(bars(f"Percent of published figures, {report['baseline']}", "%", best).save(folder / "published.svg"))
    return made


def finite(value):
    """JSON has no infinity: equal pictures have a PSNR of null and "equal": true."""
    if isinstance(value, dict):
        return {key: finite(v) for key, v in value.items()}
    if isinstance(value, list):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write(report: dict, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "comparison.json").write_text(json.dumps(finite(report), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    plots(report, folder)
    text = markdown(report)
    for name, words in (("distance", "distance to the reference"), ("published", "percent of published figures")):
        if (folder / f"{name}.svg").exists():
            text += f"\n![{words}]({name}.svg)\n"
    (folder / "comparison.md").write_text(text, encoding="utf-8")
    return folder / "comparison.md"
