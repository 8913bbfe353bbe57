// resample on a GPU: the weights, computed there so that a captured graph needs nothing of the host, then the
// map.
#include "kernels/gpu_launch.hpp"
#include "kernels/resample/resample_configs.hpp"
#include "kernels/resample/resample_params.hpp"

namespace rocm_sd {
namespace {

using namespace resample_configs;

std::string kernel_name(const ResampleProblem& p) {
  return concat("resample_", p.dtype, "_v", resample_pack(p));
}
uint32_t workgroups_of(int64_t items, int threads) {
  return static_cast<uint32_t>((items + threads - 1) / threads);
}

}  // namespace

Refusal supports_resample_gpu(const Exec& ex, const ResampleProblem& p) {
  if (const Refusal refusal = supports_kernel(ex, kernel_name(p))) return refusal;
  if (resample_pack(p) > 1 && reinterpret_cast<uintptr_t>(p.x) % 16)
    return "takes data at multiples of 16 bytes only";
  return refuse_resample_body(p);
}

void run_resample_gpu(Exec& ex, const ResampleProblem& p) {
  const int64_t packs = p.images * p.height * p.width * (p.channels / resample_pack(p));
  if (packs == 0) return;
  GpuDevice& device = *gpu_device(ex);
  const ResampleTables tables = resample_tables(ex, p);
  const uint32_t taps_groups = workgroups_of(p.height + p.width, kTapsThreads);
  const ResampleTapsParams taps{{tables.axes[0], tables.axes[1]}, resample_window(p.mode), taps_groups};
  launch_kernel(ex, {p.op(), concat("gpu weights ", p.describe()), 0, 0},
                *device.find_kernel("resample_taps"), {taps_groups}, kTapsThreads, 0, taps);
  const uint32_t workgroups = workgroups_of(packs, kThreads);
  launch_kernel(ex, op_info(p, "gpu"), *device.find_kernel(kernel_name(p)), {workgroups}, kThreads, 0,
                resample_params<float>(p, tables.axes[0], tables.axes[1], workgroups));
}

}  // namespace rocm_sd
