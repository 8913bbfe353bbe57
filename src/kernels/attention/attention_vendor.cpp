#include "kernels/attention/attention_vendor.hpp"

#include "kernels/gpu_launch.hpp"
#include "kernels/vendor_algorithms.hpp"
#include "vendor/attention.hpp"

namespace rocm_sd {
namespace {

using vendor::AttentionShape;
using Algorithms = VendorAlgorithms<vendor::AttentionLibrary, vendor::Attention>;

// Engines that a tuner may try.
constexpr int kMaxAlgorithms = 4;

AttentionShape shape_of(const AttentionProblem& p) {
  const auto rows = [](const AttentionProblem::Rows& r) { return AttentionShape::Rows{r.image, r.row}; };
  AttentionShape s;
  s.batch = p.batch;
  s.heads = p.heads;
  s.queries = p.queries;
  s.keys = p.keys;
  s.head_dim = p.head_dim;
  s.q = rows(p.q);
  s.k = rows(p.k);
  s.v = rows(p.v);
  s.dtype = p.dtype;
  return s;
}

std::shared_ptr<Algorithms> algorithms_on(const Exec& ex) {
  return Algorithms::on(*library_host(ex.device()), "cudnn attention", vendor::open_cudnn_attention);
}

const FoundAlgorithms<vendor::Attention>& algorithms_of(Algorithms& ways, const AttentionProblem& p) {
  const AttentionShape s = shape_of(p);
  const auto rows = [](const AttentionShape::Rows& r) { return concat(r.image, "/", r.row); };
  const std::string key = concat(s.dtype, " ", s.batch, "x", s.heads, "x", s.queries, "x", s.keys, "x",
                                 s.head_dim, " ", rows(s.q), " ", rows(s.k), " ", rows(s.v));
  return ways.find(key,
                   [&](vendor::AttentionLibrary& library) { return library.prepare(s, kMaxAlgorithms); });
}

bool is_aligned(const AttentionProblem::Rows& rows) {
  return reinterpret_cast<uintptr_t>(rows.data) % 16 == 0 && rows.image % 8 == 0 && rows.row % 8 == 0;
}

Refusal supports(const Exec& ex, const AttentionProblem& p) {
  if (!library_host(ex.device()) || ex.device().kind() != DeviceKind::kCuda)
    return "runs on NVIDIA GPUs only";
  if (p.dtype == DType::kF32) return "computes in 16-bit types only";
  if (p.masked || p.causal) return "is asked without a mask only";
  if (p.queries == 0 || p.keys == 0) return "no rows";
  if (p.head_dim % 8 != 0 || !is_aligned(p.q) || !is_aligned(p.k) || !is_aligned(p.v))
    return "takes rows of 16-byte pieces only";
  const auto ways = algorithms_on(ex);
  return ways->library() ? algorithms_of(*ways, p).refusal : ways->problem();
}

void run_way(Exec& ex, const AttentionProblem& p, size_t index) {
  const auto ways = algorithms_on(ex);
  const std::shared_ptr<vendor::Attention> way = algorithms_of(*ways, p).ways.at(index);
  Tensor workspace;
  if (const auto bytes = static_cast<int64_t>(way->workspace_bytes()); bytes > 0)
    workspace = ex.alloc({(bytes + 3) / 4}, DType::kF32);
  const vendor::AttentionOperands operands{
      p.q.data, p.k.data, p.v.data, p.y, workspace ? workspace.data() : nullptr, p.scale};
  LibraryHost* const host = library_host(ex.device());
  ex.launch(op_info(p, concat("cudnn ", index).c_str()),
            [host, way, operands] { way->run(host->library_stream(), operands); });
}

void run(Exec& ex, const AttentionProblem& p) { run_way(ex, p, 0); }

std::vector<std::string> names(const Exec& ex, const AttentionProblem& p) {
  std::vector<std::string> out;
  for (size_t i = 0, all = algorithms_of(*algorithms_on(ex), p).ways.size(); i < all; ++i)
    out.push_back(concat(i));
  return out;
}
Refusal supports_config(const Exec& ex, const AttentionProblem& p, const std::string& config) {
  const auto index = way_index(config);
  if (!index || *index >= algorithms_of(*algorithms_on(ex), p).ways.size())
    return "the library has no such engine";
  return std::nullopt;
}
void run_config(Exec& ex, const AttentionProblem& p, const std::string& config) {
  run_way(ex, p, way_index(config).value());
}

constexpr Configs<AttentionProblem> kConfigs = {names, supports_config, run_config};

}  // namespace

Impl<AttentionProblem> attention_cudnn_impl() { return {"cudnn", supports, run, &kConfigs}; }

}  // namespace rocm_sd
