// The portable body of elementwise maps on the host's threads.
#include "composable_kernels/fused/elementwise.hpp"

#include "kernels/elementwise/map.hpp"
#include "kernels/scalar_launch.hpp"

namespace rocm_sd {
namespace {

template <class M, class In, class Out>
struct Cfg {
  using Map = M;
  using A = In;
  using Y = Out;
};

template <class M>
void run_typed(const MapProblem& p) {
  with_storage(p.a_type, [&](auto in) {
    with_storage(p.y_type, [&](auto out) {
      using A = decltype(in);
      using Y = decltype(out);
      const MapParams<A, Y> params{static_cast<const A*>(p.a),
                                   static_cast<const A*>(p.b),
                                   static_cast<Y*>(p.y),
                                   p.rows,
                                   p.cols,
                                   p.a_stride,
                                   p.b_stride,
                                   p.y_stride,
                                   p.p0,
                                   p.p1};
      for_each_block(p.rows,
                     [&](const Block<Scalar>& block) { map_body<Scalar, Cfg<M, A, Y>>(params, block); });
    });
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
    case Map::kRgb8: return;  // refused
  }
}

}  // namespace

Refusal supports_map_scalar(const Exec& ex, const MapProblem& p) {
  if (!is_f32_or_bf16(p.a_type) || !is_f32_or_bf16(p.y_type)) return "takes and gives f32 and bf16 only";
  if (p.binary() && p.a_type != p.b_type) return "takes operands of one type";
  return supports_host(ex, p);
}
void run_map_scalar(Exec& ex, const MapProblem& problem) {
  launch_problem(ex, problem, "scalar", map_scalar);
}

}  // namespace rocm_sd
