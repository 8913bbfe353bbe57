// Kernels that show whether a device runs this project's code at all: for `doctor` and the runtime's tests.
// Problem   probe_axpy: y[i] += scale x[i]; probe_reverse: each run of 64 elements turned round, through LDS
//           that the launch asks for; probe_spin: y[0] += x[0] rounds times, one after the other
// Mapping   an element per lane; probe_spin: one lane
// Numerics  float
// Limits    none; count need not be a multiple of anything
#include "runtime/probe.hpp"

#include "composable_kernels/arch/target.hpp"

namespace rocm_sd {

ROCM_SD_KERNEL(probe_axpy, 256, 1, ProbeParams) {
  const int64_t i = static_cast<int64_t>(GpuArch::group_x()) * 256 + GpuArch::thread();
  if (i < p.count) p.y[i] += p.scale * p.x[i];
}

extern __shared__ float probe_lds[];

ROCM_SD_KERNEL(probe_reverse, 64, 1, ProbeParams) {
  const int64_t first = static_cast<int64_t>(GpuArch::group_x()) * 64;
  const int64_t here = p.count - first < 64 ? p.count - first : 64;
  const int lane = GpuArch::thread();
  if (lane < here) probe_lds[lane] = p.x[first + lane];
  GpuArch::barrier();
  if (lane < here) p.y[first + lane] = probe_lds[here - 1 - lane];
}

ROCM_SD_KERNEL(probe_spin, 64, 1, ProbeParams) {
  if (GpuArch::thread() != 0) return;
  float sum = p.y[0];
  const volatile float* x = p.x;
  for (int i = 0; i < p.rounds; ++i) sum += *x;
  p.y[0] = sum;
}

}  // namespace rocm_sd
