// RegisterStaged: tiles reach LDS through registers, as on AMD. A copy is cut into issue (global loads, which
// nobody waits for) and land (LDS writes), and matrix work runs between the two.
// Stages    2: a tile is written beside the one that is read, one barrier per tile; 1: over it, two barriers
#pragma once

#include "composable_kernels/pipeline/copies.hpp"

namespace rocm_sd {

// A thread that has run out of items copies its own of the round before once more: a branch would cut the
// loop's body apart, and compilers then move loads and products away from each other; another thread's item
// would be two threads' writes to one place. Where there is one round only, the last item is everybody's.
template <int kTotal, int kThreads>
ROCM_SD_DEVICE int item_of_thread(int i) {
  if (kTotal % kThreads == 0 || i < kTotal) return i;
  return kTotal > kThreads ? i - kThreads : kTotal - 1;
}

// The first kWidth columns of a tile, kWidth % 8 == 0, by kThreads threads in pieces of 8 elements.
template <class Arch, int kThreads, int kWidth, class Tile, bool kTransposed = Tile::Layout::kTransposed>
class RegisterCopy {
  using T = typename Tile::T;
  static constexpr int kChunks = kWidth / 8, kTotal = Tile::kRows * kChunks;
  static constexpr int kPerThread = (kTotal + kThreads - 1) / kThreads;
  Chunk16 staged_[kPerThread];

 public:
  ROCM_SD_DEVICE void issue(const GlobalView<const T>& from, const Tile&) {
    ROCM_SD_UNROLL
    for (int n = 0; n < kPerThread; ++n) {
      const int i = item_of_thread<kTotal, kThreads>(Arch::thread() + n * kThreads);
      staged_[n] = *reinterpret_cast<const Chunk16*>(from.row_or_last(i / kChunks) + i % kChunks * 8);
    }
  }
  ROCM_SD_DEVICE void land(const Tile& tile) {
    ROCM_SD_UNROLL
    for (int n = 0; n < kPerThread; ++n) {
      const int i = item_of_thread<kTotal, kThreads>(Arch::thread() + n * kThreads);
      store_chunk(tile, i / kChunks, i % kChunks * 8, staged_[n]);
    }
  }
};

// The same to a tile that is stored transposed. A thread takes 8 columns of two rows and writes pairs;
// neighbouring lanes take neighbouring pairs, so that LDS's banks are all in use.
template <class Arch, int kThreads, int kWidth, class Tile>
class RegisterCopy<Arch, kThreads, kWidth, Tile, true> {
  using T = typename Tile::T;
  static constexpr int kPairs = Tile::kRows / 2, kTotal = kPairs * (kWidth / 8);
  static constexpr int kPerThread = (kTotal + kThreads - 1) / kThreads;
  Chunk16 staged_[kPerThread][2];

 public:
  ROCM_SD_DEVICE void issue(const GlobalView<const T>& from, const Tile&) {
    ROCM_SD_UNROLL
    for (int n = 0; n < kPerThread; ++n) {
      const int i = item_of_thread<kTotal, kThreads>(Arch::thread() + n * kThreads);
      const GlobalView<const T> columns = columns_from(from, i / kPairs * 8);
      ROCM_SD_UNROLL
      for (int half = 0; half < 2; ++half)
        staged_[n][half] = *reinterpret_cast<const Chunk16*>(columns.row_or_last(i % kPairs * 2 + half));
    }
  }
  ROCM_SD_DEVICE void land(const Tile& tile) {
    ROCM_SD_UNROLL
    for (int n = 0; n < kPerThread; ++n) {
      const int i = item_of_thread<kTotal, kThreads>(Arch::thread() + n * kThreads);
      T* const to = tile.at(i % kPairs * 2, i / kPairs * 8);
      ROCM_SD_UNROLL
      for (int e = 0; e < 8; e += 2) {
        const uint32_t first = staged_[n][0][e / 2], second = staged_[n][1][e / 2];
        *reinterpret_cast<uint32_t*>(to + e * Tile::Layout::kLd) = (first & 0xffff) | second << 16;
        *reinterpret_cast<uint32_t*>(to + (e + 1) * Tile::Layout::kLd) = first >> 16 | (second & 0xffff0000);
      }
    }
  }
};

struct RegisterStaged {
  static constexpr bool kTransposesValues = true;  // on the way, at no cost
  template <class Arch, int kThreads, int kWidth, class Tile>
  using Copy = RegisterCopy<Arch, kThreads, kWidth, Tile>;
  // Of copies without a pipeline: after land() there is nothing to wait for.
  template <class Arch>
  static ROCM_SD_DEVICE void commit() {}
  template <class Arch>
  static ROCM_SD_DEVICE void wait() {}

  template <class Shape>
  class Pairs;
  template <class Shape>
  class Chunks;
  // Of a product's operands: pipeline/product_register_staged.hpp.
  template <class Arch, class Cfg, class Weights, class Rows>
  class Product;
};

// One tile ahead: keys land when those of this tile have been read, values likewise.
template <class Shape>
class RegisterStaged::Pairs : public TilePairs<RegisterStaged, Shape> {
  using Base = TilePairs<RegisterStaged, Shape>;
  using Arch = typename Shape::Arch;
  static_assert(Shape::kStages <= 2);
  int stage_ = 0, next_ = 0;  // stage of this tile; the key that the next tile begins with

 public:
  using Base::Base;
  ROCM_SD_DEVICE void start(int first) {
    this->issue_keys(first, 0);
    this->issue_values(first, 0);
    this->land_keys(0);
    this->land_values(0);
    Arch::barrier();
  }
  // After the last tile it is fetched once more, in vain: a branch here would cut the loop's body apart.
  ROCM_SD_DEVICE void begin(int first) {
    next_ = first + Base::kTileRows < this->end() ? first + Base::kTileRows : first;
    this->issue_keys(next_, 0);
  }
  ROCM_SD_DEVICE auto keys() const { return this->key_tile(stage_); }
  ROCM_SD_DEVICE void keys_read() {
    if constexpr (Shape::kStages == 1) Arch::barrier();
    this->land_keys(next_stage());
    this->issue_values(next_, 0);
  }
  ROCM_SD_DEVICE auto values() const { return this->value_tile(stage_); }
  ROCM_SD_DEVICE void values_read() {
    if constexpr (Shape::kStages == 1) Arch::barrier();
    this->land_values(next_stage());
    Arch::barrier();
    stage_ = next_stage();
  }

 private:
  ROCM_SD_DEVICE int next_stage() const { return Shape::kStages - 1 - stage_; }
};

// One chunk ahead.
template <class Shape>
class RegisterStaged::Chunks : public TileChunks<RegisterStaged, Shape> {
  using Base = TileChunks<RegisterStaged, Shape>;
  using Arch = typename Shape::Arch;

 public:
  using Base::Base;
  ROCM_SD_DEVICE void start(int first) {
    this->issue(first, 0);
    this->land(0);
    Arch::barrier();
  }
  // After the last tile in vain.
  ROCM_SD_DEVICE void begin(int first, int chunk) {
    const int next = next_chunk(chunk);
    this->issue(next > 0 || this->is_last(first) ? first : first + Base::kTileRows, next);
  }
  ROCM_SD_DEVICE void end(int chunk) {
    if constexpr (Shape::kStages == 1) Arch::barrier();
    this->land(next_chunk(chunk));
    Arch::barrier();
  }
  ROCM_SD_DEVICE void stop() {}

 private:
  static ROCM_SD_DEVICE constexpr int next_chunk(int chunk) {
    return chunk + 1 < Base::kChunks ? chunk + 1 : 0;
  }
};

}  // namespace rocm_sd
