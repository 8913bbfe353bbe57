// The kernels of token merging: composable_kernels/fused/token_merge.hpp.
#include "composable_kernels/arch/target.hpp"
#include "composable_kernels/fused/token_merge.hpp"

namespace rocm_sd {

using Float = float;

constexpr int kTokenMergeThreads = kTokenMergeWaves * GpuArch::lanes;

}  // namespace rocm_sd

// ENTRY(merge_tokens_f16, merge_tokens, MergeTokensParams, Half) is the kernel merge_tokens_f16.
#define ENTRY(name, op, Params, ...)                                                                  \
  using name##_params = rocm_sd::Params<__VA_ARGS__>;                                                 \
  ROCM_SD_KERNEL(name, rocm_sd::kTokenMergeThreads, 4, name##_params) {                               \
    rocm_sd::op##_body(p, rocm_sd::Block<rocm_sd::GpuArch>{p.workgroups, rocm_sd::kTokenMergeWaves}); \
  }

namespace rocm_sd::token_merge {

ENTRY(unit_tokens_f16_f16, unit_tokens, UnitTokensParams, Half, Half)
ENTRY(unit_tokens_bf16_bf16, unit_tokens, UnitTokensParams, Bf16, Bf16)
ENTRY(unit_tokens_f32_f16, unit_tokens, UnitTokensParams, Float, Half)
ENTRY(unit_tokens_f32_bf16, unit_tokens, UnitTokensParams, Float, Bf16)
ENTRY(unit_tokens_f32_f32, unit_tokens, UnitTokensParams, Float, Float)

ENTRY(row_argmax_f16, row_argmax, RowArgmaxParams, Half)
ENTRY(row_argmax_bf16, row_argmax, RowArgmaxParams, Bf16)
ENTRY(row_argmax_f32, row_argmax, RowArgmaxParams, Float)

ROCM_SD_KERNEL(token_places, kTokenMergeThreads, 4, TokenPlacesParams) {
  token_places_body(p, Block<GpuArch>{p.workgroups, kTokenMergeWaves});
}

ENTRY(merge_tokens_f16, merge_tokens, MergeTokensParams, Half)
ENTRY(merge_tokens_bf16, merge_tokens, MergeTokensParams, Bf16)
ENTRY(merge_tokens_f32, merge_tokens, MergeTokensParams, Float)

ENTRY(unmerge_tokens_f16_f16, unmerge_tokens, UnmergeTokensParams, Half, Half)
ENTRY(unmerge_tokens_bf16_bf16, unmerge_tokens, UnmergeTokensParams, Bf16, Bf16)
ENTRY(unmerge_tokens_f16_f32, unmerge_tokens, UnmergeTokensParams, Half, Float)
ENTRY(unmerge_tokens_bf16_f32, unmerge_tokens, UnmergeTokensParams, Bf16, Float)
ENTRY(unmerge_tokens_f32_f32, unmerge_tokens, UnmergeTokensParams, Float, Float)

}  // namespace rocm_sd::token_merge
