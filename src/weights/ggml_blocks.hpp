// ggml's element types, and its blocks: 32 or 256 weights in few bits with scales of their own.
// Layouts as ggml's ggml-common.h and the Python package gguf (gguf/quants.py) describe them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/dtype.hpp"

namespace rocm_sd {

enum class GgmlType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2K = 10,
  kQ3K = 11,
  kQ4K = 12,
  kQ5K = 13,
  kQ6K = 14,
  kI8 = 24,
  kI16 = 25,
  kI32 = 26,
  kI64 = 27,
  kF64 = 28,
  kBF16 = 30,
};

struct GgmlTypeInfo {
  GgmlType type;
  std::string_view name;       // "q8_0"
  int block;                   // weights in a block; 1: no blocks
  int bytes;                   // of a block
  std::optional<DType> plain;  // what it is where it has no blocks
};

// Nothing (null) for types that are not read.
const GgmlTypeInfo* find_ggml_type(uint32_t number);
const GgmlTypeInfo* find_ggml_type(std::string_view name);
const GgmlTypeInfo& ggml_type_info(GgmlType type);
GgmlType ggml_type_of(DType dtype);         // throws FormatError for types that ggml lacks (fp8, u8, bool)
std::string ggml_type_names(bool written);  // "f32, f16, ...": all that are read, or all that can be written

// dst[count * block] from `count` blocks, in float arithmetic, operation by operation as gguf/quants.py does
// it. type has blocks.
void dequantize_blocks(GgmlType type, const void* blocks, int64_t count, float* dst);

// Q8_0, Q4_0, Q4_1, Q5_0 and Q5_1 can be made from floats; rounding as in gguf/quants.py.
bool can_quantize(GgmlType type);
// `count` blocks from src[count * block]. Throws FormatError naming `what` where a value is not finite or
// the scale does not fit into f16.
void quantize_blocks(GgmlType type, const float* src, int64_t count, void* blocks, std::string_view what);

}  // namespace rocm_sd
