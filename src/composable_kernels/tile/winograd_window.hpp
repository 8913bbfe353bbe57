// The input's side of a Winograd convolution: windows of 4x4 pixels, their transform, and where it lies in
// LDS.
#pragma once

#include "composable_kernels/arch/winograd_unit.hpp"
#include "composable_kernels/tile/divide.hpp"
#include "composable_kernels/tile/unrolled.hpp"
#include "composable_kernels/tile/winograd_config.hpp"

namespace rocm_sd {

// Tile t is image t / (rows x columns of tiles), and so on down and across; it makes outputs 2 row, 2 column
// and the next of both, out of the input pixels from row 2 row - pad_top, column 2 column - pad_left on.
struct WinogradImage {
  const Half* x;  // [images, height, width, channels], aligned to 8 bytes
  int32_t height, width, channels, pad_top, pad_left;
  int32_t pitch;  // elements from pixel to pixel
  int32_t out_height, out_width;
  int32_t tiles;                // of all images
  FastDivide by_image, by_row;  // tiles of an image, of a row
};

struct WinogradPlace {
  int image, row, column;  // of tiles
};
ROCM_SD_DEVICE WinogradPlace winograd_place(const WinogradImage& image, int tile) {
  const int n = image.by_image.quotient(tile), within = tile - n * image.by_image.divisor;
  const int row = image.by_row.quotient(within);
  return {n, row, within - row * image.by_row.divisor};
}

// A plane's operand in LDS: [tiles / 16][depth / 8][16 tiles][8 channels], the 16 tiles of each eighth in an
// order of its own: eight lanes that write 8 bytes each of four eighths, or read 16 bytes each of one, use
// every bank once.
ROCM_SD_DEVICE constexpr int winograd_piece(int tile, int eighth) {
  return (tile / 16 * (kWinogradDepth / 8) + eighth) * 128 + ((tile % 16) ^ (2 * eighth)) * 8;
}

// A thread's part in the windows of a workgroup's tiles: four channels of one tile, or of several.
template <class Arch, class Cfg>
class WinogradWindows {
  using Unit = WinogradUnit<Arch>;
  static constexpr int kThreads = Cfg::kWaves * Arch::lanes, kQuads = kWinogradDepth / 4;
  static constexpr int kJobs = Cfg::kTiles * kQuads / kThreads;
  static_assert(kJobs * kThreads == Cfg::kTiles * kQuads && (kThreads % kQuads == 0 || Arch::lanes == 1));

  const WinogradImage& image_;
  uint32_t column_at_[kJobs][4];  // bytes from the corner that no window's lies before; or more
  uint32_t rows_[kJobs];          // bit r: row r of the window is inside
  HalfQuad pixels_[kJobs][16];

  static ROCM_SD_DEVICE int quad() { return Arch::thread() % kQuads; }
  static ROCM_SD_DEVICE int quad_of(int job) { return Arch::lanes == 1 ? job % kQuads : quad(); }
  static ROCM_SD_DEVICE int tile_of(int job) {
    return Arch::lanes == 1 ? job / kQuads : Arch::thread() / kQuads + job * (kThreads / kQuads);
  }

 public:
  ROCM_SD_DEVICE WinogradWindows(const WinogradImage& image, int first_tile) : image_(image) {
    unrolled<kJobs>([&](int job) {
      const int tile = first_tile + tile_of(job);
      const WinogradPlace at = winograd_place(image, tile < image.tiles ? tile : 0);
      const int y = 2 * at.row - image.pad_top, x = 2 * at.column - image.pad_left;
      const int corner =
          (at.image * image.height + y + image.pad_top) * image.width + x + image.pad_left;  // from before()
      rows_[job] = 0;
      unrolled<4>([&](int i) {
        rows_[job] |= static_cast<uint32_t>(tile < image.tiles && y + i >= 0 && y + i < image.height) << i;
        const uint32_t at = static_cast<uint32_t>((corner + i) * image.pitch + quad_of(job) * 4) * 2;
        column_at_[job][i] = x + i >= 0 && x + i < image.width ? at : Unit::kNowhere;
      });
    });
  }

  // Channels k .. k + kWinogradDepth - 1; zeros beyond the last.
  ROCM_SD_DEVICE void load(int k) {
    const int64_t before = static_cast<int64_t>(image_.pad_top) * image_.width + image_.pad_left;
    const int64_t row = static_cast<int64_t>(image_.width) * image_.pitch;
    const Half* const base = image_.x - before * image_.pitch + k;
    unrolled<4>([&](int r) {
      const auto from = Unit::buffer(base + r * row);
      unrolled<kJobs>([&](int job) {
        const bool inside = (rows_[job] >> r & 1) != 0 && quad_of(job) * 4 < image_.channels - k;
        const uint32_t nowhere = inside ? 0 : Unit::kNowhere;  // added to what may be so already
        unrolled<4>(
            [&](int s) { pixels_[job][4 * r + s] = Unit::load_window(from, column_at_[job][s] | nowhere); });
      });
    });
  }

  // B^T d B / 4 to planes[16] of LDS: a quarter, so that no half overflows. After a barrier the workgroup may
  // read them. The pixels are gone.
  ROCM_SD_DEVICE void store(Half* planes) {
    unrolled<kJobs>([&](int job) {
      HalfQuad* const d = pixels_[job];
      unrolled<2>([&](int w) {
        unrolled<4>([&](int s) { transform(d[s].x[w], d[4 + s].x[w], d[8 + s].x[w], d[12 + s].x[w], true); });
        unrolled<4>([&](int r) {
          transform(d[4 * r].x[w], d[4 * r + 1].x[w], d[4 * r + 2].x[w], d[4 * r + 3].x[w], false);
        });
      });
      Half* const to = planes + winograd_piece(tile_of(job), quad_of(job) / 2) + quad_of(job) % 2 * 4;
      unrolled<kWinogradPlanes>(
          [&](int plane) { *reinterpret_cast<HalfQuad*>(to + plane * Cfg::kPlane) = d[plane]; });
    });
  }

 private:
  // (d0 - d2, d1 + d2, d2 - d1, d1 - d3), or a quarter of them.
  static ROCM_SD_DEVICE void transform(uint32_t& d0, uint32_t& d1, uint32_t& d2, uint32_t& d3, bool quarter) {
    const uint32_t one = quarter ? Unit::times(d1, 0.25f) : d1, two = quarter ? Unit::times(d2, 0.25f) : d2;
    d0 = quarter ? Unit::fma(d0, 0.25f, Unit::times(d2, -0.25f)) : Unit::sub(d0, d2);
    d3 = quarter ? Unit::fma(d3, -0.25f, one) : Unit::sub(d1, d3);
    d1 = Unit::add(one, two);
    d2 = Unit::sub(two, one);
  }
};

}  // namespace rocm_sd
