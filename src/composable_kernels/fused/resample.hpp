// Resizing of NHWC maps by weights per axis.
// Problem   y[n,i,j,c] = sum over a, b of row_weights[i,a] col_weights[j,b] x[n, row_first[i]+a,
// col_first[j]+b, c] Mapping   one wave per output pixel; a lane owns every lanes-th channel Traffic   x as
// often as windows overlap (from cache), y once      Numerics  float, columns inside      Limits  none
#pragma once

#include "composable_kernels/block.hpp"

namespace rocm_sd {

struct ResampleAxis {
  const int32_t *first, *count;  // [out]
  const float* weights;          // [out, width]
  int64_t width, in, out;
};

template <class T>
struct ResampleParams {
  const T* x;  // [images, rows.in, cols.in, channels]
  T* y;        // [images, rows.out, cols.out, channels]
  ResampleAxis rows, cols;
  int64_t images, channels;
};

// Cfg::T is the storage type.
template <class Arch, class Cfg>
ROCM_SD_DEVICE void resample_body(const ResampleParams<typename Cfg::T>& p, const Block<Arch>& block) {
  const int64_t pixels = p.images * p.rows.out * p.cols.out;
  for (int64_t pixel = block.first_row(); pixel < pixels; pixel += block.row_stride()) {
    const int64_t j = pixel % p.cols.out, i = pixel / p.cols.out % p.rows.out;
    const int64_t image = pixel / p.cols.out / p.rows.out;
    for (int64_t c = block.lane(); c < p.channels; c += Arch::lanes) {
      float sum = 0;
      for (int64_t a = 0; a < p.rows.count[i]; ++a) {
        const auto* row =
            p.x + ((image * p.rows.in + p.rows.first[i] + a) * p.cols.in + p.cols.first[j]) * p.channels;
        float inner = 0;
        for (int64_t b = 0; b < p.cols.count[j]; ++b)
          inner += p.cols.weights[j * p.cols.width + b] * to_float(row[b * p.channels + c]);
        sum += p.rows.weights[i * p.rows.width + a] * inner;
      }
      store(p.y[pixel * p.channels + c], sum);
    }
  }
}

}  // namespace rocm_sd
