#include "kernels/attention/ck_attention.hpp"

#include <algorithm>

#include "kernels/attention/ck_attention_params.hpp"
#include "kernels/gpu_launch.hpp"

namespace rocm_sd {
namespace {

// Reads and writes go by buffer descriptors, whose range and offsets are of 32 bits with a sign.
constexpr int64_t kMaxBytes = (int64_t{1} << 31) - 1;

const CkAttentionTile& tile_of(const GpuTraits& traits) {
  return traits.lanes == 64 ? kCkAttentionXdl : kCkAttentionWmma;
}

std::string kernel_name(const AttentionProblem& p, const CkAttentionTile& tile) {
  const char* form = p.head_dim > tile.columns ? "_wide" : p.head_dim > tile.depth ? "_deep" : "";
  return concat("ck_attention_", p.dtype, form, p.causal ? "_causal" : "");
}

bool is_aligned(const AttentionProblem::Rows& rows) {
  return reinterpret_cast<uintptr_t>(rows.data) % 16 == 0 && rows.image % 8 == 0 && rows.row % 8 == 0;
}

Refusal supports(const Exec& ex, const AttentionProblem& p) {
  const GpuDevice* device = gpu_device(ex);
  if (!device || device->traits().family == GpuFamily::kNvidia) return "runs on AMD GPUs only";
  if (dtype_size(p.dtype) != 2) return "has instances for 16-bit types only";
  if (p.masked) return "has no instance with a mask";
  const CkAttentionTile& tile = tile_of(device->traits());
  if (p.causal && !(tile.causal && p.head_dim > tile.depth))
    return "has causal instances for CDNA and heads of more than 32 only";
  if (p.keys == 0) return "no keys";
  if (p.head_dim % 8 != 0 || !is_aligned(p.q) || !is_aligned(p.k) || !is_aligned(p.v))
    return "takes rows of 16-byte pieces only";
  const int64_t longest =
      std::max({p.queries * p.q.row, p.keys * p.k.row, p.keys * p.v.row, p.queries * p.heads * p.head_dim});
  if (longest * 2 > kMaxBytes || p.batch * p.heads > 65535)
    return "takes images below 2 GiB and at most 65535 heads of them";
  return supports_kernel(ex, kernel_name(p, tile));
}

void run(Exec& ex, const AttentionProblem& p) {
  const CkAttentionTile& tile = tile_of(gpu_device(ex)->traits());
  const auto rows = [](const AttentionProblem::Rows& r) {
    return CkAttentionParams::Rows{r.data, r.image, static_cast<int>(r.row)};
  };
  CkAttentionParams params{.q = rows(p.q), .k = rows(p.k), .v = rows(p.v), .y = p.y};
  params.heads = static_cast<int>(p.heads);
  params.queries = static_cast<int>(p.queries);
  params.keys = static_cast<int>(p.keys);
  params.head_dim = static_cast<int>(p.head_dim);
  params.scale = p.scale;
  const int columns = tile.columns_of(p.head_dim);
  const int64_t tiles =
      ((p.queries + tile.queries - 1) / tile.queries) * ((p.head_dim + columns - 1) / columns);
  launch_kernel(ex, op_info(p, "ck"), *gpu_device(ex)->find_kernel(kernel_name(p, tile)),
                {static_cast<uint32_t>(tiles), static_cast<uint32_t>(p.batch * p.heads), 1},
                static_cast<uint32_t>(tile.threads), 0, params);
}

}  // namespace

Impl<AttentionProblem> attention_ck_impl() { return {"ck", supports, run}; }

}  // namespace rocm_sd
