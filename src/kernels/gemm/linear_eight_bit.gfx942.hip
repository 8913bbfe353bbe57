// linear on gfx942 with 8-bit operands: every configuration. gfx90a has no such instructions.
#include "composable_kernels/arch/eight_bit_cdna3.hpp"
#include "kernels/gemm/linear_eight_bit_f8e4m3.hpp"
#include "kernels/gemm/linear_eight_bit_i8.hpp"
