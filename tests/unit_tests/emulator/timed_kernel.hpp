// Assembled kernels, played by the time model. The machine is made up for them, with round numbers, so that a
// mistake of the model is not one of a card's figures.
#pragma once

#include "emulator/launch_time.hpp"
#include "unit_tests/emulator/assembler.hpp"

namespace rocm_sd::emu {

inline Machine round_machine(const std::string& target) {
  const bool rdna = target.starts_with("gfx1");
  Machine m;
  m.name = "round";
  m.target = target;
  m.gigahertz = 1;  // a cycle is a nanosecond
  m.compute_units = 2;
  m.simds = rdna ? 2 : 4;
  m.waves_per_simd = rdna ? 16 : 8;
  m.lds_kib = rdna ? 128 : 64;
  m.issue = rdna ? 1 : 4;
  m.vector_latency = rdna ? 5 : 8;
  m.trans_latency = rdna ? 10 : 16;
  m.scalar_latency = rdna ? 2 : 4;
  m.matrix_latency = 12;
  m.branch_latency = 16;
  m.scalar_load = 40;
  m.lds_latency = 64;
  m.l0_latency = 100;
  m.barrier = 8;
  m.group_start = 100;
  m.queue = 64;
  m.l0_kib = 16;
  m.lds_bytes = 128;
  m.l0_bytes = m.request_bytes = 64;
  m.l2_bytes = 4096;
  m.l2_mb = 4;
  m.l2s = 1;
  m.l2_latency = 200;
  m.memory_gb = 1000;
  m.memory_latency = 500;
  return m;
}

class Timing : public KernelTest {
 protected:
  bool gfx9() const { return gpu.target().gfx9; }
  bool gfx12() const { return gpu.target().gfx12; }
  double lanes() const { return gfx9() ? 64 : 32; }
  std::string wait_all() const {
    return gfx12() ? "s_wait_loadcnt 0\ns_wait_dscnt 0\ns_wait_kmcnt 0\n" : "s_waitcnt vmcnt(0) lgkmcnt(0)\n";
  }
  static std::string times(int n, const std::string& text) {
    std::string out;
    for (int i = 0; i < n; ++i) out += text + "\n";
    return out;
  }
  std::string barrier() const { return gfx12() ? "s_barrier_signal -1\ns_barrier_wait -1\n" : "s_barrier\n"; }

  // A kernel of these lines. s[4:5]: its argument, a pointer; v0: the thread; v1: the wave's lane.
  std::string kernel(const std::string& code, int registers = 64, int lds = 0) const {
    const bool old = gfx9();
    return concat(
        ".amdhsa_code_object_version 5\n.text\n.globl timed\n.p2align 8\n.type timed,@function\ntimed:\n",
        old ? "s_load_dwordx2 s[4:5], s[0:1], 0x0\n" : "s_load_b64 s[4:5], s[0:1], 0x0\n",
        "v_and_b32_e32 v0, 0x3ff, v0\n", wait_all(), code,
        "s_endpgm\n.Lend:\n.size timed, .Lend-timed\n.rodata\n",
        ".p2align 6\n.amdhsa_kernel timed\n.amdhsa_group_segment_fixed_size ", lds,
        "\n.amdhsa_kernarg_size 8\n.amdhsa_user_sgpr_kernarg_segment_ptr 1\n.amdhsa_next_free_vgpr ",
        registers, "\n.amdhsa_next_free_sgpr 64\n.amdhsa_system_sgpr_workgroup_id_x 1\n",
        old ? concat(".amdhsa_accum_offset ", std::min(registers, 256), "\n")
            : ".amdhsa_wavefront_size32 1\n.amdhsa_workgroup_processor_mode 0\n",
        ".end_amdhsa_kernel\n.amdgpu_metadata\n---\namdhsa.version: [1, 2]\namdhsa.kernels:\n  - .name: "
        "timed\n",
        "    .symbol: timed.kd\n    .kernarg_segment_size: 8\n    .group_segment_fixed_size: ", lds,
        "\n    .private_segment_fixed_size: 0\n    .kernarg_segment_align: 8\n    .wavefront_size: ", lanes(),
        "\n    .sgpr_count: 64\n    .vgpr_count: ", registers, "\n    .max_flat_workgroup_size: 1024\n",
        "    .args:\n      - {.size: 8, .offset: 0, .value_kind: global_buffer, .address_space: global}\n",
        ".end_amdgpu_metadata\n");
  }

  struct Case {
    std::string code;
    int registers = 64, lds = 0;
    uint32_t waves = 1, groups = 1;
    size_t bytes = 4096;
  };
  LaunchTime time(const Case& c, const Machine& machine) {
    const CodeObject code =
        gpu.load(assemble(GetParam().target, kernel(c.code, c.registers, c.lds)), "timed");
    void* data = gpu.allocate(c.bytes);
    const Launch launch{{c.groups, 1, 1}, {static_cast<uint32_t>(c.waves * lanes()), 1, 1}};
    const LaunchTime out =
        gpu.time(code, "timed", launch, std::as_bytes(std::span(&data, 1)), machine, TimeOptions{});
    gpu.free(data);
    return out;
  }
  // Cycles that `code` adds to an otherwise empty kernel.
  double cycles(Case c) {
    const Machine m = round_machine(GetParam().target);
    const double with = time(c, m).processor.ends.back();
    c.code.clear();
    return with - time(c, m).processor.ends.back();
  }
};

}  // namespace rocm_sd::emu
