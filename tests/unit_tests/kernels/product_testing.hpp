// What the tests of linear and conv2d share: the type's tolerance, weights made of random tensors, and
// running one implementation or learning why it refuses.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "kernels/select.hpp"
#include "kernels/weight.hpp"
#include "support/tensor_testing.hpp"

namespace rocm_sd::testing_support {

// The result of `op` under one implementation, or nothing and the refusal.
inline std::optional<Tensor> under(const std::string& op, const std::string& impl,
                                   const std::function<Tensor()>& run, std::string* refusal) {
  const ForcedImpl only(op, impl);
  try {
    return run();
  } catch (const UsageError& error) {
    *refusal = error.what();
    return std::nullopt;
  }
}

// A fresh copy, so that each implementation packs weights of its own.
inline Weight copy_of(const Tensor& plain) {
  const std::vector<float> values = to_floats(host_device(), plain);
  return Weight(tensor_from(host_device(), plain.shape(), values.data(), plain.dtype()));
}

}  // namespace rocm_sd::testing_support
