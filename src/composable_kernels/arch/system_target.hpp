// SystemScope of the architecture that this translation unit is compiled for: loads, stores and a clock for
// kernels that wait for another device. How such a kernel's entry point is written.
#pragma once

#if defined(__CUDACC__)
#include "composable_kernels/arch/system_nvidia.hpp"
#include "composable_kernels/arch/target.hpp"
// The next kernel may take the room of those for whom this one waits only when the wait is over: the body
// calls launch_next().
#define ROCM_SD_WAITING_KERNEL(name, threads, occupancy, Params) \
  ROCM_SD_BOUNDED_KERNEL(name, __launch_bounds__(threads, occupancy), rocm_sd::Nvidia::pdl_wait(), Params)
#elif defined(__HIP__)
#include "composable_kernels/arch/system_amd.hpp"
#include "composable_kernels/arch/target.hpp"
#define ROCM_SD_WAITING_KERNEL ROCM_SD_KERNEL
#else
#include "composable_kernels/arch/system_scalar.hpp"
#endif
