// The portable GEMM bodies on the host's threads: the GPU kernels' logic under the sanitizers.
#include <vector>

#include "composable_kernels/fused/gemv.hpp"
#include "kernels/gemm/linear_impl.hpp"
#include "kernels/gemm/linear_params.hpp"
#include "kernels/scalar_launch.hpp"

namespace rocm_sd {
namespace {

// Depths from here on are split in three, so that tiles are shared, too.
constexpr int64_t kSplitDepth = 256;
constexpr int kSplits = 3;

template <class T>
using ScalarGemm = ProductCfg<T, TileShape{.block_m = 32, .block_n = 32, .block_k = 32}>;
// Tiles of other proportions and one stage: what deep products get.
template <class T>
using ScalarSplitGemm = ProductCfg<T, TileShape{.block_m = 16, .block_n = 48, .block_k = 16, .stages = 1}>;
template <class T>
using ScalarSplitGeglu = ProductCfg<T, TileShape{.block_m = 16, .block_n = 32, .block_k = 16, .stages = 1}>;

template <class Cfg>
int64_t tiles_of(int64_t rows, int64_t columns) {
  return (rows + Cfg::kBlockM - 1) / Cfg::kBlockM * ((columns + Cfg::kBlockN - 1) / Cfg::kBlockN);
}

template <class Cfg, bool kGated>
void run_tiles(const GemmParams<typename Cfg::T>& p) {
  const int64_t tiles =
      tiles_of<Cfg>(p.epilogue.rows, kGated ? 2 * p.epilogue.channels : p.epilogue.channels);
  const int64_t parts = p.parts.splits > 1 ? p.parts.whole + int64_t{p.parts.rest} * p.parts.splits : tiles;
  for_each_block(parts, [&](const Block<Scalar>& block) {
    alignas(16) char lds[Cfg::kLdsBytes];
    gemm_body<Scalar, Cfg, kGated>(p, static_cast<int>(block.index), 0, lds);
  });
}

template <class T>
void run_rows(const GemmParams<T>& p, bool gated) {
  using Cfg = GemvCfg<T, 1>;
  const int64_t pieces = (p.epilogue.channels + 7) / 8, passes = (p.epilogue.rows + 3) / 4;
  for_each_block(pieces * passes, [&](const Block<Scalar>& block) {
    alignas(16) char lds[Cfg::kLdsBytes];
    const auto piece = static_cast<int>(block.index % pieces), pass = static_cast<int>(block.index / pieces);
    if (gated)
      gemv_gated_body<Scalar, Cfg>(p, piece, pass, lds);
    else
      gemv_body<Scalar, Cfg>(p, piece, pass, lds);
  });
}

// Half of the tiles are shared.
template <class Cfg, bool kGated>
void run_split(GemmParams<typename Cfg::T> p) {
  const int steps = (p.depth + Cfg::kBlockK - 1) / Cfg::kBlockK;
  const int64_t tiles =
      tiles_of<Cfg>(p.epilogue.rows, kGated ? 2 * p.epilogue.channels : p.epilogue.channels);
  const int64_t whole = tiles / 2, shared = tiles - whole;
  std::vector<float> sums(static_cast<size_t>(shared * kSplits * tile_floats(Cfg::kShape)));
  std::vector<uint64_t> arrivals(static_cast<size_t>(shared));
  p.parts = {static_cast<int>(whole), static_cast<int>(shared), kSplits, sums.data(), arrivals.data(), false};
  p.split_steps = (steps + kSplits - 1) / kSplits;
  run_tiles<Cfg, kGated>(p);
}

template <class T>
void linear_scalar_as(Exec& ex, const LinearProblem& p) {
  GemmParams<T> params = gemm_params<T>(p);
  const bool tiled = params.aligned && p.rows > 1, split = tiled && p.in >= kSplitDepth;
  // The weight is taken plain inside the launch: nothing is kept between runs.
  ex.launch(p.info("scalar"),
            [=, weight = p.w.weight, gated = p.gated, up = p.rank() ? *p.epilogue.low_rank->up : Weight()] {
              const Tensor plain = weight.plain();  // [out or 2*out,in]
              GemmParams<T> run = params;
              run.w = plain.as<T>();
              const Tensor plain_up = up ? up.plain() : Tensor();
              if (up) run.term.up = plain_up.as<T>();
              if (!tiled) return run_rows(run, gated);
              if (split && gated) return run_split<ScalarSplitGeglu<T>, true>(run);
              if (split) return run_split<ScalarSplitGemm<T>, false>(run);
              if (gated) return run_tiles<ScalarGemm<T>, true>(run);
              run_tiles<ScalarGemm<T>, false>(run);
            });
}

}  // namespace

Refusal linear_supports_scalar(const Exec& ex, const LinearProblem& p) {
  if (ex.device().kind() != DeviceKind::kHost) return "runs on the host only";
  if (p.mixed_types()) return "a weight of another type than x";
  if (p.rank() && (p.rows == 1 || !linear_rows_aligned(p)))
    return "a low-rank term of one row, or of rows that are not of 16-byte pieces";
  return linear_extents_fit(p);
}

void linear_scalar(Exec& ex, const LinearProblem& p) {
  if (p.dtype() == DType::kF16) return linear_scalar_as<Half>(ex, p);
  if (p.dtype() == DType::kBF16) return linear_scalar_as<Bf16>(ex, p);
  linear_scalar_as<float>(ex, p);
}

}  // namespace rocm_sd
