"""tools/new_op.py in a copy of the source tree: what it writes compiles with the build's own commands, and passes the tests of all
ops on the CPU and on emulated AMD GPUs."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

NAME = "shrink_by"
EXAMPLE = f"{NAME} f32 [1000] by 2.5"


def run(command: str, folder: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, shell=True, cwd=folder, env={**os.environ, **(env or {})}, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def commands(build_dir: Path, target: str) -> list[str]:
    return run(f"ninja -t commands {target}", build_dir).splitlines()


class NewOp:
    """The op in a copied tree; its objects, which programs of the build are linked with once more."""

    def __init__(self, repository: Path, build_dir: Path, folder: Path) -> None:
        self.repository, self.build, self.folder, self.tree = repository, build_dir, folder, folder / "tree"
        for part in ("src", "include", "tests", "tools"):
            shutil.copytree(repository / part, self.tree / part, ignore=shutil.ignore_patterns("__pycache__", "data"))
        self.written = run(f"{sys.executable} {self.tree}/tools/new_op.py {NAME}", self.tree).split()
        compiled = json.loads((build_dir / "compile_commands.json").read_text())
        # Bodies are compiled a second time under sanitizers, for a program of their own.
        self.by_file = {e["file"]: e for e in compiled if "test_scalar_bodies.dir" not in e["command"]}
        self.objects = [self.compiled("src/kernels/ops.cpp", "src/kernels/ops.cpp"),
                        self.compiled(f"src/kernels/{NAME}/{NAME}.cpp", "src/kernels/dequantize/dequantize.cpp")]

    def compiled(self, file: str, like: str) -> Path:
        """The object of a file of the tree, made as the build makes that of another file."""
        entry = self.by_file[str(self.repository / like)]
        words = [w.replace(str(self.repository), str(self.tree)) if "/build" not in w else w for w in shlex.split(entry["command"])]
        target = self.folder / (file.replace("/", ".") + ".o")
        words[words.index("-o") + 1] = str(target)
        words[words.index("-c") + 1] = str(self.tree / file)
        run(shlex.join(words), Path(entry["directory"]))
        return target

    def linked(self, program: str, more: list[Path] | None = None) -> Path:
        """A program of the build with the op's objects in front: a linker takes the first of what is defined twice."""
        line = next(c for c in reversed(commands(self.build, program)) if re.search(rf" -o \S*{re.escape(program)} ", c))
        link = next(part for part in line.split(" && ") if " -o " in part)
        target = self.folder / program
        link = re.sub(r" -o \S+ ", f" -o {target} ", link, count=1)
        compiler, rest = link.split(" ", 1)
        run(f"{compiler} {shlex.join(map(str, self.objects + (more or [])))} {rest}", self.build)
        return target

    def archive(self, target: str) -> Path:
        """The target's kernels with the op's own."""
        all_commands = commands(self.build, f"kernels_{target}")
        kernel = next(c for c in all_commands if "/dequantize.hip" in c)
        words = shlex.split(kernel.split(" && ")[1])
        made = self.folder / f"{NAME}.{target}.co"
        words[words.index("-o") + 1] = str(made)
        words[words.index("-c") + 1] = str(self.tree / f"src/kernels/{NAME}/{NAME}.hip")
        for flag in ("-MF", "-MT"):
            words[words.index(flag) + 1] = f"{made}.d"
        run(shlex.join(w.replace(f"-I{self.repository}/", f"-I{self.tree}/") for w in words), self.build)
        folder = self.folder / "kernels"
        folder.mkdir(exist_ok=True)
        pack = shlex.split(all_commands[-1].split(" && ")[1])
        pack[1] = str(folder / Path(pack[1]).name)
        run(shlex.join([*pack, str(made)]), self.build)
        return folder


@pytest.fixture(scope="module")
def new_op(repository, build_dir, tmp_path_factory):
    return NewOp(repository, build_dir, tmp_path_factory.mktemp("new_op"))


def test_is_small_and_listed(new_op):
    lines = sum(len((new_op.tree / path).read_text().splitlines()) for path in new_op.written if NAME in path)
    assert lines < 120
    assert f"ROCM_SD_OP_ENTRY({NAME})" in (new_op.tree / "src/kernels/op_list.inc").read_text()
    again = subprocess.run([sys.executable, new_op.tree / "tools/new_op.py", NAME], capture_output=True, text=True)
    assert again.returncode == 1 and "exists" in again.stderr
    wrong = subprocess.run([sys.executable, new_op.tree / "tools/new_op.py", "NotSnake"], capture_output=True, text=True)
    assert wrong.returncode == 1 and "snake_case" in wrong.stderr


def test_is_formatted_as_make_lint_wants(new_op, repository):
    shutil.copy(repository / ".clang-format", new_op.tree / ".clang-format")
    sources = [str(new_op.tree / p) for p in new_op.written if p.endswith((".cpp", ".hpp", ".hip"))]
    run(f"{repository}/.venv/bin/clang-format --dry-run --Werror {shlex.join(sources)}", new_op.tree)


def test_passes_on_the_cpu(new_op):
    test = new_op.compiled(f"tests/unit_tests/kernels/{NAME}_test.cpp", "tests/unit_tests/kernels/blend_test.cpp")
    program = new_op.linked("test_measurement", [test])
    own = "".join(word.capitalize() for word in NAME.split("_"))
    said = run(f"{program} --gtest_filter={own}.*:Runner.EveryCandidate*:Workload.EveryOps*", new_op.folder)
    assert re.search(r"\[  PASSED  \] 3 tests", said), said


def test_is_callable_through_the_c_interface(new_op):
    said = run(f"{new_op.linked('test_kernel_library')} --gtest_filter=PlanOp.EveryExample*", new_op.folder)
    assert "[  PASSED  ] 1 test" in said


def test_is_benchable(new_op):
    program = new_op.linked("rocm-sd")
    report = json.loads(run(f"{program} bench --device cpu --mode check --impl '*' --quiet --json - '{EXAMPLE}'", new_op.folder))
    text = json.dumps(report)
    assert f'"{NAME}"' in text and '"scalar"' in text, text


def test_passes_on_emulated_gpus(new_op, build_dir):
    targets = [re.sub(r".*kernels_(\w+)\.rsk", r"\1", str(p)) for p in (build_dir / "lib").glob("kernels_gfx*.rsk")]
    assert targets, "no kernels for an AMD target are built (ROCM_SD_ARCHS)"
    program = new_op.linked("test_gpu_measurement")
    for target in targets:
        env = {"ROCM_SD_TEST_DEVICE": f"emu:{target}", "ROCM_SD_KERNELS": str(new_op.archive(target)), "OMP_NUM_THREADS": "1"}
        said = run(f"{program} --gtest_filter=GpuOps*", new_op.folder, env)
        assert "[  PASSED  ] 1 test" in said, said
