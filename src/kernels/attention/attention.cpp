#include "kernels/attention/attention.hpp"

#include "kernels/attention/attention_impl.hpp"
#include "kernels/attention/attention_vendor.hpp"
#include "kernels/attention/ck_attention.hpp"
#include "kernels/attention/flash_plan.hpp"

namespace rocm_sd {
namespace {

const ImplList<AttentionProblem> kImpls = {
    "attention",
    {
        {"gpu", supports_attention_gpu, run_attention_gpu, &kFlashConfigs},
        {"gpu_wave", supports_attention_gpu_wave, run_attention_gpu_wave},
        {"host", supports_host_f32_or_bf16, run_attention_host},
        {"onednn", supports_attention_onednn, run_attention_onednn},
        {"host_bf16", supports_attention_host_bf16, run_attention_host_bf16},
        {"scalar", supports_attention_scalar, run_attention_scalar},
        {"ref", supports_host, run_attention_ref},
        attention_cudnn_impl(),  // these are taken where a tuning table names them
        attention_ck_impl(),
    }};

// Where the CPU multiplies bf16 in hardware: oneDNN's products use AMX, ours AVX512-BF16.
const ImplList<AttentionProblem> kHardwareBf16 = {
    "attention",
    {
        {"gpu", supports_attention_gpu, run_attention_gpu, &kFlashConfigs},
        {"gpu_wave", supports_attention_gpu_wave, run_attention_gpu_wave},
        {"onednn", supports_attention_onednn, run_attention_onednn},
        {"host_bf16", supports_attention_host_bf16, run_attention_host_bf16},
        {"host", supports_host_f32_or_bf16, run_attention_host},
        {"scalar", supports_attention_scalar, run_attention_scalar},
        {"ref", supports_host, run_attention_ref},
        attention_cudnn_impl(),  // these are taken where a tuning table names them
        attention_ck_impl(),
    }};

const ImplList<AttentionProblem>& impls_for(const AttentionProblem& p) {
  return p.dtype == DType::kBF16 && host_has_bf16() ? kHardwareBf16 : kImpls;
}

AttentionProblem::Rows rows_of(const Tensor& x) { return {x.data(), x.stride(0), x.stride(1)}; }

void check_operand(const Tensor& x, const Tensor& q, std::string_view name) {
  require(x.rank() == 3, "attention: ", name, " must be [B,N,heads*D], is ", x.shape());
  require<UsageError>(x.dtype() == q.dtype(), "attention: ", name, " is ", x.dtype(), ", q is ", q.dtype());
  require(x.dim(2) <= 1 || x.stride(2) == 1, "attention: the elements of a row of ", name,
          " must be contiguous");
}

void set_mask(AttentionProblem& problem, const Tensor& mask) {
  const Shape full = {problem.batch, problem.heads, problem.queries, problem.keys};
  require<UsageError>(mask.dtype() == DType::kF32, "attention: mask must be f32, is ", mask.dtype());
  require(mask.rank() == 4 && mask.dim(3) == problem.keys, "attention: mask ", mask.shape(),
          " does not broadcast to ", full);
  for (int i = 0; i < 4; ++i) {
    require(mask.dim(i) == full[i] || mask.dim(i) == 1, "attention: mask ", mask.shape(),
            " does not broadcast to ", full);
    problem.mask_strides[i] = mask.dim(i) == 1 ? 0 : mask.stride(i);
  }
  require(mask.dim(3) <= 1 || mask.stride(3) == 1, "attention: the keys of the mask must be contiguous");
  problem.mask = static_cast<const float*>(mask.data());
  problem.masked = true;
}

}  // namespace

AttentionSpec AttentionProblem::spec() const {
  return {.dtype = dtype,
          .batch = batch,
          .heads = heads,
          .queries = queries,
          .keys = keys,
          .head_dim = head_dim,
          .masked = masked,
          .causal = causal};
}
std::string AttentionProblem::describe() const { return text_of(spec()); }
double AttentionProblem::flops() const { return spec().flops(); }
double AttentionProblem::bytes() const { return spec().bytes(); }

AttentionProblem attention_problem(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& y,
                                   const AttentionArgs& args) {
  require_activation_type(q, "attention", "q");
  check_operand(q, q, "q");
  check_operand(k, q, "k");
  check_operand(v, q, "v");
  require(args.heads >= 1 && q.dim(2) % args.heads == 0, "attention: cannot split q ", q.shape(), " into ",
          args.heads, " heads");
  require(k.dim(0) == q.dim(0) && k.dim(2) == q.dim(2), "attention: k ", k.shape(), " does not fit q ",
          q.shape());
  require(v.shape() == k.shape(), "attention: v ", v.shape(), " does not fit k ", k.shape());
  AttentionProblem problem{.q = rows_of(q), .k = rows_of(k), .v = rows_of(v), .y = y.data()};
  problem.causal = args.causal;
  problem.pdl_keys_ready = args.pdl_keys_ready;
  problem.dtype = q.dtype();
  problem.batch = q.dim(0);
  problem.heads = args.heads;
  problem.queries = q.dim(1);
  problem.keys = k.dim(1);
  problem.head_dim = q.dim(2) / args.heads;
  problem.scale =
      args.scale != 0
          ? args.scale
          : static_cast<float>(1.0 / std::sqrt(static_cast<double>(std::max<int64_t>(problem.head_dim, 1))));
  if (args.mask) set_mask(problem, *args.mask);
  return problem;
}

Tensor attention(Exec& ex, const Tensor& q, const Tensor& k, const Tensor& v, const AttentionArgs& args) {
  const Tensor y = ex.alloc(q.shape(), q.dtype());
  const AttentionProblem problem = attention_problem(q, k, v, y, args);
  select(ex, impls_for(problem), problem).run(ex, problem);
  return y;
}

}  // namespace rocm_sd
