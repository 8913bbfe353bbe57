#include "kernels/family/gemm_map.hpp"

#include "base/error.hpp"

namespace rocm_sd {
namespace {

using enum GemmAlgorithm;

constexpr FamilySet kHopper = families_of<HopperFamily>();
constexpr FamilySet kCdna = families_of<Cdna3Family>();
constexpr FamilySet kEightBit = families_with_eight_bit_gemm();

constexpr const char* kReadOnce = "up to 8 rows are bound by reading the weight, which it does once";
constexpr const char* kPieces = "copies move 16 bytes; it reads any rows";
constexpr const char* kFetched = "a producer fetches tiles ahead and no lane computes addresses";
constexpr const char* kBeside = "as TMA; the epilogue of a tile runs beside the MMA of the next";
constexpr const char* kWarpgroups = "warpgroup MMA reads operands from LDS by itself";
constexpr const char* kFillsLds = "loads fill LDS without a register between";
constexpr const char* kBrokenStep = "as loads to LDS, but through registers: a step is broken";
constexpr const char* kEverywhere = "the kernel that every family has";
constexpr const char* kMultiplyAdds = "f32 by multiply-adds: --dtype f32 and runs again in a wider type";

constexpr GemmMapRow kLinear[] = {
    {.families = kAllFamilies, .shape = GemmShape::kFewRows, .algorithm = kGemv, .reason = kReadOnce},
    {.families = kAllFamilies, .shape = GemmShape::kUnaligned, .algorithm = kGemv, .reason = kPieces},
    {.families = kHopper, .shape = GemmShape::kTmaOutput, .algorithm = kTma, .rank = 1, .reason = kFetched},
    {.families = kHopper,
     .shape = GemmShape::kTmaOutput,
     .algorithm = kTmaPingPong,
     .rank = 1,
     .reason = kBeside},
    {.families = kHopper,
     .shape = GemmShape::kAligned,
     .algorithm = kWgmma,
     .rank = 2,
     .reason = kWarpgroups},
    {.families = kAllFamilies, .shape = GemmShape::kAligned, .rank = 2, .reason = kEverywhere},
    {.families = kCdna,
     .shape = GemmShape::kWholeSteps,
     .algorithm = kLoadsToLds,
     .rank = 2,
     .reason = kFillsLds},
    {.families = kCdna,
     .shape = GemmShape::kAligned,
     .algorithm = kLoadsToLds,
     .rank = 3,
     .reason = kBrokenStep},

    {.families = kAllFamilies,
     .elements = Elements::kF32,
     .shape = GemmShape::kFewRows,
     .algorithm = kGemv,
     .reason = kReadOnce},
    {.families = kAllFamilies,
     .elements = Elements::kF32,
     .shape = GemmShape::kUnaligned,
     .algorithm = kGemv,
     .reason = kPieces},
    {.families = kAllFamilies,
     .elements = Elements::kF32,
     .shape = GemmShape::kAligned,
     .rank = 2,
     .reason = kMultiplyAdds},

    {.families = kHopper,
     .elements = Elements::k8Bit,
     .shape = GemmShape::kTmaColumns,
     .algorithm = kTma,
     .rank = 1,
     .reason = kFetched},
    {.families = kEightBit,
     .elements = Elements::k8Bit,
     .shape = GemmShape::kAligned,
     .rank = 2,
     .reason = "8-bit MMA (gfx942 of cdna3; f8e4m3 from sm_89 on)"},
};

constexpr GemmMapRow kConv[] = {
    {.families = kHopper,
     .shape = GemmShape::kResident,
     .columns = at_most(31),
     .algorithm = kTmaResident,
     .reason = "pixels and filter are fetched once; that a warpgroup's MMA is mostly idle costs less"},
    {.families = kHopper,
     .columns = at_most(31),
     .rank = 1,
     .reason = "few channels would leave most of a warpgroup's MMA idle"},
    {.families = kHopper,
     .shape = GemmShape::kHalos,
     .algorithm = kTmaHalo,
     .rank = 1,
     .reason = "as TMA; pixels are fetched once for all taps of the filter"},
    {.families = kHopper,
     .shape = GemmShape::kHalos,
     .algorithm = kTmaHaloPingPong,
     .rank = 1,
     .reason = "as TMA with halos; the epilogue of a tile runs beside the MMA of the next"},
    {.families = kHopper,
     .shape = GemmShape::kResident,
     .algorithm = kTmaResident,
     .rank = 1,
     .reason = "as TMA with halos; a workgroup fetches its filter once, where LDS holds it"},
    {.families = kHopper, .shape = GemmShape::kWholeBlocks, .algorithm = kTma, .rank = 1, .reason = kFetched},
    {.families = kHopper,
     .shape = GemmShape::kWholeBlocks,
     .algorithm = kTmaPingPong,
     .rank = 1,
     .reason = kBeside},
    {.families = kHopper, .algorithm = kWgmma, .rank = 2, .reason = kWarpgroups},
    {.families = kAllFamilies, .rank = 3, .reason = kEverywhere},
    {.families = kCdna,
     .shape = GemmShape::kWholeSteps,
     .algorithm = kLoadsToLds,
     .rank = 3,
     .reason = kFillsLds},
    {.families = kCdna, .algorithm = kLoadsToLds, .rank = 4, .reason = kBrokenStep},
    {.families = kAllFamilies, .elements = Elements::kF32, .rank = 3, .reason = kMultiplyAdds},
};

}  // namespace

bool GemmFacts::is(GemmShape shape) const {
  switch (shape) {
    case GemmShape::kAny: return true;
    case GemmShape::kFewRows: return few_rows;
    case GemmShape::kUnaligned: return !aligned;
    case GemmShape::kAligned: return aligned;
    case GemmShape::kWholeSteps: return aligned && whole_steps;
    case GemmShape::kTmaColumns: return aligned && tma_columns;
    case GemmShape::kTmaOutput: return aligned && tma_columns && tma_output;
    case GemmShape::kWholeBlocks: return whole_blocks;
    case GemmShape::kHalos: return whole_blocks && halos;
    case GemmShape::kResident: return resident;
  }
  return false;
}

std::span<const GemmMapRow> linear_map() { return kLinear; }
std::span<const GemmMapRow> conv_map() { return kConv; }

const GemmMapRow* gemm_row(std::span<const GemmMapRow> map, const KernelTables& family,
                           const GemmFacts& facts, GemmAlgorithm algorithm) {
  for (const GemmMapRow& row : map)
    if (row.algorithm == algorithm && row.families.has(family.index) && row.elements == facts.elements &&
        row.columns.has(facts.columns) && facts.is(row.shape))
      return &row;
  return nullptr;
}

std::string conditions_of(const GemmMapRow& row) {
  std::string text = to_text(row.elements);
  if (row.shape != GemmShape::kAny) text += concat("; ", to_text(row.shape));
  if (row.columns != kAny) text += concat("; columns of the output ", to_text(row.columns));
  return text;
}

std::vector<std::string> refusals_of(std::span<const GemmMapRow> map, const KernelTables& family,
                                     const GemmFacts& facts) {
  std::vector<std::string> out;
  for (const GemmMapRow& row : map)
    if (row.elements == facts.elements && !gemm_row(map, family, facts, row.algorithm))
      out.push_back(
          concat(to_text(row.algorithm), ": takes ", conditions_of(row), " on ", to_text(row.families)));
  return out;
}

std::string describe(const GemmConfig& config, int elements_per_step) {
  const auto letters = [&] {
    switch (config.algorithm) {
      case kGemv:
      case kTiles: return "";
      case kLoadsToLds: return "l";
      case kWgmma: return "g";
      case kTma: return "b";
      case kTmaPingPong: return "t";
      case kTmaHalo: return "h";
      case kTmaHaloPingPong: return "ht";
      case kTmaResident: return "f";
    }
    return "";
  };
  return concat(config.shape.block_m, "x", config.shape.block_n, "x",
                config.shape.block_k * elements_per_step, letters());
}

const char* to_text(Elements elements) {
  switch (elements) {
    case Elements::k16Bit: return "f16, bf16";
    case Elements::kF32: return "f32";
    case Elements::k8Bit: return "i8, f8e4m3";
  }
  return "";
}

const char* to_text(GemmShape shape) {
  switch (shape) {
    case GemmShape::kAny: return "any";
    case GemmShape::kFewRows: return "at most 8 rows";
    case GemmShape::kUnaligned: return "rows not of 16-byte pieces";
    case GemmShape::kAligned: return "rows of 16-byte pieces";
    case GemmShape::kWholeSteps: return "rows of 16-byte pieces, a depth of whole steps";
    case GemmShape::kTmaColumns: return "rows of 16-byte pieces, columns a multiple of 32";
    case GemmShape::kTmaOutput: return "rows of 16-byte pieces, columns a multiple of 32, y in x's type";
    case GemmShape::kWholeBlocks:
      return "channels in blocks of 64, outputs a multiple of 32, y in x's type, stride at most 8";
    case GemmShape::kHalos:
      return "as TMA takes them, stride 1, a filter of at most 3x3, full boxes of pixels";
    case GemmShape::kResident:
      return "one input; channels in blocks of 32, at most 128 or 256 channels, outputs in blocks of 32 or "
             "fewer, filters of 2x2 and 3x3, and else as for halos";
  }
  return "";
}

const char* to_text(GemmAlgorithm algorithm) {
  switch (algorithm) {
    case kGemv: return "gemv";
    case kTiles: return "tiles";
    case kLoadsToLds: return "loads_to_lds";
    case kWgmma: return "wgmma";
    case kTma: return "tma";
    case kTmaPingPong: return "tma_ping_pong";
    case kTmaHalo: return "tma_halo";
    case kTmaHaloPingPong: return "tma_halo_ping_pong";
    case kTmaResident: return "tma_resident";
  }
  return "";
}

}  // namespace rocm_sd
