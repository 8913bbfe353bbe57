// The transforms of Winograd's F(4x4, 3x3), compiled once per instruction set.
// Problem   B^T d B of 6x6 pixels; A^T m A of 6x6 products (Lavin and Gray 2016, equation 12 and section 4.3)
// Mapping   a vector of channels at a time; columns first, then rows
// Traffic   36 loads and 36 (input) or 16 (output) stores per vector
// Numerics  float; interpolation points 0, 3/4, -3/4, 3/2, -3/2 and infinity
// Limits    channels: a multiple of the vector length
#include "kernels/conv/winograd.hpp"
#include "kernels/simd.hpp"

namespace rocm_sd::ROCM_SD_ISA {
namespace {

// The finite points other than zero: kA, -kA, kB, -kB. Against the usual 1 and 2 they halve the error of a
// long sum and cut its largest deviation to a quarter (Barabasz and others, "Error Analysis and Improving the
// Accuracy of Winograd Convolution", 2020, on the choice of points); every coefficient is exact in binary.
constexpr float kA = 0.75f, kB = 1.5f;
constexpr float kA2 = kA * kA, kB2 = kB * kB;

// out = B^T in for one line of six.
inline void input_line(const Vec (&in)[6], Vec (&out)[6]) {
  const Vec even_a = in[4] - kB2 * in[2], odd_a = kA * (in[3] - kB2 * in[1]);
  const Vec even_b = in[4] - kA2 * in[2], odd_b = kB * (in[3] - kA2 * in[1]);
  out[0] = kA2 * kB2 * in[0] - (kA2 + kB2) * in[2] + in[4];
  out[1] = even_a + odd_a;
  out[2] = even_a - odd_a;
  out[3] = even_b + odd_b;
  out[4] = even_b - odd_b;
  out[5] = kA2 * kB2 * in[1] - (kA2 + kB2) * in[3] + in[5];
}

// out = A^T in for one line of six.
inline void output_line(const Vec (&in)[6], Vec (&out)[4]) {
  const Vec sum_a = in[1] + in[2], difference_a = in[1] - in[2];
  const Vec sum_b = in[3] + in[4], difference_b = in[3] - in[4];
  out[0] = in[0] + sum_a + sum_b;
  out[1] = kA * difference_a + kB * difference_b;
  out[2] = kA2 * sum_a + kB2 * sum_b;
  out[3] = kA2 * kA * difference_a + kB2 * kB * difference_b + in[5];
}

void input(const float* const* pixels, int64_t channels, float* out, int64_t out_stride) {
  for (int64_t c = 0; c < channels; c += kLanes) {
    Vec middle[6][6];  // [row][column] after the transform of columns
    for (int column = 0; column < 6; ++column) {
      Vec line[6], transformed[6];
      for (int row = 0; row < 6; ++row) line[row] = load(pixels[row * 6 + column] + c);
      input_line(line, transformed);
      for (int row = 0; row < 6; ++row) middle[row][column] = transformed[row];
    }
    for (int row = 0; row < 6; ++row) {
      Vec transformed[6];
      input_line(middle[row], transformed);
      for (int column = 0; column < 6; ++column)
        store(out + (row * 6 + column) * out_stride + c, transformed[column]);
    }
  }
}

void output(const float* products, int64_t stride, int columns, float* pixels) {
  for (int k = 0; k < columns; k += kLanes) {
    Vec middle[4][6];
    for (int column = 0; column < 6; ++column) {
      Vec line[6], transformed[4];
      for (int row = 0; row < 6; ++row) line[row] = load(products + (row * 6 + column) * stride + k);
      output_line(line, transformed);
      for (int row = 0; row < 4; ++row) middle[row][column] = transformed[row];
    }
    for (int row = 0; row < 4; ++row) {
      Vec transformed[4];
      output_line(middle[row], transformed);
      for (int column = 0; column < 4; ++column)
        store(pixels + (row * 4 + column) * columns + k, transformed[column]);
    }
  }
}

}  // namespace

extern const WinogradKernels kWinogradKernels = {.input = input, .output = output};

}  // namespace rocm_sd::ROCM_SD_ISA
