// The family whose kernels this translation unit compiles: KernelFamily. Only .hip files include it. A target
// that no family knows is an error (arch/target.hpp says which).
#pragma once

#include "composable_kernels/arch/target.hpp"
#if defined(__CUDACC__)
#include "composable_kernels/families/hopper.hpp"
#elif defined(ROCM_SD_TARGET_RDNA4)
#include "composable_kernels/families/rdna4.hpp"
#elif defined(ROCM_SD_TARGET_RDNA3)
#include "composable_kernels/families/rdna3.hpp"
#elif defined(ROCM_SD_TARGET_CDNA3)
#include "composable_kernels/families/cdna3.hpp"
#endif

namespace rocm_sd {

#if defined(__CUDACC__)
#if __CUDA_ARCH_LIST__ == 900  // in both of nvcc's passes
using KernelFamily = HopperFamily;
#else
using KernelFamily = NvidiaFamily;
#endif
#elif defined(ROCM_SD_TARGET_RDNA4)
using KernelFamily = Rdna4Family;
#elif defined(ROCM_SD_TARGET_RDNA3)
using KernelFamily = Rdna3Family;
#elif defined(ROCM_SD_TARGET_CDNA3)
using KernelFamily = Cdna3Family;
#endif

// Of elements, in kernels' names.
template <class T>
inline constexpr const char* kElementName = nullptr;
template <>
inline constexpr const char* kElementName<Half> = "f16";
template <>
inline constexpr const char* kElementName<Bf16> = "bf16";
template <>
inline constexpr const char* kElementName<float> = "f32";

}  // namespace rocm_sd

// A kernel's entry has the name that its configuration gives it.
#define ROCM_SD_CHECK_NAME(name, ...)                       \
  static_assert(rocm_sd::kernel_name(__VA_ARGS__) == #name, \
                "the entry's name is not the one that its configuration gives it");
