#include "kernels/gemm/linear_eight_bit.hpp"

#include <span>

#include "composable_kernels/fused/gemm_eight_bit.hpp"
#include "kernels/eight_bit.hpp"
#include "kernels/gemm/linear_configs.hpp"
#include "kernels/gemm/linear_eight_bit_configs.hpp"
#include "kernels/gemm/linear_params.hpp"
#include "kernels/gpu_launch.hpp"

namespace rocm_sd {
namespace {

#define ROCM_SD_EIGHT_BIT_ROW(m, n, k, waves_m, waves_n, stages, groups) \
  EightBitChoice{TileShape{m, n, k, waves_m, waves_n, stages}, groups},
constexpr EightBitChoice kNvidia[] = {ROCM_SD_EIGHT_BIT_GEMM_NVIDIA(ROCM_SD_EIGHT_BIT_ROW)};
constexpr EightBitChoice kRdna4[] = {ROCM_SD_EIGHT_BIT_GEMM_RDNA4(ROCM_SD_EIGHT_BIT_ROW)};
constexpr EightBitChoice kCdna3[] = {ROCM_SD_EIGHT_BIT_GEMM_CDNA3(ROCM_SD_EIGHT_BIT_ROW)};
#undef ROCM_SD_EIGHT_BIT_ROW

// Up to this many rows a product is bound by reading the weight, which linear_gpu.cpp's kernel for few rows
// does best.
constexpr int64_t kFewRows = 8;
constexpr int64_t kDeepest = 65535;  // whose sums of integers fit 32 bits
constexpr int kMostSplits = 8, kLeastSteps = 4;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

std::span<const EightBitChoice> configs(GpuFamily family) {
  switch (family) {
    case GpuFamily::kNvidia: return kNvidia;
    case GpuFamily::kRdna4: return kRdna4;
    case GpuFamily::kCdna3: return kCdna3;
    case GpuFamily::kRdna3: return {};
  }
  return {};
}

std::string kernel_name(DType type, DType dtype, const EightBitChoice& choice, bool gated) {
  const TileShape& s = choice.shape;
  return concat(gated && choice.splits == 1 ? "geglu_" : "gemm_", type, "_", dtype, "_", s.block_m, "x",
                s.block_n, "x", s.block_k);
}

// Guessed, as for 16-bit products on families that were not measured: products of a multiprocessor in a
// cycle, cycles of a workgroup outside its loop, of the reduction's start and per byte of partial sums.
constexpr double kProducts = 2000, kStart = 1500, kLaunch = 2000, kPartial = 0.05;

double estimate(const GpuTraits& traits, const LinearProblem& p, const EightBitChoice& choice) {
  const TileShape& s = choice.shape;
  const int64_t columns = p.gated ? 2 * p.out : p.out, multiprocessors = std::max(1, traits.multiprocessors);
  const int64_t groups = ceil_div(p.rows, s.block_m) * ceil_div(columns, s.block_n) * choice.splits;
  const int64_t depth = ceil_div(ceil_div(p.in, s.block_k), choice.splits) * s.block_k;
  const double reuse = 2.0 / (1.0 / s.wave_m() + 1.0 / s.wave_n());
  const double rate = kProducts * reuse / (reuse + 32.0);
  double time = static_cast<double>(ceil_div(groups, multiprocessors)) *
                (static_cast<double>(depth * s.block_m * s.block_n) / rate + kStart);
  if (choice.splits > 1)
    time += kLaunch + kPartial * 4.0 * static_cast<double>(p.rows * columns * choice.splits) /
                          static_cast<double>(multiprocessors);
  return time;
}

uint32_t dynamic_lds(const GpuDevice& device, const TileShape& shape) {
  return device.traits().family == GpuFamily::kNvidia ? static_cast<uint32_t>(product_lds_bytes(shape, 1))
                                                      : 0;
}

// What the product of two stored elements is multiplied by: gfx942 reads e4m3 as FNUZ, of half the value.
float product_factor(const GpuTraits& traits, DType type) {
  return type == DType::kF8E4M3 && traits.arch == "gfx942" ? 4.0f : 1.0f;
}

struct Quantised {
  Tensor values, scales;  // [rows, in], [rows]
};

template <class EightBit, class T>
Quantised quantise(Exec& ex, const LinearProblem& p, DType type) {
  const Quantised out{ex.alloc({p.rows, p.in}, type), ex.alloc({p.rows}, DType::kF32)};
  GpuDevice& device = *gpu_device(ex);
  const auto groups = static_cast<uint32_t>(ceil_div(p.rows, kQuantiseWaves));
  const QuantiseParams<EightBit, T> params{static_cast<const T*>(p.x.data()),
                                           static_cast<EightBit*>(out.values.data()),
                                           out.scales.as<float>(),
                                           p.row_stride,
                                           product_factor(device.traits(), type),
                                           static_cast<int>(p.rows),
                                           static_cast<int>(p.in),
                                           groups};
  const double bytes = static_cast<double>(p.rows * p.in) * static_cast<double>(1 + dtype_size(p.dtype()));
  launch_kernel(
      ex, {"linear", concat("gpu quantise ", p.rows, "x", p.in, " ", p.dtype(), " to ", type), 0, bytes},
      *device.find_kernel(concat("quantise_", type, "_", p.dtype())), {groups},
      static_cast<uint32_t>(kQuantiseWaves * device.traits().lanes), 0, params);
  return out;
}

template <class EightBit, class T>
void run_as(Exec& ex, const LinearProblem& p, const EightBitChoice& choice) {
  GpuDevice& device = *gpu_device(ex);
  const StoredWeight weight = p.w.weight.stored();
  const DType type = weight.values.dtype();
  const TileShape& shape = choice.shape;
  const Quantised x = quantise<EightBit, T>(ex, p, type);
  const int64_t columns = p.gated ? 2 * p.out : p.out;
  const auto steps = static_cast<int>(ceil_div(p.in, shape.block_k));
  EightBitGemmParams<EightBit, T> params{};
  params.x = static_cast<const EightBit*>(x.values.data());
  params.w = static_cast<const EightBit*>(weight.values.data());
  params.x_scales = x.scales.as<float>();
  params.w_scales = weight.scales.as<float>();
  params.tail = gemm_params<T>(p).tail;
  params.depth = static_cast<int>(p.in);
  params.splits = choice.splits;
  params.split_steps = static_cast<int>(ceil_div(steps, choice.splits));
  GemmReduceParams<T> reduce{nullptr, params.tail, choice.splits, p.gated};
  Tensor partials;
  if (choice.splits > 1) {
    partials = ex.alloc({choice.splits, p.rows, columns}, DType::kF32);
    reduce.partials = params.partials = partials.as<float>();
    params.tail.channels = static_cast<int>(columns);
  }
  const auto tiles =
      static_cast<uint32_t>(ceil_div(p.rows, shape.block_m) * ceil_div(columns, shape.block_n));
  const std::string name = kernel_name(type, p.dtype(), choice, p.gated);
  launch_kernel(ex, p.info(concat("gpu ", name, "/", choice.splits).c_str()), *device.find_kernel(name),
                {tiles, static_cast<uint32_t>(choice.splits), 1},
                static_cast<uint32_t>(shape.waves() * device.traits().lanes), dynamic_lds(device, shape),
                params);
  if (choice.splits == 1) return;
  const double bytes = static_cast<double>(partials.bytes() + p.y.bytes());
  launch_kernel(ex, {"linear", concat("gpu reduce of ", choice.splits, ": ", p.describe()), 0, bytes},
                *device.find_kernel(concat("gemm_reduce_", p.dtype())),
                {static_cast<uint32_t>(ceil_div(p.rows * ceil_div(p.out, 8), kGemmReduceThreads)), 1, 1},
                kGemmReduceThreads, 0, reduce);
}

}  // namespace

bool multiplies_eight_bit(GpuDevice& device, DType type) {
  return device.find_kernel(concat("quantise_", type, "_f16")) != nullptr;
}

std::vector<EightBitChoice> eight_bit_candidates(const GpuTraits& traits, const LinearProblem& p) {
  std::vector<EightBitChoice> out;
  const std::span<const EightBitChoice> all = configs(traits.family);
  for (const EightBitChoice& config : all) {
    const TileShape& shape = config.shape;
    if (static_cast<size_t>(product_lds_bytes(shape, 1)) > traits.lds_per_group) continue;
    const int64_t steps = ceil_div(p.in, shape.block_k), columns = p.gated ? 2 * p.out : p.out;
    const int64_t tiles = ceil_div(p.rows, shape.block_m) * ceil_div(columns, shape.block_n);
    if (!p.gated || &config == all.data()) out.push_back(config);  // one configuration has a gated form
    for (int splits = 2; splits <= kMostSplits; ++splits) {
      if (tiles * (splits - 1) >= 2LL * traits.multiprocessors || steps / splits < kLeastSteps) break;
      if (ceil_div(steps, ceil_div(steps, splits)) == splits) out.push_back({shape, config.groups, splits});
    }
  }
  return out;
}

EightBitChoice eight_bit_default(const GpuTraits& traits, const LinearProblem& p) {
  const std::vector<EightBitChoice> all = eight_bit_candidates(traits, p);
  return *std::min_element(all.begin(), all.end(), [&](const EightBitChoice& a, const EightBitChoice& b) {
    return estimate(traits, p, a) < estimate(traits, p, b);
  });
}

Refusal linear_supports_eight_bit(const Exec& ex, const LinearProblem& p) {
  GpuDevice* device = gpu_device(ex);
  if (!device) return "runs on a GPU only";
  const StoredWeight weight = p.w.weight.stored();
  if (!weight.scales) return "the weight is not held in 8 bits";
  if (p.dtype() == DType::kF32) return "f32 is not its type";
  if (p.rows <= kFewRows) return "few rows";
  if (p.in % 16 != 0 || !linear_rows_aligned(p)) return "rows that are not of 16-byte pieces";
  if (p.in > kDeepest) return "a depth beyond 65535";
  if (const Refusal refusal = linear_extents_fit(p)) return refusal;
  const DType type = weight.values.dtype();
  if (!multiplies_eight_bit(*device, type) || eight_bit_candidates(device->traits(), p).empty())
    return concat("no kernels for products of ", type, " on ", device->traits().arch);
  const EightBitChoice choice = eight_bit_default(device->traits(), p);
  if (choice.splits > 1)
    if (const Refusal refusal = supports_kernel(ex, concat("gemm_reduce_", p.dtype()))) return refusal;
  return supports_kernel(ex, kernel_name(type, p.dtype(), choice, p.gated));
}

void linear_eight_bit_as(Exec& ex, const LinearProblem& p, const EightBitChoice& choice) {
  const bool integers = p.w.weight.stored().values.dtype() == DType::kI8, half = p.dtype() == DType::kF16;
  if (integers) return half ? run_as<Int8, Half>(ex, p, choice) : run_as<Int8, Bf16>(ex, p, choice);
  half ? run_as<Fp8, Half>(ex, p, choice) : run_as<Fp8, Bf16>(ex, p, choice);
}

void linear_eight_bit(Exec& ex, const LinearProblem& p) {
  linear_eight_bit_as(ex, p, eight_bit_default(gpu_device(ex)->traits(), p));
}

}  // namespace rocm_sd
