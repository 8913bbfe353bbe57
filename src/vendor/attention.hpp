// Attention by the vendors' libraries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/dtype.hpp"
#include "vendor/library.hpp"

namespace rocm_sd::vendor {

// y = softmax(scale q k^T) v for each head of each image; products and softmax in float, the weights of v in
// dtype. Head h owns columns [h * head_dim, (h + 1) * head_dim) of its rows. Addresses, rows and images are
// multiples of 16 bytes.
struct AttentionShape {
  struct Rows {
    int64_t image = 0, row = 0;  // elements from one to the next
    bool operator==(const Rows&) const = default;
  };
  int64_t batch = 1, heads = 1, queries = 0, keys = 0, head_dim = 0;
  Rows q, k, v;               // y is dense
  DType dtype = DType::kF16;  // f16 or bf16
};

// Device memory, and the scale.
struct AttentionOperands {
  const void *q = nullptr, *k = nullptr, *v = nullptr;
  void *y = nullptr, *workspace = nullptr;
  float scale = 1;
};

// One way of computing one shape, ready to be started.
class Attention {
 public:
  virtual ~Attention() = default;
  virtual size_t workspace_bytes() const = 0;
  // As Matmul::run.
  virtual void run(void* stream, const AttentionOperands& operands) = 0;
};

// A library with its handle on the device that was current when it was opened.
class AttentionLibrary {
 public:
  virtual ~AttentionLibrary() = default;
  // The ways of computing the shape, the library's favourite first, at most `most`. Throws LibraryError where
  // it has none. The library must outlive them.
  virtual std::vector<std::shared_ptr<Attention>> prepare(const AttentionShape& shape, int most) = 0;
};

// cuDNN 9 through its graph interface. Throws LibraryError where the library is not there, lacks a function
// or makes no handle.
std::shared_ptr<AttentionLibrary> open_cudnn_attention();

}  // namespace rocm_sd::vendor
