// linear with 8-bit operands: every configuration, for the targets whose matrix unit multiplies 8-bit
// elements. For another target this file has no kernel, and the archive leaves it out.
#include "composable_kernels/arch/eight_bit_target.hpp"
#if defined(ROCM_SD_TARGET_I8)
#include "kernels/gemm/linear_eight_bit_i8.hpp"
#endif
#if defined(ROCM_SD_TARGET_F8)
#include "kernels/gemm/linear_eight_bit_f8e4m3.hpp"
#endif
