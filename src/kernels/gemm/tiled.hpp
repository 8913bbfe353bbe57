// The host's own GEMM, whose left matrix is gathered by row pointers: linear layers and convolutions alike
// (the indirect convolution of Dukhan, "The Indirect Convolution Algorithm", 2019, with packed weights).
// Padding, strides, nearest-neighbour doubling and a second input are only other pointers.
#pragma once

#include "kernels/epilogue.hpp"
#include "kernels/weight.hpp"
#include "runtime/exec.hpp"

namespace rocm_sd::tiled {

// How a weight [outputs, c1 + c2, taps] is packed: panels of `columns` outputs, [panels][depth][columns], the
// depth being (source, tap, channel). Gated: a panel's halves hold outputs i and outputs/2 + i.
struct Layout {
  int64_t outputs = 0, c1 = 0, c2 = 0, taps = 1;
  int columns = 0;
  bool gated = false;
  bool paired = false;  // bf16: two rows of depth stand interleaved, [depth / 2][columns][2]

  int64_t depth() const { return taps * (c1 + c2); }
  int useful_columns() const { return gated ? columns / 2 : columns; }
  int64_t panels() const;
  // The output in packed position `column` of a panel, or -1 for padding.
  int64_t output_at(int64_t panel, int column) const;
  std::string key() const;
};

// The layout that this host likes for a weight.
Layout layout_for(DType dtype, int64_t outputs, int64_t c1, int64_t c2, int64_t taps, bool gated);

// The weight's pack of that layout, made on first use (the plain form is dropped then), and the type of its
// elements: a weight that is stored in 16 bits for products in f32 stays so.
std::shared_ptr<const Weight::Pack> pack(const Weight& weight, const Layout& layout);
const void* packed_data(const Weight::Pack& pack);
DType packed_dtype(const Weight::Pack& pack);
// The same from a plain tensor [outputs,c1+c2,...], not tied to a Weight.
std::shared_ptr<const Weight::Pack> pack_plain(const Tensor& plain, const Layout& layout);

// The products of one op: pixels [batch,out_h,out_w] from images [batch,height,width,c1] (and c2).
struct Product {
  DType dtype = DType::kF32;         // of the images: f32 or bf16; bf16 is multiplied as float unless paired
  DType out_dtype = DType::kF32;     // of residual and out
  DType weight_dtype = DType::kF32;  // dtype's, or with f32 also bf16 or f16, multiplied as float
  Layout layout;
  const void* weights = nullptr;  // packed_data

  int64_t batch = 1, height = 1, width = 1, out_h = 1, out_w = 1;
  int64_t filter_h = 1, filter_w = 1, stride = 1, pad_top = 0, pad_left = 0;
  bool doubled = false;  // the filter sees each image doubled by nearest neighbour
  const void* source[2] = {nullptr, nullptr};
  int64_t pixel_stride[2] = {0, 0};  // elements

  void* out = nullptr;
  const void* residual = nullptr;                     // at the same places as out
  int64_t out_first = 0;                              // of pixel 0, in elements
  int64_t out_image = 0, out_row = 0, out_pixel = 0;  // strides of out in elements
  Activation act = Activation::kNone;

  const float* bias = nullptr;  // [outputs] or null
  const void* shift = nullptr;  // [batch, outputs] or null
  DType shift_dtype = DType::kF32;
  int64_t shift_stride = 0;

  int64_t rows() const { return batch * out_h * out_w; }
};

// How the work is cut, and what memory that needs.
struct Plan {
  int threads = 1;
  int64_t block_rows = 0, row_blocks = 0;  // rows of a task: a multiple of the strip
  int64_t chunk_panels = 0, chunks = 0;    // panels of a task
  int64_t max_depth = 0;                   // of a depth block
  size_t bytes_per_thread = 0, shared_bytes = 0;
  size_t workspace_bytes() const { return shared_bytes + static_cast<size_t>(threads) * bytes_per_thread; }
};
Plan plan(const Product& p);

// Bias and shift of every image, summed, in packed order: [batch][panels][columns] floats.
void fill_bias(const Product& p, float* out);

// Computes the product. workspace: plan.workspace_bytes(), 64-byte aligned.
void run(const Product& p, const Plan& plan, void* workspace);

}  // namespace rocm_sd::tiled
