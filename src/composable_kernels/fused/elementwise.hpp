// Elementwise maps over rows.
// Problem   y[r,c] = map(a[r,c], b[r,c]), rows strided at will; the maps are the types in namespace maps;
//           AddScaled has a factor for each row, read from memory
// Mapping   a thread takes eight neighbouring elements of a row at a time, the grid's threads in turn
// Traffic   each operand once, in pieces of up to 16 bytes where rows begin at multiples of them
// Numerics  float
// Limits    2^31 pieces of eight
#pragma once

#include <type_traits>

#include "composable_kernels/block.hpp"
#include "composable_kernels/pack.hpp"
#include "composable_kernels/tile/unrolled.hpp"

namespace rocm_sd {

template <class A, class Y>
struct MapParams {
  const A *a, *b;  // b is null for maps of one operand
  Y* y;
  int64_t rows, cols, a_stride, b_stride, y_stride, part_stride;
  float p0, p1;
  uint32_t workgroups;   // of the grid
  int32_t aligned;       // whether every row, and every part, begins at a multiple of a pack's alignment
  int32_t parts;         // 1; of Split 2 or 3
  const float* factors;  // of AddScaled: [rows]; else null
};

namespace maps {

struct Copy {
  static constexpr bool kBinary = false;
  template <class Arch>
  ROCM_SD_DEVICE static float apply(float a, float, float, float) {
    return a;
  }
};
struct Silu {
  static constexpr bool kBinary = false;
  template <class Arch>
  ROCM_SD_DEVICE static float apply(float a, float, float, float) {
    return a * Arch::reciprocal(1.0f + Arch::exp(-a));
  }
};
struct Gelu {
  static constexpr bool kBinary = false;
  template <class Arch>
  ROCM_SD_DEVICE static float apply(float a, float, float, float) {
    return 0.5f * a * Arch::erfc(-0.70710678f * a);
  }
};
struct QuickGelu {
  static constexpr bool kBinary = false;
  template <class Arch>
  ROCM_SD_DEVICE static float apply(float a, float, float, float) {
    return a * Arch::reciprocal(1.0f + Arch::exp(-1.702f * a));
  }
};
struct Relu {
  static constexpr bool kBinary = false;
  template <class Arch>
  ROCM_SD_DEVICE static float apply(float a, float, float, float) {
    return a < 0.0f ? 0.0f : a;
  }
};
struct Add {
  static constexpr bool kBinary = true;
  template <class Arch>
  ROCM_SD_DEVICE static float apply(float a, float b, float, float) {
    return a + b;
  }
};
struct AddScaled {
  static constexpr bool kBinary = true;
  template <class Arch>
  ROCM_SD_DEVICE static float apply(float a, float b, float factor, float) {
    return a + factor * b;
  }
};
struct LeakyRelu {
  static constexpr bool kBinary = false;
  template <class Arch>
  ROCM_SD_DEVICE static float apply(float a, float, float slope, float) {
    return a < 0.0f ? slope * a : a;
  }
};
struct PRelu {
  static constexpr bool kBinary = true;
  template <class Arch>
  ROCM_SD_DEVICE static float apply(float a, float slope, float, float) {
    return a < 0.0f ? slope * a : a;
  }
};
struct MulGelu {
  static constexpr bool kBinary = true;
  template <class Arch>
  ROCM_SD_DEVICE static float apply(float a, float b, float, float) {
    return a * Gelu::apply<Arch>(b, 0, 0, 0);
  }
};
struct Affine {
  static constexpr bool kBinary = false;
  template <class Arch>
  ROCM_SD_DEVICE static float apply(float a, float, float scale, float shift) {
    return a * scale + shift;
  }
};
struct SoftClamp {
  static constexpr bool kBinary = false;
  template <class Arch>
  ROCM_SD_DEVICE static float apply(float a, float, float limit, float) {
    return limit * Arch::tanh(a / limit);
  }
};

// Copy, and beside it, part_stride further on, what rounding to Y takes away, and the copy again.
struct Split : Copy {};

// To 0..255, half to even; NaN gives 0.
struct Rgb8 {
  static constexpr bool kBinary = false;
  template <class Arch>
  ROCM_SD_DEVICE static float apply(float a, float, float p0, float p1) {
    const float unit = a * p0 + p1;
    const float clamped = unit > 0.0f ? (unit < 1.0f ? unit : 1.0f) : 0.0f;
    return Arch::round(clamped * 255.0f);
  }
};

}  // namespace maps

ROCM_SD_DEVICE void store(uint8_t& to, float value) { to = static_cast<uint8_t>(static_cast<int>(value)); }

// Cfg: A and Y, the storage types; Map.
template <class Arch, class Cfg>
ROCM_SD_DEVICE void map_body(const MapParams<typename Cfg::A, typename Cfg::Y>& p, const Block<Arch>& block) {
  using A = typename Cfg::A;
  using Y = typename Cfg::Y;
  using Map = typename Cfg::Map;
  constexpr int kVec = 8;
  const auto packs = static_cast<uint32_t>((p.cols + kVec - 1) / kVec);
  const uint32_t all = static_cast<uint32_t>(p.rows) * packs;
  for (auto i = static_cast<uint32_t>(block.first_item()); i < all;
       i += static_cast<uint32_t>(block.item_stride())) {
    const uint32_t row = p.rows == 1 ? 0 : i / packs;
    const int64_t c = static_cast<int64_t>(i - row * packs) * kVec;
    const A* a = p.a + row * p.a_stride + c;
    const A* b = Map::kBinary ? p.b + row * p.b_stride + c : a;
    Y* y = p.y + row * p.y_stride + c;
    float p0 = p.p0;
    if constexpr (std::is_same_v<Map, maps::AddScaled>) p0 = p.factors[row];
    if (p.aligned && c + kVec <= p.cols) {
      const auto from = load_pack<kVec>(a);
      auto other = from;
      if constexpr (Map::kBinary) other = load_pack<kVec>(b);
      Pack<Y, kVec> to;
      unrolled<kVec>([&](int j) {
        store(to.x[j], Map::template apply<Arch>(to_float(from.x[j]), to_float(other.x[j]), p0, p.p1));
      });
      store_pack(y, to);
      if constexpr (std::is_same_v<Map, maps::Split>) {
        if (p.parts == 3) store_pack(y + 2 * p.part_stride, to);
        unrolled<kVec>([&](int j) { store(to.x[j], to_float(from.x[j]) - to_float(to.x[j])); });
        store_pack(y + p.part_stride, to);
      }
    } else {
      for (int j = 0; j < kVec && c + j < p.cols; ++j) {
        store(y[j], Map::template apply<Arch>(to_float(a[j]), to_float(b[j]), p0, p.p1));
        if constexpr (std::is_same_v<Map, maps::Split>) {
          if (p.parts == 3) y[2 * p.part_stride + j] = y[j];
          store(y[p.part_stride + j], to_float(a[j]) - to_float(y[j]));
        }
      }
    }
  }
}

}  // namespace rocm_sd
