// The configurations of matrix products (linear layers, GEGLU, convolutions as implicit GEMMs): one type,
// shared by the tables of families/<family>.hpp, the launcher and the .hip file. A name is made here alone.
#pragma once

#include "composable_kernels/families/kernel_name.hpp"
#include "composable_kernels/tile/config.hpp"

namespace rocm_sd {

// How a workgroup makes its tile of the output.
enum class GemmAlgorithm {
  kGemv,             // a wave reads a few columns' weights once for all rows, without tiles: every family
  kTiles,            // waves multiply what lanes copied to LDS: every family
  kLoadsToLds,       // the same, copied without a register between: CDNA
  kWgmma,            // warpgroups multiply what lanes copied to LDS
  kTma,              // a producer fetches by TMA, warpgroups multiply
  kTmaPingPong,      // the same, two tiles of the output under way in a workgroup
  kTmaHalo,          // of a convolution: pixels fetched once for all taps of the filter
  kTmaHaloPingPong,  // both
  kTmaResident,      // the same, with the whole filter in LDS
};
constexpr bool uses_tma(GemmAlgorithm a) { return a >= GemmAlgorithm::kTma; }
constexpr bool uses_halo(GemmAlgorithm a) { return a >= GemmAlgorithm::kTmaHalo; }
constexpr bool is_ping_pong(GemmAlgorithm a) {
  return a == GemmAlgorithm::kTmaPingPong || a >= GemmAlgorithm::kTmaHaloPingPong;
}

struct GemmConfig {
  TileShape shape;
  int occupancy = 1;  // workgroups that a compute unit should hold at once
  GemmAlgorithm algorithm = GemmAlgorithm::kTiles;

  constexpr bool operator==(const GemmConfig&) const = default;
  constexpr int lds_bytes(int element_bytes) const {
    if (algorithm == GemmAlgorithm::kTmaResident) return kResidentLdsBytes;
    if (uses_halo(algorithm)) return halo_lds_bytes(shape);
    if (uses_tma(algorithm)) return tma_lds_bytes(shape);
    if (algorithm == GemmAlgorithm::kLoadsToLds) return loads_to_lds_bytes(shape, element_bytes);
    return algorithm == GemmAlgorithm::kWgmma ? wgmma_lds_bytes(shape)
                                              : product_lds_bytes(shape, element_bytes);
  }
};

constexpr GemmConfig to_lds_gemm(TileShape shape) {
  return {.shape = shape, .algorithm = GemmAlgorithm::kLoadsToLds};
}
// Steps of 64 of the depth, 16 rows to a wave.
struct WgmmaShape {
  int rows = 128, columns = 0, stages = 0, occupancy = 1;
};
constexpr GemmConfig wgmma_gemm(WgmmaShape t) {
  return {.shape = {t.rows, t.columns, 64, t.rows / 16, 1, t.stages},
          .occupancy = t.occupancy,
          .algorithm = GemmAlgorithm::kWgmma};
}
// TMA's tiles have 128 rows.
struct TmaShape {
  int columns = 0, stages = 0;
};
constexpr GemmConfig tma_gemm(TmaShape t, GemmAlgorithm algorithm = GemmAlgorithm::kTma) {
  return {.shape = tma_shape(t.columns, t.stages), .algorithm = algorithm};
}

// Of convolutions of at most `depth` channels, a multiple of 64, and filters of at most 3x3.
struct ResidentShape {
  int columns = 0, depth = 0;
};
constexpr GemmConfig resident_conv(ResidentShape t) {
  return {.shape = {128, t.columns, t.depth, 8, 1, 8}, .algorithm = GemmAlgorithm::kTmaResident};
}

// The part of a kernel's name that says the algorithm.
constexpr const char* name_part(GemmAlgorithm algorithm) {
  switch (algorithm) {
    case GemmAlgorithm::kGemv: return "";  // has no configurations
    case GemmAlgorithm::kTiles: return "";
    case GemmAlgorithm::kLoadsToLds: return "to_lds_";
    case GemmAlgorithm::kWgmma: return "wgmma_";
    case GemmAlgorithm::kTma: return "tma_";
    case GemmAlgorithm::kTmaPingPong: return "ping_pong_";
    case GemmAlgorithm::kTmaHalo: return "halo_";
    case GemmAlgorithm::kTmaHaloPingPong: return "halo_ping_pong_";
    case GemmAlgorithm::kTmaResident: return "resident_";
  }
  return "";
}
// op: "gemm_", "geglu_", "conv_". types: of the elements, "f16"; of 8-bit operands "i8_f16", whose depth a
// TMA tile counts in pairs.
constexpr KernelName kernel_name(const GemmConfig& c, const char* op, const char* types,
                                 int elements_per_step = 1) {
  return KernelName(op, name_part(c.algorithm), types, "_", c.shape.block_m, "x", c.shape.block_n, "x",
                    c.shape.block_k * elements_per_step);
}

}  // namespace rocm_sd
