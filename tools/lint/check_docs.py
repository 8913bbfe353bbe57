#!/usr/bin/env python3
"""What the documents say exists, exists.

Links and headings they point at; documents that a source file names; a document's folder below docs/ and its line in the
index docs/README.md; commits that measurements name, in the history of HEAD; paths of this repository and environment variables
ROCM_SD_... in backticks; in ```sh blocks, and in backticks, the targets of `make`, the commands and options of `rocm-sd`, and in
blocks the scripts of tools/. Each section of BENCHMARKS.md with a table of figures names the command, the device, the driver or
system, and the commit that gave them. Documents say the field's terms (TERMS). Prints file:line and exits 1.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Iterator

Finding = tuple[int, str]
LINK = re.compile(r"(?<!`)!?\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
CODE = re.compile(r"`([^`\n]+)`")
TOP_FOLDERS = ("src", "apps", "include", "tools", "tests", "docs", "cmake", "models", "share", "examples", "benchmarks", "training", "packaging", ".ci")
DOC_FOLDERS = {"tutorials", "howto", "reference", "explanation", "lab"}  # a document's purpose is its folder
DOC_TOP = {"README.md", "architecture.md", "emulator.md"}  # the index, and two that others name by their path
NOT_TEXT = {".png", ".svg", ".safetensors", ".rsk", ".json", ".bin", ".npy", ".md"}
PLANS = {"ROADMAP.md"}  # may name what does not exist yet
HISTORY = ("CHANGELOG.md", "docs/lab/")  # may name what existed
VARIABLE = re.compile(r"\bROCM_SD_[A-Z0-9_]*[A-Z0-9]\b(?!\*)")
# What this project once called things, and what a reader from the field would search for.
TERMS = {r"copy engine": "TMA", r"gated layers?": "GEGLU", r"widen(s|ed|ing)?": "dequantize, or convert to a wider type", r"by turns": "alternated",
         r"per cent": "%"}
TERM = re.compile(r"\b(" + "|".join(TERMS) + r")\b", re.IGNORECASE)
BENCHMARK_FACTS = ("Command:", "Device:", "System:", "Commit:")


def slug(heading: str) -> str:
    """The anchor that GitHub and GitLab give a heading."""
    text = re.sub(r"[`*]", "", heading.strip().lower())
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def lines_outside_fences(text: str) -> Iterator[tuple[int, str]]:
    fenced = False
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, line


def shell_commands(text: str) -> Iterator[tuple[int, str]]:
    """Lines of ```sh blocks with continuations joined, comments and prompts off."""
    inside, pending, first = False, "", 0
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("```"):
            inside = line.strip() == "```sh"
            continue
        if not inside:
            continue
        pending, first = (pending + " " + line.strip(), first) if pending else (line.strip(), number)
        if pending.endswith("\\"):
            pending = pending[:-1].rstrip()
            continue
        if pending and not pending.startswith("#"):
            yield first, pending
        pending = ""


class Repository:
    def __init__(self, root: Path):
        self.root = root
        makefile = root / "Makefile"
        self.targets = set(re.findall(r"^([a-z][a-z0-9-]*):", makefile.read_text() if makefile.is_file() else "", re.M))
        sources = [*root.glob("apps/**/*.cpp"), *root.glob("src/pipeline/**/*.cpp")]
        code = "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in sources)
        self.words = set(re.findall(r'"(?:-{0,2}\w,)*-{0,2}([a-z][a-z0-9-]*)"', code))
        self.words |= set(re.findall(r"--([a-z][a-z0-9-]*)", code))
        self.shorts = set(re.findall(r'"(?:-)?([a-zA-Z])(?:,--[a-z0-9-]+)?"', code))
        self.variables: set[str] | None = None  # read when the first document names one

    def check_link(self, document: Path, target: str) -> str | None:
        if re.match(r"^[a-z]+:", target):
            return None
        name, _, anchor = target.partition("#")
        path = (document.parent / name) if name else document
        if not path.exists():
            return f"link to {target}: no such file"
        if anchor and path.suffix == ".md":
            headings = [line for _, line in lines_outside_fences(path.read_text(encoding="utf-8"))]
            if anchor not in {slug(line.lstrip("#")) for line in headings if line.startswith("#")}:
                return f"link to {target}: no such heading"
        return None

    def check_path(self, text: str) -> str | None:
        """A backticked word that looks like a path of the repository."""
        word = text.split()[0] if text.split() else ""
        word = word.split(":")[0].rstrip(",;")
        if "/" not in word or word.split("/")[0] not in TOP_FOLDERS or re.search(r"[<>{}$]|\bNAME\b|\.\.\.", word):
            return None
        if "*" in word:
            return None if any(self.root.glob(word)) else f"`{word}`: nothing matches"
        return None if (self.root / word).exists() else f"`{word}`: no such file or folder"

    def check_variables(self, text: str) -> Iterator[str]:
        names = VARIABLE.findall(text)
        if names and self.variables is None:
            self.variables = {name for path in sources(self.root) for name in VARIABLE.findall(path.read_text(encoding="utf-8", errors="replace"))}
        for name in names:
            if name not in (self.variables or ()):
                yield f"`{name}`: no source file names it"

    def check_command(self, line: str) -> Iterator[str]:
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            yield f"cannot be read as a command: {error}"
            return
        while words and re.fullmatch(r"\w+=.*|sudo|nice|time|\$", words[0]):
            words.pop(0)
        if not words:
            return
        program = words[0].rsplit("/", 1)[-1]
        if program == "make":
            for word in words[1:]:
                if not word.startswith("-") and "=" not in word and re.search(r"[a-z]", word) and word not in self.targets:
                    yield f"`make {word}`: no such target"
        elif program == "rocm-sd":
            yield from self.check_cli(words[1:])
        elif re.match(r"(\./)?(tools|tests|benchmarks|training|examples)/", words[0]) and not (self.root / words[0]).is_file():
            yield f"{words[0]}: no such script"

    def check_cli(self, words: list[str]) -> Iterator[str]:
        if words and not words[0].startswith("-") and not words[0].isupper() and words[0] not in self.words:
            yield f"`rocm-sd {words[0]}`: no such command"
        for word in words:
            name = word.split("=")[0]
            if re.fullmatch(r"--[a-z][a-z0-9-]*", name) and name[2:] not in self.words:
                yield f"`rocm-sd ... {name}`: no such option"
            elif re.fullmatch(r"-[a-zA-Z]", name) and name[1] not in self.shorts:
                yield f"`rocm-sd ... {name}`: no such option"


def benchmark_sections(text: str) -> Iterator[Finding]:
    """Sections of BENCHMARKS.md: a table with a figure in it needs every line of BENCHMARK_FACTS."""
    start, body = 1, []
    for number, line in enumerate([*text.splitlines(), "## end"], start=1):
        if not line.startswith("## "):
            body.append(line)
            continue
        rows = [row for row in body if row.startswith("|") and not re.fullmatch(r"[|\s:-]+", row)]
        figures = [row for row in rows[1:] if re.search(r"\d", "|".join(row.split("|")[2:]))]
        if figures:
            for fact in BENCHMARK_FACTS:
                if not any(re.match(rf"^[-*\s]*\**{fact}\**\s*\S", entry) for entry in body):
                    yield start, f"figures without a line `{fact} ...`"
        start, body = number, []


def foreign_terms(root: Path, path: Path, text: str) -> Iterator[Finding]:
    """Words of this project's own that the field does not have, outside of code and of documents that a program writes."""
    if path.relative_to(root).as_posix().startswith((*HISTORY, "docs/reference/kernel-report/", "docs/reference/api-reference.md")):
        return
    for number, line in lines_outside_fences(text):
        for match in TERM.finditer(CODE.sub("", line)):
            term = next(better for old, better in TERMS.items() if re.fullmatch(old, match[0], re.IGNORECASE))
            yield number, f"\"{match[0]}\": say {term}"


def check_document(repository: Repository, path: Path) -> Iterator[Finding]:
    text = path.read_text(encoding="utf-8")
    for number, line in lines_outside_fences(text):
        for target in LINK.findall(line):
            problem = repository.check_link(path, target)
            if problem:
                yield number, problem
        if path.name not in PLANS:
            for code in CODE.findall(line):
                problem = repository.check_path(code)
                if problem:
                    yield number, problem
                if not path.relative_to(repository.root).as_posix().startswith(HISTORY):
                    inline = repository.check_command(code) if re.match(r"(make|rocm-sd) [a-z]", code) else ()
                    yield from ((number, problem) for problem in [*repository.check_variables(code), *inline])
    yield from foreign_terms(repository.root, path, text)
    for number, line in shell_commands(text):
        for problem in repository.check_command(line):
            yield number, problem
    if path.name == "BENCHMARKS.md":
        yield from benchmark_sections(text)


def misplaced(root: Path, files: list[Path]) -> Iterator[tuple[Path, int, str]]:
    """Documents below docs/ that no folder of a purpose holds, or that the index docs/README.md does not name."""
    index = root / "docs" / "README.md"
    named = {(index.parent / target.partition("#")[0]).resolve() for target in LINK.findall(index.read_text(encoding="utf-8"))} if index.is_file() else set()
    for path in files:
        place = path.relative_to(root).parts
        if place[0] != "docs" or len(place) < 2:
            continue
        if (len(place) == 2 and place[1] not in DOC_TOP) or (len(place) > 2 and place[1] not in DOC_FOLDERS):
            yield path, 1, f"documents lie in docs/{{{','.join(sorted(DOC_FOLDERS))}}}"
        elif path != index and not ({path.resolve(), *path.resolve().parents} & named - {index.parent.resolve()}):
            yield path, 1, "docs/README.md does not name it"


def check_source(root: Path, path: Path) -> Iterator[Finding]:
    """A comment or a message of a source file that names a document: the document exists."""
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        for name in re.findall(r"(?<![\w/.-])docs/[\w./-]+\.md\b", line):
            if not (root / name).is_file():
                yield number, f"{name}: no such document"


def history(root: Path) -> tuple[set[str], str]:
    """The commits that HEAD has behind it, or none and the reason why they are not known."""
    def git(*words: str) -> str | None:
        done = subprocess.run(["git", "-C", root, *words], capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else None

    top = git("rev-parse", "--show-toplevel")
    if top is None or Path(top).resolve() != root:
        return set(), "this is no git checkout"
    if git("rev-parse", "--is-shallow-repository") == "true":
        return set(), "this clone is shallow (git fetch --unshallow)"
    return set((git("rev-list", "HEAD") or "").split()), ""


def named_commits(root: Path, files: list[Path]) -> Iterator[tuple[Path, int, str]]:
    """Commits that documents with measurements, and the files of measurements, name."""
    for path in files:
        place = path.relative_to(root).as_posix()
        if place not in ("README.md", "BENCHMARKS.md") and not place.startswith(("docs/lab/", "docs/explanation/", "docs/howto/")):
            continue
        for number, line in lines_outside_fences(path.read_text(encoding="utf-8")):
            for word in re.findall(r"\b[0-9a-f]{7,40}\b", re.sub(r"https?://\S+", "", line)):
                if re.search(r"\d", word) and re.search(r"[a-f]", word):
                    yield path, number, word
    for path in [*(root / "docs" / "benchmarks").glob("*.json"), *(root / "benchmarks" / "baselines").glob("*.json")]:
        try:
            commit = json.loads(path.read_text(encoding="utf-8")).get("commit")
        except (ValueError, AttributeError) as error:
            commit = f"none ({error})"
        yield path, 1, commit if isinstance(commit, str) else "none"


def check_commits(root: Path, files: list[Path]) -> Iterator[tuple[Path, int, str]]:
    known, why = history(root)
    if why:
        print(f"check_docs: commits that measurements name are not checked: {why}", file=sys.stderr)
        return
    for path, line, commit in named_commits(root, files):
        if not re.fullmatch(r"[0-9a-f]{7,40}", commit) or not any(full.startswith(commit) for full in known):
            yield path, line, f"commit {commit}: not in the history"


def tracked(root: Path, pattern: str = "*") -> list[Path]:
    """The files that git tracks or would; all files where there is no git."""
    listed = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard", "-z", pattern], capture_output=True)
    names = [name for name in listed.stdout.decode().split("\0") if name] if listed.returncode == 0 else []
    return sorted(p for p in ([root / name for name in names] or root.rglob(pattern)) if p.is_file() and not p.is_symlink())


def sources(root: Path) -> list[Path]:
    """Files in which a document may be named; not the test that plants wrong names."""
    return [p for p in tracked(root) if p.suffix not in NOT_TEXT and p.name != "test_repository_checks.py"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2])
    root = parser.parse_args().root.resolve()
    repository, count, files = Repository(root), 0, tracked(root, "*.md")
    for path in files:
        for line, problem in check_document(repository, path):
            print(f"{path.relative_to(root)}:{line}: {problem}")
            count += 1
    elsewhere = ((path, *finding) for path in sources(root) for finding in check_source(root, path))
    for path, line, problem in [*misplaced(root, files), *elsewhere, *check_commits(root, files)]:
        print(f"{path.relative_to(root)}:{line}: {problem}")
        count += 1
    print(f"check_docs: {len(files)} documents, {count} problems", file=sys.stderr)
    return 1 if count or not files else 0


if __name__ == "__main__":
    raise SystemExit(main())
