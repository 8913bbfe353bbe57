// A GPU on paper: answers as the product would (architecture, memory, kernels of its archive) and runs
// nothing, so that a model can be planned for a card that is not here.
#pragma once

#include <memory>

#include "base/gpu_products.hpp"
#include "runtime/gpu.hpp"

namespace rocm_sd {

// Memory is counted, never touched: allocations beyond the product's memory throw OutOfMemoryError, copies
// and launches do nothing. Kernels are looked up in the archive of the product's target or, where that was
// not built, of another target of its family, whose kernels have the same names and configurations. Throws
// UsageError for an architecture that no kernels are written for.
std::unique_ptr<GpuDevice> make_paper_gpu(const GpuProduct& product);

}  // namespace rocm_sd
