#include "kernels/gemm/linear_eight_bit.hpp"

#include <algorithm>

#include "composable_kernels/fused/gemm_eight_bit.hpp"
#include "kernels/choice_memo.hpp"
#include "kernels/eight_bit.hpp"
#include "kernels/gemm/linear_configs.hpp"
#include "kernels/gemm/linear_params.hpp"
#include "kernels/gemm/linear_splits.hpp"
#include "kernels/gpu_launch.hpp"
#include "kernels/tma_plan.hpp"

namespace rocm_sd {
namespace {

constexpr int64_t kDeepest = 65535;  // whose sums of integers fit 32 bits

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

uint32_t dynamic_lds(const GpuDevice& device, const EightBitChoice& choice) {
  return kernel_tables(device.traits()).dynamic_lds(choice.config.lds_bytes(1));
}

// What the product of two stored elements is multiplied by: gfx942 reads e4m3 as FNUZ, of half the value.
float product_factor(const GpuTraits& traits, DType type) {
  return type == DType::kF8E4M3 && traits.arch == "gfx942" ? 4.0f : 1.0f;
}

struct Quantised {
  Tensor values, scales;  // [rows, in], [rows]
};

template <class EightBit, class T>
Quantised quantise(Exec& ex, const LinearProblem& p) {
  const DType type = p.stored_as();
  const Quantised out{ex.alloc({p.rows, p.in}, type), ex.alloc({p.rows}, DType::kF32)};
  GpuDevice& device = *gpu_device(ex);
  const auto workgroups = static_cast<uint32_t>(ceil_div(p.rows, kQuantiseWaves));
  const QuantiseParams<EightBit, T> params{static_cast<const T*>(p.x.data()),
                                           static_cast<EightBit*>(out.values.data()),
                                           out.scales.as<float>(),
                                           p.row_stride,
                                           product_factor(device.traits(), type),
                                           static_cast<int>(p.rows),
                                           static_cast<int>(p.in),
                                           workgroups};
  const double bytes = static_cast<double>(p.rows * p.in) * static_cast<double>(1 + dtype_size(p.dtype()));
  launch_kernel(
      ex, {"linear", concat("gpu quantise ", p.rows, "x", p.in, " ", p.dtype(), " to ", type), 0, bytes},
      *device.find_kernel(concat("quantise_", type, "_", p.dtype())), {workgroups},
      static_cast<uint32_t>(kQuantiseWaves * device.traits().lanes), 0, params);
  return out;
}

OpInfo product_info(const LinearProblem& p, const EightBitChoice& choice) {
  OpInfo info = p.info(concat("gpu_eight_bit ", describe(choice)).c_str());
  info.bytes = static_cast<double>(p.rows * p.in + p.w.weight.shape().numel()) +
               static_cast<double>(p.y.bytes()) * (p.epilogue.residual ? 2 : 1);
  return info;
}

template <class EightBit, class T>
void launch_tma(Exec& ex, const LinearProblem& p, const EightBitChoice& choice,
                const EightBitGemmParams<EightBit, T>& params) {
  GpuDevice& device = *gpu_device(ex);
  const TileShape& shape = choice.config.shape;
  const int64_t columns = p.gated ? 2 * p.out : p.out;
  TmaEightBitParams<EightBit, T> tma{{}, {}, params, choice.multicast_size};
  if (params.x) {  // not while planning; pairs of elements are mapped as elements of 16 bits
    const auto pairs = static_cast<uint64_t>(p.in / 2), bytes = static_cast<uint64_t>(p.in);
    device.map_boxes(&tma.x, MatrixBoxes{params.x, static_cast<uint64_t>(p.rows), pairs, bytes,
                                         static_cast<uint32_t>(shape.block_m)});
    device.map_boxes(&tma.w, MatrixBoxes{params.w, static_cast<uint64_t>(columns), pairs, bytes,
                                         static_cast<uint32_t>(shape.block_n / (p.gated ? 2 : 1)), true});
  }
  const auto cluster = static_cast<uint32_t>(choice.multicast_size * choice.splits);
  const auto tiles = static_cast<uint32_t>(ceil_div(p.rows, int64_t{shape.block_m} * choice.multicast_size) *
                                           ceil_div(columns, shape.block_n));
  const uint32_t clusters =
      choice.splits > 1 ? tiles
                        : std::min(tiles, tma_clusters_at_once(device.traits(), choice.config.occupancy,
                                                               static_cast<int>(cluster)));
  launch_kernel(ex, product_info(p, choice), *device.find_kernel(eight_bit_kernel_name(choice, p)),
                {clusters * cluster, 1, 1, cluster, true}, uint32_t{kTmaThreads},
                static_cast<uint32_t>(choice.config.lds_bytes(1)), tma);
}

template <class EightBit, class T>
void launch_tiles(Exec& ex, const LinearProblem& p, const EightBitChoice& choice,
                  EightBitGemmParams<EightBit, T> params) {
  GpuDevice& device = *gpu_device(ex);
  const TileShape& shape = choice.config.shape;
  const int64_t columns = p.gated ? 2 * p.out : p.out;
  const PartialProducts<T> partials(ex, p, choice.splits, params);
  const auto tiles =
      static_cast<uint32_t>(ceil_div(p.rows, shape.block_m) * ceil_div(columns, shape.block_n));
  const GpuGrid grid{tiles, static_cast<uint32_t>(choice.splits), 1};
  params.order = group_order(device.traits(), grid);
  launch_kernel(ex, product_info(p, choice), *device.find_kernel(eight_bit_kernel_name(choice, p)), grid,
                static_cast<uint32_t>(shape.waves() * device.traits().lanes), dynamic_lds(device, choice),
                params);
  partials.sum(ex, p);
}

template <class EightBit, class T>
void run_as(Exec& ex, const LinearProblem& p, const EightBitChoice& choice) {
  const StoredWeight weight = p.w.weight.stored();
  const Quantised x = quantise<EightBit, T>(ex, p);
  EightBitGemmParams<EightBit, T> params{};
  params.x = static_cast<const EightBit*>(x.values.data());
  params.w = static_cast<const EightBit*>(weight.values.data());
  params.x_scales = x.scales.as<float>();
  params.w_scales = weight.scales.as<float>();
  params.epilogue = gemm_params<T>(p).epilogue;
  params.depth = static_cast<int>(p.in);
  params.splits = choice.splits;
  params.split_steps = static_cast<int>(ceil_div(ceil_div(p.in, choice.depth()), choice.splits));
  choice.tma() ? launch_tma(ex, p, choice, params) : launch_tiles(ex, p, choice, params);
}

// The kernels of a choice are in the archive.
Refusal supports_choice(const Exec& ex, const LinearProblem& p, const EightBitChoice& choice) {
  if (choice.splits > 1 && !choice.tma())
    if (const Refusal refusal = supports_kernel(ex, concat("gemm_reduce_", p.dtype()))) return refusal;
  return supports_kernel(ex, eight_bit_kernel_name(choice, p));
}

std::optional<EightBitChoice> choice_named(const Exec& ex, const LinearProblem& p, const std::string& name) {
  return choice_of(eight_bit_candidates(gpu_device(ex)->traits(), p), name);
}

std::vector<std::string> config_names(const Exec& ex, const LinearProblem& p) {
  const GpuTraits& traits = gpu_device(ex)->traits();
  if (ExplanationRecord* record = ExplanationRecord::current()) record->add(eight_bit_explanation(traits, p));
  return names_of(eight_bit_default(traits, p), eight_bit_candidates(traits, p));
}

Refusal supports_config(const Exec& ex, const LinearProblem& p, const std::string& config) {
  const auto choice = choice_named(ex, p, config);
  return choice ? supports_choice(ex, p, *choice) : "is no configuration for it";
}

void run_config(Exec& ex, const LinearProblem& p, const std::string& config) {
  linear_eight_bit_as(ex, p, choice_named(ex, p, config).value());
}

}  // namespace

const Configs<LinearProblem> kLinearEightBitConfigs = {config_names, supports_config, run_config};

bool multiplies_eight_bit(GpuDevice& device, DType type) {
  return device.find_kernel(concat("quantise_", type, "_f16")) != nullptr;
}

Refusal linear_supports_eight_bit(const Exec& ex, const LinearProblem& p) {
  GpuDevice* device = gpu_device(ex);
  if (!device) return "runs on a GPU only";
  if (!is_eight_bit(p.stored_as())) return "the weight is not stored in 8 bits";
  if (!p.w.weight.products()) return "products in 8 bits were not asked for";
  if (p.dtype() == DType::kF32) return "f32 is not its type";
  if (const Refusal refusal = linear_refuses_terms(p)) return refusal;
  if (p.rows <= kGemvRows) return "few rows";
  if (p.in % 16 != 0 || !linear_rows_aligned(p)) return "rows that are not of 16-byte pieces";
  if (p.in > kDeepest) return "a depth beyond 65535";
  if (const Refusal refusal = linear_extents_fit(p)) return refusal;
  if (!multiplies_eight_bit(*device, p.stored_as()) || eight_bit_candidates(device->traits(), p).empty())
    return concat("no kernels for products of ", p.stored_as(), " on ", device->traits().arch);
  return supports_choice(ex, p, eight_bit_default(device->traits(), p));
}

void linear_eight_bit_as(Exec& ex, const LinearProblem& p, const EightBitChoice& choice) {
  const bool half = p.dtype() == DType::kF16;
  if (p.stored_as() == DType::kI8)
    return half ? run_as<Int8, Half>(ex, p, choice) : run_as<Int8, Bf16>(ex, p, choice);
  half ? run_as<Fp8, Half>(ex, p, choice) : run_as<Fp8, Bf16>(ex, p, choice);
}

void linear_eight_bit(Exec& ex, const LinearProblem& p) {
  linear_eight_bit_as(ex, p, eight_bit_default(gpu_device(ex)->traits(), p));
}

}  // namespace rocm_sd
