// AsyncCopies: tiles reach LDS by asynchronous copies without a register between (cp.async), as on NVIDIA
// since sm_80. kStages - 1 tiles are under way; a wait and one barrier per tile.
#pragma once

#include "composable_kernels/pipeline/copies.hpp"

namespace rocm_sd {

// The first kWidth columns of a tile, kWidth % 8 == 0, by kThreads threads in pieces of 8 elements.
template <class Arch, int kThreads, int kWidth, class Tile>
struct AsyncCopy {
  using T = typename Tile::T;
  static constexpr int kChunks = kWidth / 8, kTotal = Tile::kRows * kChunks;
  static constexpr int kPerThread = (kTotal + kThreads - 1) / kThreads;
  static_assert(!Tile::Layout::kTransposed);

  ROCM_SD_DEVICE void issue(const GlobalView<const T>& from, const Tile& tile) {
    ROCM_SD_UNROLL
    for (int n = 0; n < kPerThread; ++n) {
      const int i = Arch::thread() + n * kThreads;
      // No sum with the column is kept in registers from tile to tile.
      const int row = i / kChunks, column = Arch::opaque(i % kChunks * 8);
      const T* const source = from.row_or_last(row) + column;
      T* const to = tile.at(row, 0) + column;
      if ((n + 1) * kThreads <= kTotal)
        Arch::copy_async(to, source, true);
      else
        Arch::copy_async_if(i < kTotal, to, source);
    }
  }
  ROCM_SD_DEVICE void land(const Tile&) {}
};

struct AsyncCopies {
  static constexpr bool kTransposesValues = false;  // matrices are read transposed
  template <class Arch, int kThreads, int kWidth, class Tile>
  using Copy = AsyncCopy<Arch, kThreads, kWidth, Tile>;
  template <class Arch>
  static ROCM_SD_DEVICE void commit() {
    Arch::commit_copies();
  }
  // For all that was committed.
  template <class Arch>
  static ROCM_SD_DEVICE void wait() {
    Arch::template wait_copies<0>();
  }

  template <class Shape>
  class Pairs;
  template <class Shape>
  class Chunks;
  // Of a product's operands: pipeline/product_async_copies.hpp.
  template <class Arch, class Cfg, class Weights, class Rows>
  class Product;
};

template <class Shape>
class AsyncCopies::Pairs : public TilePairs<AsyncCopies, Shape> {
  using Base = TilePairs<AsyncCopies, Shape>;
  using Arch = typename Shape::Arch;
  static constexpr int kStages = Shape::kStages;
  static_assert(kStages >= 2);
  int stage_ = 0;

 public:
  using Base::Base;
  ROCM_SD_DEVICE void start(int first) {
    ROCM_SD_UNROLL
    for (int ahead = 0; ahead < kStages - 1; ++ahead) fetch(first + ahead * Base::kTileRows, ahead);
  }
  ROCM_SD_DEVICE void begin(int first) {
    Arch::template wait_copies<kStages - 2>();
    Arch::barrier();
    fetch(first + (kStages - 1) * Base::kTileRows, (stage_ + kStages - 1) % kStages);
  }
  ROCM_SD_DEVICE auto keys() const { return this->key_tile(stage_); }
  ROCM_SD_DEVICE void keys_read() {}
  ROCM_SD_DEVICE auto values() const { return this->value_tile(stage_); }
  ROCM_SD_DEVICE void values_read() { stage_ = stage_ + 1 == kStages ? 0 : stage_ + 1; }

 private:
  ROCM_SD_DEVICE void fetch(int first, int stage) {
    if (first < this->end()) {
      this->issue_keys(first, stage);
      this->issue_values(first, stage);
    }
    Arch::commit_copies();
  }
};

template <class Shape>
class AsyncCopies::Chunks : public TileChunks<AsyncCopies, Shape> {
  using Base = TileChunks<AsyncCopies, Shape>;
  using Arch = typename Shape::Arch;
  static constexpr int kAhead = Shape::kStages - 1;
  static_assert(kAhead >= 1);

 public:
  using Base::Base;
  ROCM_SD_DEVICE void start(int first) {
    ROCM_SD_UNROLL
    for (int chunk = 0; chunk < kAhead; ++chunk) {
      this->issue(first, chunk);
      Arch::commit_copies();
    }
  }
  ROCM_SD_DEVICE void begin(int first, int chunk) {
    Arch::template wait_copies<kAhead - 1>();
    Arch::barrier();
    if (chunk + kAhead < Base::kChunks)
      this->issue(first, chunk + kAhead);
    else if (!this->is_last(first))
      this->issue(first + Base::kTileRows, chunk + kAhead - Base::kChunks);
    Arch::commit_copies();
  }
  ROCM_SD_DEVICE void end(int) {}
};

}  // namespace rocm_sd
