// LLVM's disassembler: machine code to lines of assembly, and those lines taken apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rocm_sd::emu {

struct Line {
  uint64_t offset = 0;  // of the encoding in the section
  uint32_t bytes = 0;
  std::string text;  // empty: not an instruction
};

// Every instruction of a section of code for a target such as "gfx1100"; what does not decode is skipped by
// four bytes, with an empty text. Throws InternalError if LLVM cannot disassemble for the target.
std::vector<Line> disassemble(std::span<const std::byte> code, const std::string& target);

// "v_fma_f32 v0, -v1, |s2|, 1.0 clamp" in its parts; views into the text.
struct Assembly {
  std::string_view mnemonic;
  std::vector<std::string_view> operands;
  std::vector<std::string_view> modifiers;  // clamp, offset:16, row_shr:1, op_sel:[0,1]

  bool has(std::string_view modifier) const;
  // What follows "name:", or an empty view.
  std::string_view value(std::string_view name) const;
};
Assembly take_apart(std::string_view text);

// The numbers of "[0,1,1]"; what is not a number counts as 0.
std::vector<int> list_of(std::string_view text);

}  // namespace rocm_sd::emu
