// RegisterStaged: tiles reach LDS through registers, as on AMD. A copy is cut into issue (global loads, which
// nobody waits for) and land (LDS writes), and matrix work runs between the two.
// Stages    2: a tile is written beside the one that is read, one barrier per tile; 1: over it, two barriers
#pragma once

#include <type_traits>

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

// The first kWidth columns of the rows of a view, at most kRows of them, for loads of 8 elements each. Rows
// that the view lacks are its last one or, by buffer loads, which need no address in 64 bits for each row,
// zeros. Of these, the rows of a tile span less than 2^31 bytes.
template <class Arch, class T, int kRows, int kWidth, bool kBuffer = Arch::kBufferLoads>
class RowLoads {
  GlobalView<const T> from_;

 public:
  ROCM_SD_DEVICE explicit RowLoads(const GlobalView<const T>& from) : from_(from) {}
  ROCM_SD_DEVICE Chunk16 load(int row, int column) const {
    return *reinterpret_cast<const Chunk16*>(from_.row_or_last(row) + column);
  }
};
template <class Arch, class T, int kRows, int kWidth>
class RowLoads<Arch, T, kRows, kWidth, true> {
  typename Arch::Buffer buffer_;
  uint32_t stride_;  // bytes

  static ROCM_SD_DEVICE uint32_t bytes_of(int elements) {
    return static_cast<uint32_t>(elements) * sizeof(T);
  }

 public:
  ROCM_SD_DEVICE explicit RowLoads(const GlobalView<const T>& from)
      : buffer_(Arch::buffer(from.data,
                             bytes_of(static_cast<int>(from.stride)) *
                                     static_cast<uint32_t>((from.rows < kRows ? from.rows : kRows) - 1) +
                                 bytes_of(kWidth))),
        stride_(bytes_of(static_cast<int>(from.stride))) {}
  ROCM_SD_DEVICE Chunk16 load(int row, int column) const {
    return Arch::template load_buffer<Chunk16>(buffer_,
                                               static_cast<uint32_t>(row) * stride_ + bytes_of(column));
  }
};

// The first kWidth columns of a tile, kWidth % 8 == 0, by kThreads threads in pieces of 8 elements.
template <class Arch, int kThreads, int kWidth, class Tile, bool kTransposed = Tile::Layout::kTransposed>
class RegisterCopy {
  using T = typename Tile::T;
  static constexpr int kChunks = kWidth / 8, kTotal = Tile::kRows * kChunks;
  static constexpr int kPerThread = (kTotal + kThreads - 1) / kThreads;
  // LDS serves at once what 8 lanes write or, where rows begin at multiples of 8 bytes (waves of 64 lanes), a
  // half of what each of 16 lanes writes. These take 8 neighbouring pieces of a row, or of two, or else
  // pieces below each other, as lanes do that read: rows are padded so that those lie in different banks.
  static constexpr bool kHalves = Tile::Layout::kLd * sizeof(T) % 16 != 0;
  static constexpr int kTogether = kHalves ? 16 : 8;
  static constexpr int kAcross = Arch::lanes == 1 ? kChunks : kChunks % 8 == 0 ? 8 : 1;  // pieces of a row
  static constexpr int kDown = Arch::lanes == 1 ? 1 : kTogether / kAcross;               // rows of these
  static_assert(Tile::kRows % kDown == 0 && kChunks % kAcross == 0);
  Chunk16 staged_[kPerThread];

  static ROCM_SD_DEVICE int row_of(int i) { return i / (kDown * kChunks) * kDown + i / kAcross % kDown; }
  static ROCM_SD_DEVICE int column_of(int i) {
    return (i % (kDown * kChunks) / (kDown * kAcross) * kAcross + i % kAcross) * 8;
  }

 public:
  ROCM_SD_DEVICE void issue(const GlobalView<const T>& from, const Tile&) {
    const RowLoads<Arch, T, Tile::kRows, kWidth> rows(from);
    ROCM_SD_UNROLL
    for (int n = 0; n < kPerThread; ++n) {
      const int i = item_of_thread<kTotal, kThreads>(Arch::thread() + n * kThreads);
      staged_[n] = rows.load(row_of(i), column_of(i));
    }
  }
  ROCM_SD_DEVICE void land(const Tile& tile) {
    ROCM_SD_UNROLL
    for (int n = 0; n < kPerThread; ++n) {
      const int i = item_of_thread<kTotal, kThreads>(Arch::thread() + n * kThreads);
      store_chunk(tile, row_of(i), column_of(i), staged_[n]);
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
    const RowLoads<Arch, T, Tile::kRows, kWidth> rows(from);
    ROCM_SD_UNROLL
    for (int n = 0; n < kPerThread; ++n) {
      const int i = item_of_thread<kTotal, kThreads>(Arch::thread() + n * kThreads);
      ROCM_SD_UNROLL
      for (int half = 0; half < 2; ++half)
        staged_[n][half] = rows.load(i % kPairs * 2 + half, i / kPairs * 8);
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
        *reinterpret_cast<uint32_t*>(to + e * Tile::Layout::kLd) = Arch::low_halves(first, second);
        *reinterpret_cast<uint32_t*>(to + (e + 1) * Tile::Layout::kLd) = Arch::high_halves(first, second);
      }
    }
  }
};

// The same by loads that transpose 8 rows of 8 elements on their way (RDNA 4): lane l of eight gives the
// address of row l's piece and receives the eight rows' elements of column l, which it writes at once. Rows
// that the view lacks are its last one.
template <class Arch, int kThreads, int kWidth, class Tile>
class TransposingCopy {
  using T = typename Tile::T;
  static_assert(Tile::Layout::kTransposed && Tile::kRows % 8 == 0 && kWidth % 8 == 0);
  static constexpr int kChunks = kWidth / 8, kBlocks = Tile::kRows / 8;  // pieces of a row; eights of rows
  // Eight lanes stay with their rows, so that one row's offset serves all of their loads.
  static constexpr int kAcross = kThreads / 8 / kBlocks;  // pieces of a row that are copied at once
  static_assert(kAcross > 0 && kAcross * kBlocks * 8 == kThreads);
  static constexpr int kPerThread = (kChunks + kAcross - 1) / kAcross;
  Chunk16 staged_[kPerThread];

  static ROCM_SD_DEVICE int first_row() { return Arch::thread() / 8 / kAcross * 8; }
  // Who has run out of pieces copies as in item_of_thread().
  static ROCM_SD_DEVICE int chunk_of(int n) {
    const int first = Arch::thread() / 8 % kAcross;
    return item_of_thread<kChunks, kAcross>(first + n * kAcross);
  }

 public:
  ROCM_SD_DEVICE void issue(const GlobalView<const T>& from, const Tile&) {
    const auto stride = static_cast<uint32_t>(from.stride) * static_cast<uint32_t>(sizeof(T));
    const uint32_t wanted = static_cast<uint32_t>(first_row() + Arch::thread() % 8) * stride;
    const uint32_t last = static_cast<uint32_t>(from.rows - 1) * stride;
    const uint32_t row = wanted < last ? wanted : last;
    ROCM_SD_UNROLL
    for (int n = 0; n < kPerThread; ++n)
      staged_[n] = Arch::load_transposed(from.data, row + static_cast<uint32_t>(chunk_of(n)) * 16);
  }
  ROCM_SD_DEVICE void land(const Tile& tile) {
    ROCM_SD_UNROLL
    for (int n = 0; n < kPerThread; ++n)
      *reinterpret_cast<Chunk16*>(tile.at(first_row(), chunk_of(n) * 8 + Arch::thread() % 8)) = staged_[n];
  }
};

template <class Arch, int kThreads, int kWidth, class Tile>
constexpr auto register_copy() {
  if constexpr (Arch::kTransposingLoads && Tile::Layout::kTransposed)
    return std::type_identity<TransposingCopy<Arch, kThreads, kWidth, Tile>>();
  else
    return std::type_identity<RegisterCopy<Arch, kThreads, kWidth, Tile>>();
}

struct RegisterStaged {
  static constexpr bool kTransposesValues = true;  // on the way, at no cost
  template <class Arch, int kThreads, int kWidth, class Tile>
  using Copy = typename decltype(register_copy<Arch, kThreads, kWidth, Tile>())::type;
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
    // Opaque: else the lanes add the tile's place in the stage, which is out of reach of their writes'
    // offsets.
    this->land_values_at(Arch::opaque(Base::values_at(next_stage())));
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
