// The merge of flash attention's splits, for every family.
#include "composable_kernels/arch/target.hpp"
#include "composable_kernels/fused/flash_merge.hpp"

namespace rocm_sd {
namespace {

// One wave per query of a head, four to a workgroup.
template <class T>
ROCM_SD_DEVICE void merge(const FlashMergeParams<T>& p) {
  const int64_t row = static_cast<int64_t>(GpuArch::group_x()) * 4 + GpuArch::thread() / GpuArch::lanes;
  if (row < p.rows) flash_merge<GpuArch>(p, row, GpuArch::lane(), GpuArch::lanes);
}

}  // namespace
}  // namespace rocm_sd

ROCM_SD_KERNEL(flash_merge_f16, 4 * rocm_sd::GpuArch::lanes, 1, rocm_sd::FlashMergeParams<rocm_sd::Half>) {
  rocm_sd::merge(p);
}
ROCM_SD_KERNEL(flash_merge_bf16, 4 * rocm_sd::GpuArch::lanes, 1, rocm_sd::FlashMergeParams<rocm_sd::Bf16>) {
  rocm_sd::merge(p);
}
