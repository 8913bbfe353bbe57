// Kernels of many short cases, assembled while a test runs: which operands and modifiers an encoding takes is
// what the assembler says, not what the test believes.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>

#include "base/text.hpp"
#include "unit_tests/emulator/operations.hpp"

namespace rocm_sd::emu {

// A folder that goes with its owner.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "rocm_sd_assembler_XXXXXX").string();
    if (!mkdtemp(name.data())) throw std::runtime_error("no temporary folder");
    path = name;
  }
  ~ScratchFolder() { std::filesystem::remove_all(path); }
  std::filesystem::path path;
};

// Assembles and links; the numbers of lines that the assembler refuses go into `refused`, and then there is
// no object.
inline std::vector<std::byte> assemble(const std::string& target, const std::string& text,
                                       std::set<size_t>* refused = nullptr) {
  const ScratchFolder folder;
  const auto file = [&](const char* name) { return (folder.path / name).string(); };
  std::ofstream(file("in.s")) << text;
  const std::string command =
      concat(ROCM_SD_AMD_CLANG, " -x assembler --target=amdgcn-amd-amdhsa -mcpu=", target,
             refused ? " -c " : " ", file("in.s"), " -o ", file("out"), " 2>", file("log"));
  const int status = std::system(command.c_str());
  const std::string log = read_file(file("log"), uint64_t{1} << 28);
  if (refused) {
    for (size_t at = log.find("in.s:"); at != std::string::npos; at = log.find("in.s:", at + 1)) {
      const size_t line = std::strtoul(log.c_str() + at + 5, nullptr, 10);
      if (log.compare(log.find(' ', at) + 1, 6, "error:") == 0) refused->insert(line);
    }
    if (status == 0 || !refused->empty()) return {};
  }
  if (status != 0) throw std::runtime_error(concat(command, "\n", log.substr(0, 2000)));
  const std::string bytes = read_file(file("out"), uint64_t{1} << 28);
  const auto view = std::as_bytes(std::span(bytes));
  return {view.begin(), view.end()};
}

// One wave. Each lane has 32 dwords of input in v[32:63]; a case writes v[64:71], which hold kUntouched
// before it. s[8:11] describe the input as a buffer of `records` bytes, s[12:15] the case's own output; v2 is
// the lane.
class CasesTest : public KernelTest {
 protected:
  static constexpr size_t kInputs = 32, kResults = 8;
  struct Modes {
    int denormals_32 = 3, denormals_16_64 = 3, ieee = 1;
    uint32_t records = 0;
  };
  using Lane = std::array<uint32_t, kInputs>;
  using Results = std::vector<std::array<uint32_t, kResults>>;  // by lane

  bool gfx9() const { return gpu.target().gfx9; }
  bool gfx12() const { return gpu.target().gfx12; }
  uint32_t lanes() const { return gfx9() ? 64 : 32; }
  static uint32_t sign_extend(int value) { return static_cast<uint32_t>(value); }

  // The lines of a kernel that runs the cases one after the other.
  std::string kernel_text(const std::vector<std::string>& cases, const Modes& modes) const {
    const bool old = gfx9();
    const auto load = [&](int first, int offset) {
      return concat(old ? "global_load_dwordx4 v[" : "global_load_b128 v[", first, ":", first + 3,
                    "], v1, s[4:5] offset:", offset, "\n");
    };
    const char* wait = gfx12() ? "s_wait_loadcnt 0\ns_wait_storecnt 0\ns_wait_dscnt 0\ns_wait_kmcnt 0\n"
                       : old   ? "s_waitcnt vmcnt(0) lgkmcnt(0)\n"
                               : "s_waitcnt vmcnt(0) lgkmcnt(0)\ns_waitcnt_vscnt null, 0x0\n";
    std::string out = concat(
        ".amdhsa_code_object_version 5\n.text\n.globl cases\n.p2align 8\n.type cases,@function\ncases:\n",
        old ? "s_load_dwordx4 s[4:7], s[0:1], 0x0\n" : "s_load_b128 s[4:7], s[0:1], 0x0\n",
        "v_and_b32_e32 v2, 0x3ff, v0\nv_lshlrev_b32_e32 v1, 7, v2\nv_lshlrev_b32_e32 v3, 5, v2\n",
        "v_lshlrev_b32_e32 v4, 2, v2\n", wait);
    for (int i = 0; i < 8; ++i) out += load(32 + 4 * i, 16 * i);
    out += wait;
    out += concat("s_mov_b32 s8, s4\ns_mov_b32 s9, s5\ns_mov_b32 s10, ", modes.records,
                  "\ns_mov_b32 s11, 0x27000\ns_mov_b32 s14, ", modes.records, "\ns_mov_b32 s15, 0x27000\n");
    for (const std::string& code : cases) {
      for (size_t r = 0; r < kResults; ++r) out += concat("v_mov_b32_e32 v", 64 + r, ", 0x11111111\n");
      out += concat("s_mov_b32 s12, s6\ns_mov_b32 s13, s7\n", code, "\n", wait,
                    old ? "s_nop 15\ns_nop 15\n" : "");
      for (size_t r = 0; r < kResults; r += 4)
        out += concat(old ? "global_store_dwordx4 v3, v[" : "global_store_b128 v3, v[", 64 + r, ":", 67 + r,
                      "], s[6:7] offset:", 4 * r, "\n");
      out += concat("s_add_u32 s6, s6, ", lanes() * kResults * 4, "\ns_addc_u32 s7, s7, 0\n");
    }
    out += concat(
        "s_endpgm\n.Lend:\n.size cases, .Lend-cases\n.rodata\n.p2align 6\n.amdhsa_kernel cases\n",
        ".amdhsa_group_segment_fixed_size 4096\n.amdhsa_kernarg_size 16\n",
        ".amdhsa_user_sgpr_kernarg_segment_ptr 1\n.amdhsa_next_free_vgpr 256\n.amdhsa_next_free_sgpr 64\n",
        ".amdhsa_float_denorm_mode_32 ", modes.denormals_32, "\n.amdhsa_float_denorm_mode_16_64 ",
        modes.denormals_16_64, "\n", gfx12() ? "" : concat(".amdhsa_ieee_mode ", modes.ieee, "\n"),
        old ? ".amdhsa_accum_offset 256\n" : ".amdhsa_wavefront_size32 1\n", ".end_amdhsa_kernel\n");
    return out;
  }

  // Which of the lines the assembler takes.
  std::vector<bool> accepted(const std::vector<std::string>& lines) const {
    std::string text;
    for (const std::string& line : lines) text += line + "\n";
    std::set<size_t> refused;
    assemble(GetParam().target, text, &refused);
    std::vector<bool> out(lines.size());
    for (size_t i = 0; i < lines.size(); ++i) out[i] = !refused.contains(i + 1);
    return out;
  }

  // The results of each case in every lane. All of them must assemble.
  std::vector<Results> run(const std::vector<std::string>& cases, const std::vector<Lane>& inputs,
                           const Modes& modes) {
    const CodeObject code = gpu.load(assemble(GetParam().target, kernel_text(cases, modes)), "cases");
    return run(code, cases.size(), inputs);
  }
  std::vector<Results> run(const std::vector<std::string>& cases, const std::vector<Lane>& inputs) {
    return run(cases, inputs, Modes{});
  }
  std::vector<Results> run(const CodeObject& code, size_t cases, const std::vector<Lane>& inputs) {
    const size_t each = lanes() * kResults;
    struct {
      const Lane* in;
      uint32_t* out;
    } p{upload(inputs), poisoned<uint32_t>(cases * each)};
    launch(code, "cases", {{1, 1, 1}, {lanes(), 1, 1}}, p);
    std::vector<Results> out(cases, Results(lanes()));
    for (size_t c = 0; c < cases; ++c) std::memcpy(out[c].data(), p.out + c * each, each * 4);
    return out;
  }
};

}  // namespace rocm_sd::emu
