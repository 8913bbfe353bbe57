#include "weights/ggml_blocks.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.hpp"

namespace rocm_sd {
namespace {

using Byte = unsigned char;

constexpr int kSuper = 256;  // weights in a block of the K types

constexpr GgmlTypeInfo kTypes[] = {
    {GgmlType::kF32, "f32", 1, 4, DType::kF32},    {GgmlType::kF16, "f16", 1, 2, DType::kF16},
    {GgmlType::kBF16, "bf16", 1, 2, DType::kBF16}, {GgmlType::kF64, "f64", 1, 8, DType::kF64},
    {GgmlType::kI8, "i8", 1, 1, DType::kI8},       {GgmlType::kI16, "i16", 1, 2, DType::kI16},
    {GgmlType::kI32, "i32", 1, 4, DType::kI32},    {GgmlType::kI64, "i64", 1, 8, DType::kI64},
    {GgmlType::kQ8_0, "q8_0", 32, 34, {}},         {GgmlType::kQ4_0, "q4_0", 32, 18, {}},
    {GgmlType::kQ4_1, "q4_1", 32, 20, {}},         {GgmlType::kQ5_0, "q5_0", 32, 22, {}},
    {GgmlType::kQ5_1, "q5_1", 32, 24, {}},         {GgmlType::kQ2K, "q2_k", kSuper, 84, {}},
    {GgmlType::kQ3K, "q3_k", kSuper, 110, {}},     {GgmlType::kQ4K, "q4_k", kSuper, 144, {}},
    {GgmlType::kQ5K, "q5_k", kSuper, 176, {}},     {GgmlType::kQ6K, "q6_k", kSuper, 210, {}},
};

float half_at(const Byte* at) {
  uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return f16_to_float(bits);
}
void put_half(Byte* at, float value) {
  const uint16_t bits = float_to_f16(value);
  std::memcpy(at, &bits, sizeof bits);
}
uint32_t word_at(const Byte* at) {
  uint32_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return bits;
}

// Weight i of 32 lies in the low half of byte i, and from 16 on in the high half of byte i - 16.
int nibble(const Byte* bytes, int i) { return i < 16 ? bytes[i] & 15 : bytes[i - 16] >> 4; }

// Q4_0: d, 16 bytes. Q4_1: d, m, 16 bytes.
void from_q4_0(const Byte* b, float* y) {
  const float d = half_at(b);
  for (int i = 0; i < 32; ++i) y[i] = d * static_cast<float>(nibble(b + 2, i) - 8);
}
void from_q4_1(const Byte* b, float* y) {
  const float d = half_at(b), m = half_at(b + 2);
  for (int i = 0; i < 32; ++i) y[i] = d * static_cast<float>(nibble(b + 4, i)) + m;
}
// The fifth bits are those of a word.
void from_q5_0(const Byte* b, float* y) {
  const float d = half_at(b);
  const uint32_t high = word_at(b + 2);
  for (int i = 0; i < 32; ++i)
    y[i] = d * static_cast<float>((nibble(b + 6, i) | static_cast<int>(high >> i & 1) << 4) - 16);
}
void from_q5_1(const Byte* b, float* y) {
  const float d = half_at(b), m = half_at(b + 2);
  const uint32_t high = word_at(b + 4);
  for (int i = 0; i < 32; ++i)
    y[i] = d * static_cast<float>(nibble(b + 8, i) | static_cast<int>(high >> i & 1) << 4) + m;
}
void from_q8_0(const Byte* b, float* y) {
  const float d = half_at(b);
  for (int i = 0; i < 32; ++i) y[i] = static_cast<float>(static_cast<int8_t>(b[2 + i])) * d;
}

// The K types: weight i of 256 belongs to the group i / 16 (or / 32), which has a scale.
// Two bits of weight i: each 128 weights take 32 bytes, four weights in a byte.
int two_bits(const Byte* bytes, int i) { return bytes[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3; }
// Four bits: each 64 weights take 32 bytes.
int four_bits(const Byte* bytes, int i) { return bytes[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 15; }
// One bit: bit i / 32 of byte i % 32.
int one_bit(const Byte* bytes, int i) { return bytes[i % 32] >> (i / 32) & 1; }

// 16 bytes of scale and minimum (4 bits each), 64 of weights, d, dmin.
void from_q2_k(const Byte* b, float* y) {
  const float d = half_at(b + 80), dmin = half_at(b + 82);
  for (int i = 0; i < kSuper; ++i) {
    const int scale = b[i / 16];
    y[i] = d * static_cast<float>(scale & 15) * static_cast<float>(two_bits(b + 16, i)) -
           dmin * static_cast<float>(scale >> 4);
  }
}

// Scale g of 16, six bits: four in a half of byte g % 8, two in byte 8 + g % 4.
int q3_scale(const Byte* s, int g) {
  return (s[g % 8] >> (g / 8 * 4) & 15) | (s[8 + g % 4] >> (g / 4 * 2) & 3) << 4;
}

// 32 bytes of third bits (0: four less), 64 of weights, 12 of scales, d.
void from_q3_k(const Byte* b, float* y) {
  const float d = half_at(b + 108);
  for (int i = 0; i < kSuper; ++i) {
    const float scale = d * static_cast<float>(q3_scale(b + 96, i / 16) - 32);
    y[i] = scale * static_cast<float>(two_bits(b + 32, i) - (one_bit(b, i) ? 0 : 4));
  }
}

// Scale and minimum of group g of 8, six bits each in 12 bytes: of the first four groups the low bits of
// bytes g and 4 + g; of the others four bits in byte 8 + g and the two upper bits of those.
struct ScaleMin {
  float scale, min;
};
ScaleMin q4_scale(const Byte* s, int g) {
  const int at = g % 4;
  if (g < 4) return {static_cast<float>(s[at] & 63), static_cast<float>(s[4 + at] & 63)};
  return {static_cast<float>((s[8 + at] & 15) | (s[at] >> 2 & 48)),
          static_cast<float>((s[8 + at] >> 4) | (s[4 + at] >> 2 & 48))};
}

// d, dmin, 12 bytes of scales, (Q5_K: 32 of fifth bits,) 128 of weights.
void from_q4_k(const Byte* b, float* y) {
  const float d = half_at(b), dmin = half_at(b + 2);
  for (int i = 0; i < kSuper; ++i) {
    const ScaleMin group = q4_scale(b + 4, i / 32);
    y[i] = d * group.scale * static_cast<float>(four_bits(b + 16, i)) - dmin * group.min;
  }
}
void from_q5_k(const Byte* b, float* y) {
  const float d = half_at(b), dmin = half_at(b + 2);
  for (int i = 0; i < kSuper; ++i) {
    const ScaleMin group = q4_scale(b + 4, i / 32);
    const int q = four_bits(b + 48, i) | one_bit(b + 16, i) << 4;
    y[i] = d * group.scale * static_cast<float>(q) - dmin * group.min;
  }
}

// 128 bytes of low bits (each 128 weights take 64 bytes), 64 of high bits, 16 scales of 8 bits, d.
void from_q6_k(const Byte* b, float* y) {
  const float d = half_at(b + 208);
  for (int i = 0; i < kSuper; ++i) {
    const int low = b[i / 128 * 64 + i % 64] >> (i % 128 / 64 * 4) & 15;
    const int q = (low | two_bits(b + 128, i) << 4) - 32;
    y[i] = d * static_cast<float>(static_cast<int8_t>(b[192 + i / 16])) * static_cast<float>(q);
  }
}

using FromBlock = void (*)(const Byte*, float*);
FromBlock from_block(GgmlType type) {
  switch (type) {
    case GgmlType::kQ4_0: return from_q4_0;
    case GgmlType::kQ4_1: return from_q4_1;
    case GgmlType::kQ5_0: return from_q5_0;
    case GgmlType::kQ5_1: return from_q5_1;
    case GgmlType::kQ8_0: return from_q8_0;
    case GgmlType::kQ2K: return from_q2_k;
    case GgmlType::kQ3K: return from_q3_k;
    case GgmlType::kQ4K: return from_q4_k;
    case GgmlType::kQ5K: return from_q5_k;
    case GgmlType::kQ6K: return from_q6_k;
    default: break;
  }
  throw InternalError(concat("ggml type ", ggml_type_info(type).name, " has no blocks"));
}

// The weight of largest magnitude (the first of several) is the lowest level: -8 or -16.
float signed_scale(const float* x, int levels) {
  const float* most = std::max_element(x, x + 32, [](float a, float b) { return std::abs(a) < std::abs(b); });
  return *most / static_cast<float>(-levels);
}
float inverse(float d) { return d == 0 ? 0 : 1 / d; }
// Of a scale so small that its inverse is infinite nothing is left in f16: any level is right.
int level(float x, int top) { return x > 0 ? static_cast<int>(std::min(x, static_cast<float>(top))) : 0; }

void put_nibbles(const int* q, Byte* out) {
  for (int i = 0; i < 16; ++i) out[i] = static_cast<Byte>((q[i] & 15) | (q[16 + i] & 15) << 4);
}
void put_fifth_bits(const int* q, Byte* out) {
  uint32_t high = 0;
  for (int i = 0; i < 32; ++i) high |= static_cast<uint32_t>(q[i] >> 4) << i;
  std::memcpy(out, &high, sizeof high);
}

// Q4_0 and Q5_0: d, then the weights.
void to_signed(const float* x, Byte* out, int levels) {
  const float d = signed_scale(x, levels), id = inverse(d);
  int q[32];
  for (int i = 0; i < 32; ++i) q[i] = level(x[i] * id + (static_cast<float>(levels) + 0.5f), 2 * levels - 1);
  put_half(out, d);
  if (levels == 16) put_fifth_bits(q, out + 2);
  put_nibbles(q, out + (levels == 16 ? 6 : 2));
}
// Q4_1 and Q5_1: d, m, then the weights.
void to_range(const float* x, Byte* out, int top) {
  const auto [min, max] = std::minmax_element(x, x + 32);
  const float m = *min, d = (*max - m) / static_cast<float>(top), id = inverse(d);
  int q[32];
  for (int i = 0; i < 32; ++i) q[i] = level((x[i] - m) * id + 0.5f, top);
  put_half(out, d);
  put_half(out + 2, m);
  if (top == 31) put_fifth_bits(q, out + 4);
  put_nibbles(q, out + (top == 31 ? 8 : 4));
}
void to_q8_0(const float* x, Byte* out) {
  float most = 0;
  for (int i = 0; i < 32; ++i) most = std::max(most, std::abs(x[i]));
  const float d = most / 127, id = inverse(d);
  put_half(out, d);
  for (int i = 0; i < 32; ++i) {
    const float q = std::round(x[i] * id);
    out[2 + i] = static_cast<Byte>(static_cast<int8_t>(std::abs(q) <= 127 ? q : 0));
  }
}

void to_block(GgmlType type, const float* x, Byte* out) {
  switch (type) {
    case GgmlType::kQ4_0: return to_signed(x, out, 8);
    case GgmlType::kQ5_0: return to_signed(x, out, 16);
    case GgmlType::kQ4_1: return to_range(x, out, 15);
    case GgmlType::kQ5_1: return to_range(x, out, 31);
    case GgmlType::kQ8_0: return to_q8_0(x, out);
    default: break;
  }
  throw InternalError(concat("ggml type ", ggml_type_info(type).name, " is not written"));
}

}  // namespace

const GgmlTypeInfo* find_ggml_type(uint32_t number) {
  const auto* it = std::ranges::find(kTypes, static_cast<GgmlType>(number), &GgmlTypeInfo::type);
  return it == std::end(kTypes) ? nullptr : it;
}
const GgmlTypeInfo* find_ggml_type(std::string_view name) {
  const auto* it = std::ranges::find(kTypes, name, &GgmlTypeInfo::name);
  return it == std::end(kTypes) ? nullptr : it;
}
const GgmlTypeInfo& ggml_type_info(GgmlType type) { return *find_ggml_type(static_cast<uint32_t>(type)); }

GgmlType ggml_type_of(DType dtype) {
  const auto* it = std::ranges::find(kTypes, std::optional(dtype), &GgmlTypeInfo::plain);
  require<FormatError>(it != std::end(kTypes), "GGUF files have no type for ", dtype);
  return it->type;
}

std::string ggml_type_names(bool written) {
  std::string out;
  for (const GgmlTypeInfo& row : kTypes) {
    const bool is_written = can_quantize(row.type) || (row.plain && is_float(*row.plain) && row.bytes <= 4);
    if (!written || is_written) out += concat(out.empty() ? "" : ", ", row.name);
  }
  return out;
}

void dequantize_blocks(GgmlType type, const void* blocks, int64_t count, float* dst) {
  const GgmlTypeInfo& info = ggml_type_info(type);
  const FromBlock read = from_block(type);
  const auto* at = static_cast<const Byte*>(blocks);
  for (int64_t i = 0; i < count; ++i) read(at + i * info.bytes, dst + i * info.block);
}

bool can_quantize(GgmlType type) {
  return type == GgmlType::kQ8_0 || type == GgmlType::kQ4_0 || type == GgmlType::kQ4_1 ||
         type == GgmlType::kQ5_0 || type == GgmlType::kQ5_1;
}

void quantize_blocks(GgmlType type, const float* src, int64_t count, void* blocks, std::string_view what) {
  constexpr float kMax = 65504.0f * 8;  // the scale is at most an eighth of the largest weight, in f16
  const GgmlTypeInfo& info = ggml_type_info(type);
  const bool has_minimum = type == GgmlType::kQ4_1 || type == GgmlType::kQ5_1;
  for (int64_t i = 0; i < count * info.block; ++i)
    require<FormatError>(std::abs(src[i]) <= (has_minimum ? 65504.0f : kMax), what, ": ", src[i],
                         " cannot be written in ", info.name);
  for (int64_t i = 0; i < count; ++i)
    to_block(type, src + i * info.block, static_cast<Byte*>(blocks) + i * info.bytes);
}

}  // namespace rocm_sd
