// The host's elementwise loops, compiled once per instruction set.
#include "kernels/elementwise/map_chunk.hpp"
#include "kernels/simd_math.hpp"

namespace rocm_sd::ROCM_SD_ISA {
namespace {

// In the order of enum Map (map_host.cpp checks it).
enum {
  kCopy,
  kSilu,
  kGelu,
  kQuickGelu,
  kRelu,
  kAdd,
  kMulGelu,
  kAffine,
  kSoftClamp,
  kRgb8,
  kSplit,
  kAddScaled,
  kLeakyRelu,
  kPRelu
};

template <int M>
Vec apply(Vec a, Vec b, float p0, float p1) {
  if constexpr (M == kSilu) return silu(a);
  if constexpr (M == kGelu) return gelu(a);
  if constexpr (M == kQuickGelu) return quick_gelu(a);
  if constexpr (M == kRelu) return a < 0.0f ? Vec{} : a;
  if constexpr (M == kAdd) return a + b;
  if constexpr (M == kMulGelu) return a * gelu(b);
  if constexpr (M == kAddScaled) return a + p0 * b;
  if constexpr (M == kLeakyRelu) return a < 0.0f ? p0 * a : a;
  if constexpr (M == kPRelu) return a < 0.0f ? b * a : a;
  if constexpr (M == kAffine) return a * p0 + p1;
  if constexpr (M == kSoftClamp) return p0 * tanh(a / p0);
  return a;
}

template <int M, class A, class Y>
void loop(const MapChunk& m) {
  constexpr bool kBinary = M == kAdd || M == kMulGelu || M == kAddScaled || M == kPRelu;
  const A* a = static_cast<const A*>(m.a);
  const A* b = static_cast<const A*>(m.b);  // of a's type in every binary map
  Y* y = static_cast<Y*>(m.y);
  const float p0 = m.p0, p1 = m.p1;
  int64_t i = 0;
  for (; i + kLanes <= m.count; i += kLanes)
    store(y + i, apply<M>(load(a + i), kBinary ? load(b + i) : Vec{}, p0, p1));
  if (const int64_t rest = m.count - i; rest > 0)
    store_part(y + i, apply<M>(load_part(a + i, rest), kBinary ? load_part(b + i, rest) : Vec{}, p0, p1),
               rest);
}

template <int M>
void loop_typed(const MapChunk& m) {
  if (m.a_bf16)
    m.y_bf16 ? loop<M, uint16_t, uint16_t>(m) : loop<M, uint16_t, float>(m);
  else
    m.y_bf16 ? loop<M, float, uint16_t>(m) : loop<M, float, float>(m);
}

// f32 to its bf16 parts: y, y + part_stride, and y + 2 part_stride if there are three.
void split(const MapChunk& m) {
  const float* a = static_cast<const float*>(m.a);
  uint16_t* y = static_cast<uint16_t*>(m.y);
  for (int64_t i = 0; i < m.count; i += kLanes) {
    const int64_t count = m.count - i < kLanes ? m.count - i : kLanes;
    const auto write = [&](uint16_t* to, Vec v) {
      count == kLanes ? store(to, v) : store_part(to, v, count);
    };
    const Vec x = count == kLanes ? load(a + i) : load_part(a + i, count);
    const VecBits bits = (VecBits)x;  // rounded as store() does
    const Vec high = (Vec)((bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u);
    write(y + i, x);
    write(y + m.part_stride + i, x - high);
    if (m.parts == 3) write(y + 2 * m.part_stride + i, x);
  }
}

// round(clamp(x / 2 + 1/2, 0, 1) * 255), ties to even; NaN to 0.
template <class A>
void loop_rgb8(const MapChunk& m) {
  const A* a = static_cast<const A*>(m.a);
  uint8_t* y = static_cast<uint8_t*>(m.y);
  for (int64_t i = 0; i < m.count; i += kLanes) {
    const int64_t count = m.count - i < kLanes ? m.count - i : kLanes;
    const Vec x = count == kLanes ? load(a + i) : load_part(a + i, count);
    const Vec unit = x * m.p0 + m.p1;
    float scaled[kLanes];
    store(scaled, (unit > 0.0f ? vmin(unit, splat(1.0f)) : Vec{}) * 255.0f);
    // The product must be rounded to float before it is rounded to an integer; the compiler would fuse the
    // two.
    asm volatile("" : : "r"(scaled) : "memory");
    const VecBits rounded = (VecBits)(load(scaled) + 12582912.0f);
    for (int64_t j = 0; j < count; ++j) y[i + j] = static_cast<uint8_t>(rounded[j]);
  }
}

void map(const MapChunk& m) {
  switch (m.map) {
    case kSilu: return loop_typed<kSilu>(m);
    case kGelu: return loop_typed<kGelu>(m);
    case kQuickGelu: return loop_typed<kQuickGelu>(m);
    case kRelu: return loop_typed<kRelu>(m);
    case kAdd: return loop_typed<kAdd>(m);
    case kMulGelu: return loop_typed<kMulGelu>(m);
    case kAddScaled: return loop_typed<kAddScaled>(m);
    case kLeakyRelu: return loop_typed<kLeakyRelu>(m);
    case kPRelu: return loop_typed<kPRelu>(m);
    case kAffine: return loop_typed<kAffine>(m);
    case kSoftClamp: return loop_typed<kSoftClamp>(m);
    case kRgb8: return m.a_bf16 ? loop_rgb8<uint16_t>(m) : loop_rgb8<float>(m);
    case kSplit: return split(m);
    default: return loop_typed<kCopy>(m);
  }
}

}  // namespace

extern const MapKernels kMapKernels;
const MapKernels kMapKernels = {map};

}  // namespace rocm_sd::ROCM_SD_ISA
