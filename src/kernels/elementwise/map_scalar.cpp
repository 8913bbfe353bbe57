// The portable body of elementwise maps on the host's threads.
#include <algorithm>

#include "kernels/elementwise/map_params.hpp"
#include "kernels/scalar_launch.hpp"

namespace rocm_sd {
namespace {

template <class M, class In, class Out>
struct Cfg {
  using Map = M;
  using A = In;
  using Y = Out;
};

template <class M, class A, class Y>
void run_map_body(const MapProblem& p) {
  const MapParams<A, Y> params = map_params<A, Y>(p, 1);
  const int64_t blocks = std::min<int64_t>(p.rows * ((p.cols + 7) / 8), 1024);
  for_each_block(blocks, [&](const Block<Scalar>& block) { map_body<Scalar, Cfg<M, A, Y>>(params, block); });
}

template <class M>
void run_typed(const MapProblem& p) {
  with_storage(p.a_type, [&](auto in) {
    with_storage(p.y_type, [&](auto out) { run_map_body<M, decltype(in), decltype(out)>(p); });
  });
}

void map_scalar(const MapProblem& p) {
  switch (p.map) {
    case Map::kCopy: return run_typed<maps::Copy>(p);
    case Map::kSilu: return run_typed<maps::Silu>(p);
    case Map::kGelu: return run_typed<maps::Gelu>(p);
    case Map::kQuickGelu: return run_typed<maps::QuickGelu>(p);
    case Map::kRelu: return run_typed<maps::Relu>(p);
    case Map::kAdd: return run_typed<maps::Add>(p);
    case Map::kMulGelu: return run_typed<maps::MulGelu>(p);
    case Map::kAffine: return run_typed<maps::Affine>(p);
    case Map::kSoftClamp: return run_typed<maps::SoftClamp>(p);
    case Map::kAddScaled: return run_typed<maps::AddScaled>(p);
    case Map::kLeakyRelu: return run_typed<maps::LeakyRelu>(p);
    case Map::kPRelu: return run_typed<maps::PRelu>(p);
    case Map::kSplit: return run_map_body<maps::Split, float, Bf16>(p);
    case Map::kRgb8:
      return with_storage(p.a_type, [&](auto in) { run_map_body<maps::Rgb8, decltype(in), uint8_t>(p); });
  }
}

}  // namespace

Refusal supports_map_scalar(const Exec& ex, const MapProblem& p) {
  if (const Refusal refusal = refuse_map_body(p)) return refusal;
  return supports_host(ex, p);
}
void run_map_scalar(Exec& ex, const MapProblem& problem) {
  launch_problem(ex, problem, "scalar", map_scalar);
}

}  // namespace rocm_sd
