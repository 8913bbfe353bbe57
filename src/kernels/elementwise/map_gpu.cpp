// Elementwise maps on a GPU.
#include <algorithm>

#include "kernels/elementwise/map_configs.hpp"
#include "kernels/elementwise/map_params.hpp"
#include "kernels/gpu_launch.hpp"

namespace rocm_sd {
namespace {

const char* map_name(Map map) {
  switch (map) {
    case Map::kCopy: return "copy";
    case Map::kSilu: return "silu";
    case Map::kGelu: return "gelu";
    case Map::kQuickGelu: return "quick_gelu";
    case Map::kRelu: return "relu";
    case Map::kAdd: return "add";
    case Map::kMulGelu: return "mul_gelu";
    case Map::kAffine: return "affine";
    case Map::kSoftClamp: return "soft_clamp";
    case Map::kRgb8: return "rgb8";
    case Map::kSplit: return "split";
    case Map::kAddScaled: return "add_scaled";
    case Map::kLeakyRelu: return "leaky_relu";
    case Map::kPRelu: return "prelu";
  }
  return "?";
}

std::string kernel_name(const MapProblem& p) {
  return concat("map_", map_name(p.map), "_", p.a_type, "_", p.y_type);
}

}  // namespace

Refusal supports_map_gpu(const Exec& ex, const MapProblem& p) {
  if (const Refusal refusal = refuse_map_body(p)) return refusal;
  return supports_kernel(ex, kernel_name(p));
}

void run_map_gpu(Exec& ex, const MapProblem& p) {
  if (p.rows * p.cols == 0) return;
  const int64_t packs = p.rows * ((p.cols + 7) / 8), threads = map_configs::kThreads;
  // Further packs are taken in turn by workgroups that are there already.
  const int64_t most = int64_t{gpu_device(ex)->traits().compute_units} * 32;
  const int64_t workgroups = std::min((packs + threads - 1) / threads, most);
  // The kernel does not look behind the pointers' types.
  launch_kernel(ex, op_info(p, "gpu"), *gpu_device(ex)->find_kernel(kernel_name(p)),
                {static_cast<uint32_t>(workgroups)}, static_cast<uint32_t>(threads), 0,
                map_params<float, float>(p, workgroups));
}

}  // namespace rocm_sd
