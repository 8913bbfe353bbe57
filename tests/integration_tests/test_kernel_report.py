"""The report of the compiled kernels: it reads what it wrote, and fails where code got worse."""

from __future__ import annotations

import dataclasses
import sys

import pytest


@pytest.fixture
def report(repository, monkeypatch):
    monkeypatch.syspath_prepend(str(repository / "tools" / "report"))
    import kernel_report
    yield kernel_report
    for name in ("kernel_report", "kernel_cost", "kernel_objects", "compare_archives"):
        sys.modules.pop(name, None)


@pytest.fixture
def row(report):
    return report.Row("gemm_f16_128x128x32", 230, 49, 40960, 0, 0, 6, 64, 16, 74, 12, 3, 0)


def test_reads_its_own_table(report, row, tmp_path):
    plain = report.Row("copy", 8, None, 0, 4, 0, None, 0, None, None, 1, 0, 2)
    path = tmp_path / "gfx1100.md"
    path.write_text(report.table("gfx1100", {"compiler": "clang"}, [row, plain]))
    assert report.read_table(path) == {"gemm_f16_128x128x32": row, "copy": plain}
    assert report.regressions(report.read_table(path), [row, plain]) == []


def test_shows_what_the_emulator_counted(report, row, tmp_path):
    """Rows of share/counts reach the table and are read again; tables from before have no such columns."""
    (tmp_path / "gfx1100.json").write_text(
        '{"kernels": {"gemm_f16_128x128x32": {"matrix_share": 0.8403, "coalescing": 1.2286, "lds_conflicts": 0.2211, '
        '"limit": "vector"}}}')
    other = dataclasses.replace(row, name="gemm_f16_64x64x32")
    before = report.table("gfx1100", {"compiler": "clang"}, [row])
    assert report.add_counts([row, other], "gfx1100", tmp_path) == 1  # the other one has no counts
    assert report.add_counts([row], "gfx942", tmp_path) == 0
    assert (row.counted, row.coalescing, row.conflicts, row.limit) == (84, 123, 22, "vector")
    path = tmp_path / "gfx1100.md"
    path.write_text(report.table("gfx1100", {"compiler": "clang"}, [row, other]))
    assert report.read_table(path) == {row.name: row, other.name: other}
    path.write_text("\n".join(line.rsplit("|", 5)[0] + "|" if line.startswith("| `") else line for line in before.split("\n")))
    assert report.read_table(path)[row.name].counted is None


@pytest.mark.parametrize("change, message", [
    ({"scratch": 64}, "scratch 64, was 0"), ({"spills": 3}, "spills 3, was 0"), ({"matrix": 0}, "no matrix instructions"),
    ({"wide": 0}, "no 128-bit loads"), ({"share": 60}, "matrix share 60%, was 74%"), ({"share": None}, "matrix share None%"),
])
def test_names_what_got_worse(report, row, change, message):
    worse = dataclasses.replace(row, **change)
    found = report.regressions({row.name: row}, [worse])
    assert len(found) == 1 and message in found[0] and row.name in found[0]
    assert report.regressions({row.name: worse}, [row]) == []


def test_a_kernel_that_vanished_is_told(report, row):
    other = dataclasses.replace(row, name="conv_f16_64x64x32")
    assert report.regressions({row.name: row, other.name: other}, [row]) == ["conv_f16_64x64x32: has vanished"]


def test_a_stale_table_is_an_error_for_its_own_compiler(report, row, tmp_path):
    path = tmp_path / "gfx1100.md"
    assert report.staleness(path, "", "clang 19") == []  # no table: nothing that could be stale
    path.write_text(report.table("gfx1100", {"compiler": "clang 19"}, [row]))
    changed = report.table("gfx1100", {"compiler": "clang 19"}, [dataclasses.replace(row, vgpr=231)])
    found = report.staleness(path, changed, "clang 19")
    assert len(found) == 1 and "stale" in found[0] and "| 231 |" in found[0]
    assert report.staleness(path, path.read_text(), "clang 19") == []
    assert report.staleness(path, changed.replace("clang 19", "clang 20"), "clang 20") == []


def sass(*instructions: int | tuple[int, int]) -> bytes:
    """Instructions of 16 bytes: an opcode, or (opcode, instructions that a branch goes on from the next one)."""
    out = b""
    for instruction in instructions:
        opcode, distance = instruction if isinstance(instruction, tuple) else (instruction, 0)
        dwords = (distance * 4) & ((1 << 56) - 1)
        far = dwords >> 8
        out += ((opcode | (dwords & 0xff) << 16 | (far & ((1 << 30) - 1)) << 34) | far >> 30 << 64).to_bytes(16, "little")
    return out


def test_the_main_loop_of_nvidias_code(report):
    objects = report.kernel_objects
    mma, add, branch = 0x23c, 0x224, 0x947
    # 0 and 5: a loop with one product around a loop with two of four instructions; 6: a branch that goes on; 7: to itself.
    code = sass(add, mma, mma, add, (branch, -4), (branch, -6), (branch, 1), (branch, -1))
    assert objects.sass_loops(code) == [(1, 4), (0, 5)]
    assert objects.sass_main_loop(code) == (2, 4)
    assert objects.sass_main_loop(sass(add, (branch, -2))) is None
    long = sass(*[add] * 300, mma, (branch, -302))  # a distance of more than 8 bits
    assert objects.sass_main_loop(long) == (1, 302)


def test_no_archive_is_an_error(report, row, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["kernel_report.py", "--build", str(tmp_path), "--docs", str(tmp_path), "--check"])
    assert report.main() == 1
    assert "no archives" in capsys.readouterr().err


def test_every_table_needs_its_archive(report, tmp_path):
    for name in ("gfx1100", "gfx90a", "sm_90"):
        (tmp_path / f"{name}.md").write_text("")
    assert report.without_archive(tmp_path, {"gfx1100"}) == ["gfx90a"]
    assert report.without_archive(tmp_path, {"gfx1100", "gfx90a", "sm_80"}) == ["sm_90"]
    assert report.without_archive(tmp_path, {"gfx1100", "gfx90a", "sm_90"}) == []


def test_a_new_kernel_must_not_spill(report, row):
    assert report.regressions({}, [row]) == []
    assert len(report.regressions({}, [dataclasses.replace(row, spills=1)])) == 1


def test_finds_comparisons_that_old_compilers_exchange(report):
    names = ["v_cmpx_ge_u32_e64", "v_cmpx_le_u32_e32", "v_cmpx_lt_u32_e64", "v_cmp_le_u32_e64", "v_cmpx_le_i32_e64"]
    assert report.exchanged_comparisons("Debian clang version 19.1.7 (3+b1)", names) == 2
    assert report.exchanged_comparisons("clang version 21.1.0", names) == 0
    assert report.exchanged_comparisons("unknown", names[2:]) == 0


# One 16x16x16 product a wave at the published rate of a SIMD: 8192 operations.
@pytest.mark.parametrize("target, name, cycles", [
    ("gfx1100", "v_wmma_f32_16x16x16_f16", 32), ("gfx1201", "v_wmma_f32_16x16x16_bf16", 16),
    ("gfx942", "v_mfma_f32_16x16x16_f16", 16), ("gfx942", "v_mfma_f32_32x32x8_f16", 32),
    ("gfx90a", "v_mfma_f32_16x16x16f16", 32), ("gfx1201", "v_wmma_f32_16x16x16_fp8_fp8", 8),
])
def test_matrix_cycles_follow_the_peak(report, target, name, cycles):
    assert report.kernel_cost.matrix_cycles(name, target) == cycles


@pytest.mark.parametrize("name, size", [
    ("global_load_b128", 16), ("global_load_dwordx4", 16), ("global_load_u16", 2), ("ds_load_b64", 8), ("ds_read2_b32", 8),
    ("ds_read_b128", 16), ("ds_load_2addr_b64", 16), ("global_load_dword", 4), ("global_load_d16_hi_b16", 2),
    ("ds_store_b8", 1), ("global_load_ushort", 2),
])
def test_bytes_of_loads(report, name, size):
    assert report.kernel_cost.bytes_per_lane(name) == size


def test_takes_the_innermost_loop_with_most_products(report):
    objects, cost = report.kernel_objects, report.kernel_cost
    names = ["v_mov_b32", "v_wmma_f32_16x16x16_f16", "v_wmma_f32_16x16x16_f16", "v_add_f32", "s_cbranch_scc1",
             "v_wmma_f32_16x16x16_f16", "s_cbranch_scc1", "s_endpgm"]
    code = [objects.Instruction(4 * i, name, "", None) for i, name in enumerate(names)]
    code[4].target, code[6].target = 4, 0  # 4..16 within 0..24
    loop = cost.main_loop(code, "gfx1100")
    assert loop.matrix == 2
    assert loop.share == pytest.approx(64 / 65)
    assert cost.main_loop(code[:4], "gfx1100") is None


def test_a_librarys_kernels_stand_beside_ours_for_the_same_work(report, row):
    theirs = dataclasses.replace(row, name="ck_gemm_f16_bias", scratch=8)
    attention = dataclasses.replace(row, name="ck_attention_f16")
    others = [dataclasses.replace(row, name=name) for name in
              ("flash_f16_d40_q16_k64_w8_s2", "flash_bf16_d40_q16_k64_w8_s2", "flash_merge_f16", "gemm_bf16_128x128x32", "gemv_f16")]
    text, wrong = report.beside("gfx1100", {"compiler": "clang"}, [row, *others, theirs, attention], "ck_")
    names = {line.split("`")[1] for line in text.splitlines() if line.startswith("| `")}
    assert names == {"ck_gemm_f16_bias", "ck_attention_f16", "gemm_f16_128x128x32", "flash_f16_d40_q16_k64_w8_s2"}
    assert wrong == ["ck_gemm_f16_bias: scratch 8"]
    with pytest.raises(SystemExit, match="no kernel is called ck_"):
        report.beside("gfx1100", {"compiler": "clang"}, [row], "ck_")


@pytest.mark.parametrize("change, same_code, word", [
    ({}, True, "identical"), ({}, False, "equal"), ({"vgpr": 104}, False, "equal"), ({"loop": 90}, False, "equal"), ({"loop": 101}, False, "equal"),
    ({"loop": 102}, False, "WORSE"), ({"spills": 1}, False, "WORSE"), ({"allocated": 112, "vgpr": 105}, False, "WORSE"),
])
def test_compares_machine_code(report, change, same_code, word):
    import compare_archives
    numbers = {"allocated": 104, "vgpr": 100, "spills": 0, "loop": 100}
    old, new = (compare_archives.Code(dict(numbers, **c), code) for c, code in (({}, "a"), (change, "a" if same_code else "b")))
    found, text = compare_archives.verdict(old, new)
    assert found == word
    assert all(f"{key} {numbers[key]}>{value}" in text for key, value in change.items())
    assert compare_archives.compare("gfx1100", {"k": old}, {}, True) == 1


@pytest.fixture
def kernel_goals(report):
    import kernel_goals
    yield kernel_goals
    sys.modules.pop("kernel_goals", None)


def test_a_goal_that_is_reached_is_held(kernel_goals, row):
    """Below its goal a kernel fails, unless it is held to less; and what needs that no more is told."""
    goal = kernel_goals.Rule("gfx1.*", "gemm_.*", (("counted", 85), ("conflicts", 5)))
    held = kernel_goals.Rule("gfx1100", "gemm_f16_128x128x32", (("counted", 80),), "for a reason")
    def checked(missed, **change):
        return kernel_goals.check("gfx1100", [dataclasses.replace(row, **change)], kernel_goals.Goals([goal], missed))
    assert checked([], counted=85, conflicts=5) == ([], [])
    assert checked([]) == ([], [])  # not counted: nothing to hold
    errors, _ = checked([], counted=84, conflicts=6)
    assert errors == ["gemm_f16_128x128x32: counted share 84 %, goal 85", "gemm_f16_128x128x32: LDS conflicts 6 %, goal 5"]
    errors, known = checked([held], counted=81)
    assert errors == [] and len(known) == 1 and "counted share 81 %, goal 85: for a reason" in known[0]
    assert checked([held], counted=79)[0] == ["gemm_f16_128x128x32: counted share 79 %, goal 85, held at 80"]
    assert "take that entry out" in checked([held], counted=85)[0][0]
    assert checked([], counted=10, matrix=0) == ([], [])  # no matrix kernel


def test_every_table_meets_the_goals(report, kernel_goals, repository):
    goals, targets = kernel_goals.read_goals(), []
    for path in sorted((repository / "docs" / "reference" / "kernel-report").glob("gfx*.md")):
        errors, _ = kernel_goals.check(path.stem, list(report.read_table(path).values()), goals)
        assert errors == [], path.stem
        targets.append(path.stem)
    assert len(targets) >= 6


def test_a_goal_without_values_or_reason_is_refused(kernel_goals, tmp_path):
    path = tmp_path / "goals.json"
    for entry in ('{"targets": "gfx9.*", "kernels": ".*"}', '{"targets": "gfx9.*", "kernels": ".*", "counted": 3}',
                  '{"targets": "gfx9.*", "kernels": ".*", "share": 3, "why": "x"}'):
        path.write_text('{"goals": [], "missed": [' + entry + "]}")
        with pytest.raises(SystemExit, match="expected targets, kernels"):
            kernel_goals.read_goals(path)
