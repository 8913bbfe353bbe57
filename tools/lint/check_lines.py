#!/usr/bin/env python3
"""Lengths: a source file over 600 lines fails, over 400 is named; so is a function over 60 lines. Heads of kernels: a label
(Problem, Mapping, Traffic, Numerics, Limits) that a formatter joined to the text before it fails.

A function's length is taken where it can be told surely: Python by its syntax tree, C++ where clang-format has put the
opening brace at the end of a line and the closing one alone at the same indentation. Warnings never fail the check.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from pathlib import Path

FAIL_LINES, WARN_LINES, WARN_FUNCTION = 600, 400, 60
SUFFIXES = {".cpp", ".hpp", ".h", ".hip", ".py"}
_NOT_A_FUNCTION = re.compile(r"^\s*(namespace|class|struct|enum|union|if|for|while|switch|do|else|try|catch|extern|return|"
                             r"public|private|protected|case)\b")

# One blank before it: three or more set a second label of the line apart.
_JOINED_LABEL = re.compile(r"\S (Problem|Mapping|Traffic|Numerics|Limits)(  +|$)")


def joined_labels(text: str) -> list[tuple[int, str]]:
    """(line, label) in the comment that a file begins with."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("//"):
            break
        label = _JOINED_LABEL.search(line.removeprefix("//"))
        if label:
            found.append((number, label[1]))
    return found


def python_functions(text: str) -> list[tuple[int, str, int]]:
    """(first line, name, lines) of every function."""
    return [(node.lineno, node.name, node.end_lineno - node.lineno + 1) for node in ast.walk(ast.parse(text))
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


def cpp_functions(text: str) -> list[tuple[int, str, int]]:
    """(first line, name, lines) of functions at file scope, in namespaces and in classes (indentation up to 2)."""
    lines, found = text.splitlines(), []
    for number, line in enumerate(lines):
        if not line.endswith("{"):
            continue
        start = number  # clang-format indents the continuation of a signature by 4 or more
        while start > 0 and indentation(lines[start]) > 2:
            start -= 1
        first = lines[start]
        name = re.search(r"([A-Za-z_~][\w:~]*|operator\S+)\s*\(", first)
        if name is None or _NOT_A_FUNCTION.match(first) or any(l.endswith((";", "}")) for l in lines[start:number]):
            continue
        end = closing_line(lines, number, indentation(first))
        if end is not None:
            found.append((start + 1, name[1], end - start + 1))
    return found


def closing_line(lines: list[str], opened: int, indent: int) -> int | None:
    """The line that closes what lines[opened] opened; None where the next line at that indentation is something else."""
    for number in range(opened + 1, len(lines)):
        line = lines[number].rstrip()
        if line and not line.startswith("#") and indentation(line) <= indent:
            return number if line in (" " * indent + "}", " " * indent + "};") else None
    return None


def indentation(line: str) -> int:
    return len(line) - len(line.lstrip(" ")) if line.strip() else 0


def source_files(root: Path) -> list[Path]:
    listed = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard", "-z"], capture_output=True)
    names = listed.stdout.decode().split("\0") if listed.returncode == 0 else []
    paths = [root / name for name in names if name] or list(root.rglob("*"))
    return sorted(path for path in paths if path.suffix in SUFFIXES and path.is_file())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2])
    root = parser.parse_args().root.resolve()
    failures = warnings = 0
    files = source_files(root)
    for path in files:
        text = path.read_text(encoding="utf-8", errors="replace")
        name, length = path.relative_to(root), len(text.splitlines())
        if length > FAIL_LINES:
            print(f"{name}:{FAIL_LINES + 1}: {length} lines: more than {FAIL_LINES}")
            failures += 1
        elif length > WARN_LINES:
            print(f"{name}:{WARN_LINES + 1}: warning: {length} lines: more than {WARN_LINES} need a reason")
            warnings += 1
        for line, label in joined_labels(text):
            print(f"{name}:{line}: {label} is joined to the text before it: expected at the beginning of a line")
            failures += 1
        functions = python_functions(text) if path.suffix == ".py" else cpp_functions(text)
        for line, function, lines in functions:
            if lines > WARN_FUNCTION:
                print(f"{name}:{line}: warning: {function} has {lines} lines: more than {WARN_FUNCTION}")
                warnings += 1
    print(f"check_lines: {len(files)} files, {failures} failures, {warnings} warnings", file=sys.stderr)
    return 1 if failures or not files else 0


if __name__ == "__main__":
    raise SystemExit(main())
