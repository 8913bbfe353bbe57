#!/usr/bin/env python3
"""Writes docs/reference/api-reference.md from the public headers: each declaration with the comment above it.

--check: exit 1 where the file differs from what the headers give. The headers are the only source: nothing is written here
that does not stand there.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import NamedTuple


class Item(NamedTuple):
    comment: str  # the prose above the declaration, unwrapped into paragraphs
    code: str     # the declaration as it stands
    joined: bool  # follows its predecessor without an empty line or a comment


_SKIP = re.compile(r"^\s*(#|namespace rocm_sd \{|extern \"C\" \{|\}\s*//\s*namespace|$)")


def strip_comment(lines: list[str]) -> str:
    """The text of // or /* */ comment lines. Indented lines stay verbatim (a code example), others are joined."""
    text = []
    for line in lines:
        line = re.sub(r"^\s*(//|/\*|\*/|\*)", "", line.rstrip())
        line = re.sub(r"\s*\*/$", "", line)
        text.append(line[1:] if line.startswith(" ") else line)
    out: list[str] = []
    for line in text:
        code = line.startswith("  ")
        if code or not line or not out or out[-1].startswith("  ") or not out[-1]:
            if code and out and out[-1] and not out[-1].startswith("  "):
                out.append("")
            out.append("  " + line if code else line)  # four spaces in all: a code block in Markdown
        else:
            out[-1] += " " + line
    return "\n".join(out).strip("\n")


def drop_private(code: str) -> str:
    """A class without its private part."""
    lines, kept, hidden = code.splitlines(), [], False
    for index, line in enumerate(lines):
        if re.match(r"^ (private|protected):", line):
            hidden = True
        elif re.match(r"^ public:", line) or index == len(lines) - 1:
            hidden = False
        if not hidden:
            kept.append(line)
    return re.sub(r"\n\n(\};?)$", r"\n\1", "\n".join(kept))


def parse(text: str) -> tuple[str, list[Item]]:
    """The header's opening comment and its declarations at namespace scope, in order."""
    lines = text.splitlines()
    start = 0
    while start < len(lines) and re.match(r"^(//|/\*| \*)", lines[start]):
        start += 1
    intro, items = strip_comment(lines[:start]), []
    comment: list[str] = []
    in_block_comment, joined = False, False
    index = start
    while index < len(lines):
        line = lines[index]
        if in_block_comment or re.match(r"^\s*(//|/\*)", line):
            comment.append(line)
            in_block_comment = "*/" not in line and (in_block_comment or line.lstrip().startswith("/*"))
            index += 1
        elif _SKIP.match(line) or line == "}":
            if not line.strip():
                comment, joined = [], False
            index += 1
        else:
            code, depth = [], 0
            while index < len(lines):
                bare = re.sub(r"//.*|/\*.*?\*/", "", lines[index]).rstrip()
                depth += bare.count("{") - bare.count("}")
                code.append(lines[index])
                index += 1
                if depth == 0 and bare.endswith((";", "}")):
                    break
            items.append(Item(strip_comment(comment), drop_private("\n".join(code)), joined and not comment))
            comment, joined = [], len(code) == 1
    return intro, items


def heading(code: str) -> str:
    first = re.sub(r"template <.*?>\s*", "", code, count=1)
    match = re.match(r"(?:typedef )?(struct|class|enum class|enum)\s+(\w+)", first)
    if match and not first.startswith("typedef"):
        return f"{match[2]}"
    match = re.match(r"using (\w+)", first) or re.search(r"\(\*(\w+)\)", first)
    if match:
        return match[1]
    if first.startswith("typedef"):
        return re.search(r"(\w+)\s*;\s*$", first)[1]
    match = re.search(r"(\w+)\s*\(", first) or re.search(r"(\w+)\s*(=|;)", first)
    return match[1] if match else first.splitlines()[0]


def reference(root: Path) -> str:
    out = ["# API reference", "",
           "Generated from the public headers in `include/rocm_sd` by `tools/report/gen_api_reference.py` (`make docs`); a test",
           "fails where the two differ. Link with the CMake target `rocm_sd::rocm_sd` or `pkg-config --libs rocm_sd`."]
    headers = sorted((root / "include" / "rocm_sd").glob("*.h*"), key=lambda p: (p.suffix, p.name))
    if not headers:
        raise SystemExit("gen_api_reference: no header in include/rocm_sd")
    for path in headers:
        intro, items = parse(path.read_text(encoding="utf-8"))
        out += ["", f"## `rocm_sd/{path.name}`", "", intro]
        language = "c" if path.suffix == ".h" else "cpp"
        for item in items:
            if not item.joined:
                out += ["", f"### {heading(item.code)}", ""]
                if item.comment:
                    out += [item.comment, ""]
                out += [f"```{language}", item.code, "```"]
            else:
                out[-1:] = [item.code, "```"]
    return "\n".join(out) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2])
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    target = args.root / "docs" / "reference" / "api-reference.md"
    text = reference(args.root)
    if not args.check:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        return 0
    if not target.is_file() or target.read_text(encoding="utf-8") != text:
        print(f"{target.relative_to(args.root)}: differs from the public headers: run `make docs`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
