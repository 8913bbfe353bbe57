// linear on RDNA4 with 8-bit operands: every configuration.
#include "composable_kernels/arch/eight_bit_rdna4.hpp"
#include "kernels/gemm/linear_eight_bit_f8e4m3.hpp"
#include "kernels/gemm/linear_eight_bit_i8.hpp"
