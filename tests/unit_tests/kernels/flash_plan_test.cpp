// Which kernel attention over a text takes on Hopper, and the runs of tiles that it is cut into.
#include "kernels/attention/flash_plan.hpp"

#include <gtest/gtest.h>

namespace rocm_sd {
namespace {

GpuTraits h200() {
  GpuTraits traits;
  traits.arch = "sm_90";
  traits.compute_units = 132;
  traits.lds_per_group = 227 * 1024;
  traits.tma = true;
  return traits;
}

AttentionProblem problem(int64_t batch, int64_t heads, int64_t queries, int64_t keys, int64_t dim) {
  AttentionProblem p;
  p.dtype = DType::kF16;
  p.batch = batch;
  p.heads = heads;
  p.queries = queries;
  p.keys = keys;
  p.head_dim = dim;
  return p;
}

bool takes_all_keys_at_once(const AttentionProblem& p, const GpuTraits& traits) {
  return default_config(p, traits).kernel.algorithm == FlashAlgorithm::kSingleTileKv;
}

TEST(FlashPlan, TextsAreTakenAtOnce) {
  for (const int64_t batch : {1, 2, 8})
    for (const int64_t dim : {40, 64, 80})
      for (const int64_t queries : {256, 1024, 4096})
        EXPECT_TRUE(takes_all_keys_at_once(problem(batch, 10, queries, 77, dim), h200()))
            << batch << " " << dim << " " << queries;
}

TEST(FlashPlan, WhatDoesNotFitAtOnceIsNot) {
  const AttentionProblem fits = problem(2, 20, 1024, 77, 64);
  for (const int64_t keys : {0, 81, 154, 231})
    EXPECT_FALSE(takes_all_keys_at_once(problem(2, 20, 1024, keys, 64), h200())) << keys;
  for (const int64_t dim : {32, 104, 128, 160, 512})
    EXPECT_FALSE(takes_all_keys_at_once(problem(2, 8, 256, 77, dim), h200())) << dim;
  AttentionProblem masked = fits, causal = fits, falling = fits;
  masked.masked = true;
  causal.causal = true;
  falling.scale = -1;
  for (const AttentionProblem& p : {masked, causal, falling})
    EXPECT_FALSE(takes_all_keys_at_once(p, h200())) << p.describe();
  GpuTraits ampere = h200();
  ampere.arch = "sm_80";
  ampere.tma = false;
  EXPECT_FALSE(takes_all_keys_at_once(fits, ampere));
}

// A workgroup holds the keys of two heads, and every workgroup of a run finds room at once where heads are
// long enough.
TEST(FlashPlan, RunsTouchTwoHeadsAndCoverAllTiles) {
  const GpuTraits traits = h200();
  for (const int64_t batch : {1, 2, 5})
    for (const int64_t heads : {1, 8, 20})
      for (const int64_t queries : {1, 64, 65, 300, 1024, 4096, 5000})
        for (const int64_t dim : {40, 64, 80}) {
          const AttentionProblem p = problem(batch, heads, queries, 77, dim);
          for (const FlashKernel& kernel : flash_candidates(p, traits)) {
            if (kernel.algorithm != FlashAlgorithm::kSingleTileKv) continue;
            const FlashPlan plan = plan_flash(kernel, 3, p, traits);
            const int64_t tiles = plan.tiles * batch * heads;
            const int64_t runs = (tiles + plan.run_tiles - 1) / plan.run_tiles;
            EXPECT_EQ(plan.splits, 1);
            EXPECT_EQ(plan.tiles, (queries + 63) / 64);
            EXPECT_GE(plan.run_tiles, 1);
            EXPECT_LE(plan.run_tiles, plan.tiles + 1);
            if (plan.run_tiles <= plan.tiles) {
              EXPECT_LE(runs, int64_t{traits.compute_units} * kernel.occupancy) << p.describe();
            }
          }
        }
}

}  // namespace
}  // namespace rocm_sd
