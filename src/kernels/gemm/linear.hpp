// linear: y = epilogue(x W^T + b), and its gated form. The GEMM of every transformer block, embedding and
// text encoder.
#pragma once

#include "kernels/epilogue.hpp"
#include "kernels/weight.hpp"
#include "runtime/exec.hpp"

namespace rocm_sd {

// x [...,K] f32, bf16 or f16 (rows may be strided, elements of a row contiguous), w.weight [M,K] in x's
// dtype, on the host also bf16 or f16 with an x of f32 -> [...,M] in epilogue.dtype. Accumulates in float.
// epilogue.low_rank is part
// of the same product where a kernel takes it (linear_gpu_adds_low_rank), else a product of its own, which
// this one adds as its residual. epilogue.channel_shift is not taken here. Throws ShapeError if the widths or
// types differ.
Tensor linear(Exec& ex, const Tensor& x, const LinearWeight& w, const Epilogue& epilogue = {});

// GEGLU (Shazeer, "GLU Variants Improve Transformer", 2020): w.weight [2M,K]; value = first M outputs, gate =
// last M; y = value * gelu(gate), gelu in the erf form. x [...,K] -> [...,M]. low_rank: as in linear(), of
// values and gates.
Tensor linear_geglu(Exec& ex, const Tensor& x, const LinearWeight& w,
                    const LowRankProduct* low_rank = nullptr);

}  // namespace rocm_sd
