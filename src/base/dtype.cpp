#include "base/dtype.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.hpp"
#include "base/f16_blocks.hpp"

namespace rocm_sd {
namespace {

struct Row {
  DType type;
  size_t size;
  std::string_view name, safetensors;
};
constexpr Row kRows[] = {
    {DType::kF32, 4, "f32", "F32"},
    {DType::kF16, 2, "f16", "F16"},
    {DType::kBF16, 2, "bf16", "BF16"},
    {DType::kF8E4M3, 1, "f8e4m3", "F8_E4M3"},
    {DType::kF8E5M2, 1, "f8e5m2", "F8_E5M2"},
    {DType::kF64, 8, "f64", "F64"},
    {DType::kI64, 8, "i64", "I64"},
    {DType::kI32, 4, "i32", "I32"},
    {DType::kI16, 2, "i16", "I16"},
    {DType::kI8, 1, "i8", "I8"},
    {DType::kU8, 1, "u8", "U8"},
    {DType::kBool, 1, "bool", "BOOL"},
};
const Row& row(DType type) { return kRows[static_cast<size_t>(type)]; }

// Rounds a float to a small format with the given exponent and mantissa widths: nearest even, subnormals
// kept. Returns the magnitude bits; values past the largest finite give `overflow`.
uint32_t round_to_small_float(float x, int mantissa, int bias, uint32_t max_finite, uint32_t overflow) {
  const float magnitude = std::fabs(x);
  if (magnitude == 0.0f) return 0;
  int exponent = std::max(std::ilogb(magnitude), 1 - bias);
  // In units of the last place at this exponent; exact in double, so nearbyint rounds once, to even.
  const double units = std::ldexp(static_cast<double>(magnitude), mantissa - exponent);
  uint32_t bits = static_cast<uint32_t>(std::min(std::nearbyint(units), 1e9));
  bits += static_cast<uint32_t>(exponent + bias - 1)
          << mantissa;  // the implicit bit carries into the exponent
  return bits > max_finite ? overflow : bits;
}

template <class Load, class Store>
void convert_loop(int64_t count, const Load& load, const Store& store) {
  for (int64_t i = 0; i < count; ++i) store(i, load(i));
}

template <class T>
auto typed_load(const void* p) {
  return [p](int64_t i) {
    T value;
    std::memcpy(&value, static_cast<const char*>(p) + i * sizeof(T), sizeof(T));
    return value;
  };
}
template <class T>
auto typed_store(void* p) {
  return [p](int64_t i, T value) { std::memcpy(static_cast<char*>(p) + i * sizeof(T), &value, sizeof(T)); };
}

// Calls body(load) with a loader that yields float for the float types up to 32 bits, double for the others.
template <class Body>
void with_loader(const void* src, DType type, const Body& body) {
  switch (type) {
    case DType::kF32: return body(typed_load<float>(src));
    case DType::kF16: return body([l = typed_load<uint16_t>(src)](int64_t i) { return f16_to_float(l(i)); });
    case DType::kBF16:
      return body([l = typed_load<uint16_t>(src)](int64_t i) { return bf16_to_float(l(i)); });
    case DType::kF8E4M3:
      return body([l = typed_load<uint8_t>(src)](int64_t i) { return f8e4m3_to_float(l(i)); });
    case DType::kF8E5M2:
      return body([l = typed_load<uint8_t>(src)](int64_t i) { return f8e5m2_to_float(l(i)); });
    case DType::kF64: return body(typed_load<double>(src));
    case DType::kI64:
      return body([l = typed_load<int64_t>(src)](int64_t i) { return static_cast<double>(l(i)); });
    case DType::kI32:
      return body([l = typed_load<int32_t>(src)](int64_t i) { return static_cast<double>(l(i)); });
    case DType::kI16:
      return body([l = typed_load<int16_t>(src)](int64_t i) { return static_cast<double>(l(i)); });
    case DType::kI8:
      return body([l = typed_load<int8_t>(src)](int64_t i) { return static_cast<double>(l(i)); });
    case DType::kU8:
    case DType::kBool:
      return body([l = typed_load<uint8_t>(src)](int64_t i) { return static_cast<double>(l(i)); });
  }
}

template <class T>
auto integer_store(void* dst) {
  return [s = typed_store<T>(dst)](int64_t i, double value) {
    constexpr double lo = static_cast<double>(std::numeric_limits<T>::min());
    constexpr double hi = static_cast<double>(std::numeric_limits<T>::max());
    // Saturate; hi rounds up to 2^63 for int64, which the cast could not hold.
    const T out = !(value > lo) ? (std::isnan(value) ? T{0} : std::numeric_limits<T>::min())
                  : value >= hi ? std::numeric_limits<T>::max()
                                : static_cast<T>(value);
    s(i, out);
  };
}

template <class Load>
void convert_from(const Load& load, void* dst, DType type, int64_t count) {
  const auto as_float = [&](int64_t i) { return static_cast<float>(load(i)); };
  switch (type) {
    case DType::kF32: return convert_loop(count, as_float, typed_store<float>(dst));
    case DType::kF16: {
      std::array<float, 512> floats;
      std::array<uint16_t, 512> halves;
      for (int64_t begin = 0; begin < count; begin += 512) {
        const int64_t block = std::min<int64_t>(512, count - begin);
        for (int64_t i = 0; i < block; ++i) floats[static_cast<size_t>(i)] = as_float(begin + i);
        floats_to_f16(floats.data(), halves.data(), block);
        std::memcpy(static_cast<char*>(dst) + 2 * begin, halves.data(), static_cast<size_t>(2 * block));
      }
      return;
    }
    case DType::kBF16:
      return convert_loop(
          count, [&](int64_t i) { return float_to_bf16(as_float(i)); }, typed_store<uint16_t>(dst));
    case DType::kF8E4M3:
      return convert_loop(
          count, [&](int64_t i) { return float_to_f8e4m3(as_float(i)); }, typed_store<uint8_t>(dst));
    case DType::kF8E5M2:
      return convert_loop(
          count, [&](int64_t i) { return float_to_f8e5m2(as_float(i)); }, typed_store<uint8_t>(dst));
    case DType::kF64:
      return convert_loop(count, load, [s = typed_store<double>(dst)](int64_t i, double v) { s(i, v); });
    case DType::kI64: return convert_loop(count, load, integer_store<int64_t>(dst));
    case DType::kI32: return convert_loop(count, load, integer_store<int32_t>(dst));
    case DType::kI16: return convert_loop(count, load, integer_store<int16_t>(dst));
    case DType::kI8: return convert_loop(count, load, integer_store<int8_t>(dst));
    case DType::kU8: return convert_loop(count, load, integer_store<uint8_t>(dst));
    case DType::kBool:
      return convert_loop(count, load,
                          [s = typed_store<uint8_t>(dst)](int64_t i, double v) { s(i, v != 0); });
  }
}

}  // namespace

size_t dtype_size(DType type) { return row(type).size; }
std::string_view dtype_name(DType type) { return row(type).name; }
std::string_view dtype_to_safetensors(DType type) { return row(type).safetensors; }
bool is_float(DType type) { return type <= DType::kF64; }

std::optional<DType> dtype_from_safetensors(std::string_view name) {
  for (const Row& r : kRows)
    if (r.safetensors == name) return r.type;
  return std::nullopt;
}

uint16_t float_to_bf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if (std::isnan(x)) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
float bf16_to_float(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

uint16_t float_to_f16(float x) {
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  if (std::isnan(x)) return sign | 0x7e00;
  if (std::isinf(x)) return sign | 0x7c00;
  return sign | static_cast<uint16_t>(round_to_small_float(x, 10, 15, 0x7bff, 0x7c00));
}
float f16_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = bits >> 10 & 31, mantissa = bits & 1023;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000 | mantissa << 13);
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

uint8_t float_to_f8e4m3(float x) {
  const uint8_t sign = std::signbit(x) ? 0x80 : 0;
  if (!std::isfinite(x)) return sign | 0x7f;
  return sign | static_cast<uint8_t>(round_to_small_float(x, 3, 7, 0x7e, 0x7f));
}
float f8e4m3_to_float(uint8_t bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  if ((bits & 0x7f) == 0x7f) return std::numeric_limits<float>::quiet_NaN();
  const float magnitude =
      exponent ? std::ldexp(8.0f + mantissa, exponent - 10) : std::ldexp(float(mantissa), -9);
  return bits & 0x80 ? -magnitude : magnitude;
}
uint8_t float_to_f8e5m2(float x) {
  const uint8_t sign = std::signbit(x) ? 0x80 : 0;
  if (std::isnan(x)) return sign | 0x7f;
  if (std::isinf(x)) return sign | 0x7c;
  return sign | static_cast<uint8_t>(round_to_small_float(x, 2, 15, 0x7b, 0x7c));
}
float f8e5m2_to_float(uint8_t bits) { return f16_to_float(static_cast<uint16_t>(bits) << 8); }

void convert_elements(const void* src, DType src_type, void* dst, DType dst_type, int64_t count) {
  if (count == 0) return;
  if (src_type == dst_type) {
    std::memcpy(dst, src, static_cast<size_t>(count) * dtype_size(src_type));
    return;
  }
  const bool aligned = reinterpret_cast<uintptr_t>(src) % alignof(uint16_t) == 0 &&
                       reinterpret_cast<uintptr_t>(dst) % alignof(float) == 0;
  if (src_type == DType::kF16 && dst_type == DType::kF32 && aligned)
    return f16_to_floats(static_cast<const uint16_t*>(src), static_cast<float*>(dst), count);
  with_loader(src, src_type, [&](const auto& load) { convert_from(load, dst, dst_type, count); });
}

}  // namespace rocm_sd
