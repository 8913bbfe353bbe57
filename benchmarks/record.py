"""Files of measurements, docs/benchmarks/*.json: one schema, which `rocm-sd bench --json` writes as well (src/measurement/record.hpp).

A record says which benchmark ran with which command on which device, driver, system and commit, when, at which clocks, and
holds tables that documents show. The program that measured writes it, by write(); nobody types one.

    {"schema": 1, "benchmark": "models", "command": "...", "device": "NVIDIA H200", "driver": "580.159.04",
     "system": "Linux 6.18, CUDA 13.0, PyTorch 2.11.0", "commit": "4b5ef12a01", "date": "2026-11-23T03:50:00Z",
     "clocks": {"source": "NVML", "core_mhz": {"min": 1710, "median": 1905, "max": 1980}, "core_max_mhz": 1980},
     "peers": ["Diffusers eager", "..."], "left_out": ["..."],
     "tables": {"unets": {"columns": [{"key": "work", "title": "work"}, ...], "rows": [{"work": "..."}]}}}
"""

from __future__ import annotations

import datetime
import json
import math
import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any, Optional

SCHEMA = 1
REPOSITORY = Path(__file__).resolve().parents[1]
FACTS = ("command", "device", "system", "commit")  # of every file
HEAD = ("schema", "benchmark", *FACTS, "driver", "date", "clocks", "peers", "tables")  # of a record


class Problem(Exception):
    """What is wrong with a record; the message names the file."""


def problems(name: str, data: Any) -> list[str]:
    """Why the data is no record, in sentences; empty for a good one."""
    if not isinstance(data, dict):
        return [f"{name}: expected an object, got {type(data).__name__}"]
    found = [f"{name}: a measurement without its {fact}" for fact in FACTS
             if not isinstance(data.get(fact), str) or not data[fact].strip()]
    if data.get("benchmark") == "analysis":  # bench_analysis_gpu: its tables are made from rows
        return found
    if data.get("schema") != SCHEMA:
        return found + [f"{name}: schema {data.get('schema')!r}: expected {SCHEMA}"]
    found += [f"{name}: a record without its {key}" for key in HEAD if key not in data and key not in FACTS]
    clocks = data.get("clocks")
    if clocks is not None and not (isinstance(clocks, dict) and {"source", "core_mhz"} <= clocks.keys()):
        found.append(f"{name}: clocks: expected null or an object with source and core_mhz")
    for title, table in (data.get("tables") or {}).items():
        keys = {column.get("key") for column in table.get("columns", [])}
        for row in table.get("rows", []):
            found += [f"{name}: table {title}: a row has {key}, for which there is no column" for key in row.keys() - keys]
    return found


def read(path: Path) -> dict:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Problem(f"{path.name}: {error}") from None
    found = problems(path.name, data)
    if found:
        raise Problem("; ".join(found))
    return data


def rounded(value: Any) -> Any:
    """Six digits: more are noise. JSON has no NaN: null."""
    if isinstance(value, dict):
        return {key: rounded(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(v) for v in value]
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() else float(f"{value:.6g}")


def dump(data: dict) -> str:
    """JSON with one line for each row and column."""
    text = json.dumps(rounded(data), indent=1, ensure_ascii=False, allow_nan=False)

    def joined(match: re.Match) -> str:
        return re.sub(r"\n\s*", " ", match[0]).replace("{ ", "{").replace(" }", "}").replace("[ ", "[").replace(" ]", "]")

    return re.sub(r"\{[^{}]*\}", joined, text) + "\n"


def write(path: Path, data: dict) -> None:
    """At once and whole: a benchmark that is killed leaves what it had."""
    found = problems(path.name, data)
    if found:
        raise Problem("; ".join(found))
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(dump(data), encoding="utf-8")
    os.replace(part, path)


def now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def commit(root: Path = REPOSITORY) -> str:
    """Of the tree: "4b5ef12a01", "... with uncommitted changes", or "unknown" outside a checkout."""
    def git(*words: str) -> Optional[str]:
        try:
            done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True)
        except OSError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    head = git("rev-parse", "--short=10", "HEAD")
    return "unknown" if not head else head + (" with uncommitted changes" if git("status", "--porcelain", "--untracked-files=no") else "")


def cpu_name() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    return next((line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith("model name")),
                platform.processor() or platform.machine() or "CPU")


def system(*more: str) -> str:
    return ", ".join([f"{platform.system()} {platform.release().split('-')[0]}", *more])


def new(benchmark: str, command: str, device: str, driver: str, system_text: str, commit_text: str, clocks: Optional[dict],
        peers: list[str], tables: dict, left_out: Optional[list[str]] = None) -> dict:
    return {"schema": SCHEMA, "benchmark": benchmark, "command": command, "device": device, "driver": driver, "system": system_text,
            "commit": commit_text, "date": now(), "clocks": clocks, "peers": peers, "left_out": left_out or [], "tables": tables}


def table(columns: dict[str, Any], rows: list[dict]) -> dict:
    """columns: key -> title, or key -> {"title", "digits", "unit", ...}."""
    return {"columns": [{"key": key} | ({"title": c} if isinstance(c, str) else c) for key, c in columns.items()], "rows": rows}


def faster(theirs: Optional[float], ours: Optional[float]) -> Optional[float]:
    """How many times as fast ours is, from two times of the same run."""
    return theirs / ours if theirs and ours else None
