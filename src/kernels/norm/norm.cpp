#include "kernels/norm/norm.hpp"

#include <algorithm>

#include "kernels/norm/norm_impl.hpp"
#include "kernels/norm/norm_plan.hpp"

namespace rocm_sd {
namespace {

const ImplList<GroupNormProblem> kGroupNorm = {
    "group_norm",
    {
        {"gpu", supports_group_norm_gpu, run_group_norm_gpu, &kGroupNormConfigs},
        {"host", supports_host_f32_or_bf16, run_group_norm_host},
        {"scalar", supports_group_norm_scalar, run_group_norm_scalar},
        {"scalar_whole", supports_group_norm_whole_scalar, run_group_norm_whole_scalar},
        {"scalar_cluster", supports_group_norm_cluster_scalar, run_group_norm_cluster_scalar},
        {"scalar_resident", supports_group_norm_resident_scalar, run_group_norm_resident_scalar},
        {"ref", supports_host, run_group_norm_ref},
    }};
const ImplList<LayerNormProblem> kLayerNorm = {"layer_norm",
                                               {
                                                   {"gpu", supports_layer_norm_gpu, run_layer_norm_gpu},
                                                   {"host", supports_host_f32_or_bf16, run_layer_norm_host},
                                                   {"scalar", supports_host, run_layer_norm_scalar},
                                                   {"ref", supports_host, run_layer_norm_ref},
                                               }};

// Fresh tensors begin at multiples of 16 bytes, views of them perhaps not.
bool begins_aligned(std::initializer_list<const Tensor*> tensors) {
  return std::ranges::all_of(tensors, [](const Tensor* t) { return !t || t->offset_bytes() % 16 == 0; });
}

DType result_of(std::string_view op, const Tensor& x, std::optional<DType> asked) {
  const DType dtype = asked.value_or(x.dtype());
  require<UsageError>(dtype == x.dtype() || (x.dtype() == DType::kF32 && dtype == DType::kBF16), op,
                      ": the result of x in ", x.dtype(), " cannot be ", dtype);
  return dtype;
}

}  // namespace

GroupNormSpec GroupNormProblem::spec() const {
  return {.dtype = dtype,
          .result = to_bf16 ? std::optional(DType::kBF16) : std::nullopt,
          .batch = images,
          .pixels = pixels,
          .channels = first_channels(),
          .second_channels = second_channels,
          .groups = groups,
          .act = silu ? Activation::kSilu : Activation::kNone,
          .eps = eps};
}
std::string GroupNormProblem::describe() const { return text_of(spec()); }
double GroupNormProblem::flops() const { return spec().flops(); }
double GroupNormProblem::bytes() const { return spec().bytes(); }

LayerNormSpec LayerNormProblem::spec() const {
  return {.dtype = dtype,
          .result = to_bf16 ? std::optional(DType::kBF16) : std::nullopt,
          .rows = rows,
          .channels = cols,
          .eps = eps};
}
std::string LayerNormProblem::describe() const { return text_of(spec()); }
double LayerNormProblem::flops() const { return spec().flops(); }
double LayerNormProblem::bytes() const { return spec().bytes(); }

Tensor group_norm(Exec& ex, const Tensor& x, const NormWeight& w, const GroupNormArgs& args) {
  require(x.rank() == 4, "group_norm: x must be [N,H,W,C], is ", x.shape());
  require_activation_type(x, "group_norm", "x");
  require_contiguous(x, "group_norm", "x");
  Shape shape = x.shape();
  if (args.second) {
    const Tensor& second = *args.second;
    require(second.rank() == 4 && second.dim(0) == x.dim(0) && second.dim(1) == x.dim(1) &&
                second.dim(2) == x.dim(2),
            "group_norm: second ", second.shape(), " does not fit x ", x.shape());
    require<UsageError>(second.dtype() == x.dtype(), "group_norm: second is ", second.dtype(), ", x is ",
                        x.dtype());
    require_contiguous(second, "group_norm", "second");
    shape[3] += second.dim(3);
  }
  require(args.groups >= 1 && shape[3] % args.groups == 0, "group_norm: cannot split the channels of ", shape,
          " into ", args.groups, " groups");
  require<UsageError>(args.act == Activation::kNone || args.act == Activation::kSilu,
                      "group_norm: activation '", activation_name(args.act), "' is not none or silu");
  require_tensor(w.gain, DType::kF32, {shape[3]}, "group_norm", "gain");
  require_tensor(w.bias, DType::kF32, {shape[3]}, "group_norm", "bias");
  const DType dtype = result_of("group_norm", x, args.dtype);
  require<UsageError>(!args.in_place || (!args.second && dtype == x.dtype()),
                      "group_norm: in place is for one input and a result of its type");
  const Tensor y = args.in_place ? x : ex.alloc(shape, dtype);
  const GroupNormProblem problem{.x = x.data(),
                                 .second = args.second ? args.second->data() : nullptr,
                                 .gain = w.gain.as<float>(),
                                 .bias = w.bias.as<float>(),
                                 .y = y.data(),
                                 .images = shape[0],
                                 .pixels = shape[1] * shape[2],
                                 .channels = shape[3],
                                 .second_channels = shape[3] - x.dim(3),
                                 .groups = args.groups,
                                 .eps = args.eps,
                                 .silu = args.act == Activation::kSilu,
                                 .dtype = x.dtype(),
                                 .to_bf16 = y.dtype() != x.dtype(),
                                 .aligned = begins_aligned({&x, args.second, &w.gain, &w.bias})};
  select(ex, kGroupNorm, problem).run(ex, problem);
  return y;
}

Tensor layer_norm(Exec& ex, const Tensor& x, const NormWeight& w, float eps, std::optional<DType> dtype) {
  require(x.rank() >= 1, "layer_norm: x must be [...,C], is ", x.shape());
  require_activation_type(x, "layer_norm", "x");
  require_contiguous(x, "layer_norm", "x");
  const int64_t cols = x.dim(-1);
  require_tensor(w.gain, DType::kF32, {cols}, "layer_norm", "gain");
  require_tensor(w.bias, DType::kF32, {cols}, "layer_norm", "bias");
  const Tensor y = ex.alloc(x.shape(), result_of("layer_norm", x, dtype));
  const LayerNormProblem problem{.x = x.data(),
                                 .gain = w.gain.as<float>(),
                                 .bias = w.bias.as<float>(),
                                 .y = y.data(),
                                 .rows = cols ? x.numel() / cols : 0,
                                 .cols = cols,
                                 .eps = eps,
                                 .dtype = x.dtype(),
                                 .to_bf16 = y.dtype() != x.dtype(),
                                 .aligned = begins_aligned({&x, &w.gain, &w.bias})};
  select(ex, kLayerNorm, problem).run(ex, problem);
  return y;
}

}  // namespace rocm_sd
