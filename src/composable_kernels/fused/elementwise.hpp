// Elementwise maps over rows.
// Problem   y[r,c] = map(a[r,c], b[r,c]), rows strided at will; the maps are the types in namespace maps
// Mapping   one wave per row; a lane owns every lanes-th column
// Traffic   each operand once      Numerics  float      Limits  none
#pragma once

#include "composable_kernels/block.hpp"

namespace rocm_sd {

template <class A, class Y>
struct MapParams {
  const A *a, *b;  // b is null for maps of one operand
  Y* y;
  int64_t rows, cols, a_stride, b_stride, y_stride;
  float p0, p1;
};

namespace maps {

struct Copy {
  template <class Arch>
  ROCM_SD_DEVICE static float apply(float a, float, float, float) {
    return a;
  }
};
struct Silu {
  template <class Arch>
  ROCM_SD_DEVICE static float apply(float a, float, float, float) {
    return a / (1.0f + Arch::exp(-a));
  }
};
struct Gelu {
  template <class Arch>
  ROCM_SD_DEVICE static float apply(float a, float, float, float) {
    return 0.5f * a * Arch::erfc(-0.70710678f * a);
  }
};
struct QuickGelu {
  template <class Arch>
  ROCM_SD_DEVICE static float apply(float a, float, float, float) {
    return a / (1.0f + Arch::exp(-1.702f * a));
  }
};
struct Relu {
  template <class Arch>
  ROCM_SD_DEVICE static float apply(float a, float, float, float) {
    return a < 0.0f ? 0.0f : a;
  }
};
struct Add {
  template <class Arch>
  ROCM_SD_DEVICE static float apply(float a, float b, float, float) {
    return a + b;
  }
};
struct MulGelu {
  template <class Arch>
  ROCM_SD_DEVICE static float apply(float a, float b, float, float) {
    return a * Gelu::apply<Arch>(b, 0, 0, 0);
  }
};
struct Affine {
  template <class Arch>
  ROCM_SD_DEVICE static float apply(float a, float, float scale, float shift) {
    return a * scale + shift;
  }
};
struct SoftClamp {
  template <class Arch>
  ROCM_SD_DEVICE static float apply(float a, float, float limit, float) {
    return limit * Arch::tanh(a / limit);
  }
};

}  // namespace maps

// Cfg: A and Y, the storage types; Map.
template <class Arch, class Cfg>
ROCM_SD_DEVICE void map_body(const MapParams<typename Cfg::A, typename Cfg::Y>& p, const Block<Arch>& block) {
  for (int64_t row = block.first_row(); row < p.rows; row += block.row_stride())
    for (int64_t c = block.lane(); c < p.cols; c += Arch::lanes) {
      const float b = p.b ? to_float(p.b[row * p.b_stride + c]) : 0.0f;
      const float a = to_float(p.a[row * p.a_stride + c]);
      store(p.y[row * p.y_stride + c], Cfg::Map::template apply<Arch>(a, b, p.p0, p.p1));
    }
}

}  // namespace rocm_sd
