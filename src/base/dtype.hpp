// Element types of tensors in memory and in files, and their conversions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rocm_sd {

enum class DType : uint8_t { kF32, kF16, kBF16, kF8E4M3, kF8E5M2, kF64, kI64, kI32, kI16, kI8, kU8, kBool };

size_t dtype_size(DType type);            // bytes per element
std::string_view dtype_name(DType type);  // "f32", "bf16", ...
inline std::string to_text(DType type) { return std::string(dtype_name(type)); }
bool is_float(DType type);

// safetensors' spelling ("F32", "BF16", "F8_E4M3"), both ways; nothing for a type we do not hold.
std::optional<DType> dtype_from_safetensors(std::string_view name);
std::string_view dtype_to_safetensors(DType type);

// Single values, round to nearest even; fp8 follows OCP (e4m3fn: no infinities, NaN at 0x7f; e5m2:
// IEEE-like). Overflow: f16 and bf16 go to infinity; e4m3 to NaN, as PyTorch's .to() does.
uint16_t float_to_bf16(float x);
float bf16_to_float(uint16_t bits);
uint16_t float_to_f16(float x);
float f16_to_float(uint16_t bits);
uint8_t float_to_f8e4m3(float x);
float f8e4m3_to_float(uint8_t bits);
uint8_t float_to_f8e5m2(float x);
float f8e5m2_to_float(uint8_t bits);

// Converts count elements between any two types; integers go through double. src and dst must not overlap.
void convert_elements(const void* src, DType src_type, void* dst, DType dst_type, int64_t count);

}  // namespace rocm_sd
