#include "kernels/norm/group_bands.hpp"

#include <algorithm>

#include "kernels/norm/group_bands_impl.hpp"

namespace rocm_sd {
namespace {

// The host's code reads f32 and bf16; of the others the scalar bodies and the references read f16 too.
template <class Problem>
Refusal supports_host_types(const Exec& ex, const Problem& p) {
  if (!is_f32_or_bf16(p.dtype)) return "takes f32 and bf16 only";
  return supports_host(ex, p);
}

const ImplList<GroupMomentsProblem> kMoments = {
    "group_moments",
    {
        {"gpu", supports_group_moments_gpu, run_group_moments_gpu},
        {"host", supports_host_types, run_group_moments_host},
        {"scalar", supports_group_moments_scalar, run_group_moments_scalar},
        {"ref", supports_host, run_group_moments_ref},
    }};
const ImplList<GroupScaleProblem> kScale = {"group_scale",
                                            {
                                                {"gpu", supports_group_scale_gpu, run_group_scale_gpu},
                                                {"scalar", supports_host, run_group_scale_scalar},
                                                {"ref", supports_host, run_group_scale_ref},
                                            }};
const ImplList<NormaliseProblem> kNormalise = {"normalise_channels",
                                               {
                                                   {"gpu", supports_normalise_gpu, run_normalise_gpu},
                                                   {"host", supports_host_types, run_normalise_host},
                                                   {"scalar", supports_host, run_normalise_scalar},
                                                   {"ref", supports_host, run_normalise_ref},
                                               }};

void check_band(const Tensor& x, const char* op) {
  require(x.rank() == 4 && x.dim(0) == 1 && x.is_contiguous(), op, ": x must be a contiguous [1,R,W,C], is ",
          x.shape());
  require<UsageError>(is_f32_or_bf16(x.dtype()) || x.dtype() == DType::kF16, op,
                      ": x must be f32, bf16 or f16, is ", x.dtype());
}

}  // namespace

int64_t moment_rows(int64_t pixels) { return std::clamp<int64_t>((pixels + 2047) / 2048, 1, 256); }

void group_moments(Exec& ex, const Tensor& x, int groups, const Tensor& out) {
  check_band(x, "group_moments");
  const int64_t pixels = x.dim(1) * x.dim(2), channels = x.dim(3);
  require(pixels > 0 && groups >= 1 && channels % groups == 0, "group_moments: cannot split the channels of ",
          x.shape(), " into ", groups, " groups");
  require_tensor(out, DType::kF32, {moment_rows(pixels), groups, 3}, "group_moments", "out");
  const GroupMomentsProblem problem{.x = x.data(),
                                    .out = out.as<float>(),
                                    .pixels = pixels,
                                    .channels = channels,
                                    .groups = groups,
                                    .rows = moment_rows(pixels),
                                    .dtype = x.dtype(),
                                    .aligned = x.offset_bytes() % 16 == 0};
  select(ex, kMoments, problem).run(ex, problem);
}

Tensor group_scale(Exec& ex, const Tensor& moments, const NormWeight& w, float eps) {
  require(moments.rank() == 3 && moments.dim(2) == 3 && moments.dtype() == DType::kF32 &&
              moments.is_contiguous() && moments.numel() > 0,
          "group_scale: moments must be f32 [M,groups,3], are ", moments.shape());
  const int64_t channels = w.gain ? w.gain.numel() : 0, groups = moments.dim(1);
  require_tensor(w.gain, DType::kF32, {channels}, "group_scale", "gain");
  require(channels > 0 && channels % groups == 0, "group_scale: cannot split ", channels, " channels into ",
          groups, " groups");
  const Tensor out = ex.alloc({2, channels}, DType::kF32);
  const GroupScaleProblem problem{.moments = moments.as<float>(),
                                  .gain = w.gain.as<float>(),
                                  .out = out.as<float>(),
                                  .rows = moments.dim(0),
                                  .channels = channels,
                                  .groups = groups,
                                  .eps = eps};
  select(ex, kScale, problem).run(ex, problem);
  return out;
}

void normalise_channels(Exec& ex, const Tensor& x, const Tensor& scale, const NormWeight& w, Activation act,
                        const Tensor& y) {
  check_band(x, "normalise_channels");
  const int64_t channels = x.dim(3);
  require_tensor(scale, DType::kF32, {2, channels}, "normalise_channels", "scale");
  require_tensor(w.bias, DType::kF32, {channels}, "normalise_channels", "bias");
  require_tensor(y, x.dtype(), x.shape(), "normalise_channels", "y");
  require<UsageError>(act == Activation::kNone || act == Activation::kSilu,
                      "normalise_channels: activation '", activation_name(act), "' is not none or silu");
  const NormaliseProblem problem{.x = x.data(),
                                 .scale = scale.as<float>(),
                                 .bias = w.bias.as<float>(),
                                 .y = y.data(),
                                 .pixels = x.dim(1) * x.dim(2),
                                 .channels = channels,
                                 .silu = act == Activation::kSilu,
                                 .dtype = x.dtype(),
                                 .aligned = x.offset_bytes() % 16 == 0 && y.offset_bytes() % 16 == 0};
  if (problem.pixels * channels == 0) return;
  select(ex, kNormalise, problem).run(ex, problem);
}

}  // namespace rocm_sd
