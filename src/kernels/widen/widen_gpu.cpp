// widen on a GPU.
#include "kernels/gpu_launch.hpp"
#include "kernels/widen/widen_configs.hpp"
#include "kernels/widen/widen_impl.hpp"

namespace rocm_sd {
namespace {

using namespace widen_configs;

std::string kernel_name(const WidenProblem& p) { return concat("widen_", p.from, "_", p.dtype); }

}  // namespace

Refusal supports_widen_gpu(const Exec& ex, const WidenProblem& p) {
  if (const Refusal refusal = supports_kernel(ex, kernel_name(p))) return refusal;
  if (reinterpret_cast<uintptr_t>(p.values) % 16) return "takes data at multiples of 16 bytes only";
  return refuse_widen_body(p);
}

void run_widen_gpu(Exec& ex, const WidenProblem& p) {
  constexpr int64_t kItems = int64_t{kThreads} * kWidenPack;
  const auto groups = static_cast<uint32_t>((p.rows * p.depth + kItems - 1) / kItems);
  const GpuKernel& kernel = *gpu_device(ex)->find_kernel(kernel_name(p));
  with_widen_types(p.from, p.dtype, [&](auto from, auto to) {
    launch_kernel(ex, op_info(p, "gpu"), kernel, {groups}, kThreads, 0,
                  widen_params<decltype(from), decltype(to)>(p, groups));
  });
}

}  // namespace rocm_sd
