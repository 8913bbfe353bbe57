// Basic blocks and natural loops of what ran, from the counts of a launch.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "emulator/program.hpp"

namespace rocm_sd::emu {

using ClassCounts = std::array<uint64_t, kClasses>;

// Instructions first to last of Program::code.
struct BasicBlock {
  uint32_t first = 0, last = 0;
  uint64_t executions = 0;  // by waves
  ClassCounts once{};       // instructions of one execution
};

// executed: by index in Program::code. Blocks that never ran are left out.
std::vector<BasicBlock> basic_blocks(const Program& program, const std::vector<uint64_t>& executed);

// A header and the blocks that lead back to it: indices of blocks, ascending.
struct NaturalLoop {
  uint32_t header = 0;
  std::vector<uint32_t> blocks;
};

// Loops of the control flow among `blocks` that starts at instruction `entry`; back edges of one header make
// one loop. Method: Aho, Sethi, Ullman, "Compilers", 1986, 10.4: dominators, back edges, what reaches their
// tails.
std::vector<NaturalLoop> natural_loops(const Program& program, const std::vector<BasicBlock>& blocks,
                                       uint32_t entry);

}  // namespace rocm_sd::emu
