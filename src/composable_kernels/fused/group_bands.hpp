// Group norm of images that lie in bands: moments of runs of pixels, their merger, normalising.
// Problem   mean and deviation over groups of channels of all bands; y = act((x - mean) * scale + bias)
// Mapping   moments: a workgroup per run and slab of whole groups, a thread owns one pack of channels of
//           every rows-th pixel; merger: one wave per group; normalising: a thread owns one pack of channels
//           of every rows-th of a piece's pixels
// Traffic   x once for the moments, once more for y
// Numerics  moments as in group_norm_parts.hpp; runs are merged in double
// Limits    moments: as group_norm_parts.hpp; normalising: channels are a multiple of the pack
#pragma once

#include <type_traits>

#include "composable_kernels/fused/group_norm_parts.hpp"

namespace rocm_sd {

template <class T>
struct GroupMomentsParams {
  const T* x;  // [images, pixels, channels]
  float* out;  // of each image [rows, groups, 3]: count, mean, squares of what differs from it
  int64_t pixels, out_step;
  int32_t channels, groups, rows;
  int32_t slab;  // channels of a workgroup: whole groups, a multiple of the pack
};

// Workgroup (image * rows + row) * slabs + slab. Cfg: T, kVec, kThreads.
template <class Arch, class Cfg>
ROCM_SD_DEVICE void group_moments_body(const GroupMomentsParams<typename Cfg::T>& p, const Block<Arch>& block,
                                       group_norms::MeasureLds<Cfg::kThreads, Cfg::kVec>& lds) {
  const int slabs = p.channels / p.slab, width = p.channels / p.groups;
  const int group = static_cast<int>(block.group()), run_of_all = group / slabs, slab = group % slabs;
  const int64_t image = run_of_all / p.rows, row = run_of_all % p.rows;
  const int64_t begin = p.pixels * row / p.rows, end = p.pixels * (row + 1) / p.rows;
  const auto pixels = static_cast<int>(end - begin);
  GroupNormParams<typename Cfg::T> run{};
  run.x = p.x + (image * p.pixels + begin) * p.channels;
  run.pixels = pixels;
  run.channels = run.first = p.channels;
  run.groups = p.groups;
  run.slab = p.slab;
  float* out = p.out + image * p.out_step + (row * p.groups + slab * (p.slab / width)) * 3;
  group_norm_measure<Arch, Cfg>(run, block, lds, 0, slab, 0, pixels,
                                [&](const group_norms::Merge& merge, int g, float base) {
                                  out[3 * g] = merge.count;
                                  out[3 * g + 1] = merge.mean(base);
                                  out[3 * g + 2] = merge.central();
                                });
}

struct GroupScaleParams {
  const float* moments;  // [images, rows, groups, 3]
  const float* gain;     // [channels]
  float* out;            // [images, 2, channels]
  int32_t images, rows, channels, groups;
  float eps;
};

// Called by a whole wave for each group of each image.
template <class Arch>
ROCM_SD_DEVICE void group_scale_body(const GroupScaleParams& p, int wave) {
  const int image = wave / p.groups, group = wave % p.groups;
  const auto moment = [&](int row, int i) {
    const int64_t of_all = static_cast<int64_t>(image) * p.rows + row;
    return static_cast<double>(p.moments[(of_all * p.groups + group) * 3 + i]);
  };
  float* const out = p.out + static_cast<int64_t>(image) * 2 * p.channels;
  double count = 0, sum = 0, squares = 0;
  for (int r = Arch::lane(); r < p.rows; r += Arch::lanes) {
    count += moment(r, 0);
    sum += moment(r, 0) * moment(r, 1);
  }
  count = Arch::wave_sum(count);
  const double mean = Arch::wave_sum(sum) / count;
  for (int r = Arch::lane(); r < p.rows; r += Arch::lanes) {
    const double step = moment(r, 1) - mean;
    squares += moment(r, 2) + moment(r, 0) * step * step;
  }
  const double variance = Arch::wave_sum(squares) / count;
  const float scale = 1.0f / Arch::sqrt(static_cast<float>(variance) + p.eps);
  const int width = p.channels / p.groups;
  for (int c = group * width + Arch::lane(); c < (group + 1) * width; c += Arch::lanes) {
    out[c] = static_cast<float>(mean);
    out[p.channels + c] = p.gain[c] * scale;
  }
}

// A part of the map that is normalised, and the number of its pieces in an image. Without padding, of which
// GCC 12's __builtin_clear_padding clears the wrong bytes where structs lie in an array.
template <class T>
struct NormaliseSource {
  const T* x;  // [images, pixels, channels]
  int32_t pixels, pieces;
};
static_assert(std::has_unique_object_representations_v<NormaliseSource<float>>);

template <class T>
struct NormaliseParams {
  NormaliseSource<T> sources[3];  // one below the other in y: rows above, the map, rows below
  const float* scale;             // [images, 2, channels]: mean, gain over deviation
  const float* bias;              // [channels]
  T* y;                           // [images, pixels, channels]
  int64_t pixels;                 // of all sources
  int32_t channels;
  int32_t pieces;  // of an image
  int32_t slab;    // channels of a workgroup, a multiple of the pack
  int32_t piece;   // pixels of a workgroup but a source's last
  int32_t silu;
};

// Workgroup (image * pieces + piece) * slabs + slab. Cfg: T, kVec, kThreads.
template <class Arch, class Cfg>
ROCM_SD_DEVICE void normalise_channels_body(const NormaliseParams<typename Cfg::T>& p,
                                            const Block<Arch>& block) {
  using T = typename Cfg::T;
  constexpr int kVec = Cfg::kVec, kAhead = 4;  // loads under way
  const int slabs = p.channels / p.slab, columns = p.slab / kVec, rows = Cfg::kThreads / columns;
  const int group = static_cast<int>(block.group()), piece_of_all = group / slabs;
  const int64_t image = piece_of_all / p.pieces;
  int piece = piece_of_all % p.pieces;
  int64_t source_begin = 0;  // in y
  // Without an index that is known late, for which arguments lie in memory of each thread's own.
  NormaliseSource<T> source = p.sources[0];
  unrolled<2>([&](int s) {
    if (piece >= source.pieces) {
      piece -= source.pieces;
      source_begin += source.pixels;
      source = p.sources[s + 1];
    }
  });
  const int64_t first = int64_t{piece} * p.piece;
  const float* const scale = p.scale + image * 2 * p.channels;
  const int pixels = static_cast<int>(source.pixels - first < p.piece ? source.pixels - first : p.piece);
  const int64_t step = static_cast<int64_t>(rows) * p.channels;
  for (int t = block.thread(); t < rows * columns; t += block.threads()) {
    const int channel = group % slabs * p.slab + t % columns * kVec;
    int row = t / columns;
    if (row >= pixels) break;
    const T* x = source.x + (image * source.pixels + first + row) * p.channels + channel;
    T* y = p.y + (image * p.pixels + source_begin + first + row) * p.channels + channel;
    group_norms::Affine<T, kVec> affine;
    const auto mean = load_pack<kVec>(scale + channel);
    affine.load(scale + p.channels + channel, p.bias + channel);
    for (int j = 0; j < kVec; ++j) affine.set(j, mean.x[j], 1);
    for (; row < pixels; row += kAhead * rows, x += kAhead * step, y += kAhead * step) {
      Pack<T, kVec> packs[kAhead];
      unrolled<kAhead>(
          [&](int k) { packs[k] = load_pack<kVec>(x + (row + k * rows < pixels ? k * step : 0)); });
      unrolled<kAhead>([&](int k) {
        if (row + k * rows < pixels)
          store_pack(y + k * step, group_norms::normalise<Arch, kVec>(packs[k], affine, p.silu != 0));
      });
    }
  }
}

}  // namespace rocm_sd
