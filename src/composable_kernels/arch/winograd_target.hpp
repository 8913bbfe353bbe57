// WinogradUnit of the target that this translation unit is compiled for.
#pragma once

#include "composable_kernels/arch/target.hpp"
#if defined(__CUDACC__)
#include "composable_kernels/arch/winograd_nvidia.hpp"
#else
#include "composable_kernels/arch/winograd_amd.hpp"
#endif
