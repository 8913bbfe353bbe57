// PyTorch's tensors seen as ours and back, through LibTorch's stable ABI: views of the same memory, no
// copies.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include <optional>
#include <span>
#include <string>

#include "base/error.hpp"
#include "runtime/tensor.hpp"

namespace rocm_sd::torch_ops {

using AtTensor = torch::stable::Tensor;
using OptionalAt = std::optional<AtTensor>;

// PyTorch did not do what it was asked for.
using TorchRefused = ErrorOf<ExitCode::kUsage, struct TorchRefusedTag>;
// Throws where a call of PyTorch's failed: OutOfMemoryError where that was for memory, else TorchRefused,
// with PyTorch's sentence where this version tells it (from 2.13 on). call: its name.
void check_torch(AOTITorchError status, const char* call);

std::optional<DType> dtype_of(const AtTensor& x);         // f32, f16 or bf16; nothing for another type
std::optional<DType> stored_dtype_of(const AtTensor& x);  // and i8, f8e4m3 or i32
std::string describe(const AtTensor& x);                  // "bf16[2,320,64,64]", for messages

// describe(tensor) as a part of a message that is seldom made: put together only then.
struct Shown {
  const AtTensor& tensor;
};
inline Shown shown(const AtTensor& x) { return {x}; }
inline std::string to_text(const Shown& x) { return describe(x.tensor); }

bool same_device(const AtTensor& a, const AtTensor& b);
bool same_sizes(const AtTensor& a, const AtTensor& b);

// x's memory from its first element on, row-major, as this shape. Keeps x alive; x must have a
// stored_dtype_of.
Tensor view_as(const AtTensor& x, const Shape& shape);
// The same with rows that lie further apart: shape [B,N,C], elements from one image and one row to the next.
// Nothing where that is not a part of some row-major [B,N',C'].
std::optional<Tensor> rows_view(const AtTensor& x, const Shape& shape, int64_t image, int64_t row);

// Uninitialised memory of PyTorch's allocator with these sizes and strides, on x's device and of x's type.
AtTensor empty_strided_like(const AtTensor& x, const Shape& sizes, const Shape& strides);
// x's memory, all of it laid out so, for the length of a call: the caller keeps x. beside: a tensor of its
// device. (A tensor of PyTorch's that is kept instead would belong to the inference mode that it was made in,
// or not.)
AtTensor seen_by_torch(const Tensor& x, const Shape& sizes, const Shape& strides, const AtTensor& beside);

// The same of another type.
AtTensor empty_strided_of(const AtTensor& x, DType dtype, const Shape& sizes, const Shape& strides);
// x itself where it has these strides (in every dimension longer than 1), else a copy that has them.
AtTensor with_strides(const AtTensor& x, const Shape& strides);

Shape sizes_of(const AtTensor& x);
Shape strides_of(const AtTensor& x);
Shape row_major(const Shape& sizes);
Shape channels_last(const Shape& sizes);  // [N,C,H,W] laid out as [N,H,W,C]
// [N,C,H,W] as [N,H,W,C], copied only where the channels are not the innermost, densely packed dimension.
Tensor nhwc_of(const AtTensor& x);
Tensor row_major_of(const AtTensor& x);

}  // namespace rocm_sd::torch_ops
