// The entry points of linear's GPU kernels for 8-bit operands: included by the .hip files only, after their
// family's eight_bit_<family>.hpp.
// Problem, mapping, traffic, numerics, limits: composable_kernels/fused/gemm_eight_bit.hpp.
#pragma once

#include "composable_kernels/arch/target.hpp"
#include "composable_kernels/fused/gemm_eight_bit.hpp"
#include "kernels/gemm/linear_eight_bit_configs.hpp"

// prefix: gemm_i8_f16, or geglu_i8_f16 with kGated true.
#define ROCM_SD_EIGHT_BIT_ENTRY(prefix, EightBit, Storage, kGated, m, n, k, waves_m, waves_n, stages, \
                                groups)                                                               \
  ROCM_SD_KERNEL(prefix##_##m##x##n##x##k, (waves_m) * (waves_n) * rocm_sd::GpuArch::lanes, groups,   \
                 prefix##_params) {                                                                   \
    using namespace rocm_sd;                                                                          \
    using Cfg = TileCfg<GpuArch, EightBit, TileShape{m, n, k, waves_m, waves_n, stages}>;             \
    eight_bit_gemm_body<GpuArch, Cfg, kGated>(p, static_cast<int>(GpuArch::group_x()),                \
                                              static_cast<int>(GpuArch::group_y()),                   \
                                              GpuArch::lds<Cfg::kLdsBytes>());                        \
  }

// The same with tiles fetched by TMA; the file includes
// composable_kernels/hopper/gemm_eight_bit_tma.hpp.
#define ROCM_SD_EIGHT_BIT_TMA_ENTRY(op, eight, EightBit, storage, Storage, kGated, name, n, stages, groups) \
  using op##_##name##_##eight##_##storage##_##n##_params = rocm_sd::TmaEightBitParams<EightBit, Storage>;   \
  ROCM_SD_TMA_KERNEL(op##_##name##_##eight##_##storage##_128x##n##x128, groups,                             \
                     op##_##name##_##eight##_##storage##_##n##_params) {                                    \
    using namespace rocm_sd;                                                                                \
    using Cfg = TmaCfg<EightBit, n, stages, groups>;                                                        \
    eight_bit_tma_body<Cfg, kGated>(p, static_cast<int>(GpuArch::group_x()),                                \
                                    static_cast<int>(GpuArch::groups_x()), GpuArch::lds<Cfg::kLdsBytes>()); \
  }

// What does not depend on the configuration. A macro's argument ends at a comma: types get names first.
#define ROCM_SD_EIGHT_BIT_SMALL(eight, EightBit, storage, Storage)                                  \
  using gemm_##eight##_##storage##_params = rocm_sd::EightBitGemmParams<EightBit, Storage>;         \
  using geglu_##eight##_##storage##_params = rocm_sd::EightBitGemmParams<EightBit, Storage>;        \
  using quantise_##eight##_##storage##_params = rocm_sd::QuantiseParams<EightBit, Storage>;         \
  ROCM_SD_KERNEL(quantise_##eight##_##storage, rocm_sd::kQuantiseWaves* rocm_sd::GpuArch::lanes, 4, \
                 quantise_##eight##_##storage##_params) {                                           \
    using namespace rocm_sd;                                                                        \
    quantise_body<GpuArch>(p, Block<GpuArch>{p.groups, kQuantiseWaves});                            \
  }

// All kernels of a pair of types: gemms(X), geglus(X) list the family's configurations.
#define ROCM_SD_I8_F16(...) \
  ROCM_SD_EIGHT_BIT_ENTRY(gemm_i8_f16, rocm_sd::Int8, rocm_sd::Half, false, __VA_ARGS__)
#define ROCM_SD_I8_BF16(...) \
  ROCM_SD_EIGHT_BIT_ENTRY(gemm_i8_bf16, rocm_sd::Int8, rocm_sd::Bf16, false, __VA_ARGS__)
#define ROCM_SD_F8_F16(...) \
  ROCM_SD_EIGHT_BIT_ENTRY(gemm_f8e4m3_f16, rocm_sd::Fp8, rocm_sd::Half, false, __VA_ARGS__)
#define ROCM_SD_F8_BF16(...) \
  ROCM_SD_EIGHT_BIT_ENTRY(gemm_f8e4m3_bf16, rocm_sd::Fp8, rocm_sd::Bf16, false, __VA_ARGS__)
#define ROCM_SD_GATED_I8_F16(...) \
  ROCM_SD_EIGHT_BIT_ENTRY(geglu_i8_f16, rocm_sd::Int8, rocm_sd::Half, true, __VA_ARGS__)
#define ROCM_SD_GATED_I8_BF16(...) \
  ROCM_SD_EIGHT_BIT_ENTRY(geglu_i8_bf16, rocm_sd::Int8, rocm_sd::Bf16, true, __VA_ARGS__)
#define ROCM_SD_GATED_F8_F16(...) \
  ROCM_SD_EIGHT_BIT_ENTRY(geglu_f8e4m3_f16, rocm_sd::Fp8, rocm_sd::Half, true, __VA_ARGS__)
#define ROCM_SD_GATED_F8_BF16(...) \
  ROCM_SD_EIGHT_BIT_ENTRY(geglu_f8e4m3_bf16, rocm_sd::Fp8, rocm_sd::Bf16, true, __VA_ARGS__)
#define ROCM_SD_EIGHT_BIT_INTEGERS(gemms, geglus)                 \
  ROCM_SD_EIGHT_BIT_SMALL(i8, rocm_sd::Int8, f16, rocm_sd::Half)  \
  ROCM_SD_EIGHT_BIT_SMALL(i8, rocm_sd::Int8, bf16, rocm_sd::Bf16) \
  gemms(ROCM_SD_I8_F16) gemms(ROCM_SD_I8_BF16) geglus(ROCM_SD_GATED_I8_F16) geglus(ROCM_SD_GATED_I8_BF16)
#define ROCM_SD_EIGHT_BIT_FLOATS(gemms, geglus)                      \
  ROCM_SD_EIGHT_BIT_SMALL(f8e4m3, rocm_sd::Fp8, f16, rocm_sd::Half)  \
  ROCM_SD_EIGHT_BIT_SMALL(f8e4m3, rocm_sd::Fp8, bf16, rocm_sd::Bf16) \
  gemms(ROCM_SD_F8_F16) gemms(ROCM_SD_F8_BF16) geglus(ROCM_SD_GATED_F8_F16) geglus(ROCM_SD_GATED_F8_BF16)
