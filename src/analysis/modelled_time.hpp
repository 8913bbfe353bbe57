// What a way of computing one problem takes on a GPU that need not be here, to choose between ways: the bound
// of predict.hpp, and beside it that an output is made of whole tiles, that a compute unit takes tiles one
// after the other, and that a launch has a beginning and an end. A model, not a measurement: tables mark what
// it chose.
#pragma once

#include "analysis/kernel_counts.hpp"
#include "runtime/exec.hpp"

namespace rocm_sd {

// The output as kernels tile it: [copies] x [rows,columns]. Attention: rows are the queries of one head, and
// a tile has all columns.
struct TiledOutput {
  double copies = 1, rows = 1, columns = 1;
};

// A launch costs this much beside its work: what the emulated GPUs' tuner takes as well.
inline constexpr double kLaunchSeconds = 4e-6;

// A tile's first loads and last stores, with nothing to hide them: about two ways to memory and back.
inline constexpr double kTileSeconds = 1e-6;

// Seconds of the planned launches (of one way of computing the problem). splits: of the depth or the keys,
// each a tile's work for itself. counts: of the product's architecture, or empty. Kernels that nobody counted
// run at the peak rate; those whose name says no tile, as if their tiles were even.
double modelled_seconds(const GpuProduct& gpu, const KernelCounts& counts, const PlannedProblems& launches,
                        const TiledOutput& output, int splits, DType dtype);

// The tile of the output that a kernel makes: of "gemm_f16_128x160x32" 128 x 160, of
// "flash_f16_d64_q32_k32_w4_s3" 128 queries. Zeros for those without tiles.
struct OutputTile {
  int rows = 0, columns = 0;
};
OutputTile tile_of_kernel(std::string_view kernel);

}  // namespace rocm_sd
