// Which instructions of a target are implemented: every opcode that LLVM decodes is tried.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace rocm_sd::emu {

// One encoding of a target (VOP2, DS, ...): mnemonics that LLVM decodes, and whether they translate.
struct EncodingCoverage {
  std::string name;
  std::map<std::string, bool> mnemonics;  // without _e32, _e64, _dpp and _sdwa
  size_t implemented() const;
};

// Tries every opcode of every encoding, with plain operands. Throws UsageError for a target that is not
// emulated.
std::vector<EncodingCoverage> coverage(const std::string& target);

// docs/reference/emulator-coverage.md, from coverage() of one target a family.
std::string coverage_markdown();

}  // namespace rocm_sd::emu
