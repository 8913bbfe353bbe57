// The public templates with one lane: whole problems, edges of tiles, several inputs.
#include <gtest/gtest.h>

#include "support/template_cases.hpp"

namespace rocm_sd {
namespace {

using namespace testing_support;

TEST(CkSdTemplates, BatchedGemm) {
  ScalarBench bench;
  check_batched_gemm(bench, 3, 70, 72, 40);
  check_batched_gemm(bench, 1, 1, 8, 8);
}

TEST(CkSdTemplates, Convolution) {
  ScalarBench bench;
  check_convolution(bench, {.batch = 2,
                            .height = 9,
                            .width = 7,
                            .channels = 16,
                            .outputs = 24,
                            .filter_h = 3,
                            .filter_w = 3,
                            .stride = 2,
                            .pad_top = 1,
                            .pad_left = 1,
                            .pad_bottom = 1,
                            .pad_right = 1});
  check_convolution(bench, {.batch = 1,
                            .height = 5,
                            .width = 6,
                            .channels = 64,
                            .second_channels = 8,
                            .outputs = 8,
                            .filter_h = 3,
                            .filter_w = 3,
                            .pad_top = 1,
                            .pad_left = 1,
                            .pad_bottom = 1,
                            .pad_right = 1,
                            .doubled = true});
  check_convolution(bench, {.batch = 1, .height = 4, .width = 4, .channels = 32, .outputs = 40});
}

TEST(CkSdTemplates, FusedAttention) {
  ScalarBench bench;
  check_attention<false>(bench, 2, 2, 70, 77);
  check_attention<true>(bench, 1, 2, 33, 50);
}

TEST(CkSdTemplates, GroupNormSilu) {
  ScalarBench bench;
  check_group_norm_silu(bench, 2, 64, 320, 32);
  check_group_norm_silu(bench, 1, 1, 8, 4);
}

TEST(CkSdTemplates, TransformerBlock) {
  ScalarBench bench;
  check_transformer_block(bench, 2, 70, 13, 1, 40);
  check_transformer_block(bench, 1, 16, 77, 2, 64);
}

}  // namespace
}  // namespace rocm_sd
