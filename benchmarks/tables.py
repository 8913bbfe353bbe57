#!/usr/bin/env python3
"""Writes the tables of BENCHMARKS.md and docs/lab/performance-analysis.md from docs/benchmarks/*.json; --check only compares.

In a document

    <!-- h200.json facts -->            command, device, system and commit, as the file has them
    <!-- end -->
    <!-- h200.json table products -->   the file's table of that name
    <!-- end -->

What stands between is written anew. A file holds

    {"command": "...", "device": "...", "system": "...", "commit": "...", "tables": {"products": {
        "columns": [{"key": "work", "title": "work"}, {"key": "ms", "title": "rocm-sd, ms", "digits": 2, "unit": " ms"}],
        "rows": [{"work": "SD 1.5 UNet", "ms": 5.68}]}}}

A report of bench_analysis_gpu comes there by

    benchmarks/tables.py --keep analysis.json --as analysis_card.json --command "..." --system "..." [--commit ...]

digits: behind the point; significant: in all; without either a number is shown as it stands. Files that bench_analysis_gpu wrote get their tables and
plots from benchmarks/analysis_tables.py.
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

DOCUMENTS = ("BENCHMARKS.md", "docs/lab/performance-analysis.md")
FACTS = ("command", "device", "system", "commit")
MARK = re.compile(r"<!-- (?P<file>[\w.-]+\.json) (?P<what>facts|table|plot)(?: (?P<name>[\w-]+))? -->\n(?P<body>.*?)<!-- end -->", re.S)


class Problem(Exception):
    pass


def read(path: Path) -> dict:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Problem(f"{path.name}: {error}") from None
    check_facts(path, data)
    return data


def check_facts(path: Path, data: dict) -> None:
    missing = [fact for fact in FACTS if not isinstance(data.get(fact), str) or not data[fact].strip()]
    if missing:
        raise Problem(f"{path.name}: a measurement without its {', '.join(missing)}")


def cell(row: dict, column: dict) -> str:
    value = row.get(column["key"])
    if value is None:
        return ""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if isinstance(value, int) and "digits" not in column:
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


def facts(data: dict) -> list[str]:
    return [line for fact in FACTS
            for line in textwrap.wrap(f"- {fact.capitalize()}: {data[fact]}", 128, subsequent_indent="  ", break_long_words=False,
                                      break_on_hyphens=False)]


def filled(text: str, folder: Path, images: str) -> tuple[str, dict[str, str]]:
    """The document with all marked parts as the files give them, and its plots by file name; images: the way from it to docs/images."""
    plots: dict[str, str] = {}

    def fill(match: re.Match) -> str:
        path = folder / match["file"]
        data = read(path)
        try:
            if match["what"] == "facts":
                lines = facts(data)
            elif match["what"] == "plot":
                name, alt, svg = analysis_tables.plot(data, match["name"])
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


def rounded(value):
    """Six digits: more are noise. Whole numbers stay."""
    if not isinstance(value, float):
        return value
    return int(value) if value.is_integer() else float(f"{value:.6g}")


def keep(source: Path, target: Path, given: dict) -> None:
    """A report of bench_analysis_gpu with what it does not know itself, a row to a line."""
    report = json.loads(source.read_text(encoding="utf-8"))
    if report.get("benchmark") != "analysis" or not report.get("rows"):
        raise Problem(f"{source}: no report of bench_analysis_gpu --json")
    head = {fact: given.get(fact) or report.get(fact) for fact in FACTS} | {k: v for k, v in report.items() if k not in (*FACTS, "rows")}
    check_facts(target, head)
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
    for name in DOCUMENTS:
        path = args.root / name
        if not path.is_file():
            continue
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
