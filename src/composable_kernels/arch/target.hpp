// The architecture that this translation unit is compiled for, and how a kernel's entry point is written.
#pragma once

#if defined(__CUDACC__)
#include "composable_kernels/arch/nvidia.hpp"
#elif defined(__GFX12__)
#include "composable_kernels/arch/rdna4.hpp"
#elif defined(__GFX11__)
#include "composable_kernels/arch/rdna3.hpp"
#elif defined(__GFX9__)
#include "composable_kernels/arch/cdna3.hpp"
#elif defined(__HIP__) && !defined(__HIP_DEVICE_COMPILE__)
#include "composable_kernels/arch/rdna3.hpp"
#else
#error "no kernel family knows this target"
#endif

namespace rocm_sd {

#if defined(__CUDACC__)
using GpuArch = Nvidia;
#elif defined(__GFX12__)
using GpuArch = Rdna4;
#elif defined(__GFX11__)
using GpuArch = Rdna3;
#elif defined(__GFX9__)
using GpuArch = Cdna3;
#endif

}  // namespace rocm_sd

// ROCM_SD_KERNEL(name, threads, groups, Params) { ...p... }: an entry point that the host finds by name, with
// one plain struct p as its only argument. threads: of a workgroup, fixed; groups: how many of them a
// multiprocessor should hold at once (bounds the registers). ROCM_SD_CLUSTER_KERNEL: for sm_90, whose
// workgroups come in clusters of that many.
#if defined(__CUDACC__)
// A kernel may be started before the one ahead of it has ended (cuda.cpp); it waits for that one's results
// here.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define ROCM_SD_AWAIT_PREDECESSOR() \
  asm volatile("griddepcontrol.launch_dependents; griddepcontrol.wait;" ::: "memory")
#else
#define ROCM_SD_AWAIT_PREDECESSOR() static_cast<void>(0)
#endif
#define ROCM_SD_ENTRY(name, bounds, Params)                                  \
  static __device__ __forceinline__ void name##_entry(const Params& p);      \
  extern "C" __global__ void bounds name(const __grid_constant__ Params p) { \
    ROCM_SD_AWAIT_PREDECESSOR();                                             \
    name##_entry(p);                                                         \
  }                                                                          \
  static __device__ __forceinline__ void name##_entry(const Params& p)
#define ROCM_SD_KERNEL(name, threads, groups, Params) \
  ROCM_SD_ENTRY(name, __launch_bounds__(threads, groups), Params)
#define ROCM_SD_CLUSTER_KERNEL(name, threads, groups, cluster, Params)                                     \
  ROCM_SD_ENTRY(name, __cluster_dims__(cluster, 1, 1) __maxnreg__(65536 / ((threads) * (groups)) / 8 * 8), \
                Params)
#else
#define ROCM_SD_KERNEL(name, threads, groups, Params)                                             \
  extern "C" __global__ __attribute__((amdgpu_flat_work_group_size(threads, threads))) void name( \
      const Params p)
#endif
