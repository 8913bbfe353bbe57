// linear on a GPU: tiles by the matrix units, split over the depth where the output is small, and a kernel
// for few rows.
#include "kernels/gemm/linear_gpu.hpp"

#include <algorithm>

#include "composable_kernels/fused/gemv.hpp"
#include "kernels/choice_memo.hpp"
#include "kernels/dequantize/dequantize.hpp"
#include "kernels/gemm/linear_configs.hpp"
#include "kernels/gemm/linear_params.hpp"
#include "kernels/gemm/linear_splits.hpp"
#include "kernels/gpu_launch.hpp"
#include "kernels/tma_plan.hpp"
#include "runtime/weight_stream.hpp"

namespace rocm_sd {
namespace {

uint32_t ceil_div(int64_t a, int64_t b) { return static_cast<uint32_t>((a + b - 1) / b); }

// Grids have at most this many workgroups in y.
constexpr int64_t kMaxGroupsY = 65535;

// NVIDIA's LDS is dynamic, so that it may exceed 48 KiB; AMD's is part of the kernel.
uint32_t dynamic_lds(const GpuDevice& device, int bytes) {
  return kernel_tables(device.traits()).dynamic_lds(bytes);
}

template <class T>
void launch_rows(Exec& ex, const LinearProblem& p, const GpuKernel& kernel, const GemmParams<T>& params) {
  using Cfg = GemvCfg<T, kGemvWaves>;
  GpuDevice& device = *gpu_device(ex);
  const auto threads = static_cast<uint32_t>(kGemvWaves * device.traits().lanes);
  launch_kernel(ex, p.info("gpu gemv"), kernel,
                {ceil_div(p.out, Cfg::kChannels), ceil_div(p.rows, Cfg::kPassRows), 1}, threads,
                dynamic_lds(device, Cfg::kLdsBytes), params);
}

// Tiles by TMA. Clusters that run at once take all tiles in turn; with splits each takes one.
template <class T>
void launch_tma(Exec& ex, const LinearProblem& p, const GpuKernel& kernel, const GemmChoice& choice,
                const GemmParams<T>& params) {
  GpuDevice& device = *gpu_device(ex);
  const TileShape& shape = choice.config->shape;
  const int64_t columns = p.gated ? 2 * p.out : p.out;
  const bool made_in_run = p.stored_as() != p.weight_dtype() || p.w.weight.made_in_run();
  TmaGemmParams<T> tma{{}, {}, {}, {}, params, choice.multicast_size, made_in_run, false};
  // A residual may lie in a cache that only waiting for the kernel before makes true again, but for one that
  // nobody writes. Streamed weights are copied in beside the run.
  const bool states_alone =
      p.rank() && p.epilogue.low_rank->states_last && !p.epilogue.residual && !p.epilogue.channel_scale;
  const bool constants_alone = p.epilogue.reads_constants && !WeightStream::of(ex.arena());
  tma.pdl_wait_late = (states_alone || constants_alone) && !tma.pdl_wait_weights;
  const auto steps = static_cast<int>(ceil_div(p.in, shape.block_k) + ceil_div(p.rank(), shape.block_k));
  tma.gemm.splits = choice.splits;
  tma.gemm.split_steps = (steps + choice.splits - 1) / choice.splits;
  if (params.x) {  // not while planning
    const auto depth = static_cast<uint64_t>(p.in);
    device.map_boxes(&tma.x, MatrixBoxes{params.x, static_cast<uint64_t>(p.rows), depth,
                                         static_cast<uint64_t>(params.x_stride) * sizeof(T),
                                         static_cast<uint32_t>(shape.block_m)});
    const auto weight_rows = static_cast<uint32_t>(shape.block_n / (p.gated ? 2 : 1));
    device.map_boxes(&tma.w, MatrixBoxes{params.w, static_cast<uint64_t>(columns), depth, depth * sizeof(T),
                                         weight_rows, true});
    if (const auto rank = static_cast<uint64_t>(p.rank())) {
      device.map_boxes(&tma.d, MatrixBoxes{params.term.d, static_cast<uint64_t>(p.rows), rank,
                                           rank * sizeof(T), static_cast<uint32_t>(shape.block_m)});
      device.map_boxes(&tma.up, MatrixBoxes{params.term.up, static_cast<uint64_t>(columns), rank,
                                            rank * sizeof(T), weight_rows, true});
    }
  }
  const auto cluster = static_cast<uint32_t>(choice.multicast_size * choice.splits);
  const uint32_t tiles =
      ceil_div(p.rows, int64_t{shape.block_m} * choice.multicast_size) * ceil_div(columns, shape.block_n);
  const uint32_t clusters =
      choice.splits > 1 ? tiles
                        : std::min(tiles, tma_clusters_at_once(device.traits(), choice.config->occupancy,
                                                               static_cast<int>(cluster)));
  launch_kernel(ex, p.info(concat("gpu ", describe(choice)).c_str()), kernel,
                {clusters * cluster, 1, 1, cluster, true}, uint32_t{kTmaThreads},
                static_cast<uint32_t>(choice.config->lds_bytes(sizeof(T))), tma);
}

template <class T>
void launch_tiles(Exec& ex, const LinearProblem& p, const GpuKernel& kernel, const GemmChoice& choice,
                  GemmParams<T> params) {
  GpuDevice& device = *gpu_device(ex);
  const TileShape& shape = choice.config->shape;
  const int64_t columns = p.gated ? 2 * p.out : p.out;
  const auto threads = static_cast<uint32_t>(shape.waves() * device.traits().lanes);
  const auto steps = static_cast<int>(ceil_div(p.in, shape.block_k));
  const uint32_t tiles = ceil_div(p.rows, shape.block_m) * ceil_div(columns, shape.block_n);
  const auto launch_grid = [&](const GpuGrid& grid, const GroupOrder& order) {
    params.order = order;
    launch_kernel(ex, p.info(concat("gpu ", describe(choice)).c_str()), kernel, grid, threads,
                  dynamic_lds(device, choice.config->lds_bytes(sizeof(T))), params);
  };
  if (kernel_tables(device.traits()).sums_parts()) {
    const SharedTiles shared(ex, shape, tiles, choice.splits, choice.split_tiles);
    params.parts = shared.parts;
    params.split_steps = (steps + choice.splits - 1) / choice.splits;
    const GpuGrid grid{shared.workgroups(tiles), 1, 1};
    return launch_grid(grid, shared.order(device.traits(), grid));
  }
  const PartialProducts<T> partials(ex, p, choice.splits, params);
  if (choice.splits > 1) {
    params.splits = choice.splits;
    params.split_steps = (steps + choice.splits - 1) / choice.splits;
  }
  const GpuGrid grid{tiles, static_cast<uint32_t>(choice.splits), 1};
  launch_grid(grid, group_order(device.traits(), grid));
  partials.sum(ex, p);
}

template <class T>
void run_as(Exec& ex, const LinearProblem& p, const GemmChoice& choice) {
  GpuDevice& device = *gpu_device(ex);
  const GpuKernel& kernel =
      *device.find_kernel(gemm_kernel_name(device.traits(), choice, p.dtype(), p.gated));
  GemmParams<T> params = gemm_params<T>(p);
  // A weight in 8 bits is dequantized before its product, and its memory then used again.
  const StoredWeight stored = p.w.weight.stored();
  const Tensor wide = stored.scales ? dequantize(ex, stored.values, stored.scales, p.dtype()) : Tensor();
  // What is stored lives as long as the weight: no pack of a linear layer replaces it.
  params.w = static_cast<const T*>((wide ? wide : stored.values).data());
  if (p.rank()) params.term.up = static_cast<const T*>(p.epilogue.low_rank->up->stored().values.data());
  if (choice.config && uses_tma(choice.config->algorithm))
    launch_tma(ex, p, kernel, choice, params);
  else if (choice.config)
    launch_tiles(ex, p, kernel, choice, params);
  else
    launch_rows(ex, p, kernel, params);
}

// All of a problem that a choice may depend on.
using LinearKey = std::tuple<GpuKey, int64_t, int64_t, int64_t, int64_t, DType, DType, DType, bool, bool>;
LinearKey key_of(const GpuTraits& traits, const LinearProblem& p) {
  return {gpu_key(traits), p.rows,           p.in,          p.out,   p.rank(),
          p.dtype(),       p.weight_dtype(), p.out_dtype(), p.gated, linear_rows_aligned(p)};
}

GemmChoice default_choice(const Exec& ex, const LinearProblem& p) {
  thread_local ChoiceMemo<LinearKey, GemmChoice> memo;
  const GpuTraits& traits = gpu_device(ex)->traits();
  return memo.of(key_of(traits, p), [&] { return linear_default_config(traits, p); });
}

// The kernels of a choice are in the archive.
Refusal supports_choice(const Exec& ex, const LinearProblem& p, const GemmChoice& choice) {
  if (!choice.config && (p.rows + 3) / 4 > kMaxGroupsY)
    return "rows that are not of 16-byte pieces, and too many of them";
  const GpuTraits& traits = gpu_device(ex)->traits();
  if (const Refusal refusal = supports_kernel(ex, gemm_kernel_name(traits, choice, p.dtype(), p.gated)))
    return refusal;
  if (choice.splits > 1 && !uses_tma(choice.config->algorithm) && !kernel_tables(traits).sums_parts())
    return supports_kernel(ex, concat("gemm_reduce_", p.dtype()));
  return std::nullopt;
}

std::optional<GemmChoice> choice_named(const Exec& ex, const LinearProblem& p, const std::string& name) {
  thread_local ChoiceMemo<std::pair<LinearKey, std::string>, std::optional<GemmChoice>> memo;
  const GpuTraits& traits = gpu_device(ex)->traits();
  return memo.of({key_of(traits, p), name}, [&] { return choice_of(linear_candidates(traits, p), name); });
}

std::vector<std::string> config_names(const Exec& ex, const LinearProblem& p) {
  const GpuTraits& traits = gpu_device(ex)->traits();
  if (ExplanationRecord* record = ExplanationRecord::current()) record->add(linear_explanation(traits, p));
  return names_of(linear_default_config(traits, p), linear_candidates(traits, p));
}

Refusal supports_config(const Exec& ex, const LinearProblem& p, const std::string& config) {
  const auto choice = choice_named(ex, p, config);
  return choice ? supports_choice(ex, p, *choice) : "is no configuration for it";
}

void run_config(Exec& ex, const LinearProblem& p, const std::string& config) {
  linear_gpu_as(ex, p, choice_named(ex, p, config).value());
}

}  // namespace

const Configs<LinearProblem> kLinearGpuConfigs = {config_names, supports_config, run_config};

Refusal linear_supports_gpu(const Exec& ex, const LinearProblem& p) {
  const GpuDevice* device = gpu_device(ex);
  if (!device) return "runs on a GPU only";
  if (p.mixed_types()) return "a weight of another type than x";
  if (const Refusal refusal = linear_extents_fit(p)) return refusal;
  if (p.rank() && linear_candidates(device->traits(), p).empty()) return "a low-rank term beside such rows";
  return supports_choice(ex, p, default_choice(ex, p));
}

bool linear_gpu_adds_low_rank(const Exec& ex, const LinearProblem& p, const LinearProblem& plain) {
  if (linear_supports_gpu(ex, p) || linear_supports_gpu(ex, plain)) return false;
  const GemmChoice with = default_choice(ex, p), without = default_choice(ex, plain);
  return without.config &&
         (with.config->algorithm == without.config->algorithm ||
          uses_tma(with.config->algorithm) == uses_tma(without.config->algorithm)) &&
         without.config->algorithm != GemmAlgorithm::kWgmma;
}

void linear_gpu_as(Exec& ex, const LinearProblem& p, const GemmChoice& choice) {
  switch (p.dtype()) {
    case DType::kF16: return run_as<Half>(ex, p, choice);
    case DType::kBF16: return run_as<Bf16>(ex, p, choice);
    default: return run_as<float>(ex, p, choice);
  }
}

void linear_gpu(Exec& ex, const LinearProblem& p) { linear_gpu_as(ex, p, default_choice(ex, p)); }

}  // namespace rocm_sd
