#include "analysis/modelled_time.hpp"

#include <algorithm>
#include <cmath>

#include "base/gpu_family.hpp"
#include "composable_kernels/tile/winograd_config.hpp"
#include "kernels/family/kernel_index.hpp"

namespace rocm_sd {
namespace {

// What whole tiles in whole rounds make of a launch's even share of the work.
struct Rounds {
  double longer = 1;  // how many times
  double count = 1;   // tiles that a compute unit makes one after the other
};

Rounds rounds_of(const OutputTile& tile, const TiledOutput& output, int splits, int compute_units) {
  if (tile.rows <= 0) return {};
  const bool whole_rows = tile.columns <= 0;
  const double rows = std::ceil(output.rows / tile.rows);
  const double columns = whole_rows ? 1 : std::ceil(output.columns / tile.columns);
  const double padded =
      rows * tile.rows / output.rows * (whole_rows ? 1 : columns * tile.columns / output.columns);
  const double tiles = output.copies * rows * columns * splits;
  const double count = std::ceil(tiles / compute_units);
  return {padded * count * compute_units / tiles, count};
}

// Winograd's kernel has one name in all families, and tiles of 2x2 pixels.
OutputTile tile_on(const GpuProduct& gpu, std::string_view kernel) {
  if (multiplied_share(kernel) == 1) return tile_of_kernel(kernel);
  const auto family = gpu_family(gpu.arch);
  const WinogradShape shape = winograd_shape(family == GpuFamily::kCdna3 ? "cdna3" : "");
  return {4 * shape.tiles, shape.channels};
}

}  // namespace

OutputTile tile_of_kernel(std::string_view kernel) {
  const KernelTile tile = tile_of_kernel_named(kernel);
  return {tile.rows, tile.columns};
}

double modelled_seconds(const GpuProduct& gpu, const KernelCounts& counts, const PlannedProblems& launches,
                        const TiledOutput& output, int splits, DType dtype) {
  double seconds = 0;
  for (const auto& [problem, work] : launches) {
    const std::string kernel = dtype == DType::kF32 ? std::string() : kernel_of_problem(problem, dtype);
    const auto counted = counts.kernels.find(kernel);
    const double share = counted == counts.kernels.end() ? 1 : counted->second.matrix_share;
    const double rate = peak_rate(gpu, kernel.empty() ? RateType::kF32 : RateType::kF16);
    const Rounds rounds = rounds_of(tile_on(gpu, kernel), output, splits, driver_compute_units(gpu));
    const double issue = work.flops * multiplied_share(kernel) / (rate * share) * rounds.longer;
    // Sums of splits go to memory as float; whoever adds them up counts their way back.
    const double partials =
        kernel.empty() || splits == 1 ? 0 : 4 * output.copies * output.rows * output.columns * splits;
    seconds += std::max(issue, (work.bytes + partials) / (gpu.bandwidth * 1e9)) +
               work.launches * (kLaunchSeconds + (kernel.empty() ? 0 : rounds.count * kTileSeconds));
  }
  return seconds;
}

}  // namespace rocm_sd
