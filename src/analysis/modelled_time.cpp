#include "analysis/modelled_time.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace rocm_sd {
namespace {

// The number at the beginning of `text`, or 0.
int leading_number(std::string_view text) {
  int value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

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

}  // namespace

OutputTile tile_of_kernel(std::string_view kernel) {
  if (kernel.starts_with("flash_")) {
    const size_t queries = kernel.find("_q"), waves = kernel.find("_w", 6);
    if (queries == std::string_view::npos) return {};
    const int of_wave = leading_number(kernel.substr(queries + 2));
    const bool wide = kernel.starts_with("flash_large_d");  // its q is of the workgroup
    const int of_group =
        waves == std::string_view::npos || wide ? 1 : leading_number(kernel.substr(waves + 2));
    return {of_wave * std::max(1, of_group), 0};
  }
  const size_t last = kernel.rfind('_');
  if (last == std::string_view::npos) return {};
  const std::string_view shape = kernel.substr(last + 1);
  const size_t by = shape.find('x');
  if (by == std::string_view::npos) return {};
  const OutputTile tile{leading_number(shape), leading_number(shape.substr(by + 1))};
  return tile.rows > 0 && tile.columns > 0 ? tile : OutputTile{};
}

double modelled_seconds(const GpuProduct& gpu, const KernelCounts& counts, const PlannedProblems& launches,
                        const TiledOutput& output, int splits, DType dtype) {
  double seconds = 0;
  for (const auto& [problem, work] : launches) {
    const std::string kernel = dtype == DType::kF32 ? std::string() : kernel_of_problem(problem, dtype);
    const auto counted = counts.kernels.find(kernel);
    const double share = counted == counts.kernels.end() ? 1 : counted->second.matrix_share;
    const double rate = peak_rate(gpu, kernel.empty() ? RateType::kF32 : RateType::kF16);
    const Rounds rounds = rounds_of(tile_of_kernel(kernel), output, splits, driver_compute_units(gpu));
    const double issue = work.flops / (rate * share) * rounds.longer;
    // Sums of splits go to memory as float; whoever adds them up counts their way back.
    const double partials =
        kernel.empty() || splits == 1 ? 0 : 4 * output.copies * output.rows * output.columns * splits;
    seconds += std::max(issue, (work.bytes + partials) / (gpu.bandwidth * 1e9)) +
               work.launches * (kLaunchSeconds + (kernel.empty() ? 0 : rounds.count * kTileSeconds));
  }
  return seconds;
}

}  // namespace rocm_sd
