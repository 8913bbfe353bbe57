// Group norm by workgroups that all run at once: they measure, wait for each other, and normalise what they
// kept in LDS.
// Problem   GroupNormParams
// Mapping   a workgroup takes a part of an image's pixels, all channels of them; a thread owns one pack of
//           channels of every rows-th pixel and copies it to places of LDS that only this thread uses
// Traffic   x once, y once, the parts' moments; of a part that LDS does not hold, the middle of x once more:
//           the front stays in LDS, and what was read last is what the caches still have
// Numerics  as group_norm_parts.hpp
// Order     a kept pack is written (asynchronously) and read by one thread only: it waits for its own copies
//           before it reads, and has read a place before it copies to it again. Moments and merges of other
//           threads are read behind the barriers of merge_groups, those of other workgroups behind the
//           barrier of the grid, which orders memory
// Limits    channels and border between the inputs are multiples of the pack; channels / kVec <= kThreads; a
//           pack touches at most two groups; kMaxSlabGroups groups; LDS for all packs of a thread or for more
//           than kResidentAhead
#pragma once

#include "composable_kernels/fused/group_norm_parts.hpp"

namespace rocm_sd {

// norm.parts and norm.part: workgroups of an image, their pixels; norm.slab: all channels.
template <class T>
struct GroupNormResidentParams {
  GroupNormParams<T> norm;
  int32_t kept;  // packs of a thread that LDS holds
};

namespace group_norms {

constexpr int kResidentAhead = 8;  // copies of a thread under way

// LDS beside the kept packs.
template <int kThreads>
struct ResidentLds {
  Pack<float, 2> moments[2][kThreads];  // mean, squares: of a thread's first, of its second group
  NormaliseLds<kThreads> norm;
};

// What a workgroup does, and how its threads share it: thread t takes column t % columns of the pixels
// t / columns + i * rows, i < count(t / columns), and keeps packs in LDS at t + place * used.
template <int kVec, int kThreads>
struct ResidentPart {
  int image, part, first, pixels;
  int width, columns, rows, used, measured;  // measured: rows that have pixels

  template <class T>
  ROCM_SD_DEVICE ResidentPart(const GroupNormParams<T>& p, int64_t group) {
    image = static_cast<int>(group / p.parts);
    part = static_cast<int>(group % p.parts);
    first = part * p.part;
    pixels = p.pixels - first < p.part ? p.pixels - first : p.part;
    width = p.channels / p.groups;
    columns = p.channels / kVec;
    rows = kThreads / columns;
    used = rows * columns;
    measured = rows < pixels ? rows : pixels;
  }
  ROCM_SD_DEVICE int count(int row) const { return pixels / rows + (row < pixels % rows ? 1 : 0); }
  // Of the channels of a column, those of its first group.
  ROCM_SD_DEVICE int split(int column) const {
    const int left = (column * kVec / width + 1) * width - column * kVec;
    return left < kVec ? left : kVec;
  }
};

// Where a thread's packs lie. All of them if they fit; else the first of them, and a ring of kResidentAhead
// places in which the last ones stay.
struct ResidentRing {
  int count, kept;
  ROCM_SD_DEVICE bool all() const { return count <= kept; }
  ROCM_SD_DEVICE int front() const { return kept - kResidentAhead; }
  // While measuring, from the first pack to the last.
  ROCM_SD_DEVICE int place(int pack) const {
    return all() || pack < front() ? pack : front() + (pack - front()) % kResidentAhead;
  }
  // While normalising, the i-th in turn: the ring from the last on, the front, then, again from the last on,
  // what has to be read again, into the places in the order in which they became free.
  ROCM_SD_DEVICE int turn(int i) const {
    if (all()) return i;
    if (i < kept) return i < kResidentAhead ? count - 1 - i : i - kResidentAhead;
    return count - 1 - kResidentAhead - (i - kept);
  }
};

// What thread t of a workgroup has: its packs begin at x and lie `step` elements apart.
template <class T>
struct ResidentThread {
  int row, column;
  ResidentRing ring;
  const T* x;
  int64_t step;

  template <int kVec, int kThreads>
  ROCM_SD_DEVICE ResidentThread(const GroupNormResidentParams<T>& params,
                                const ResidentPart<kVec, kThreads>& part, int t)
      : row(t / part.columns), column(t - row * part.columns), ring{part.count(row), params.kept} {
    const auto from = source(params.norm, part.image, column * kVec);
    x = from.data + (part.first + row) * from.stride;
    step = part.rows * from.stride;
  }
};

}  // namespace group_norms

// Writes the moments of the workgroup's part and groups to partial; kept: place for its packs.
template <class Arch, class Cfg>
ROCM_SD_DEVICE void group_norm_resident_measure(const GroupNormResidentParams<typename Cfg::T>& params,
                                                const Block<Arch>& block,
                                                Pack<typename Cfg::T, Cfg::kVec>* kept,
                                                group_norms::ResidentLds<Cfg::kThreads>& lds) {
  constexpr int kVec = Cfg::kVec, kAhead = group_norms::kResidentAhead;
  const auto& p = params.norm;
  const group_norms::ResidentPart<kVec, Cfg::kThreads> part(p, block.group());

  for (int t = block.thread(); t < part.measured * part.columns; t += block.threads()) {
    const auto [row, column, ring, x, step] = group_norms::ResidentThread(params, part, t);
    const auto copy = [&](int i) {
      if (i < ring.count) Arch::copy_async(kept + t + ring.place(i) * part.used, x + i * step, true);
      Arch::commit_copies();
    };
    unrolled<kAhead>([&](int i) { copy(i); });
    group_norms::Sums<kVec> sums;
    Arch::template wait_copies<kAhead - 1>();
    unrolled<kVec>([&](int j) { sums.base[j] = to_float(kept[t].x[j]); });
    for (int i = 0; i < ring.count; ++i) {
      Arch::template wait_copies<kAhead - 1>();
      const auto pack = kept[t + ring.place(i) * part.used];
      sums.add(pack);
      copy(i + kAhead);
    }

    const int split = part.split(column);
    const auto pixels = static_cast<float>(ring.count);
    const float share = 1.0f / pixels;
    float mean = 0, squares = 0, other_mean = 0, other_squares = 0;
    unrolled<kVec>([&](int j) {
      sums.base[j] += sums.steps[j] * share;  // from here on the channel's mean
      mean += j < split ? sums.base[j] : 0.0f;
      other_mean += j < split ? 0.0f : sums.base[j];
    });
    mean /= static_cast<float>(split);
    if (split < kVec) other_mean /= static_cast<float>(kVec - split);
    unrolled<kVec>([&](int j) {
      const float d = sums.base[j] - (j < split ? mean : other_mean);
      const float central = sums.squares[j] - sums.steps[j] * (sums.steps[j] * share) + pixels * d * d;
      squares += j < split ? central : 0.0f;
      other_squares += j < split ? 0.0f : central;
    });
    lds.moments[0][t] = {{mean, squares}};
    lds.moments[1][t] = {{other_mean, other_squares}};
  }

  // A group's columns, and which half of the first of them is the group's.
  const auto first_column = [&](int g) { return g * part.width / kVec; };
  const auto half = [&](int g, int column) { return column * kVec < g * part.width ? 1 : 0; };
  float* out = p.partial + (static_cast<int64_t>(part.image) * p.parts + part.part) * p.groups * 2;
  group_norms::merge_groups<Arch, Cfg::kThreads>(
      block, p.groups, lds.norm.merge,
      [&](group_norms::Merge& merge, int g, int share) {
        const int begin = first_column(g), columns = ((g + 1) * part.width - 1) / kVec + 1 - begin;
        const float base = lds.moments[half(g, begin)][begin].x[0];
        int row = share / columns, c = share % columns;
        while (row < part.measured) {
          const int column = begin + c, second = half(g, column), split = part.split(column);
          const auto moments = lds.moments[second][row * part.columns + column];
          merge.add(static_cast<float>(part.count(row) * (second ? kVec - split : split)),
                    moments.x[0] - base, moments.x[1]);
          for (c += group_norms::kShares; c >= columns; c -= columns) ++row;
        }
      },
      [&](const group_norms::Merge& merge, int g) {
        const int begin = first_column(g);
        out[2 * g] = merge.mean(lds.moments[half(g, begin)][begin].x[0]);
        out[2 * g + 1] = merge.central();
      });
}

// Writes y once every workgroup of the grid has measured.
template <class Arch, class Cfg>
ROCM_SD_DEVICE void group_norm_resident_normalise(const GroupNormResidentParams<typename Cfg::T>& params,
                                                  const Block<Arch>& block,
                                                  Pack<typename Cfg::T, Cfg::kVec>* kept,
                                                  group_norms::ResidentLds<Cfg::kThreads>& lds) {
  constexpr int kVec = Cfg::kVec, kAhead = group_norms::kResidentAhead;
  const auto& p = params.norm;
  const group_norms::ResidentPart<kVec, Cfg::kThreads> part(p, block.group());
  // The first thread's gains do not wait for the moments.
  group_norms::Affine<typename Cfg::T, kVec> affine;
  const auto begin_thread = [&](int t) {
    const int channel = t % part.columns * kVec;
    affine.load(p.gain + channel, p.bias + channel);
  };
  const int own = block.thread(), used = part.measured * part.columns;
  if (own < used) begin_thread(own);
  group_norms::merge_parts<Arch, Cfg::kThreads, kAhead>(p, block, part.image, 0, p.groups, lds.norm);
  block.barrier();

  for (int t = own; t < used; t += block.threads()) {
    if (t != own) begin_thread(t);
    const auto [row, column, ring, x, step] = group_norms::ResidentThread(params, part, t);
    const int group = column * kVec / part.width, split = part.split(column);
    unrolled<kVec>([&](int j) {
      const int g = j < split ? group : group + 1;
      affine.set(j, lds.norm.mean[g], lds.norm.scale[g]);
    });
    const int64_t y_step = static_cast<int64_t>(part.rows) * p.channels;
    const int64_t y =
        (static_cast<int64_t>(part.image) * p.pixels + part.first + row) * p.channels + column * kVec;
    for (int i = 0, place = 0; i < ring.count; ++i) {
      if (i >= ring.kept) Arch::template wait_copies<kAhead - 1>();
      auto& pack = kept[t + ring.place(ring.turn(place)) * part.used];
      group_norms::write<Arch>(p, y + ring.turn(i) * y_step, pack, affine);
      if (i + ring.kept < ring.count) Arch::copy_async(&pack, x + ring.turn(i + ring.kept) * step, true);
      Arch::commit_copies();
      if (++place == ring.kept) place = 0;
    }
  }
}

}  // namespace rocm_sd
