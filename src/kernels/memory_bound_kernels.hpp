// The entry points of a memory-bound op's kernels. op: its name, for which op##_body(p, block) is the
// portable body and Params its argument, a template of the storage types, with `workgroups` for the size of
// the grid. The kernel's name is the op and its types, which kernels/memory_bound.hpp looks for. Macros, for
// the host finds kernels by names that the preprocessor alone can put together.
#pragma once

#include "composable_kernels/arch/target.hpp"
#include "composable_kernels/eight_bit.hpp"
#include "kernels/memory_bound_threads.hpp"

namespace rocm_sd::storage {
using f16 = Half;
using bf16 = Bf16;
using f32 = float;
using i8 = Int8;
using f8e4m3 = Fp8;
}  // namespace rocm_sd::storage

// ROCM_SD_OP(scale, ScaleParams, f16) is the kernel scale_f16.
#define ROCM_SD_OP(op, Params, type)                                                                      \
  ROCM_SD_KERNEL(op##_##type, rocm_sd::kMemoryBoundThreads, 4, rocm_sd::Params<rocm_sd::storage::type>) { \
    rocm_sd::op##_body(p, rocm_sd::Block<rocm_sd::GpuArch>{                                               \
                              p.workgroups, rocm_sd::kMemoryBoundThreads / rocm_sd::GpuArch::lanes});     \
  }
// ROCM_SD_OP_FLOATS(scale, ScaleParams): of each type that activations have.
#define ROCM_SD_OP_FLOATS(op, Params) \
  ROCM_SD_OP(op, Params, f16)         \
  ROCM_SD_OP(op, Params, bf16)        \
  ROCM_SD_OP(op, Params, f32)
// ROCM_SD_OP2(dequantize, DequantizeParams, i8, f16) is the kernel dequantize_i8_f16. A macro's argument ends
// at a comma: the argument's type gets a name first.
#define ROCM_SD_OP2(op, Params, from, to)                                                             \
  using op##_##from##_##to##_params = rocm_sd::Params<rocm_sd::storage::from, rocm_sd::storage::to>;  \
  ROCM_SD_KERNEL(op##_##from##_##to, rocm_sd::kMemoryBoundThreads, 4, op##_##from##_##to##_params) {  \
    rocm_sd::op##_body(p, rocm_sd::Block<rocm_sd::GpuArch>{                                           \
                              p.workgroups, rocm_sd::kMemoryBoundThreads / rocm_sd::GpuArch::lanes}); \
  }
#define ROCM_SD_OP2_FLOATS(op, Params, from) \
  ROCM_SD_OP2(op, Params, from, f16)         \
  ROCM_SD_OP2(op, Params, from, bf16)        \
  ROCM_SD_OP2(op, Params, from, f32)
