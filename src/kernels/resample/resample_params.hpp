// The portable bodies' arguments for a ResampleProblem.
#pragma once

#include <algorithm>
#include <cmath>

#include "composable_kernels/fused/resample.hpp"
#include "kernels/resample/resample_impl.hpp"

namespace rocm_sd {

inline ResampleWindow resample_window(ResampleMode mode) {
  switch (mode) {
    case ResampleMode::kNearest: return ResampleWindow::kNearest;
    case ResampleMode::kArea: return ResampleWindow::kArea;
    case ResampleMode::kBilinear: return ResampleWindow::kBilinear;
    case ResampleMode::kBicubic: return ResampleWindow::kBicubic;
    case ResampleMode::kLanczos3: return ResampleWindow::kLanczos3;
  }
  return ResampleWindow::kNearest;
}

// No output of the axis touches more inputs than this.
inline int64_t resample_width(ResampleMode mode, int64_t in, int64_t out) {
  const double scale = std::max(static_cast<double>(in) / static_cast<double>(out), 1.0);
  switch (mode) {
    case ResampleMode::kNearest: return 1;
    case ResampleMode::kArea: return std::min(static_cast<int64_t>(scale) + 2, in);
    case ResampleMode::kBilinear: return std::min(static_cast<int64_t>(2 * scale) + 3, in);
    case ResampleMode::kBicubic: return std::min(static_cast<int64_t>(4 * scale) + 3, in);
    case ResampleMode::kLanczos3: return std::min(static_cast<int64_t>(6 * scale) + 3, in);
  }
  return in;
}

// Channels that a thread takes at once.
inline int resample_pack(const ResampleProblem& p) {
  if (p.dtype != DType::kF32 && p.channels % 8 == 0) return 8;
  return p.channels % 4 == 0 ? 4 : 1;
}

template <class T>
ResampleParams<T> resample_params(const ResampleProblem& p, const ResampleTapsAxis& rows,
                                  const ResampleTapsAxis& cols, uint32_t workgroups) {
  const auto axis = [](const ResampleTapsAxis& a) {
    return ResampleAxis{a.first, a.count, a.weights, a.width, a.in, a.out};
  };
  return {static_cast<const T*>(p.x),
          static_cast<T*>(p.y),
          axis(rows),
          axis(cols),
          p.images,
          p.channels,
          workgroups};
}

// The weights' tensors, in the Exec's arena.
struct ResampleTables {
  Tensor index[2], weights[2];  // i32 [2, out]: first and count; f32 [out, width]
  ResampleTapsAxis axes[2];     // rows, columns
};
inline ResampleTables resample_tables(Exec& ex, const ResampleProblem& p) {
  ResampleTables tables;
  const int64_t in[2] = {p.in_height, p.in_width}, out[2] = {p.height, p.width};
  for (size_t i = 0; i < 2; ++i) {
    const int64_t width = resample_width(p.mode, in[i], out[i]);
    tables.index[i] = ex.alloc({2, out[i]}, DType::kI32);
    tables.weights[i] = ex.alloc({out[i], width}, DType::kF32);
    auto* first = tables.index[i].as<int32_t>();
    tables.axes[i] = {first, first ? first + out[i] : nullptr, tables.weights[i].as<float>(), width, in[i],
                      out[i]};
  }
  return tables;
}

inline Refusal refuse_resample_body(const ResampleProblem& p) {
  constexpr double kMax = 0x1p31;
  const double pixels =
      static_cast<double>(p.images) * static_cast<double>(p.height) * static_cast<double>(p.width);
  if (pixels * static_cast<double>(p.channels) / resample_pack(p) >= kMax)
    return "takes no more than 2^31 packs of channels";
  return std::nullopt;
}

}  // namespace rocm_sd
