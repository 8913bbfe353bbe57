// The architecture that this translation unit is compiled for, and how a kernel's entry point is written.
#pragma once

// The targets of each family, one by one: another target of the same generation is an error until somebody
// has looked at its matrix instructions and its LDS (gfx1250 is a GFX12 whose waves multiply otherwise).
#if defined(__CUDACC__)
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#error "no kernel family knows this target: composable_kernels/arch/target.hpp lists those that are known"
#endif
#include "composable_kernels/arch/nvidia.hpp"
#elif defined(__gfx1200__) || defined(__gfx1201__)
#define ROCM_SD_TARGET_RDNA4 1
#include "composable_kernels/arch/rdna4.hpp"
#elif defined(__gfx1100__) || defined(__gfx1101__) || defined(__gfx1102__) || defined(__gfx1150__) || \
    defined(__gfx1151__)
#define ROCM_SD_TARGET_RDNA3 1
#include "composable_kernels/arch/rdna3.hpp"
#elif defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__)
#define ROCM_SD_TARGET_CDNA3 1
#include "composable_kernels/arch/cdna3.hpp"
#elif defined(__HIP__) && !defined(__HIP_DEVICE_COMPILE__)
#include "composable_kernels/arch/rdna3.hpp"
#else
#error "no kernel family knows this target: composable_kernels/arch/target.hpp lists those that are known"
#endif

namespace rocm_sd {

#if defined(__CUDACC__)
using GpuArch = Nvidia;
#elif defined(ROCM_SD_TARGET_RDNA4)
using GpuArch = Rdna4;
#elif defined(ROCM_SD_TARGET_RDNA3)
using GpuArch = Rdna3;
#elif defined(ROCM_SD_TARGET_CDNA3)
using GpuArch = Cdna3;
#endif

}  // namespace rocm_sd

// ROCM_SD_KERNEL(name, threads, occupancy, Params) { ...p... }: an entry point that the host finds by name,
// with one plain struct p as its only argument. threads: of a workgroup, fixed; occupancy: how many
// workgroups a compute unit should hold at once (bounds the registers).
#if defined(__CUDACC__)
// The struct comes last: the commas of a template's arguments are its own.
#define ROCM_SD_BOUNDED_KERNEL(name, bounds, begin, ...)                          \
  static __device__ __forceinline__ void name##_body(const __VA_ARGS__& p);       \
  extern "C" __global__ void bounds name(const __grid_constant__ __VA_ARGS__ p) { \
    begin;                                                                        \
    name##_body(p);                                                               \
  }                                                                               \
  static __device__ __forceinline__ void name##_body(const __VA_ARGS__& p)
#define ROCM_SD_KERNEL(name, threads, occupancy, Params)              \
  ROCM_SD_BOUNDED_KERNEL(name, __launch_bounds__(threads, occupancy), \
                         (rocm_sd::Nvidia::pdl_wait(), rocm_sd::Nvidia::pdl_launch_next()), Params)
// For the bodies of hopper/tma_body.hpp, which begin before the kernel ahead has ended and wait for it by
// themselves.
#define ROCM_SD_TMA_KERNEL(name, Params) \
  ROCM_SD_BOUNDED_KERNEL(name, __launch_bounds__(rocm_sd::kTmaThreads, 1), (void)0, Params)
#define ROCM_SD_RESIDENT_KERNEL(name, Params) \
  ROCM_SD_BOUNDED_KERNEL(name, __launch_bounds__(rocm_sd::kResidentThreads, 1), (void)0, Params)
#else
#if defined(__GFX9__)
// Two waves to a SIMD leave a wave 256 registers. Compilers then let matrix instructions write the registers
// that all others read; with more they write accumulators, out of which every element has to be moved. That
// LDS may leave room for fewer waves is no matter.
#pragma clang diagnostic ignored "-Wpass-failed"
#define ROCM_SD_WAVES_OF_A_SIMD , amdgpu_waves_per_eu(2)
#else
#define ROCM_SD_WAVES_OF_A_SIMD
#endif
#define ROCM_SD_KERNEL(name, threads, occupancy, Params)                                          \
  extern "C" __global__                                                                           \
      __attribute__((amdgpu_flat_work_group_size(threads, threads) ROCM_SD_WAVES_OF_A_SIMD)) void \
      name(const Params p)
#endif
