"""The checks of `make lint` fail on a planted violation, each of its kind, and accept the tree as it is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def check(repository, tmp_path):
    """check(tool, files): the tool's exit code and output on a small tree of the given files."""

    def run(tool: str, files: dict[str, str], *args: str) -> tuple[int, str]:
        layers = {"rungs": [["base"], ["runtime"], ["rooms"], ["models", "schedulers"], ["apps"]],
                  "inside": {"rooms": [["types.hpp"], ["arch"], ["tile", "grid"], ["fused"], ["whole.hpp"]]},
                  "public_headers": {"api.hpp": "models"}}
        for name, text in {"tools/lint/layers.json": json.dumps(layers), **files}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        done = subprocess.run([sys.executable, repository / "tools" / tool, "--root", tmp_path, *args],
                              capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    return run


@pytest.mark.parametrize("tool", ["check_layers.py", "check_lines.py", "check_kernels.py", "check_docs.py", "check_words.py"])
def test_tree_passes(repository, tool):
    done = subprocess.run([sys.executable, repository / "tools" / "lint" / tool], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_api_reference_is_current(repository):
    done = subprocess.run([sys.executable, repository / "tools" / "report" / "gen_api_reference.py", "--check"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


GOOD = {"src/base/a.hpp": "#pragma once\n", "src/models/m.cpp": '#include "base/a.hpp"\n#include <vector>\n'}


def test_layers_accept_going_down(check):
    assert check("lint/check_layers.py", GOOD)[0] == 0


@pytest.mark.parametrize("name, line, expected", [
    ("src/base/b.cpp", '#include "models/m.hpp"', "up the ladder"),
    ("src/models/n.cpp", '#include "schedulers/s.hpp"', "sideways the ladder"),
    ("src/models/n.cpp", '#  include "nowhere/s.hpp"', "neither a folder of the ladder"),
    ("src/runtime/r.cpp", '#include "rocm_sd/api.hpp"', "up the ladder"),
    ("src/models/n.cpp", '#include "rocm_sd/unknown.hpp"', "not in tools/lint/layers.json"),
    ("src/strange/x.cpp", "", "belongs to no rung"),
    ("include/rocm_sd/api.hpp", "#include <fmt/format.h>", "only the standard library"),
    ("include/rocm_sd/api.hpp", '#include "base/a.hpp"', "only rocm_sd/"),
    ("tests/unit_tests/base/a_test.cpp", '#include "models/m.hpp"', "up the ladder"),
    ("apps/cli/c.cpp", '#include "apps/server/s.hpp"', "neither a folder of the ladder"),
    ("examples/e.cpp", '#include "base/a.hpp"', "only public headers"),
    ("src/base/h.hpp", "#include <nlohmann/json.hpp>", ".cpp files only"),
    ("apps/cli/h.hpp", "#include <fmt/format.h>", ".cpp files only"),
])
def test_layers_refuse(check, name, line, expected):
    code, output = check("lint/check_layers.py", GOOD | {name: "// A file.\n" + line + "\n"})
    assert code == 1
    at = 1 if expected == "belongs to no rung" else 2
    assert f"{name}:{at}:" in output and expected in output


ROOMS = {"src/rooms/types.hpp": '#include "base/a.hpp"\n', "src/rooms/arch/a.hpp": '#include "rooms/types.hpp"\n',
         "src/rooms/tile/t.hpp": '#include "rooms/arch/a.hpp"\n#include "rooms/tile/u.hpp"\n', "src/rooms/tile/u.hpp": "",
         "src/rooms/fused/f.hpp": '#include "rooms/tile/t.hpp"\n#include "base/a.hpp"\n',
         "src/rooms/whole.hpp": '#include "rooms/fused/f.hpp"\n', "src/models/n.cpp": '#include "rooms/tile/t.hpp"\n'}


def test_layers_accept_going_down_inside_a_folder(check):
    assert check("lint/check_layers.py", GOOD | ROOMS)[0] == 0


@pytest.mark.parametrize("name, line, expected", [
    ("src/rooms/arch/b.hpp", '#include "rooms/tile/t.hpp"', "arch (rung 1) includes \"rooms/tile/t.hpp\" of tile (rung 2): up"),
    ("src/rooms/grid/g.hpp", '#include "rooms/tile/t.hpp"', "sideways the ladder"),
    ("src/rooms/types.hpp", '#include "rooms/whole.hpp"', "up the ladder"),
    ("src/rooms/fused/g.hpp", '#include "rooms/hall/h.hpp"', "rooms/hall belongs to no rung of rooms"),
    ("src/rooms/fused/g.hpp", '#include "models/m.hpp"', "rooms (rung 2) includes"),
    ("src/rooms/hall/h.hpp", "", "rooms/hall belongs to no rung of rooms"),
    ("src/rooms/other.hpp", "", "rooms/other.hpp belongs to no rung of rooms"),
])
def test_layers_refuse_inside_a_folder(check, name, line, expected):
    code, output = check("lint/check_layers.py", GOOD | ROOMS | {name: "// A file.\n" + line + "\n"})
    assert code == 1
    assert f"{name}:{1 if not line else 2}:" in output and expected in output


def test_layers_accept_helpers_of_tests_and_public_headers(check):
    files = GOOD | {"tests/support/s.hpp": "", "tests/unit_tests/models/helper.hpp": "",
                    "tests/unit_tests/models/m_test.cpp": '#include "support/s.hpp"\n#include "helper.hpp"\n'
                                                          '#include "rocm_sd/api.hpp"\n',
                    "apps/cli/c.hpp": "", "apps/cli/c.cpp": '#include "apps/cli/c.hpp"\n#include "models/m.hpp"\n',
                    "include/rocm_sd/api.hpp": "#include <vector>\n#include <stdint.h>\n"}
    assert check("lint/check_layers.py", files) == (0, "check_layers: 8 files, 0 violations\n")


def test_lines(check):
    assert check("lint/check_lines.py", {"src/a.cpp": "// x\n" * 600})[0] == 0
    code, output = check("lint/check_lines.py", {"src/a.cpp": "// x\n" * 601})
    assert code == 1 and "src/a.cpp:601: 601 lines" in output
    code, output = check("lint/check_lines.py", {"src/a.cpp": "// x\n" * 401})
    assert code == 0 and "warning: 401 lines" in output


def test_lines_name_long_functions(check):
    body = "  work();\n" * 60
    cpp = f"namespace n {{\nint short_one() {{\n  return 1;\n}}\n\nint long_one(int a,\n             int b) {{\n{body}}}\n}}\n"
    code, output = check("lint/check_lines.py", {"src/a.cpp": cpp, "tools/b.py": "def long_two():\n" + "    work()\n" * 60})
    assert code == 0
    assert "src/a.cpp:6: warning: long_one has 63 lines" in output
    assert "tools/b.py:1: warning: long_two has 61 lines" in output
    assert "short_one" not in output


def test_lines_name_labels_that_a_formatter_joined(check):
    head = "// A kernel.\n// Problem   y = x\n// Numerics  float      Limits  none\n"
    assert check("lint/check_lines.py", {"src/a.hip": head + "int x;  // as Problem  says\n"})[0] == 0
    code, output = check("lint/check_lines.py", {"src/a.hip": "// A kernel. Problem   y = x\n// twice Mapping\n// one lane\n"})
    assert code == 1
    assert "src/a.hip:1: Problem is joined" in output and "src/a.hip:2: Mapping is joined" in output


KERNEL = ("// A kernel.\n// Problem   y = x\n// Mapping   a lane per\n//           element\n// Traffic   once\n"
          "// Numerics  float\n// Limits    none\n#pragma once\n\ntemplate <class T>\nROCM_SD_DEVICE void copy_body(T* y) {}\n")


def kernel_tree(allowed: dict[str, int], **files: str) -> dict[str, str]:
    return {"tools/lint/kernels.json": json.dumps({"raw": allowed})} | {
        f"src/composable_kernels/{name.replace('__', '/')}.hpp": text for name, text in files.items()}


def test_kernels_accept_five_labels_and_no_raw_loops(check):
    beside = "// A part.\nROCM_SD_DEVICE int part() { return 1; }\n"  # no body: needs no labels
    assert check("lint/check_kernels.py", kernel_tree({}, fused__copy=KERNEL, fused__part=beside, hopper__copy=KERNEL,
                                                      tile__t="ROCM_SD_UNROLL\n"))[0] == 0


@pytest.mark.parametrize("old, new, expected", [
    ("// Traffic   once\n", "", "1: a kernel's head has no line for Traffic"),
    ("// Numerics  float\n// Limits    none\n", "// Numerics  float      Limits  none\n", "6: Limits is not at the start of its line"),
    ("// Traffic   once\n// Numerics  float\n", "// Numerics  float\n// Traffic   once\n", "1: labels are Problem, Mapping, Numerics"),
    ("{}", "{\n  ROCM_SD_UNROLL\n}", "12: 1 unroll pragmas"),
    ("{}", "{\n  ROCM_SD_ROLLED\n}", "12: 1 unroll pragmas"),
    ("{}", "{ typename Atom::C c[2][4]; }", "11: 1 unroll pragmas and arrays of fragments"),
    ("void copy_body(T* y) {}", "void copy_part(T* y) {}\nstruct Copy {\n  ROCM_SD_DEVICE void run() const;\n};", None),
])
def test_kernels_refuse(check, old, new, expected):
    text = KERNEL.replace(old, new)
    assert text != KERNEL
    code, output = check("lint/check_kernels.py", kernel_tree({}, fused__copy=text))
    if expected is None:
        assert code == 0
        code, output = check("lint/check_kernels.py", kernel_tree({}, fused__copy=text.replace("// Limits    none\n", "")))
        expected = "1: a kernel's head has no line for Limits"
    assert code == 1 and f"fused/copy.hpp:{expected}" in output


def test_kernels_count_what_is_still_allowed(check):
    raw = KERNEL.replace("{}", "{\n  ROCM_SD_UNROLL\n  ROCM_SD_UNROLL\n}")
    assert check("lint/check_kernels.py", kernel_tree({"copy.hpp": 2}, fused__copy=raw))[0] == 0
    assert "13: 2 unroll pragmas" in check("lint/check_kernels.py", kernel_tree({"copy.hpp": 1}, fused__copy=raw))[1]
    code, output = check("lint/check_kernels.py", kernel_tree({"copy.hpp": 3, "gone.hpp": 1}, fused__copy=raw))
    assert code == 1 and "still allows 3" in output and "gone.hpp is no file" in output


@pytest.mark.parametrize("line, term", [
    ("int bulk_plan(int);", "TMA"), ("struct BulkTile {};", "TMA"), ("// By the copy engine.", "TMA"), ("int wave_groups;", "warpgroup"),
    ("int sharers;", "multicast_size"), ("constexpr int kMostKeys = 8;", "kMax"), ("double slowness;", "relative_cost"),
    ("int multiprocessors;", "compute unit"), ("TailParams<T> p;", "epilogue"), ("bool settled_keys;", "pdl_"),
    ("// flash_wide.hpp", "flash_large_d"), ("// What a multiprocessor holds.", "compute unit"), ("size_t bytes_held();", "stored"),
    ("uint32_t groups;", "workgroups"), ("constexpr int kGroups = 2;", "kWarpgroups"), ("T* slot(int step);", "stage"), ("// Weights held in 8 bits.", "stored"),
])
def test_words_of_old_are_refused(check, line, term):
    code, output = check("lint/check_words.py", {"src/kernels/a.hpp": "// A file.\n" + line + "\n"})
    assert code == 1 and "src/kernels/a.hpp:2:" in output and term in output


def test_words_call_an_image_of_a_control_model_an_image(check):
    for line in ("int picture_height;", "Image picture;", '// Expected a picture.'):
        code, output = check("lint/check_words.py", {"src/pipeline/control_a.hpp": line + "\n", "src/pipeline/sheet.hpp": line + "\n"})
        assert code == 1 and "src/pipeline/control_a.hpp:1:" in output and "sheet.hpp" not in output


def test_words_accept_the_fields_terms(check):
    text = ('asm("cp.async.bulk.tensor.2d");\nint tma_plan;  // warpgroup, multicast\nint most;\nstruct FlashGroup {};\n')
    cuda = "// As many as a multiprocessor holds.\n"
    assert check("lint/check_words.py", {"src/a.hpp": text, "src/runtime/cuda.cpp": cuda})[0] == 0


def test_lines_take_no_call_for_a_function(check):
    text = "void f() {\n  call(1, [&] {\n" + "    work();\n" * 50 + "  });\n  {\n    work();\n  }\n}\n"
    assert "warning" not in check("lint/check_lines.py", {"src/a.cpp": text})[1].replace("0 warnings", "")


DOCS = {"Makefile": "demo: deps\n\ttrue\n", "tools/run.sh": "", "docs/howto/a.md": "# A heading\n", "docs/README.md": "[a](howto/a.md)\n",
        "apps/cli/main.cpp": 'add("generate"); option("prompt", "p"); app("-o,--output"); flag("--help"); getenv("ROCM_SD_LOG");\n'}


def test_docs_accept_what_exists(check):
    text = ("[a](docs/howto/a.md#a-heading) `docs/howto/a.md` `make demo` `std::vector` `ROCM_SD_LOG=x` `rocm-sd COMMAND --help` `widen`\n\n"
            "```sh\nmake -j2 demo PROMPT=\"a b\"\n"
            "build/cpu/rocm-sd generate -p cat \\\n  --output x.png  # draws\ntools/run.sh\n```\n")
    code, output = check("lint/check_docs.py", DOCS | {"README.md": text})
    assert code == 0, output


@pytest.mark.parametrize("text, expected", [
    ("see [b](docs/b.md)", "link to docs/b.md: no such file"),
    ("see [b](docs/howto/a.md#nothing)", "no such heading"),
    ("in `src/base/none.hpp`", "no such file or folder"),
    ("```sh\nmake demoo\n```", "`make demoo`: no such target"),
    ("```sh\nrocm-sd paint\n```", "`rocm-sd paint`: no such command"),
    ("```sh\nrocm-sd generate --promt x\n```", "--promt`: no such option"),
    ("```sh\nrocm-sd generate -z x\n```", "-z`: no such option"),
    ("```sh\ntools/none.sh\n```", "tools/none.sh: no such script"),
    ("as `rocm-sd paint` does", "`rocm-sd paint`: no such command"),
    ("as `rocm-sd generate --promt x` does", "--promt`: no such option"),
    ("after `make demoo`", "`make demoo`: no such target"),
    ("set `ROCM_SD_NONE=1`", "`ROCM_SD_NONE`: no source file names it"),
    ("one\nweights are widened", 'README.md:2: "widened": say dequantize'),
    ("by the Copy engine", '"Copy engine": say TMA'),
])
def test_docs_refuse(check, text, expected):
    code, output = check("lint/check_docs.py", DOCS | {"README.md": text + "\n"})
    assert code == 1 and "README.md:" in output and expected in output


@pytest.mark.parametrize("files, expected", [
    ({"docs/b.md": "b", "docs/README.md": "[a](howto/a.md) [b](b.md)"}, "docs/b.md:1: documents lie in docs/{"),
    ({"docs/notes/b.md": "b", "docs/README.md": "[a](howto/a.md) [b](notes/b.md)"}, "docs/notes/b.md:1: documents lie in docs/{"),
    ({"docs/lab/b.md": "b"}, "docs/lab/b.md:1: docs/README.md does not name it"),
    ({"src/a.cpp": "// one\n// docs/gone.md says why\n"}, "src/a.cpp:2: docs/gone.md: no such document"),
    ({"Makefile": "demo: ## see docs/gone.md\n"}, "Makefile:1: docs/gone.md: no such document"),
])
def test_docs_have_their_place_and_sources_name_what_exists(check, files, expected):
    assert check("lint/check_docs.py", DOCS)[0] == 0
    code, output = check("lint/check_docs.py", DOCS | files)
    assert code == 1 and expected in output, output


def test_commits_of_measurements_are_in_the_history(check, tmp_path):
    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", tmp_path, "-c", "user.name=n", "-c", "user.email=e@x", *words], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    facts = {"command": "c", "device": "d", "system": "s", "commit": "1234567"}
    code, output = check("lint/check_docs.py", DOCS | {"docs/benchmarks/a.json": json.dumps(facts)})
    assert code == 0 and "not checked: this is no git checkout" in output
    git("init", "-q")
    git("add", "-A")
    git("commit", "-q", "-m", "first")
    head = git("rev-parse", "--short=10", "HEAD")
    code, output = check("lint/check_docs.py", DOCS)
    assert code == 1 and "docs/benchmarks/a.json:1: commit 1234567: not in the history" in output
    good = {"docs/benchmarks/a.json": json.dumps(facts | {"commit": head}), "BENCHMARKS.md": f"Run at {head}; [a](https://x.org/1234abcd)\n"}
    code, output = check("lint/check_docs.py", DOCS | good)
    assert code == 0, output
    for commit in (head + " with uncommitted changes", None):
        assert check("lint/check_docs.py", good | {"docs/benchmarks/a.json": json.dumps(facts | {"commit": commit})})[0] == 1
    code, output = check("lint/check_docs.py", good | {"BENCHMARKS.md": "one\ncommits 5b8a723f and 7ac44b0\n"})
    assert code == 1 and "BENCHMARKS.md:2: commit 7ac44b0: not in the history" in output
    shallow = tmp_path.parent / f"{tmp_path.name}-shallow"
    git("add", "-A"), git("commit", "-q", "-m", "second")
    subprocess.run(["git", "clone", "-q", "--depth", "1", f"file://{tmp_path}", shallow], check=True, capture_output=True)
    done = subprocess.run([sys.executable, REPOSITORY / "tools/lint/check_docs.py", "--root", shallow], capture_output=True, text=True)
    assert done.returncode == 0 and "shallow" in done.stderr, done.stdout


def test_benchmarks_need_their_circumstances(check):
    table = "## UNet\n\n| what | seconds |\n|---|---|\n| step | 9.1 |\n"
    code, output = check("lint/check_docs.py", DOCS | {"BENCHMARKS.md": table + "Command: `make demo`\n"})
    assert code == 1
    assert all(f"figures without a line `{fact}" in output for fact in ("Device:", "System:", "Commit:"))
    facts = "Command: a\nDevice: b\nSystem: c\nCommit: d\n"
    assert check("lint/check_docs.py", DOCS | {"BENCHMARKS.md": table + facts})[0] == 0


def test_api_reference_follows_the_headers(check, tmp_path):
    header = "// Cats.\n#pragma once\nnamespace rocm_sd {\n\n// Purrs.\nclass Cat {\n public:\n  void purr();\n\n private:\n  int x_;\n};\n\n}  // namespace rocm_sd\n"
    assert check("report/gen_api_reference.py", {"include/rocm_sd/cat.hpp": header, "docs/x.md": ""})[0] == 0
    written = (tmp_path / "docs" / "reference" / "api-reference.md").read_text()
    assert "### Cat\n\nPurrs.\n" in written and "void purr();" in written and "x_" not in written
    assert check("report/gen_api_reference.py", {}, "--check")[0] == 0
    code, output = check("report/gen_api_reference.py", {"include/rocm_sd/cat.hpp": header.replace("purr()", "hiss()")}, "--check")
    assert code == 1 and "make docs" in output
