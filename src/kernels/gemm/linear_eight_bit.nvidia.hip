// linear on NVIDIA with 8-bit operands: every configuration; e4m3 from sm_89 on.
#include "composable_kernels/arch/eight_bit_nvidia.hpp"
#include "kernels/gemm/linear_eight_bit_i8.hpp"
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
#include "kernels/gemm/linear_eight_bit_f8e4m3.hpp"
#endif
