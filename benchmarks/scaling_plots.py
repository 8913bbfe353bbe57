#!/usr/bin/env python3
"""Plots what `rocm-sd bench --scenario scaling --json FILE` measured: speed-up, efficiency and the share of transfers over ranks.

    benchmarks/scaling_plots.py out/scaling.json --out out      # out/scaling-speedup.svg, -efficiency.svg, -transfers.svg
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from plot_svg import Chart  # noqa: E402

def line_of(row: dict) -> str:
    """What draws one line: a split, or a split with savings."""
    return " + ".join(filter(None, (row["split"], row.get("savings", ""))))


PLOTS = {  # name -> (title, y axis, of a row)
    "speedup": ("Speed-up over one rank", "times", lambda row: row["speedup"]),
    "efficiency": ("Efficiency", "%", lambda row: 100 * row["efficiency"]),
    "transfers": ("Share of the time in transfers", "%", lambda row: 100 * row["transfer_share"]),
}


def plots(data: dict) -> dict[str, Chart]:
    if data.get("scenario") != "scaling" or not data.get("rows"):
        raise SystemExit("expected a file of `rocm-sd bench --scenario scaling --json`")
    crowded = " (more ranks than devices)" if any(row["oversubscribed"] for row in data["rows"]) else ""
    where = f"{Path(data['model']).name}, {data['width']} x {data['height']}, {data['device']}{crowded}"
    one = data["rows"][0]
    charts = {}
    for name, (title, unit, value) in PLOTS.items():
        chart = Chart(f"{title}: {where}"[:88], "ranks", unit)
        for line in dict.fromkeys(map(line_of, data["rows"])):
            points = [(row["ranks"], value(row)) for row in data["rows"] if line_of(row) == line and row["ranks"] > 1]
            if points:
                chart.line(line + (" (weak)" if line == "images" else ""), [(1, value(one)), *points])
        if name == "speedup":
            most = max(row["ranks"] for row in data["rows"])
            chart.line("ideal", [(1, 1), (most, most)])
        charts[name] = chart
    return charts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("json", type=Path)
    parser.add_argument("--out", type=Path, default=Path("out"))
    args = parser.parse_args()
    for name, chart in plots(json.loads(args.json.read_text(encoding="utf-8"))).items():
        if chart.lines:
            print(chart.save(args.out / f"{args.json.stem}-{name}.svg"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
