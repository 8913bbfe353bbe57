// The pixels under a convolution's filter as rows of a matrix: a Source (tile/matrix_rows.hpp) that gathers
// 16 bytes at a time from one or two NHWC images, padded with zeros and doubled by nearest neighbour without
// being made.
//
// Row m is output pixel m, column k runs over (input, block of channels, r, s, channel of the
// block), so that the taps of a block follow each other while its pixels are in the cache; each input's
// channels being whole pieces of 16 bytes. What is worked out when: a row's window and which of its taps lie
// inside the image once per thread, the tap of a column once per step, so that a piece costs half a dozen
// instructions.
#pragma once

#include "composable_kernels/tile/divide.hpp"
#include "composable_kernels/tile/matrix_rows.hpp"

namespace rocm_sd {

struct ConvImage {
  static constexpr int kWhole = 8;  // pieces of the longest blocks: 128 bytes, of which steps are divisors
  static constexpr int kMaxFilter = 14;  // taps in either direction: a row's mask holds a bit for each

  const void* data[2];    // [N, height, width, pieces[i] * 16 bytes], aligned to 16 bytes
  int32_t pieces[2];      // of a pixel; pieces[1] is 0 where there is one input
  int32_t pitch[2];       // pieces from pixel to pixel: more where an input is a part of a map's channels
  int32_t height, width;  // as stored, before doubling
  int32_t doubled;        // 0 or 1
  int32_t filter_h, filter_w;  // at most kMaxFilter each
  int32_t stride, pad_top, pad_left;
  int32_t pixels;                                         // outputs of all images
  int32_t first_end;                                      // pieces of k that belong to the first input
  int32_t end;                                            // pieces of k
  FastDivide by_image, by_row;                            // outputs of an image, of a row
  int32_t block[2];                                       // pieces of a block, a divisor of pieces[i]
  FastDivide by_block[2], by_block_taps[2], by_filter_w;  // block[i]; block[i] * filter_h * filter_w
  int32_t whole;  // pieces of a block, 8 or 4, where blocks of all inputs have as many: all columns of a
                  // step that is no longer have one tap; 0: blocks of other lengths
  int32_t whole_shift;  // their logarithm to base 2
  int32_t near;         // 1: an input, with the padding before it, has less than 2^31 bytes
};

// kStep: columns of a step.
template <class Storage, int kStep>
struct ConvGather {
  using T = Storage;
  static constexpr int kChunk = 16 / static_cast<int>(sizeof(T));
  static constexpr bool kReread = true;  // by the next taps

  struct Row {
    int32_t corner;  // stored pixel under the window's first tap, may lie outside the image
    uint32_t at,
        second_at;  // bytes of each input before the pixel under the window's first tap: perhaps outside
    uint32_t taps;  // bit r: tap row r is inside; bit 16 + s: tap column s; kOddY, kOddX: the corner's parity
  };
  struct Column {
    int32_t pitch, piece;  // of this input's pixels; the column's
    uint32_t at;           // bytes from the corner's first: the tap's pixel and the piece
    int32_t r, s;
    bool second;    // input
    uint32_t taps;  // the two bits that a row must have
  };

  const ConvImage& image;
  int first;                // output pixel of row 0
  int down = 0, right = 0;  // the window's shift against the image's padding

  ROCM_SD_DEVICE Row row(int at) const {
    const int pixel = first + at;
    if (pixel >= image.pixels) return {0, 0, 0, 0};
    const int n = image.by_image.quotient(pixel), in_image = pixel - n * image.by_image.divisor;
    const int p = image.by_row.quotient(in_image), q = in_image - p * image.by_row.divisor;
    const int y = p * image.stride - image.pad_top + down, x = q * image.stride - image.pad_left + right;
    const uint32_t rows = inside(y, image.height << image.doubled, image.filter_h);
    const uint32_t columns = inside(x, image.width << image.doubled, image.filter_w);
    uint32_t taps = rows | columns << 16;
    if (image.doubled) taps |= (y & 1 ? kOddY : 0) | (x & 1 ? kOddX : 0);
    // Arithmetic shifts: a corner at row -1 of the doubled image is in row -1 of the stored one.
    const int corner = (n * image.height + (y >> image.doubled)) * image.width + (x >> image.doubled);
    return {corner, static_cast<uint32_t>(corner * image.pitch[0]) * 16,
            static_cast<uint32_t>(corner * image.pitch[1]) * 16, taps};
  }
  ROCM_SD_DEVICE Column column(int k, int within) const {
    Column c;
    int tap;
    if (has_whole_steps(image)) {  // all but the last addition is the same in all threads
      int piece = k / kChunk;
      c.second = piece >= image.first_end;
      if (c.second) piece -= image.first_end;
      const FastDivide by_taps = c.second ? image.by_block_taps[1] : image.by_block_taps[0];
      const int block = by_taps.quotient(piece), in_block = piece - block * by_taps.divisor;
      tap = in_block >> image.whole_shift;
      c.piece = ((block - tap) << image.whole_shift) + in_block + within / kChunk;
      c.taps = 0;
    } else {
      int piece = (k + within) / kChunk;
      const bool ended = piece >= image.end;
      c.second = !ended && piece >= image.first_end;
      // Beyond k nothing is valid, but the address must be one that can be read.
      piece = ended ? 0 : c.second ? piece - image.first_end : piece;
      const FastDivide by_block = c.second ? image.by_block[1] : image.by_block[0];
      const FastDivide by_taps = c.second ? image.by_block_taps[1] : image.by_block_taps[0];
      const int block = by_taps.quotient(piece), in_block = piece - block * by_taps.divisor;
      tap = by_block.quotient(in_block);
      c.piece = block * by_block.divisor + in_block - tap * by_block.divisor;
      c.taps = ended ? kNever : 0;
    }
    c.pitch = c.second ? image.pitch[1] : image.pitch[0];
    c.r = image.by_filter_w.quotient(tap);
    c.s = tap - c.r * image.filter_w;
    c.at = static_cast<uint32_t>((c.r * image.width + c.s) * c.pitch + c.piece) * 16;
    c.taps |= 1u << c.r | 0x10000u << c.s;
    return c;
  }
  ROCM_SD_DEVICE Chunk<T> chunk(const Row& row, const Column& column) const {
    const bool valid = holds(row, column);
    int offset = column.r * image.width + column.s;
    if (image.doubled) offset = doubled_offset(row, column);
    const int at = valid ? (row.corner + offset) * column.pitch + column.piece : 0;
    const void* data = column.second ? image.data[1] : image.data[0];
    return {static_cast<const T*>(data) + static_cast<int64_t>(at) * kChunk, valid};
  }
  // The same where each input has less than 2^32 bytes.
  ROCM_SD_DEVICE Chunk<T> near_chunk(const Row& row, const Column& column) const {
    const bool valid = holds(row, column);
    const void* data = column.second ? image.data[1] : image.data[0];
    const uint32_t bytes = valid ? offset_of(row, column) : 0;
    return {reinterpret_cast<const T*>(static_cast<const char*>(data) + bytes), valid};
  }
  static constexpr bool kOneBase = false;
  static ROCM_SD_DEVICE bool has_whole_steps(const ConvImage& image) { return image.whole >= kStep / kChunk; }

 private:
  static constexpr uint32_t kOddY = 1u << 14, kNever = 1u << 15, kOddX = 1u << 30;

  static ROCM_SD_DEVICE bool holds(const Row& row, const Column& column) {
    return (row.taps & column.taps) == column.taps;
  }
  ROCM_SD_DEVICE uint32_t offset_of(const Row& row, const Column& column) const {
    const uint32_t first_at = row.at, second_at = row.second_at;
    const uint32_t corner = column.second ? second_at : first_at;
    if (!image.doubled) return corner + column.at;
    return corner + static_cast<uint32_t>(doubled_offset(row, column) * column.pitch + column.piece) * 16;
  }
  ROCM_SD_DEVICE int doubled_offset(const Row& row, const Column& column) const {
    const int r = column.r + (row.taps & kOddY ? 1 : 0), s = column.s + (row.taps & kOddX ? 1 : 0);
    return (r >> 1) * image.width + (s >> 1);
  }

  // Bit i: 0 <= at + i < size, for i < count.
  static ROCM_SD_DEVICE uint32_t inside(int at, int size, int count) {
    const int first = at < 0 ? -at : 0, last = size - at < count ? size - at : count;
    return first < last ? (1u << last) - (1u << first) : 0;
  }
};

// The same of an image that takes no more than a comparison and a selection for each chunk, for
// Arch::kBufferLoads: all columns of a step have one tap and one input, and that tap's pixel moves the
// address that a step's chunks are counted from, which is the same in all threads.
template <class Storage, int kStep>
struct ConvGatherNear {
  using T = Storage;
  using Any = ConvGather<T, kStep>;
  static constexpr int kChunk = Any::kChunk;
  static constexpr bool kReread = true, kOneBase = true;

  struct Row {
    uint32_t at, second_at, taps;  // bytes of each input from a corner that no window's lies before; as there
  };
  struct Column {
    uint32_t within;
    bool second;
    uint32_t taps;
  };

  Any any;

  // A step of blocks that are not whole may lie in both inputs; a doubled image asks for more per chunk.
  static ROCM_SD_DEVICE bool takes(const ConvImage& image) {
    return Any::has_whole_steps(image) && !image.doubled && image.near;
  }

  ROCM_SD_DEVICE Row row(int at) const {
    const typename Any::Row row = any.row(at);
    const ConvImage& image = any.image;
    return {row.at + static_cast<uint32_t>(before() * image.pitch[0]) * 16,
            row.second_at + static_cast<uint32_t>(before() * image.pitch[1]) * 16, row.taps};
  }
  ROCM_SD_DEVICE Column column(int k, int within) const {
    const Step step = step_of(k);
    return {static_cast<uint32_t>(within / kChunk) * 16, step.second, 1u << step.r | 0x10000u << step.s};
  }
  ROCM_SD_DEVICE const void* base(int k) const {
    const Step step = step_of(k);
    const ConvImage& image = any.image;
    const void *const first = image.data[0], *const second = image.data[1];
    const int32_t first_pitch = image.pitch[0], second_pitch = image.pitch[1];
    const int32_t pitch = step.second ? second_pitch : first_pitch;
    const int32_t at = (step.r * image.width + step.s - before()) * pitch + step.piece;
    return static_cast<const char*>(step.second ? second : first) + static_cast<int64_t>(at) * 16;
  }
  ROCM_SD_DEVICE uint32_t offset(const Row& row, const Column& column, uint32_t nowhere) const {
    const uint32_t at = column.second ? row.second_at : row.at;
    return (row.taps & column.taps) == column.taps ? at + column.within : nowhere;
  }

 private:
  struct Step {
    bool second;
    int32_t r, s, piece;  // tap; piece of its pixel
  };

  // Both inputs have blocks of as many pieces and thus of as many columns.
  ROCM_SD_DEVICE Step step_of(int k) const {
    const ConvImage& image = any.image;
    const int32_t piece = k / kChunk, block = image.by_block_taps[0].quotient(piece);
    const int32_t in_block = piece - block * image.by_block_taps[0].divisor;
    const int32_t tap = in_block >> image.whole_shift;
    const int32_t r = image.by_filter_w.quotient(tap), first = image.pieces[0];
    const bool second = piece >= image.first_end;
    return {second, r, tap - r * image.filter_w,
            ((block - tap) << image.whole_shift) + in_block - (second ? first : 0)};
  }
  // Pixels from the first window's corner to the image's first pixel.
  ROCM_SD_DEVICE int32_t before() const { return any.image.pad_top * any.image.width + any.image.pad_left; }
};

}  // namespace rocm_sd
