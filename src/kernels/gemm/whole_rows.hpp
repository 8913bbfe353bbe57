// Linear layers on GPUs whose rows are not whole pieces of 16 bytes, such as those of 180 channels that
// SwinIR has: x and the weight with zeros behind their rows, which tiles then take.
#pragma once

#include "kernels/weight.hpp"
#include "runtime/exec.hpp"

namespace rocm_sd {

// Whether such copies are made for x [...,in]: on GPUs, of more rows than the kernel for few rows takes.
bool linear_wants_whole_rows(const Exec& ex, const Tensor& x, const LinearWeight& w);

// x [...,in], contiguous -> [...,in'], in' the next multiple of 16 bytes.
Tensor with_whole_rows(Exec& ex, const Tensor& x);
// The weight [out,in] -> [out,in'], in 8 bits where it is stored so: a layout of it, made once. The plain
// form stays, for few rows.
LinearWeight with_whole_rows(Exec& ex, const LinearWeight& w);

}  // namespace rocm_sd
