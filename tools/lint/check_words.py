#!/usr/bin/env python3
"""Code says the field's terms: what this project once called a thing, and what a reader from the field would search for.

Looks for the old names in identifiers and comments of the source (C++, HIP, Python). A line that must name one, because it
reads files of an older version, is exempt by its path in EXEMPT. Prints file:line and exits 1.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

FOLDERS = ("src/", "include/", "apps/", "tests/", "benchmarks/", "python/", "examples/")
SUFFIXES = {".cpp", ".hpp", ".h", ".hip", ".py"}
# Pattern: the term to use.
WORDS = {
    r"copy[ _]engine|CopyEngine": "TMA",
    r"(?<!\.)\b[bB]ulk(_\w+|[A-Z]\w*)?\b": "TMA (tma_*)",
    r"wave_groups?|WaveGroup\w*|kWaveGroups": "warpgroup",
    r"let_team_start|kTeams?\b": "consumer warpgroup",
    r"sharers?\b": "multicast_size",
    r"soften\w*": "softmax",
    r"kMost\w*": "kMax",
    r"slowness": "relative_cost",
    r"settled_keys|fresh_keys|fresh_weights": "pdl_* (programmatic dependent launch)",
    r"flash_(once|wide|group|bulk)\w*|Flash(Once|Wide|Bulk)(Config|Params|Cfg)?\b": "flash_single_tile_kv, flash_large_d, flash_wgmma, flash_tma",
    r"Tail(Params|Activation|Finish)|tail_is_wide|finish_tail": "epilogue",
    r"cycles_of_a_turn": "cycles_per_iteration",
    r"FoundWays|VendorWays|ways_(on|of)\b": "algorithms",
    r"rhythms?\b": "call pattern",
    r"ParkedModel|\bparked\b": "offloaded",
    r"\bPace\b": "StepThrottle",
    r"\bbytes_held\b|\bheld_(as|short)?\b|\bis_held\w*|\bheld in (8|16|fewer) bits": "stored",
    r"\bkGroups\b": "kWarpgroups, kOccupancy, or kNormGroups",
}
PATTERN = {re.compile(pattern): term for pattern, term in WORDS.items()}
# Where a control model's input is meant, code and messages say image, as Diffusers does.
PICTURE = re.compile(r"\bpictures?\b|picture_|_picture", re.IGNORECASE)
CONTROL = re.compile(r"src/(pipeline|models)/(control|adapter_stage|t2i_adapter|canny)")
# Of pipelines and stored weights, in kernels and ops.
KERNELS = re.compile(r"src/(composable_kernels|kernels)/")
KERNEL_WORDS = {re.compile(r"\bk?[sS]lots?\b"): "stage", re.compile(r"\bheld\b"): "stored",
                re.compile(r"\buint32_t groups\b|\bkGroupsPerUnit\b"): "workgroups"}
# NVIDIA's own word, where the code is NVIDIA's.
COMPUTE_UNIT = re.compile(r"(?<!hipDeviceAttribute)[mM]ultiprocessors?")
NVIDIA = re.compile(r"arch/(nvidia|hopper)|composable_kernels/(hopper|families)/|sm_90|tma_|cuda|nvml|nvidia")
EXEMPT = {
    "src/tuning/table.cpp", "python/rocm_sd_ops/tuning.py", "tests/unit_tests/tuning/table_test.cpp",  # read tables of version 1
    "tests/integration_tests/test_repository_checks.py",  # plants violations
}


def findings(path: str, text: str) -> list[str]:
    if path in EXEMPT:
        return []
    out = []
    for number, line in enumerate(text.splitlines(), start=1):
        for pattern, term in PATTERN.items():
            if match := pattern.search(line):
                out.append(f"{path}:{number}: {match[0]!r}: the field's term is {term}")
        if not NVIDIA.search(path) and (match := COMPUTE_UNIT.search(line)):
            out.append(f"{path}:{number}: {match[0]!r}: the field's term is compute unit")
        if KERNELS.match(path):
            out += [f"{path}:{number}: {m[0]!r}: the field's term is {term}" for word, term in KERNEL_WORDS.items() if (m := word.search(line))]
        if CONTROL.match(path) and (match := PICTURE.search(line)):
            out.append(f"{path}:{number}: {match[0]!r}: the field's term is image")
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2])
    root = parser.parse_args().root
    done = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True)
    listed = done.stdout.splitlines() if done.returncode == 0 else []
    # Without git (an archive, a test's small tree): every file.
    names = listed or [path.relative_to(root).as_posix() for path in sorted(root.rglob("*")) if "build" not in path.parts]
    files = [n for n in names if n.startswith(FOLDERS) and Path(n).suffix in SUFFIXES and (root / n).is_file()]
    out = [f for name in files for f in findings(name, (root / name).read_text(encoding="utf-8", errors="replace"))]
    print("\n".join(out + [f"check_words: {len(files)} files, {len(out)} problems"]))
    return 1 if out else 0


if __name__ == "__main__":
    sys.exit(main())
