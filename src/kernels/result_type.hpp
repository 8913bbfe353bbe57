// What a product's result is stored as.
#pragma once

#include "base/error.hpp"
#include "kernels/epilogue.hpp"

namespace rocm_sd {

// x's type, or f32 where the epilogue asks for it and x is bf16. Throws UsageError for any other.
inline DType result_dtype(std::string_view op, const Tensor& x, const Epilogue& epilogue) {
  const DType dtype = epilogue.dtype.value_or(x.dtype());
  require<UsageError>(dtype == x.dtype() || (dtype == DType::kF32 && x.dtype() == DType::kBF16), op,
                      ": the result of x in ", x.dtype(), " cannot be ", dtype);
  return dtype;
}

}  // namespace rocm_sd
