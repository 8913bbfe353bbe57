// GPUs for the operators: kernels from the project's archives on PyTorch's current stream, memory from
// PyTorch's caching allocator.
#pragma once

#include <memory>
#include <mutex>

#include "pytorch_integration/op_scope.hpp"

namespace rocm_sd::torch_ops {

// The GPU that holds x, for one operator's call. Throws Declined where the GPU has no kernels of ours.
std::unique_ptr<TorchDevice> gpu_device_of(const AtTensor& x);

// Keeps calls of other threads off the device, where it is one of gpu_device_of(); else holds nothing.
std::unique_lock<std::recursive_mutex> hold_device(Device& device);

}  // namespace rocm_sd::torch_ops
