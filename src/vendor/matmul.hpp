// Matrix products by the vendors' libraries, as linear layers need them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/dtype.hpp"
#include "vendor/library.hpp"

namespace rocm_sd::vendor {

// y [rows,columns] = x [rows,depth] w^T (+ bias [columns]) (+ residual [rows,columns]), w [columns,depth];
// summed in float. y, w and residual are dense, addresses and x_stride multiples of 16 bytes.
struct MatmulShape {
  int64_t rows = 0, columns = 0, depth = 0;
  int64_t x_stride = 0;        // elements from row to row of x
  DType dtype = DType::kF16;   // of x and w: f16, bf16 or f32
  DType result = DType::kF16;  // of y and residual: dtype, or f32
  std::optional<DType> bias;   // its type
  bool residual = false;
};

// Device memory.
struct MatmulOperands {
  const void *x = nullptr, *w = nullptr, *bias = nullptr, *residual = nullptr;
  void *y = nullptr, *workspace = nullptr;
};

// One way of computing one shape, ready to be started.
class Matmul {
 public:
  virtual ~Matmul() = default;
  virtual size_t workspace_bytes() const = 0;
  // Puts the product on the stream (a hipStream_t or cudaStream_t of the current device), also while that is
  // being captured. Thread-safe. Throws LibraryError.
  virtual void run(void* stream, const MatmulOperands& operands) = 0;
};

// A library with its handle on the device that was current when it was opened.
class MatmulLibrary {
 public:
  virtual ~MatmulLibrary() = default;
  // The type in which the library adds a bias to products of this result, or nothing: it takes none.
  virtual std::optional<DType> bias_type(DType result) const = 0;
  // The ways of computing the shape, the library's favourite first, at most `most`. Throws LibraryError where
  // it has none. The library must outlive them.
  virtual std::vector<std::shared_ptr<Matmul>> prepare(const MatmulShape& shape, int most) = 0;
};

// Throw LibraryError where the library is not there, lacks a function or makes no handle.
std::shared_ptr<MatmulLibrary> open_cublaslt();
std::shared_ptr<MatmulLibrary> open_hipblaslt();
std::shared_ptr<MatmulLibrary> open_rocblas();

}  // namespace rocm_sd::vendor
