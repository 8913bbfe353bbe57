// Which algorithm computes a linear layer or a convolution on which family, and why. linear_gpu_choice.cpp,
// linear_eight_bit_choice.cpp and conv2d_gpu_choice.cpp read the rows; so does docs/reference/kernel-map.md.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "kernels/family/kernel_map.hpp"
#include "kernels/family/kernel_tables.hpp"

namespace rocm_sd {

enum class Elements { k16Bit, kF32, k8Bit };

// What a row may ask of a problem's shape.
enum class GemmShape {
  kAny,
  kFewRows,      // at most kGemvRows
  kUnaligned,    // rows that are not of 16-byte pieces
  kAligned,      // rows of 16-byte pieces
  kWholeSteps,   // aligned, and no step of the depth is broken
  kTmaColumns,   // aligned, and the output has a multiple of 32 columns
  kTmaOutput,    // the same in x's type
  kWholeBlocks,  // of a convolution: channels in blocks of 64, and kTmaOutput
  kHalos,        // the same, and its pixels lie in boxes that serve all taps
  kResident,     // of a convolution: one input in blocks of 32 channels, and else as kHalos
};
inline constexpr int64_t kGemvRows = 8;

// A problem as the rows see it.
struct GemmFacts {
  Elements elements = Elements::k16Bit;
  int64_t columns = 0;  // of the output
  bool few_rows = false, aligned = true, whole_steps = false, tma_columns = false, tma_output = false;
  bool whole_blocks = false, halos = false, resident = false;
  bool is(GemmShape shape) const;
};

struct GemmMapRow {
  FamilySet families;
  Elements elements = Elements::k16Bit;
  GemmShape shape = GemmShape::kAny;
  Range columns;  // of the output
  GemmAlgorithm algorithm = GemmAlgorithm::kTiles;
  int rank = 0;  // the least that a problem has is taken; algorithms of one rank are compared by cost
  const char* reason;
};
std::span<const GemmMapRow> linear_map();
std::span<const GemmMapRow> conv_map();

// The first row for the algorithm, or null: the family does not compute the problem so.
const GemmMapRow* gemm_row(std::span<const GemmMapRow> map, const KernelTables& family,
                           const GemmFacts& facts, GemmAlgorithm algorithm);

std::string conditions_of(const GemmMapRow& row);  // "f16, bf16; at most 8 rows"
// The algorithms of the map that do not take the problem, with what they take.
std::vector<std::string> refusals_of(std::span<const GemmMapRow> map, const KernelTables& family,
                                     const GemmFacts& facts);

// "128x160x64g": rows, columns and depth of a step, and a letter or two for the algorithm, as choices name
// them. elements_per_step: 2 where the depth counts pairs.
std::string describe(const GemmConfig& config, int elements_per_step = 1);

const char* to_text(Elements elements);
const char* to_text(GemmShape shape);
const char* to_text(GemmAlgorithm algorithm);

}  // namespace rocm_sd
