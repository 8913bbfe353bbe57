#!/usr/bin/env python3
"""Writes the tables of BENCHMARKS.md and the documents beside it from docs/benchmarks/*.json; --check only compares.

In a document

    <!-- h200_models.json facts -->         command, device, driver, clocks, system, commit and date, as the file has them
    <!-- end -->
    <!-- h200_models.json table models -->  the file's table of that name
    <!-- end -->
    <!-- h200_pictures.json plot seconds -->  a plot of it, docs/images/h200_pictures-seconds.svg
    <!-- end -->

What stands between is written anew. "h200_models.json?" may be missing: a sentence then says that nothing was measured yet. Files
are written by the programs that measure, in the schema of benchmarks/record.py. A report of bench_analysis_gpu comes there by

    benchmarks/tables.py --keep analysis.json --as analysis_card.json --command "..." --system "..." [--commit ...]

Of a column, digits: behind the point; significant: in all; without either a number is shown as it stands. Files that
bench_analysis_gpu wrote get their tables and plots from benchmarks/analysis_tables.py.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import textwrap
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import analysis_tables  # noqa: E402
import cost_tables  # noqa: E402
from plot_svg import bars  # noqa: E402
from record import FACTS, SCHEMA, Problem, problems, read, rounded  # noqa: E402

DOCUMENTS = ("README.md", "BENCHMARKS.md", "docs/lab/*.md", "docs/explanation/*.md")
MARK = re.compile(r"<!-- (?P<file>[\w.-]+\.json)(?P<optional>\??) (?P<what>facts|table|plot)(?: (?P<name>[\w-]+))? -->\n(?P<body>.*?)<!-- end -->", re.S)


def cell(row: dict, column: dict) -> str:
    value = row.get(column["key"])
    if value is None:
        return ""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if isinstance(value, int) and not {"digits", "significant"} & column.keys():
            text = str(value)
        elif "digits" in column:
            text = f"{value:.{column['digits']}f}"
        elif "significant" in column:
            text = f"{value:#.{column['significant']}g}".rstrip(".")
        else:
            text = f"{value:g}"
        return text + column.get("unit", "")
    return str(value)


def line(cells: list[str]) -> str:
    return "|" + "|".join(f" {text} " if text else " " for text in cells) + "|"


def table(data: dict) -> list[str]:
    columns = data["columns"]
    unknown = {key for row in data["rows"] for key in row} - {column["key"] for column in columns}
    if unknown:
        raise Problem(f"a row has {sorted(unknown)[0]}, for which there is no column")
    header = [column["title"] for column in columns]
    return [line(header), "|" + "---|" * len(columns)] + [line([cell(row, column) for column in columns]) for row in data["rows"]]


def clock_text(clocks: dict | None) -> str:
    if clocks is None:
        return "not readable"
    core = clocks["core_mhz"]
    text = f"core {core['min']:.0f} to {core['max']:.0f} MHz, median {core['median']:.0f}"
    for key, words in (("core_max_mhz", "at most {:.0f} MHz possible"), ("memory_mhz", "memory {:.0f} MHz"),
                       ("watts_max", "{:.0f} W at most"), ("celsius_max", "{:.0f} C at most")):
        if key in clocks:
            text += ", " + words.format(clocks[key])
    return f"{text} ({clocks['source']})"


def facts(data: dict) -> list[str]:
    entries = {fact.capitalize(): data[fact] for fact in FACTS}
    if data.get("driver"):
        entries["Device"] += f", driver {data['driver']}"
    if data.get("schema") == SCHEMA and "clocks" in data:
        entries["Clocks"] = clock_text(data["clocks"])
    if data.get("work"):
        entries["Work"] = data["work"]
    if data.get("date"):
        entries["Commit"] += f", {data['date']}"
    lines = [line for name, text in entries.items()
             for line in textwrap.wrap(f"- {name}: {text}", 128, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)]
    for reason in data.get("left_out", []):
        lines += textwrap.wrap(f"- Left out: {reason}", 128, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return lines


def plot_of(data: dict, name: str) -> tuple[str, str, str]:
    """Name, alternative text and SVG of a plot that the record describes."""
    plot = data["plots"][name]
    rows = data["tables"][plot["table"]]["rows"]
    values = {row[plot["label"]]: {plot["unit"]: row[plot["value"]]} for row in rows if plot["value"] in row}
    return name, plot["title"], bars(plot["title"], plot["unit"], values).svg()


def filled(text: str, folder: Path, images: str) -> tuple[str, dict[str, str]]:
    """The document with all marked parts as the files give them, and its plots by file name; images: the way from it to docs/images."""
    plots: dict[str, str] = {}

    def fill(match: re.Match) -> str:
        path = folder / match["file"]
        if match["optional"] and not path.is_file():
            words = "Not measured yet: `benchmarks/gpu_record.py` writes the figures of this section.\n" if match["what"] == "facts" else ""
            return match[0][:match.start("body") - match.start()] + words + "<!-- end -->"
        priced = match["file"] == "cards.json"  # of share/published: nothing that this project measured
        data = {"tables": cost_tables.tables(folder.parents[1] / "share" / "published")} if priced else read(path)
        try:
            if match["what"] == "facts":
                lines = facts(data)
            elif match["what"] == "plot":
                name, alt, svg = (analysis_tables.plot if data.get("benchmark") == "analysis" else plot_of)(data, match["name"])
                file = f"{path.stem}-{name}.svg"
                plots[file] = svg
                lines = [f"![{alt}]({images}/{file})"]
            else:
                tables = analysis_tables.tables(data) if data.get("benchmark") == "analysis" else data["tables"]
                lines = table(tables[match["name"]])
        except (KeyError, TypeError) as error:
            raise Problem(f"{path.name} has no {match['what']} {match['name'] or ''} ({error!r})") from None
        return match[0][:match.start("body") - match.start()] + "\n".join(lines) + "\n<!-- end -->"

    return MARK.sub(fill, text), plots


def keep(source: Path, target: Path, given: dict) -> None:
    """A report of bench_analysis_gpu with what it does not know itself, a row to a line."""
    report = json.loads(source.read_text(encoding="utf-8"))
    if report.get("benchmark") != "analysis" or not report.get("rows"):
        raise Problem(f"{source}: no report of bench_analysis_gpu --json")
    head = {"schema": SCHEMA} | {fact: given.get(fact) or report.get(fact) for fact in FACTS}
    head |= {k: v for k, v in report.items() if k not in (*FACTS, "rows", "schema")}
    if found := problems(target.name, head):
        raise Problem("; ".join(found))
    lines = [json.dumps({k: rounded(v) for k, v in row.items()}) for row in report["rows"]]
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(head, indent=1)[:-2] + ',\n "rows": [\n  ' + ",\n  ".join(lines) + "]\n}\n", encoding="utf-8")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--keep", type=Path, metavar="REPORT")
    parser.add_argument("--as", dest="name", metavar="NAME.json")
    for fact in FACTS:
        parser.add_argument(f"--{fact}", help="[the report's]" if fact == "device" else None)
    args = parser.parse_args(argv)
    folder, wrong = args.root / "docs" / "benchmarks", []
    if args.keep:
        try:
            keep(args.keep, folder / (args.name or args.keep.name), vars(args))
        except (Problem, OSError, ValueError) as problem:
            print(problem, file=sys.stderr)
            return 1
    used: set[str] = set()
    for path in sorted({path for pattern in DOCUMENTS for path in args.root.glob(pattern)}):
        name = path.relative_to(args.root).as_posix()
        before = path.read_text(encoding="utf-8")
        used |= {match["file"] for match in MARK.finditer(before)}
        try:
            after, plots = filled(before, folder, os.path.relpath("docs/images", os.path.dirname(name) or "."))
        except Problem as problem:
            print(f"{name}: {problem}", file=sys.stderr)
            return 1
        outputs = {path: after} | {args.root / "docs" / "images" / file: svg for file, svg in plots.items()}
        for output, text in outputs.items():
            if output.is_file() and output.read_text(encoding="utf-8") == text:
                continue
            wrong.append(str(output.relative_to(args.root)))
            if not args.check:
                output.parent.mkdir(parents=True, exist_ok=True)
                output.write_text(text, encoding="utf-8")
    unused = sorted({p.name for p in folder.glob("*.json")} - used)
    for file in unused:
        print(f"docs/benchmarks/{file}: no document shows it", file=sys.stderr)
    for file in wrong:
        print(f"{file}: {'differs from docs/benchmarks: run benchmarks/tables.py' if args.check else 'written'}", file=sys.stderr)
    return 1 if unused or (args.check and wrong) else 0


if __name__ == "__main__":
    raise SystemExit(main())
