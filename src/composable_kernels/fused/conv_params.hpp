// From a convolution's extents to what its kernels take: on the host, once per problem.
#pragma once

#include "composable_kernels/fused/conv_layout.hpp"
#include "composable_kernels/fused/convolution.hpp"

namespace rocm_sd {

// A convolution of one NHWC image or of the join of two; channels in elements.
struct ConvGeometry {
  int32_t batch = 1, height = 0, width = 0;  // as stored, before doubling
  int32_t channels = 0, second_channels = 0;
  int32_t pitch = 0, second_pitch = 0;  // elements from pixel to pixel, whole pieces of 16 bytes; 0: channels
  int32_t outputs = 0;
  int32_t filter_h = 1, filter_w = 1, stride = 1;
  int32_t pad_top = 0, pad_left = 0, pad_bottom = 0, pad_right = 0;
  bool doubled = false;  // by nearest neighbour

  constexpr int32_t rows() const {
    return ((doubled ? 2 : 1) * height + pad_top + pad_bottom - filter_h) / stride + 1;
  }
  constexpr int32_t columns() const {
    return ((doubled ? 2 : 1) * width + pad_left + pad_right - filter_w) / stride + 1;
  }
};

// Channels of a pixel rounded up to whole pieces of 16 bytes, as images and packed filters hold them.
constexpr int32_t conv_padded(int64_t channels, int element_bytes) {
  const int64_t piece = 16 / element_bytes;
  return static_cast<int32_t>((channels + piece - 1) / piece * piece);
}
// Of those, the channels that lie together in a packed filter: 128 bytes, or 64 where both inputs have such,
// or all of an input's.
constexpr int32_t conv_block(int64_t padded, int64_t of_other, int element_bytes) {
  const int64_t block = 128 / element_bytes;
  if (padded % block == 0 && of_other % block == 0) return static_cast<int32_t>(block);
  if (padded % (block / 2) == 0 && of_other % (block / 2) == 0) return static_cast<int32_t>(block / 2);
  return static_cast<int32_t>(padded % block ? padded : block);
}

// How g's filter [outputs, channels + second_channels, filter_h, filter_w] is packed.
inline FilterLayout conv_filter_layout(const ConvGeometry& g, int element_bytes) {
  FilterLayout out{};
  out.outputs = g.outputs;
  const int32_t channels[] = {g.channels, g.second_channels};
  for (int i = 0; i < 2; ++i) {
    out.channels[i] = channels[i];
    out.padded[i] = conv_padded(channels[i], element_bytes);
  }
  for (int i = 0; i < 2; ++i) out.block[i] = conv_block(out.padded[i], out.padded[1 - i], element_bytes);
  out.taps = g.filter_h * g.filter_w;
  return out;
}

// The gather over x and second, whose pixels are whole pieces.
template <class T>
ConvImage conv_image(const ConvGeometry& g, const T* x, const T* second) {
  constexpr int kPiece = 16 / static_cast<int>(sizeof(T));
  ConvImage out{};
  out.data[0] = x;
  out.data[1] = second;
  out.pieces[0] = conv_padded(g.channels, sizeof(T)) / kPiece;
  out.pieces[1] = conv_padded(g.second_channels, sizeof(T)) / kPiece;
  out.pitch[0] = g.pitch ? g.pitch / kPiece : out.pieces[0];
  out.pitch[1] = g.second_pitch ? g.second_pitch / kPiece : out.pieces[1];
  out.height = g.height;
  out.width = g.width;
  out.doubled = g.doubled ? 1 : 0;
  out.filter_h = g.filter_h;
  out.filter_w = g.filter_w;
  out.stride = g.stride;
  out.pad_top = g.pad_top;
  out.pad_left = g.pad_left;
  out.pixels = g.batch * g.rows() * g.columns();
  out.first_end = g.filter_h * g.filter_w * out.pieces[0];
  out.end = out.first_end + g.filter_h * g.filter_w * out.pieces[1];
  out.by_image = fast_divide(g.rows() * g.columns());
  out.by_row = fast_divide(g.columns());
  for (int i = 0; i < 2; ++i) {
    out.block[i] = conv_block(out.pieces[i] * kPiece, out.pieces[1 - i] * kPiece, sizeof(T)) / kPiece;
    out.by_block[i] = fast_divide(out.block[i]);
    out.by_block_taps[i] = fast_divide(out.block[i] * g.filter_h * g.filter_w);
  }
  out.by_filter_w = fast_divide(g.filter_w);
  const int64_t pixels = int64_t{g.batch} * g.height * g.width;
  const int64_t most = out.pitch[0] > out.pitch[1] ? out.pitch[0] : out.pitch[1];
  const int64_t before = int64_t{g.pad_top} * g.width + g.pad_left;
  out.near = (pixels + before) * most < int64_t{1} << 27;
  const bool whole = out.block[0] == ConvImage::kWhole || out.block[0] == ConvImage::kWhole / 2;
  out.whole = whole && (out.pieces[1] == 0 || out.block[1] == out.block[0]) ? out.block[0] : 0;
  out.whole_shift = out.whole == ConvImage::kWhole ? 3 : 2;
  return out;
}

// All of it, without splits and with an empty epilogue but for y [batch, rows, columns, outputs]: a caller
// sets the epilogue's bias, shift, residual and activation. filter: packed.
template <class T>
ConvParams<T> conv_params(const ConvGeometry& g, const T* x, const T* second, const T* filter, T* y) {
  ConvParams<T> p{};
  p.image = conv_image(g, x, second);
  p.filter = filter;
  p.epilogue.y = y;
  p.epilogue.y_stride = p.epilogue.channels = g.outputs;
  p.epilogue.rows = p.image.pixels;
  p.epilogue.rows_per_image = g.rows() * g.columns();
  p.epilogue.shift_is_float = true;
  p.epilogue.shift_stride = g.outputs;
  p.depth = static_cast<int32_t>(conv_filter_layout(g, sizeof(T)).depth());
  p.split_steps = p.depth;
  p.phases = 1;
  return p;
}

}  // namespace rocm_sd
