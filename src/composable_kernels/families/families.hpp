// The list of GPU families. A family is its file in this folder and a line of each list here.
#pragma once

#include <cstdint>
#include <tuple>

#include "composable_kernels/families/cdna3.hpp"
#include "composable_kernels/families/hopper.hpp"
#include "composable_kernels/families/nvidia.hpp"
#include "composable_kernels/families/rdna3.hpp"
#include "composable_kernels/families/rdna4.hpp"

namespace rocm_sd {

using KernelFamilies = std::tuple<Rdna3Family, Rdna4Family, Cdna3Family, NvidiaFamily, HopperFamily>;
inline constexpr size_t kKernelFamilies = std::tuple_size_v<KernelFamilies>;

namespace families_detail {
template <class Family, size_t... i>
constexpr int index_of(std::index_sequence<i...>) {
  int found = -1;
  ((std::is_same_v<Family, std::tuple_element_t<i, KernelFamilies>> ? void(found = i) : void()), ...);
  return found;
}
}  // namespace families_detail

// The family's place in the list.
template <class Family>
constexpr int family_index() {
  constexpr int kIndex = families_detail::index_of<Family>(std::make_index_sequence<kKernelFamilies>());
  static_assert(kIndex >= 0, "a family that is not in KernelFamilies");
  return kIndex;
}

// Some of the families.
struct FamilySet {
  uint32_t bits = 0;
  constexpr bool has(int index) const { return (bits >> index & 1) != 0; }
};
template <class... Family>
constexpr FamilySet families_of() {
  return {((uint32_t{1} << family_index<Family>()) | ...)};
}
// Those whose tables list 8-bit kernels.
constexpr FamilySet families_with_eight_bit_gemm() {
  FamilySet set;
  const auto add = [&]<class... Family>(std::tuple<Family...>*) {
    ((set.bits |= uint32_t{!Family::kEightBitGemm.empty()} << family_index<Family>()), ...);
  };
  add(static_cast<KernelFamilies*>(nullptr));
  return set;
}
inline constexpr FamilySet kAllFamilies = {(uint32_t{1} << kKernelFamilies) - 1};

}  // namespace rocm_sd
