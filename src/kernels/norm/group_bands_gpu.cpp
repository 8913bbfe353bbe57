// The steps of a banded group norm on a GPU, and their bodies as the host runs them.
#include "composable_kernels/fused/group_bands.hpp"

#include "composable_kernels/arch/scalar.hpp"
#include "kernels/gpu_launch.hpp"
#include "kernels/norm/group_bands_configs.hpp"
#include "kernels/norm/group_bands_impl.hpp"

namespace rocm_sd {
namespace {

using group_bands_configs::kThreads;

template <class T>
GroupMomentsParams<T> params_of(const GroupMomentsProblem& p) {
  return {static_cast<const T*>(p.x),
          p.out,
          p.pixels,
          static_cast<int32_t>(p.channels),
          static_cast<int32_t>(p.groups),
          static_cast<int32_t>(p.rows)};
}
GroupScaleParams params_of(const GroupScaleProblem& p) {
  return {p.moments,
          p.gain,
          p.out,
          static_cast<int32_t>(p.rows),
          static_cast<int32_t>(p.channels),
          static_cast<int32_t>(p.groups),
          p.eps};
}
template <class T>
NormaliseParams<T> params_of(const NormaliseProblem& p) {
  return {static_cast<const T*>(p.x),       p.scale, p.bias, static_cast<T*>(p.y), p.pixels * p.channels / 8,
          static_cast<int32_t>(p.channels), p.silu};
}

// The kernels do not look behind the pointers' types.
template <class Params>
void launch(Exec& ex, OpInfo info, const std::string& kernel, int64_t threads, const Params& params) {
  launch_kernel(ex, std::move(info), *gpu_device(ex)->find_kernel(kernel),
                {static_cast<uint32_t>((threads + kThreads - 1) / kThreads)}, kThreads, 0, params);
}

template <class Problem>
std::string kernel_name(const Problem& p) {
  return concat(p.op(), "_", p.dtype);
}

bool is_aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

template <class Body>
void with_type(DType dtype, const Body& body) {
  if (dtype == DType::kF16) return body(Half{});
  if (dtype == DType::kBF16) return body(Bf16{});
  body(float{});
}

void group_moments_scalar(const GroupMomentsProblem& p) {
  with_type(p.dtype, [&](auto type) {
    const auto params = params_of<decltype(type)>(p);
    for (int64_t item = 0; item < p.rows * p.groups; ++item) group_moments_body<Scalar>(params, item);
  });
}
void group_scale_scalar(const GroupScaleProblem& p) {
  for (int64_t g = 0; g < p.groups; ++g) group_scale_body<Scalar>(params_of(p), static_cast<int>(g));
}
void normalise_scalar(const NormaliseProblem& p) {
  with_type(p.dtype, [&](auto type) {
    const auto params = params_of<decltype(type)>(p);
    for (int64_t pack = 0; pack < params.packs; ++pack) normalise_pack_body<Scalar>(params, pack);
  });
}

}  // namespace

Refusal supports_group_moments_gpu(const Exec& ex, const GroupMomentsProblem& p) {
  return supports_kernel(ex, kernel_name(p));
}
void run_group_moments_gpu(Exec& ex, const GroupMomentsProblem& p) {
  const int lanes = gpu_device(ex)->traits().lanes;
  launch(ex, op_info(p, "gpu"), kernel_name(p), p.rows * p.groups * lanes, params_of<float>(p));
}
void run_group_moments_scalar(Exec& ex, const GroupMomentsProblem& p) {
  launch_problem(ex, p, "scalar", group_moments_scalar);
}

Refusal supports_group_scale_gpu(const Exec& ex, const GroupScaleProblem& p) {
  return supports_kernel(ex, p.op());
}
void run_group_scale_gpu(Exec& ex, const GroupScaleProblem& p) {
  launch(ex, op_info(p, "gpu"), p.op(), p.groups * gpu_device(ex)->traits().lanes, params_of(p));
}
void run_group_scale_scalar(Exec& ex, const GroupScaleProblem& p) {
  launch_problem(ex, p, "scalar", group_scale_scalar);
}

Refusal supports_normalise_gpu(const Exec& ex, const NormaliseProblem& p) {
  if (p.channels % 8 != 0) return "takes a multiple of 8 channels only";
  if (!is_aligned(p.x) || !is_aligned(p.y)) return "takes data at multiples of 16 bytes only";
  return supports_kernel(ex, kernel_name(p));
}
void run_normalise_gpu(Exec& ex, const NormaliseProblem& p) {
  launch(ex, op_info(p, "gpu"), kernel_name(p), p.pixels * p.channels / 8, params_of<float>(p));
}
Refusal supports_normalise_scalar(const Exec& ex, const NormaliseProblem& p) {
  if (p.channels % 8 != 0) return "takes a multiple of 8 channels only";
  return supports_host(ex, p);
}
void run_normalise_scalar(Exec& ex, const NormaliseProblem& p) {
  launch_problem(ex, p, "scalar", normalise_scalar);
}

}  // namespace rocm_sd
