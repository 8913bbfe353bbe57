// The kernel of row_range: composable_kernels/fused/row_range.hpp.
#include "composable_kernels/arch/target.hpp"
#include "composable_kernels/fused/row_range.hpp"

using namespace rocm_sd;

ROCM_SD_KERNEL(row_range, kRowRangeWaves* GpuArch::lanes, 4, RowRangeParams) {
  row_range_body(p, Block<GpuArch>{p.workgroups, kRowRangeWaves});
}
