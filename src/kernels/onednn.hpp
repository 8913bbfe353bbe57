// oneDNN for the ops: convolutions and matrix products as cached primitives, weights as packs.
// onednn.cpp is the one file that knows the difference between oneDNN 2.6 and 3.x; elsewhere only this header
// is seen.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/epilogue.hpp"
#include "kernels/weight.hpp"
#include "runtime/exec.hpp"

namespace rocm_sd::onednn {

// One convolution or matrix product with a fused epilogue: dst = act(src * weights + bias (+ dst) (+
// addend)). A matrix product has filter_h = 0; its src is [height,channels] and its dst
// [height,out_channels].
struct ProductSpec {
  int64_t batch = 1, height = 0, width = 1, channels = 0;
  int64_t out_channels = 0, filter_h = 0, filter_w = 0;
  int64_t stride = 1, pad_top = 0, pad_left = 0, pad_bottom = 0, pad_right = 0;
  int64_t row_stride = 0;  // matrix products: distance of src rows in elements, 0 = channels
  int threads = 0;         // that will execute it, 0 = all; 1 inside a parallel region, and only there
  DType dtype = DType::kF32, dst_dtype = DType::kF32;
  bool bias = false;        // [out_channels] f32
  bool accumulate = false;  // add what dst holds (of dst_dtype)
  bool addend = false;      // add a tensor of dst's shape
  DType addend_dtype = DType::kF32;
  Activation act = Activation::kNone;

  bool is_conv() const { return filter_h > 0; }
  std::string key() const;
};

struct ProductArgs {
  const void* src = nullptr;
  const void* weights = nullptr;
  const float* bias = nullptr;
  const void* addend = nullptr;
  void* dst = nullptr;
  void* scratchpad = nullptr;
};

// Where a primitive keeps the weights of a matrix product: element (i, j) of [channels, out_channels] lies
// rows[i] + columns[j] elements from the beginning. What pads the layout must be zero.
struct WeightPlaces {
  std::vector<int64_t> rows, columns;
  size_t bytes = 0;
};

// A compiled primitive. Thread-safe and immutable; execute may run with several args at a time.
class Product {
 public:
  virtual ~Product() = default;
  virtual void execute(const ProductArgs& args) const = 0;
  virtual size_t scratchpad_bytes() const = 0;
  virtual std::string implementation() const = 0;  // oneDNN's name: "jit:avx2", "brgconv:..."
  virtual std::string weights_layout() const = 0;  // equal where two primitives can share a pack
  virtual bool takes(const Weight::Pack& pack) const = 0;
  virtual WeightPlaces weight_places() const = 0;  // for those who pack while running
  // The plain weights [out,in] or [out,in,kh,kw] in this primitive's layout.
  virtual std::shared_ptr<const Weight::Pack> pack(const Tensor& plain) const = 0;
};

// From the process's cache, or made now: call while planning or in an eager run only.
// layout_of, if given, is a pack made by an earlier Product: its layout is kept where oneDNN has fast code
// for it, so that one weight serves several problem sizes. Throws InternalError where oneDNN has no code.
std::shared_ptr<const Product> product(const ProductSpec& spec, const Weight::Pack* layout_of = nullptr);

// The product together with the weight in its layout: an earlier layout of the weight where it is fast, else
// a new one (the plain form is dropped then).
struct Prepared {
  std::shared_ptr<const Product> product;
  std::shared_ptr<const Weight::Pack> pack;
};
Prepared prepare(const ProductSpec& spec, const Weight& weight);

// The bytes of a pack made by Product::pack.
const void* packed_data(const Weight::Pack& pack);

// Why oneDNN cannot multiply in this type on this machine, or nothing.
std::optional<std::string> refuses(DType dtype);
// Whether products in bf16 are faster here than ours in f32. They are with AMX; with AVX512-BF16 alone they
// are on AMD's CPUs, while Intel's take 1.8 times as long for a UNet (a Xeon with AMX switched off).
bool bf16_pays();

// c [rows,columns] = a [rows,inner] b [inner,columns], f32, row-major, at once on all cores: for work on
// weights outside any forward.
void multiply(const float* a, const float* b, float* c, int64_t rows, int64_t inner, int64_t columns);

std::string version();  // "2.6.3"

}  // namespace rocm_sd::onednn
