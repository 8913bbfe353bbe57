// Group norm in two passes over memory: measure parts of the pixels, (merge the parts of a large image,)
// normalise.
// Problem   GroupNormParams
// Mapping   a workgroup takes some pixels of a slab of whole groups; a thread owns one pack of channels of
//           every rows-th of them
// Traffic   x twice (the second time from cache where it fits), y once, the parts' moments
// Numerics  each thread sums in float relative to its first element, channel by channel, which bounds the
//           loss by the number of its pixels; threads and parts are merged relative to the first of them, in
//           an order that depends on the shape and the number of parts alone
// Limits    slab and border between the inputs are multiples of the pack; slab / kVec <= kThreads;
//           kMaxSlabGroups groups per slab
#pragma once

#include "composable_kernels/fused/group_norm.hpp"

namespace rocm_sd {
namespace group_norms {

constexpr int kMaxSlabGroups = 128;
constexpr int kShares = 16;  // threads that share the merging of one group

// Of count values; base: a value near them, which all that is added must share.
struct Merge {
  float count, steps, squares;  // not initialised: it lies in LDS
  ROCM_SD_DEVICE void add(float n, float step, float own_squares) {
    count += n;
    steps += n * step;
    squares += own_squares + n * step * step;
  }
  ROCM_SD_DEVICE void add(const Merge& other) {
    count += other.count;
    steps += other.steps;
    squares += other.squares;
  }
  ROCM_SD_DEVICE float mean(float base) const { return base + steps / count; }
  // Of what differs from the mean, squared and summed; a NaN stays one.
  ROCM_SD_DEVICE float central() const {
    const float rest = squares - steps * (steps / count);
    return rest < 0 ? 0.0f : rest;
  }
};

// Merges moments for `groups` groups: part(merge, g, share) adds every kShares-th of g's moments, done(merge,
// g) takes their sum. lds: kThreads Merges.
template <class Arch, int kThreads, class Part, class Done>
ROCM_SD_DEVICE void merge_groups(const Block<Arch>& block, int groups, Merge* lds, const Part& part,
                                 const Done& done) {
  constexpr int kRound = kThreads / kShares;
  for (int first = 0; first < groups; first += kRound) {
    const int round = groups - first < kRound ? groups - first : kRound;
    block.barrier();
    for (int t = block.thread(); t < round * kShares; t += block.threads()) {
      Merge merge{};
      part(merge, first + t / kShares, t % kShares);
      lds[t] = merge;
    }
    block.barrier();
    for (int g = block.thread(); g < round; g += block.threads()) {
      Merge merge = lds[g * kShares];
      unrolled<kShares - 1>([&](int share) { merge.add(lds[g * kShares + share + 1]); });
      done(merge, first + g);
    }
  }
}

// The workgroup's place: image, slab of channels and the number among `pieces`.
struct Place {
  int image, slab, piece;
};
ROCM_SD_DEVICE Place place(int64_t group, int slabs, int pieces) {
  const auto index = static_cast<uint32_t>(group);
  const uint32_t rest = index / static_cast<uint32_t>(pieces);
  return {static_cast<int>(rest / static_cast<uint32_t>(slabs)),
          static_cast<int>(rest % static_cast<uint32_t>(slabs)),
          static_cast<int>(index % static_cast<uint32_t>(pieces))};
}

// One thread's sums over its pixels, per channel.
template <int kVec>
struct Sums {
  float base[kVec], steps[kVec] = {}, squares[kVec] = {};
  template <class T>
  ROCM_SD_DEVICE void add(const Pack<T, kVec>& pack) {
    unrolled<kVec>([&](int j) {
      const float d = to_float(pack.x[j]) - base[j];
      steps[j] += d;
      squares[j] += d * d;
    });
  }
};

// LDS of the measuring kernel.
template <int kThreads, int kVec>
struct MeasureLds {
  float mean[kThreads * kVec], squares[kThreads * kVec];  // [row, slab]
  Merge merge[kThreads];
};
// LDS of the normalising kernel.
template <int kThreads>
struct NormaliseLds {
  float mean[kMaxSlabGroups], scale[kMaxSlabGroups];
  Merge merge[kThreads];
};

// Merges the parts of `groups` groups of an image from `first` on: their means and the reciprocals of their
// deviations. kAhead: loads of a thread under way.
template <class Arch, int kThreads, int kAhead, class T>
ROCM_SD_DEVICE void merge_parts(const GroupNormParams<T>& p, const Block<Arch>& block, int image, int first,
                                int groups, NormaliseLds<kThreads>& lds) {
  const int width = p.channels / p.groups;
  const float* partial = p.partial + (static_cast<int64_t>(image) * p.parts * p.groups + first) * 2;
  const float share_of = 1.0f / (static_cast<float>(p.pixels) * static_cast<float>(width));
  merge_groups<Arch, kThreads>(
      block, groups, lds.merge,
      [&](Merge& merge, int g, int share) {
        const float base = partial[2 * g];
        if (share == 0) lds.mean[g] = base;
        for (int i = share; i < p.parts; i += kShares * kAhead) {
          Pack<float, 2> moments[kAhead];
          unrolled<kAhead>([&](int k) {
            const int part = i + k * kShares;
            const int at = part < p.parts ? part : p.parts - 1;
            moments[k] = load_pack<2>(partial + (static_cast<int64_t>(at) * p.groups + g) * 2);
          });
          unrolled<kAhead>([&](int k) {
            const int part = i + k * kShares, rest = p.pixels - part * p.part;
            if (part < p.parts)
              merge.add(static_cast<float>(rest < p.part ? rest : p.part) * static_cast<float>(width),
                        moments[k].x[0] - base, moments[k].x[1]);
          });
        }
      },
      [&](const Merge& merge, int g) {
        lds.mean[g] = merge.mean(lds.mean[g]);
        lds.scale[g] = 1.0f / Arch::sqrt(merge.central() * share_of + p.eps);
      });
}

}  // namespace group_norms

// Measures pixels [first, first + pixels) of an image's slab: done(merge, g, base) gets the moments of the
// slab's group g relative to base. Cfg: T, kVec, kThreads (of a workgroup on a GPU).
template <class Arch, class Cfg, class Done>
ROCM_SD_DEVICE void group_norm_measure(const GroupNormParams<typename Cfg::T>& p, const Block<Arch>& block,
                                       group_norms::MeasureLds<Cfg::kThreads, Cfg::kVec>& lds, int image,
                                       int slab, int first, int pixels, const Done& done) {
  constexpr int kVec = Cfg::kVec, kAhead = 8;  // loads under way
  const int width = p.channels / p.groups, columns = p.slab / kVec, rows = Cfg::kThreads / columns;

  // Pixels of a row: one more in the first `longer` rows.
  const int shorter = pixels / rows, longer = pixels % rows;
  const auto count_of = [&](int row) { return shorter + (row < longer ? 1 : 0); };

  for (int t = block.thread(); t < rows * columns; t += block.threads()) {
    const int row = t / columns, count = count_of(row);
    if (count == 0) break;
    const auto from = group_norms::source(p, image, slab * p.slab + t % columns * kVec);
    const auto* x = from.data + (first + row) * from.stride;
    const int64_t step = rows * from.stride;
    group_norms::Sums<kVec> sums;
    for (int i = 0; i < count; i += kAhead) {
      Pack<typename Cfg::T, kVec> packs[kAhead];
      unrolled<kAhead>([&](int k) {
        const int at = i + k < count ? i + k : count - 1;  // loaded again rather than branched around
        packs[k] = load_pack<kVec>(x + at * step);
      });
      if (i == 0)
        for (int j = 0; j < kVec; ++j) sums.base[j] = to_float(packs[0].x[j]);
      unrolled<kAhead>([&](int k) {
        if (i + k < count) sums.add(packs[k]);
      });
    }
    const float share = 1.0f / static_cast<float>(count);
    for (int j = 0; j < kVec; ++j) {
      const float shift = sums.steps[j] * share;
      lds.mean[t * kVec + j] = sums.base[j] + shift;
      lds.squares[t * kVec + j] = sums.squares[j] - sums.steps[j] * shift;
    }
  }
  const int used = rows < pixels ? rows : pixels;
  group_norms::merge_groups<Arch, Cfg::kThreads>(
      block, p.slab / width, lds.merge,
      [&](group_norms::Merge& merge, int g, int share) {
        const float base = lds.mean[g * width];
        int row = share / width, c = share % width;
        while (row < used) {
          const int at = row * p.slab + g * width + c;
          merge.add(static_cast<float>(count_of(row)), lds.mean[at] - base, lds.squares[at]);
          for (c += group_norms::kShares; c >= width; c -= width) ++row;
        }
      },
      [&](const group_norms::Merge& merge, int g) { done(merge, g, lds.mean[g * width]); });
}

// Writes partial for one part and slab.
template <class Arch, class Cfg>
ROCM_SD_DEVICE void group_norm_measure_body(const GroupNormParams<typename Cfg::T>& p,
                                            const Block<Arch>& block,
                                            group_norms::MeasureLds<Cfg::kThreads, Cfg::kVec>& lds) {
  const int slabs = p.channels / p.slab, width = p.channels / p.groups;
  const auto [image, slab, part] = group_norms::place(block.group(), slabs, p.parts);
  const int first = part * p.part, pixels = p.pixels - first < p.part ? p.pixels - first : p.part;
  float* out =
      p.partial + ((static_cast<int64_t>(image) * p.parts + part) * p.groups + slab * (p.slab / width)) * 2;
  group_norm_measure<Arch, Cfg>(p, block, lds, image, slab, first, pixels,
                                [&](const group_norms::Merge& merge, int g, float base) {
                                  out[2 * g] = merge.mean(base);
                                  out[2 * g + 1] = merge.central();
                                });
}

// Row r of the grid merges the parts of group r % groups of image r / groups, in double.
template <class Arch, class T>
ROCM_SD_DEVICE void group_norm_merge_body(const GroupNormParams<T>& p, const Block<Arch>& block) {
  const int width = p.channels / p.groups;
  for (int64_t r = block.first_row(); r < static_cast<int64_t>(p.images) * p.groups;
       r += block.row_stride()) {
    const float* partial = p.partial + (r / p.groups * p.parts * p.groups + r % p.groups) * 2;
    const auto count = [&](int64_t part) {
      const int64_t rest = p.pixels - part * p.part;
      return static_cast<double>((rest < p.part ? rest : p.part) * width);
    };
    const double base = static_cast<double>(partial[0]);
    const auto step = [&](int64_t part) { return static_cast<double>(partial[part * p.groups * 2]) - base; };
    const double all = static_cast<double>(p.pixels) * width;
    const double shift =
        wave_sum_over_double(block, p.parts, [&](int64_t i) { return count(i) * step(i); }) / all;
    const double squares = wave_sum_over_double(block, p.parts, [&](int64_t i) {
      const double d = step(i) - shift;
      return static_cast<double>(partial[i * p.groups * 2 + 1]) + count(i) * d * d;
    });
    if (block.lane() == 0) {
      p.merged[2 * r] = static_cast<float>(base + shift);
      p.merged[2 * r + 1] = static_cast<float>(squares);
    }
  }
}

// Writes y for one piece and slab from partial.
template <class Arch, class Cfg>
ROCM_SD_DEVICE void group_norm_normalise_body(const GroupNormParams<typename Cfg::T>& p,
                                              const Block<Arch>& block,
                                              group_norms::NormaliseLds<Cfg::kThreads>& lds) {
  using T = typename Cfg::T;
  constexpr int kVec = Cfg::kVec, kAhead = 4;  // loads under way
  const int slabs = p.channels / p.slab, width = p.channels / p.groups;
  const int columns = p.slab / kVec, rows = Cfg::kThreads / columns, used = rows * columns;
  const auto [image, slab, piece] = group_norms::place(block.group(), slabs, p.pieces);
  const int first = piece * p.piece, end = p.pixels - first < p.piece ? p.pixels : first + p.piece;
  const int slab_begin = slab * p.slab;

  // What thread t works on; its first loads do not wait for the moments.
  group_norms::Source<T> from;
  group_norms::Affine<T, kVec> affine;
  Pack<T, kVec> packs[kAhead];
  const auto fetch = [&](int pixel) {
    unrolled<kAhead>([&](int k) {
      const int at = pixel + k * rows < end ? pixel + k * rows : end - 1;
      packs[k] = load_pack<kVec>(from.data + at * from.stride);
    });
  };
  const auto begin_thread = [&](int t) {
    const int channel = slab_begin + t % columns * kVec;
    from = group_norms::source(p, image, channel);
    affine.load(p.gain + channel, p.bias + channel);
    fetch(first + t / columns);
  };
  const int own = block.thread();
  if (own < used) begin_thread(own);

  group_norms::merge_parts<Arch, Cfg::kThreads, kAhead>(p, block, image, slab_begin / width, p.slab / width,
                                                        lds);
  block.barrier();

  for (int t = own; t < used; t += block.threads()) {
    if (t != own) begin_thread(t);
    const int in_slab = t % columns * kVec;
    int g = in_slab / width, left = (g + 1) * width - in_slab;  // channels of group g
    unrolled<kVec>([&](int j) {
      if (left == 0) ++g, left = width;
      --left;
      affine.set(j, lds.mean[g], lds.scale[g]);
    });
    const int64_t y = static_cast<int64_t>(image) * p.pixels * p.channels + slab_begin + in_slab;
    for (int pixel = first + t / columns; pixel < end;) {
      unrolled<kAhead>([&](int k) {
        if (pixel + k * rows < end)
          group_norms::write<Arch>(p, y + static_cast<int64_t>(pixel + k * rows) * p.channels, packs[k],
                                   affine);
      });
      pixel += kAhead * rows;
      if (pixel < end) fetch(pixel);
    }
  }
}

}  // namespace rocm_sd
