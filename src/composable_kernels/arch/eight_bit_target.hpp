// Which 8-bit elements the matrix unit of this translation unit's target multiplies, and its atoms of them:
// ROCM_SD_TARGET_I8 and ROCM_SD_TARGET_F8 are defined where it does. gfx90a and RDNA 3 multiply none.
#pragma once

#include "composable_kernels/arch/target.hpp"
#if defined(__CUDACC__)
#include "composable_kernels/arch/eight_bit_nvidia.hpp"
#define ROCM_SD_TARGET_I8 1
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
#define ROCM_SD_TARGET_F8 1
#endif
#elif defined(ROCM_SD_TARGET_RDNA4)
#include "composable_kernels/arch/eight_bit_rdna4.hpp"
#define ROCM_SD_TARGET_I8 1
#define ROCM_SD_TARGET_F8 1
#elif defined(__gfx942__)
#include "composable_kernels/arch/eight_bit_cdna3.hpp"
#define ROCM_SD_TARGET_I8 1
#define ROCM_SD_TARGET_F8 1
#endif
