// What a family chooses, by name: members of every Arch (arch/<family>.hpp), read by the folders above.
#pragma once

namespace rocm_sd {

// Arch::kTileCopies: how a tile gets from global memory to LDS (pipeline/).
enum class TileCopies {
  kThroughRegisters,  // loads, then stores: pipeline/product_register_staged.hpp
  kAsync,             // copies without a register between: pipeline/product_async_copies.hpp
};

// Arch::kEpilogueCode: how often a kernel has the code of its epilogue.
enum class EpilogueCode {
  kUnrolled,  // for each part of the accumulators: no part is chosen at run time
  kOnce,      // in a loop: what part it works on is chosen at run time
};

}  // namespace rocm_sd
