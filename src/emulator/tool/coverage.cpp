#include "emulator/tool/coverage.hpp"

#include <cstring>
#include <set>

#include "base/error.hpp"
#include "emulator/disassemble.hpp"
#include "emulator/names.hpp"
#include "emulator/translate.hpp"
#include "emulator/wrappers.hpp"

namespace rocm_sd::emu {

namespace {

// An encoding: the bits that name it, where its opcode stands, and operands to try it with.
struct Encoding {
  const char* name;
  uint64_t base;
  uint32_t shift, bits;            // of the opcode
  std::vector<uint64_t> operands;  // or'ed into the encoding, one try each
};

constexpr uint64_t high(uint64_t bits) { return bits << 32; }   // the second dword
constexpr uint64_t kV0 = 0x100;                                 // v0 as a source
constexpr uint64_t kVgprs3 = high(kV0 | kV0 << 9 | kV0 << 18);  // of VOP3: three sources
constexpr uint64_t kDpp16 = 0xfa | high(0xff000000 | 0xe4 << 8), kDpp8 = 0xe9 | high(0xfac68800);
constexpr uint64_t kSdwa = 0xf9 | high(0x06060600), kSdwaCompare = 0xf9 | high(0x06060000);
// VOP3 with a permuted source: the literal slot holds the pattern, so that the operands stand in its dword.
constexpr uint64_t kOff = high(uint64_t{0x7f} << 16), kNull = high(uint64_t{0x7c} << 16);

std::vector<Encoding> common() {
  return {
      {"SOP2", 0x80000000, 23, 7, {0, high(1)}},
      {"SOPK", 0xb0000000, 23, 5, {0, 1, 0xf801}},
      {"SOP1", 0xbe800000, 8, 8, {0, 0x80}},
      {"SOPC", 0xbf000000, 16, 7, {0}},
      {"SOPP", 0xbf800000, 16, 7, {0, 1, 3}},
      {"VOP1", 0x7e000000, 9, 8, {0, kV0}},
      {"VOP2", 0x00000000, 25, 6, {0, kV0, kV0 | high(0x3f800000)}},
      {"VOPC", 0x7c000000, 17, 8, {0, kV0}},
  };
}

std::vector<Encoding> encodings(const Target& target) {
  std::vector<Encoding> out = common();
  const auto add = [&](Encoding e) { out.push_back(std::move(e)); };
  if (target.gfx9) {
    add({"SMEM", 0xc0000000, 18, 8, {1 << 17, 0, 1 << 17 | 1 << 16}});
    add({"VOP3", 0xd0000000, 16, 10, {0, kVgprs3, high(kV0), high(kV0 | kV0 << 9)}});
    add({"VOP3P",
         0xd3800000,
         16,
         7,
         {kVgprs3, kVgprs3 | high(3 << 27), high(kV0 | kV0 << 9 | 0x80 << 18), 0}});
    add({"VOP1 DPP", 0x7e000000, 9, 8, {kDpp16}});
    add({"VOP2 DPP", 0x00000000, 25, 6, {kDpp16}});
    add({"VOP1 SDWA", 0x7e000000, 9, 8, {kSdwa}});
    add({"VOP2 SDWA", 0x00000000, 25, 6, {kSdwa}});
    add({"VOPC SDWA", 0x7c000000, 17, 8, {kSdwaCompare}});
    add({"DS", 0xd8000000, 17, 8, {0, 1 << 16}});
    add({"FLAT", 0xdc000000, 18, 7, {0, kOff, 1 << 16, kOff | 1 << 16}});
    add({"SCRATCH", 0xdc004000, 18, 7, {kOff, 0}});
    add({"GLOBAL", 0xdc008000, 18, 7, {kOff, 0, kOff | 1 << 16}});
    add({"MUBUF", 0xe0000000, 18, 7, {0, 1 << 12, 1 << 13, 1 << 14, 1 << 16}});
    add({"MTBUF", 0xe8000000, 15, 4, {1 << 19, 0}});
    return out;
  }
  add({"VOP3", 0xd4000000, 16, 10, {0, kVgprs3, high(kV0), high(kV0 | kV0 << 9)}});
  add({"VOP3P", 0xcc000000, 16, 7, {kVgprs3, kVgprs3 | high(3 << 27), kVgprs3 | high(3 << 27) | 1 << 14, 0}});
  add({"VOPD, X half", 0xc8000000, 22, 4, {kV0 | 8 << 17, 0}});
  add({"VOPD, Y half", 0xc8000000, 17, 5, {kV0 | 8 << 22, 0}});
  add({"VOP1 DPP16", 0x7e000000, 9, 8, {kDpp16}});
  add({"VOP1 DPP8", 0x7e000000, 9, 8, {kDpp8}});
  add({"VOP2 DPP16", 0x00000000, 25, 6, {kDpp16}});
  add({"VOP2 DPP8", 0x00000000, 25, 6, {kDpp8}});
  add({"VOPC DPP16", 0x7c000000, 17, 8, {kDpp16}});
  add({"VOPC DPP8", 0x7c000000, 17, 8, {kDpp8}});
  add({"VOP3 DPP16", 0xd4000000, 16, 10, {high(0xfa | kV0 << 9 | kV0 << 18), high(0xfa | kV0 << 9)}});
  add({"VOP3 DPP8", 0xd4000000, 16, 10, {high(0xe9 | kV0 << 9 | kV0 << 18), high(0xe9 | kV0 << 9)}});
  add({"VOP3P DPP16", 0xcc000000, 16, 7, {high(0xfa | kV0 << 9 | kV0 << 18 | 3 << 27)}});
  add({"VINTERP", 0xcd000000, 16, 7, {kVgprs3}});
  add({"LDS direct", 0xce000000, 20, 2, {0}});
  add({"DS", 0xd8000000, 18, 8, {0, 1 << 17}});
  add({"EXP", 0xf8000000, 4, 6, {1, 0}});
  if (target.gfx11) {
    add({"SMEM", 0xf4000000, 18, 8, {high(uint64_t{0x7c} << 25), 0}});
    add({"FLAT", 0xdc000000, 18, 7, {kNull, kNull | 1 << 14}});
    add({"SCRATCH", 0xdc010000, 18, 7, {kNull | high(1 << 23), kNull, 0}});
    add({"GLOBAL", 0xdc020000, 18, 7, {kNull, kNull | 1 << 14, 0}});
    add({"MUBUF", 0xe0000000, 18, 8, {0, 1 << 14, high(1 << 22)}});
    add({"MTBUF", 0xe8000000, 15, 4, {1 << 19, 0}});
    add({"MIMG", 0xf0000000, 18, 8, {1 << 8, 1 << 8 | 1 << 2, 1 << 8 | 5 << 2, 0}});
    return out;
  }
  const uint64_t null = 0x7c, returns = high(1 << 20);  // TH: the atomic returns
  add({"SMEM", 0xf4000000, 13, 6, {high(uint64_t{0x7c} << 25), 0}});
  add({"FLAT", 0xec000000, 14, 7, {null, null | returns}});
  add({"SCRATCH", 0xed000000, 14, 7, {null | high(1 << 17), null, 0}});
  add({"GLOBAL", 0xee000000, 14, 7, {null, null | returns, 0}});
  add({"VBUFFER", 0xc4000000, 14, 8, {null, null | returns, null | high(1 << 30), 1 << 23}});
  add({"VIMAGE", 0xd0000000, 14, 8, {1 << 22, 1 << 22 | 1, 1 << 22 | 2}});
  add({"VSAMPLE", 0xe4000000, 14, 8, {1 << 22, 1 << 22 | 1}});
  return out;
}

constexpr uint64_t kSlot = 32;  // bytes a try: an instruction of 12 at most, and no-ops

std::string plain_mnemonic(std::string_view text) {
  std::string out(take_apart(text).mnemonic);
  for (const std::string_view suffix : {"_e64_dpp", "_dpp", "_sdwa", "_e32", "_e64"})
    if (out.ends_with(suffix)) {
      out.resize(out.size() - suffix.size());
      break;
    }
  return out;
}

// The half of "v_dual_x ... :: v_dual_y ..." that an encoding varies.
std::string_view half_of(std::string_view text, bool second) {
  const size_t at = text.find(" :: ");
  return at == std::string_view::npos ? text : second ? text.substr(at + 4) : text.substr(0, at);
}

EncodingCoverage try_encoding(const Encoding& e, const Target& target) {
  EncodingCoverage out{e.name, {}};
  const uint32_t no_op = 0xbf800000;
  std::vector<std::byte> code((uint64_t{1} << e.bits) * e.operands.size() * kSlot);
  for (size_t i = 0; i < code.size(); i += 4) std::memcpy(code.data() + i, &no_op, 4);
  size_t at = 0;
  const bool contains_vop3p = (e.base == 0xd0000000) && e.bits == 10;
  for (uint64_t opcode = 0; opcode < uint64_t{1} << e.bits; ++opcode)
    for (const uint64_t operands : e.operands) {
      if (contains_vop3p && opcode >= 0x380) continue;
      const uint64_t first = e.base | opcode << e.shift | operands;
      std::memcpy(code.data() + at, &first, 8);
      at += kSlot;
    }
  const std::pair<uint64_t, uint64_t> section{0, code.size()};
  const Program program = translate(code, 0, std::span(&section, 1), target);
  // A try that does not decode leaves its second dword to be decoded on its own: only first ones count.
  for (size_t offset = 0; offset < code.size(); offset += kSlot) {
    const Inst* inst = program.at(offset);
    if (!inst || program.texts[inst->text].empty()) continue;
    const std::string& text = program.texts[inst->text];
    const bool second = std::string_view(e.name).ends_with("Y half");
    const std::string name = plain_mnemonic(half_of(text, second));
    if (name == "s_nop" && std::string_view(e.name) != "SOPP") continue;
    // A branch without a target in the section is bound after translation, and is no gap.
    bool known = inst->run != run_unknown || (inst->cls == Class::kBranch && inst->operands > 0);
    // An operation that runs without the permutation that its encoding asks for would be wrong, not done.
    if (std::string_view(e.name).find("DPP") != std::string_view::npos && name != "v_nop")
      known = known && inst->lanes != nullptr;
    for (const Inst* next = inst + 1;
         known && next < program.code.data() + program.code.size() && next->text == inst->text; ++next)
      known = next->run != run_unknown;
    bool& seen = out.mnemonics[name];
    seen = seen || known;
  }
  return out;
}

std::string list_text(const EncodingCoverage& c, bool implemented) {
  std::string out;
  for (const auto& [name, known] : c.mnemonics)
    if (known == implemented) out += concat(out.empty() ? "" : " ", name);
  return out;
}

}  // namespace

size_t EncodingCoverage::implemented() const {
  size_t out = 0;
  for (const auto& [name, known] : mnemonics) out += known ? 1 : 0;
  return out;
}

std::vector<EncodingCoverage> coverage(const std::string& name) {
  const Target target = find_target(name);
  std::vector<EncodingCoverage> out;
  for (const Encoding& e : encodings(target))
    if (EncodingCoverage c = try_encoding(e, target); !c.mnemonics.empty()) out.push_back(std::move(c));
  return out;
}

std::string coverage_markdown() {
  std::string out =
      "# What the emulated AMD GPU implements\n\n"
      "Every opcode of every encoding was given to LLVM 19's disassembler with plain operands, and what it "
      "decodes to "
      "the emulator's translator.\nWhat is missing stops a launch with its name, address and source line. "
      "Written by "
      "`rocm-sd emu coverage`; a unit test compares.\n";
  for (const char* target : {"gfx1100", "gfx1151", "gfx1201", "gfx90a", "gfx942"}) {
    const auto encodings = coverage(target);
    size_t all = 0, known = 0;
    for (const auto& e : encodings) all += e.mnemonics.size(), known += e.implemented();
    out += concat("\n## ", target, ": ", known, " of ", all,
                  "\n| encoding | LLVM | implemented | missing |\n", "|---|---|---|---|\n");
    for (const auto& e : encodings)
      out += concat("| ", e.name, " | ", e.mnemonics.size(), " | ", e.implemented(), " | ",
                    list_text(e, false), " |\n");
  }
  return out;
}

}  // namespace rocm_sd::emu
