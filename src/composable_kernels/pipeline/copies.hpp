// What every pipeline knows of its tiles: where they come from and where in LDS they go. The policies
// (register_staged.hpp, async_copies.hpp) add when: they derive from these.
//   Pairs     tiles of keys and of values, used in turn: start(first); for each tile begin(first), keys(),
//             keys_read(), values(), values_read()
//   Chunks    the same tiles in chunks that follow each other through the stages: keys by channels, then
//             values by keys: start(first); for each chunk begin(first, chunk), keys(chunk) or values(chunk),
//             end(chunk)
// `first` is the row (key) that a tile begins with. Every thread of the workgroup calls every function.
#pragma once

#include "composable_kernels/tile/lds_tile.hpp"

namespace rocm_sd {

// Shape: Arch; kThreads; kStages; KeyTile and ValueTile; kWidth, columns of either that are copied.
template <class Policy, class Shape>
class TilePairs {
  using KeyTile = typename Shape::KeyTile;
  using ValueTile = typename Shape::ValueTile;
  using T = typename KeyTile::T;
  using View = GlobalView<const T>;
  template <class Tile>
  using Copy = typename Policy::template Copy<typename Shape::Arch, Shape::kThreads, Shape::kWidth, Tile>;
  static constexpr int kStageElements = KeyTile::kElements + ValueTile::kElements;

 public:
  static constexpr int kTileRows = KeyTile::kRows;
  static constexpr int kLdsElements = Shape::kStages * kStageElements;

  // keys and values: of all tiles; their rows end where the last tile does.
  ROCM_SD_DEVICE TilePairs(T* lds, const View& keys, const View& values)
      : lds_(lds), keys_(keys), values_(values) {}

  ROCM_SD_DEVICE KeyTile key_tile(int stage) const { return {lds_ + stage * kStageElements}; }
  ROCM_SD_DEVICE ValueTile value_tile(int stage) const { return {lds_ + values_at(stage)}; }

 protected:
  ROCM_SD_DEVICE int end() const { return keys_.rows; }
  ROCM_SD_DEVICE void issue_keys(int first, int stage) {
    key_copy_.issue(rows_from(keys_, first, kTileRows), key_tile(stage));
  }
  ROCM_SD_DEVICE void issue_values(int first, int stage) {
    value_copy_.issue(rows_from(values_, first, kTileRows), value_tile(stage));
  }
  ROCM_SD_DEVICE void land_keys(int stage) { key_copy_.land(key_tile(stage)); }
  ROCM_SD_DEVICE void land_values(int stage) { value_copy_.land(value_tile(stage)); }
  // at: values_at() of a stage.
  ROCM_SD_DEVICE void land_values_at(int at) { value_copy_.land(ValueTile{lds_ + at}); }
  static ROCM_SD_DEVICE int values_at(int stage) { return stage * kStageElements + KeyTile::kElements; }

 private:
  T* lds_;
  View keys_, values_;
  Copy<KeyTile> key_copy_;
  Copy<ValueTile> value_copy_;
};

// Shape: Arch; kThreads; kStages; KeyChunk [keys of a tile][channels of a chunk]; ValueChunk [keys of a
// chunk][channels]; kStages divides the chunks of a tile, so that the compiler knows each chunk's stage.
template <class Policy, class Shape>
class TileChunks {
 protected:
  using KeyChunk = typename Shape::KeyChunk;
  using ValueChunk = typename Shape::ValueChunk;
  using T = typename KeyChunk::T;
  using View = GlobalView<const T>;
  template <class Tile>
  using Copy = typename Policy::template Copy<typename Shape::Arch, Shape::kThreads, Tile::kCols, Tile>;
  static constexpr int kStageElements =
      KeyChunk::kElements > ValueChunk::kElements ? KeyChunk::kElements : ValueChunk::kElements;

 public:
  static constexpr int kTileRows = KeyChunk::kRows;
  static constexpr int kKeyChunks = ValueChunk::kCols / KeyChunk::kCols;
  static constexpr int kValueChunks = kTileRows / ValueChunk::kRows, kChunks = kKeyChunks + kValueChunks;
  static constexpr int kLdsElements = Shape::kStages * kStageElements;
  static_assert(kChunks % Shape::kStages == 0);

  ROCM_SD_DEVICE TileChunks(T* lds, const View& keys, const View& values)
      : lds_(lds), keys_(keys), values_(values) {}

  ROCM_SD_DEVICE KeyChunk keys(int chunk) const { return {stage(chunk)}; }
  ROCM_SD_DEVICE ValueChunk values(int chunk) const { return {stage(chunk)}; }

 protected:
  ROCM_SD_DEVICE bool is_last(int first) const { return first + kTileRows >= keys_.rows; }
  ROCM_SD_DEVICE void issue(int first, int chunk) {
    if (chunk < kKeyChunks) {
      key_copy_.issue(columns_from(rows_from(keys_, first, kTileRows), chunk * KeyChunk::kCols), keys(chunk));
    } else {  // weights of keys behind the last are zero
      const int wanted = first + (chunk - kKeyChunks) * ValueChunk::kRows;
      value_copy_.issue(
          rows_from(values_, wanted < values_.rows ? wanted : values_.rows - 1, ValueChunk::kRows),
          values(chunk));
    }
  }
  ROCM_SD_DEVICE void land(int chunk) {
    if (chunk < kKeyChunks)
      key_copy_.land(keys(chunk));
    else
      value_copy_.land(values(chunk));
  }

 private:
  ROCM_SD_DEVICE T* stage(int chunk) const { return lds_ + chunk % Shape::kStages * kStageElements; }

  T* lds_;
  View keys_, values_;
  Copy<KeyChunk> key_copy_;
  Copy<ValueChunk> value_copy_;
};

}  // namespace rocm_sd
