// Convolutions by the vendors' libraries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "vendor/library.hpp"

namespace rocm_sd::vendor {

// What is done to the sum before it is stored: y = act(sum + bias + residual), in float.
struct ConvEpilogue {
  bool bias = false;      // [outputs] of f32
  bool residual = false;  // y's shape and type
  enum class Activation { kNone, kSilu, kGelu, kRelu } act = Activation::kNone;

  bool empty() const { return !bias && !residual && act == Activation::kNone; }
};

// x [batch,height,width,channels], filter [outputs,filter_h,filter_w,channels] -> y
// [batch,out_h,out_w,outputs]; summed in float. All dense and aligned to 16 bytes.
struct ConvShape {
  int64_t batch = 1, height = 0, width = 0, channels = 0;
  int64_t outputs = 0, filter_h = 1, filter_w = 1, out_h = 0, out_w = 0;
  int64_t stride = 1, pad_top = 0, pad_left = 0, pad_bottom = 0, pad_right = 0;
  DType dtype = DType::kF16;   // of x and filter
  DType result = DType::kF16;  // of y and residual: dtype, or f32
  ConvEpilogue epilogue;
};

// Device memory.
struct ConvOperands {
  const void *x = nullptr, *filter = nullptr, *bias = nullptr, *residual = nullptr;
  void *y = nullptr, *workspace = nullptr;
};

// One way of computing one shape, ready to be started.
class Convolution {
 public:
  virtual ~Convolution() = default;
  virtual std::string name() const = 0;  // among the ways of its shape
  virtual size_t workspace_bytes() const = 0;
  // As Matmul::run.
  virtual void run(void* stream, const ConvOperands& operands) = 0;
};

// A library with its handle on the device that was current when it was opened.
class ConvLibrary {
 public:
  virtual ~ConvLibrary() = default;
  // Whether it adds epilogues, and whether it stores sums as float where x is of 16 bits.
  virtual bool fuses_epilogues() const = 0;
  virtual bool widens() const = 0;
  // The ways of computing the shape, the library's favourite first, at most `most`. Throws LibraryError where
  // it has none. The library must outlive them.
  virtual std::vector<std::shared_ptr<Convolution>> prepare(const ConvShape& shape, int most) = 0;

  // A library that can try its ways on the device and keeps what it found for later processes: the best of
  // them, named "find". Runs and waits; operands: real memory of the shape's sizes, which it overwrites, with
  // search_workspace() bytes. Others give null.
  virtual bool searches() const { return false; }
  virtual size_t search_workspace(const ConvShape& /*shape*/) { return 0; }
  virtual std::shared_ptr<Convolution> search(const ConvShape& /*shape*/, void* /*stream*/,
                                              const ConvOperands& /*operands*/) {
    return nullptr;
  }
};

// cuDNN 9 through its graph interface, MIOpen through its immediate mode. Throw LibraryError where the
// library is not there, lacks a function or makes no handle.
std::shared_ptr<ConvLibrary> open_cudnn();
std::shared_ptr<ConvLibrary> open_miopen();

}  // namespace rocm_sd::vendor
