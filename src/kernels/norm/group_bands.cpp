#include "kernels/norm/group_bands.hpp"

#include <algorithm>
#include <vector>

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

// The shape of what there is of each image; of one image it may stand without the number.
Shape of_each(const Tensor& t, int64_t images, const Shape& shape) {
  if (images == 1 && t.rank() == shape.rank()) return shape;
  std::vector<int64_t> dims(shape.begin(), shape.end());
  dims.insert(dims.begin(), images);
  return Shape(std::span<const int64_t>(dims));
}

void check_band(const Tensor& x, const char* op) {
  require(x.rank() == 4 && x.is_contiguous(), op, ": x must be a contiguous [N,R,W,C], is ", x.shape());
  require<UsageError>(is_f32_or_bf16(x.dtype()) || x.dtype() == DType::kF16, op,
                      ": x must be f32, bf16 or f16, is ", x.dtype());
}

}  // namespace

// A run is a workgroup's: of small maps runs are short, so that more than a few workgroups are at work, but
// no more than one wave merges in a turn or two.
int64_t moment_rows(int64_t pixels) {
  const int64_t of_small = std::clamp<int64_t>((pixels + 31) / 32, 1, 32);
  return std::max(of_small, std::clamp<int64_t>((pixels + 2047) / 2048, 1, 256));
}

void group_moments(Exec& ex, const Tensor& x, int groups, const Tensor& out) {
  check_band(x, "group_moments");
  const int64_t images = x.dim(0), pixels = x.dim(1) * x.dim(2), channels = x.dim(3);
  require(images > 0 && pixels > 0 && groups >= 1 && channels % groups == 0,
          "group_moments: cannot split the channels of ", x.shape(), " into ", groups, " groups");
  const Shape shape = of_each(out, images, {moment_rows(pixels), groups, 3});
  require(out.dtype() == DType::kF32 && out.shape() == shape && out.narrow(0, 0, 1).is_contiguous(),
          "group_moments: out must be f32 ", shape, ", is ", out.dtype(), " ", out.shape());
  const GroupMomentsProblem problem{.x = x.data(),
                                    .out = out.as<float>(),
                                    .images = images,
                                    .pixels = pixels,
                                    .channels = channels,
                                    .groups = groups,
                                    .rows = moment_rows(pixels),
                                    .out_step = images > 1 ? out.stride(0) : 0,
                                    .dtype = x.dtype(),
                                    .aligned = x.offset_bytes() % 16 == 0};
  select(ex, kMoments, problem).run(ex, problem);
}

Tensor group_scale(Exec& ex, const Tensor& moments, const NormWeight& w, float eps) {
  const int rank = moments.rank();
  require((rank == 3 || rank == 4) && moments.dim(rank - 1) == 3 && moments.dtype() == DType::kF32 &&
              moments.is_contiguous() && moments.numel() > 0,
          "group_scale: moments must be f32 [N,M,groups,3], are ", moments.shape());
  const int64_t images = rank == 4 ? moments.dim(0) : 1;
  const int64_t channels = w.gain ? w.gain.numel() : 0, groups = moments.dim(rank - 2);
  require_tensor(w.gain, DType::kF32, {channels}, "group_scale", "gain");
  require(channels > 0 && channels % groups == 0, "group_scale: cannot split ", channels, " channels into ",
          groups, " groups");
  const Tensor out = ex.alloc(rank == 4 ? Shape{images, 2, channels} : Shape{2, channels}, DType::kF32);
  const GroupScaleProblem problem{.moments = moments.as<float>(),
                                  .gain = w.gain.as<float>(),
                                  .out = out.as<float>(),
                                  .images = images,
                                  .rows = moments.dim(rank - 3),
                                  .channels = channels,
                                  .groups = groups,
                                  .eps = eps};
  select(ex, kScale, problem).run(ex, problem);
  return out;
}

void normalise_channels(Exec& ex, const Tensor& x, const Tensor& scale, const NormWeight& w, Activation act,
                        const Tensor& y, const EdgeRows& edges) {
  check_band(x, "normalise_channels");
  const int64_t images = x.dim(0), width = x.dim(2), channels = x.dim(3);
  require_tensor(scale, DType::kF32, of_each(scale, images, {2, channels}), "normalise_channels", "scale");
  require_tensor(w.bias, DType::kF32, {channels}, "normalise_channels", "bias");
  require<UsageError>(act == Activation::kNone || act == Activation::kSilu,
                      "normalise_channels: activation '", activation_name(act), "' is not none or silu");
  NormaliseProblem problem{.above = {},
                           .map = {x.data(), x.dim(1) * width},
                           .below = {},
                           .scale = scale.as<float>(),
                           .bias = w.bias.as<float>(),
                           .y = y.data(),
                           .images = images,
                           .channels = channels,
                           .silu = act == Activation::kSilu,
                           .dtype = x.dtype(),
                           .aligned = x.offset_bytes() % 16 == 0 && y.offset_bytes() % 16 == 0};
  Shape shape = x.shape();
  const auto add = [&](const Tensor& row, NormaliseProblem::Source& source, const char* name) {
    if (!row) return;
    require_tensor(row, x.dtype(), {images, 1, width, channels}, "normalise_channels", name);
    source = {row.data(), width};
    problem.aligned = problem.aligned && row.offset_bytes() % 16 == 0;
    ++shape[1];
  };
  add(edges.above, problem.above, "the row above");
  add(edges.below, problem.below, "the row below");
  require_tensor(y, x.dtype(), shape, "normalise_channels", "y");
  if (y.numel() == 0) return;
  select(ex, kNormalise, problem).run(ex, problem);
}

}  // namespace rocm_sd
