#!/usr/bin/env python3
"""The ladder of folders: a folder of src/ includes only from itself and from lower rungs of tools/lint/layers.json.

A folder may have a ladder of its own ("inside"), of its folders and of the files that lie beside them.

Checked are src/, apps/, include/, examples/ and tests/. Public headers (include/rocm_sd) include public headers and the
standard library only; tests of a folder may use what the folder itself may, and tests/support. Headers of src/ and apps/ do not
include libraries that take a second to parse (HEAVY; docs/howto/building.md). Prints file:line for each
violation and exits 1 if there is one.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

TEMPLATES = "composable_kernels/ck_sd_templates.hpp"  # installed below include/rocm_sd, with what it includes
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:<([^>]+)>|"([^"]+)")')
HEAVY = re.compile(r"^(fmt/(format|ranges|chrono|std)\.h|spdlog/.*|nlohmann/json\.hpp)$")
HEAVY_ALLOWED = {"src/weights/component_loader.hpp", "src/measurement/bench.hpp"}  # hold values of JSON; few files include them
SUFFIXES = {".hpp", ".cpp", ".h", ".c", ".hip", ".cu"}
# Headers of C and C++: no folder, no suffix; or a C header's old name.
STANDARD = re.compile(r"^[a-z_]+$|^(assert|errno|float|inttypes|limits|math|stdarg|stdbool|stddef|stdint|stdio|stdlib|"
                      r"string|time)\.h$")


class Ladder:
    def __init__(self, table: dict):
        self.rung = {module: height for height, rung in enumerate(table["rungs"]) for module in rung}
        self.public = table["public_headers"]
        self.inside = {module: {name: height for height, rung in enumerate(rungs) for name in rung}
                       for module, rungs in table.get("inside", {}).items()}

    def refuses(self, includer: str, header: str) -> str | None:
        """Why a file of module `includer` may not include the project header; None where it may."""
        folder, _, rest = header.partition("/")
        if folder == "rocm_sd":
            module = self.public.get(rest)
            if module is None:
                return f'public header "{header}" is not in tools/lint/layers.json: name the folder that implements it there'
        elif folder in self.rung and folder != "apps":
            module = folder
        else:
            return f'"{header}" is neither a folder of the ladder nor a header beside the file'
        return climbs(self.rung, includer, header, module)

    def refuses_inside(self, module: str, room: str, header: str) -> str | None:
        """The same of a file in folder `room` of a module that has a ladder inside, and a header of the module."""
        rung, other = self.inside[module], header.split("/")[1]
        if other not in rung:
            return f'"{header}": {module}/{other} belongs to no rung of {module} in tools/lint/layers.json'
        return climbs(rung, room, header, other)


def climbs(rung: dict[str, int], includer: str, header: str, module: str) -> str | None:
    """Why `includer` may not include the header of `module`, by their rungs; None where it may."""
    if module == includer or rung[module] < rung[includer]:
        return None
    way = "sideways" if rung[module] == rung[includer] else "up"
    return f'{includer} (rung {rung[includer]}) includes "{header}" of {module} (rung {rung[module]}): {way} the ladder'


def check_file(root: Path, path: Path, ladder: Ladder) -> list[tuple[int, str]]:
    parts = path.relative_to(root).parts
    public = parts[0] == "include"
    includer = module_of(parts, ladder)
    if includer is not None and includer not in ladder.rung:
        return [(1, f"folder {'/'.join(parts[:-1])} belongs to no rung of tools/lint/layers.json")]
    room = parts[2] if parts[0] == "src" and parts[1] in ladder.inside else None
    if room is not None and room not in ladder.inside[parts[1]]:
        return [(1, f"{parts[1]}/{room} belongs to no rung of {parts[1]} in tools/lint/layers.json")]
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        match = INCLUDE.match(line)
        if not match:
            continue
        angled, quoted = match.groups()
        if public and angled is not None and not angled.startswith("rocm_sd/"):
            if not STANDARD.match(angled):
                found.append((number, f"public header includes <{angled}>: only the standard library is allowed"))
            continue
        if angled and HEAVY.match(angled) and parts[0] in ("src", "apps") and path.suffix == ".hpp" and "/".join(parts) not in HEAVY_ALLOWED:
            found.append((number, f"header includes <{angled}>: .cpp files only (nlohmann/json_fwd.hpp, base/format.hpp; docs/howto/building.md)"))
            continue
        header = quoted or (angled if angled.startswith("rocm_sd/") else None)
        if header is None:
            continue
        if public and not header.startswith("rocm_sd/"):
            found.append((number, f'public header includes "{header}": only rocm_sd/ and the standard library'))
            continue
        if parts[0] in ("apps", "tests", "examples") and helper_beside(root, path, header):
            continue
        if parts[0] == "examples" and header != TEMPLATES and not header.startswith("rocm_sd/"):
            found.append((number, f'example includes "{header}": only public headers are allowed'))
            continue
        if room is not None and header.startswith(f"{parts[1]}/"):
            why = ladder.refuses_inside(parts[1], room, header)
        else:
            why = ladder.refuses(includer or top(ladder), header)
        if why:
            found.append((number, why))
    return found


def helper_beside(root: Path, path: Path, header: str) -> bool:
    """A header of the same app, the same test folder, tests/support, or the one of the GPU tests."""
    if (path.parent / header).is_file():
        return True
    parts = path.relative_to(root).parts
    if parts[0] == "tests":
        target = root / "tests" / header
        if not target.is_file():
            return False
        shared = ("support", "gpu_tests") if parts[1] == "gpu_tests" else ("support",)
        return Path(header).parts[0] in shared or target.is_relative_to(root.joinpath(*parts[:3]))
    return parts[0] == "apps" and header.startswith(f"apps/{parts[1]}/") and (root / header).is_file()


def module_of(parts: tuple[str, ...], ladder: Ladder) -> str | None:
    """The module whose rights a file has; None: those of the ladder's top."""
    if parts[0] == "src":
        return parts[1]
    if parts[0] == "include":
        return ladder.public.get("/".join(parts[2:]))
    if parts[0] == "tests" and parts[1] in ("unit_tests", "gpu_tests"):
        return parts[2] if len(parts) > 3 else None
    return None


def top(ladder: Ladder) -> str:
    return "apps" if "apps" in ladder.rung else max(ladder.rung, key=ladder.rung.__getitem__)


def source_files(root: Path) -> list[Path]:
    listed = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard", "-z"], capture_output=True)
    names = listed.stdout.decode().split("\0") if listed.returncode == 0 else []
    paths = [root / name for name in names if name] or [p for p in root.rglob("*") if p.is_file()]
    tops = {"src", "apps", "include", "tests", "examples"}
    return sorted(p for p in paths if p.suffix in SUFFIXES and p.is_file() and p.relative_to(root).parts[0] in tops)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2])
    args = parser.parse_args()
    root = args.root.resolve()
    ladder = Ladder(json.loads((root / "tools" / "lint" / "layers.json").read_text()))
    count = 0
    files = source_files(root)
    for path in files:
        for line, message in check_file(root, path, ladder):
            print(f"{path.relative_to(root)}:{line}: {message}")
            count += 1
    print(f"check_layers: {len(files)} files, {count} violations", file=sys.stderr)
    return 1 if count or not files else 0


if __name__ == "__main__":
    raise SystemExit(main())
