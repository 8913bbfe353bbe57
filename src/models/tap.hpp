// Tap: a look at intermediate results, for tests. Only for eager runs: it reads device memory at once.
#pragma once

#include <functional>
#include <string>

#include "runtime/tensor.hpp"

namespace rocm_sd {

// Called with Diffusers' module name ("down_blocks.0.resnets.1") and the module's output, NHWC or [B,T,C].
using Tap = std::function<void(const std::string& name, const Tensor& value)>;

inline void show(const Tap* tap, const std::string& name, const Tensor& value) {
  if (tap) (*tap)(name, value);
}

}  // namespace rocm_sd
