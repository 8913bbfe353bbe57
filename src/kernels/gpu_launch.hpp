// How an op reaches a kernel of a GPU: found by name, launched with one plain struct of pointers and extents.
#pragma once

#include <string>
#include <type_traits>

#include "base/gpu_products.hpp"
#include "composable_kernels/tile/group_order.hpp"
#include "kernels/problem.hpp"
#include "runtime/gpu.hpp"

namespace rocm_sd {

// The Exec's device if it is a GPU (or an emulated one), else null.
inline GpuDevice* gpu_device(const Exec& ex) {
  if (ex.device().kind() == DeviceKind::kHost) return nullptr;
  return static_cast<GpuDevice*>(&ex.device());
}

// Bytes between members as zeros, so that equal arguments are equal bytes (the kernel library compares them).
// Where the compiler has no such builtin they stay what they are. GCC 12's clears other bytes where structs
// with padding lie in an array: such arrays have members that leave none (NormaliseSource).
template <class Params>
void clear_padding([[maybe_unused]] Params& params) {
#if __has_builtin(__builtin_clear_padding)
  __builtin_clear_padding(&params);
#endif
}

// Launches kernel(params) on a GPU Exec. Pointers in params are null while planning, and only then.
template <class Params>
void launch_kernel(Exec& ex, OpInfo info, const GpuKernel& kernel, GpuGrid grid, uint32_t threads,
                   uint32_t lds_bytes, const Params& params) {
  static_assert(std::is_trivially_copyable_v<Params>, "a kernel's argument travels as bytes");
  GpuDevice* device = gpu_device(ex);
  ex.launch(std::move(info), [device, &kernel, grid, threads, lds_bytes, params] {
    Params bytes = params;
    clear_padding(bytes);
    device->launch(kernel, grid, threads, lds_bytes, &bytes, sizeof(bytes));
  });
}

// The order in which a kernel takes the workgroups of this grid (composable_kernels/tile/group_order.hpp).
inline GroupOrder group_order(const GpuTraits& traits, const GpuGrid& grid) {
  return {static_cast<uint32_t>(gpu_chiplets(traits.arch, traits.compute_units)), grid.x, grid.y,
          grid.x * grid.y * grid.z, 0};
}

// For rows of an op's list: nothing if the Exec's device is a GPU whose archive has the kernel.
inline Refusal supports_kernel(const Exec& ex, const std::string& kernel) {
  GpuDevice* device = gpu_device(ex);
  if (!device) return "runs on a GPU only";
  if (!device->find_kernel(kernel))
    return concat("the kernel archive for ", device->traits().arch, " has no ", kernel);
  return std::nullopt;
}

}  // namespace rocm_sd
