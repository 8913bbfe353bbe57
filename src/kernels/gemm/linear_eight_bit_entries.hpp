// How the kernels of linear layers with 8-bit operands are instantiated from the rows of a family's file.
// Only .hip files include it, after arch/eight_bit_target.hpp or its Hopper form. Problem, mapping, traffic,
// numerics, limits: composable_kernels/fused/gemm_eight_bit.hpp.
#pragma once

#include "composable_kernels/families/target.hpp"
#include "composable_kernels/fused/gemm_eight_bit.hpp"
#include "kernels/gemm/linear_configs.hpp"

namespace rocm_sd {

// The types of an entry under one name: a macro's argument ends at a comma.
template <class EightBitType, class StorageType>
struct EightBitTypes {
  using EightBit = EightBitType;
  using Storage = StorageType;
};
struct I8F16 : EightBitTypes<Int8, Half> {
  static constexpr const char* kName = "i8_f16";
};
struct I8Bf16 : EightBitTypes<Int8, Bf16> {
  static constexpr const char* kName = "i8_bf16";
};
struct F8F16 : EightBitTypes<Fp8, Half> {
  static constexpr const char* kName = "f8e4m3_f16";
};
struct F8Bf16 : EightBitTypes<Fp8, Bf16> {
  static constexpr const char* kName = "f8e4m3_bf16";
};
template <class Types>
using EightBitParamsOf = EightBitGemmParams<typename Types::EightBit, typename Types::Storage>;
template <class Types>
using QuantiseParamsOf = QuantiseParams<typename Types::EightBit, typename Types::Storage>;

template <class Types, bool kGated, GemmConfig kConfig>
ROCM_SD_DEVICE void eight_bit_tiles_kernel(const EightBitParamsOf<Types>& p) {
  static_assert(kConfig.algorithm == GemmAlgorithm::kTiles);
  using Cfg = TileCfg<GpuArch, typename Types::EightBit, kConfig.shape>;
  const GroupPlace group = place_of_group<GpuArch>(p.order);
  eight_bit_gemm_body<GpuArch, Cfg, kGated>(p, group.x, group.y, GpuArch::lds<Cfg::kLdsBytes>());
}

}  // namespace rocm_sd

#define ROCM_SD_EIGHT_BIT_ENTRY(op, name, Types, kGated, row)                          \
  ROCM_SD_CHECK_NAME(name, row, op, rocm_sd::Types::kName)                             \
  ROCM_SD_KERNEL(name, (row).shape.waves() * rocm_sd::GpuArch::lanes, (row).occupancy, \
                 rocm_sd::EightBitParamsOf<rocm_sd::Types>) {                          \
    rocm_sd::eight_bit_tiles_kernel<rocm_sd::Types, kGated, row>(p);                   \
  }

// What does not depend on the configuration.
#define ROCM_SD_QUANTISE(types, Types)                                                  \
  ROCM_SD_KERNEL(quantise_##types, rocm_sd::kQuantiseWaves* rocm_sd::GpuArch::lanes, 4, \
                 rocm_sd::QuantiseParamsOf<rocm_sd::Types>) {                           \
    using namespace rocm_sd;                                                            \
    quantise_body<GpuArch>(p, Block<GpuArch>{p.workgroups, kQuantiseWaves});            \
  }
