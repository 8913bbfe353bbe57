#include "kernels/gemm/ck_linear.hpp"

#include "kernels/gemm/ck_linear_params.hpp"
#include "kernels/gemm/linear_params.hpp"
#include "kernels/gpu_launch.hpp"

namespace rocm_sd {
namespace {

// Reads and writes go by buffer descriptors, whose range and offsets are of 32 bits with a sign.
constexpr int64_t kMaxBytes = (int64_t{1} << 31) - 1;

const CkGemmTile& tile_of(const GpuTraits& traits) { return traits.lanes == 64 ? kCkGemmXdl : kCkGemmWmma; }

std::string kernel_name(const LinearProblem& p) {
  return concat("ck_gemm_", p.dtype(), p.w.bias ? "_bias" : "", p.epilogue.residual ? "_residual" : "");
}

Refusal supports_layout(const LinearProblem& p) {
  const auto size = static_cast<int64_t>(dtype_size(p.dtype()));
  const int64_t x_bytes = ((p.rows - 1) * p.row_stride + p.in) * size;
  if (!linear_rows_aligned(p) || p.out % 8 != 0) return "rows that are not of 16-byte pieces";
  if (std::max({x_bytes, p.in * p.out * size, p.rows * p.out * size}) > kMaxBytes)
    return "an operand of 2 GiB or more";
  return std::nullopt;
}

Refusal supports(const Exec& ex, const LinearProblem& p) {
  const GpuDevice* device = gpu_device(ex);
  if (!device || device->traits().family == GpuFamily::kNvidia) return "runs on AMD GPUs only";
  if (dtype_size(p.dtype()) != 2 || p.out_dtype() != p.dtype()) return "has products of 16-bit types only";
  if (p.w.weight.scales()) return "weights stored in 8 bits";
  if (const Refusal refusal = linear_refuses_terms(p)) return refusal;
  if (p.gated || p.epilogue.act != Activation::kNone) return "has no instance with an activation";
  if (p.epilogue.residual && !p.w.bias) return "has no instance with a residual and no bias";
  if (const int least = tile_of(device->traits()).least_depth(); p.in < least)
    return concat("products over fewer than ", least, " columns");
  if (const Refusal refusal = linear_extents_fit(p)) return refusal;
  if (const Refusal refusal = supports_layout(p)) return refusal;
  return supports_kernel(ex, kernel_name(p));
}

void run(Exec& ex, const LinearProblem& p) {
  const CkGemmTile& tile = tile_of(gpu_device(ex)->traits());
  CkGemmParams params;
  params.x = p.x.data();
  params.w = p.w.weight.plain().data();
  params.bias = p.w.bias ? p.w.bias->as<float>() : nullptr;
  params.residual = p.epilogue.residual ? p.epilogue.residual->data() : nullptr;
  params.y = p.y.data();
  params.rows = static_cast<int>(p.rows);
  params.channels = static_cast<int>(p.out);
  params.depth = static_cast<int>(p.in);
  params.x_stride = static_cast<int>(p.row_stride);
  const int64_t tiles = ((p.rows + tile.m - 1) / tile.m) * ((p.out + tile.n - 1) / tile.n);
  launch_kernel(ex, p.info("ck"), *gpu_device(ex)->find_kernel(kernel_name(p)),
                {static_cast<uint32_t>(tiles), 1, 1}, static_cast<uint32_t>(tile.threads), 0, params);
}

}  // namespace

Impl<LinearProblem> linear_ck_impl() { return {"ck", supports, run}; }

}  // namespace rocm_sd
