// RDNA4 (gfx1200, 1201): wave32, 16x16x16 WMMA in its second layout: nothing is stored twice and C's rows are
// consecutive in a lane, so that C is a B without any exchange.
#pragma once

#include <type_traits>

#include "composable_kernels/arch/amd_atom.hpp"

namespace rocm_sd {

struct Rdna4 : Amd<32> {
  static constexpr const char* kName = "rdna4";
  static constexpr int kFragmentsAhead = 6;  // read from LDS ahead of their use
  static constexpr bool kChiplets = false;

  // The 16 bytes of each of eight lanes, `offset` bytes after a base that is the same in all lanes,
  // transposed among the eight as 8 x 8 elements of 16 bits. All lanes of the wave take part.
  // GLOBAL_LOAD_TR_B128 in the ISA document, which names no lanes; public measurements on a gfx1201 card do
  // (src/emulator/vector_memory.cpp).
  static constexpr bool kTransposingLoads = true;
  static ROCM_SD_DEVICE Chunk16 load_transposed(const void* base, uint32_t offset) {
    typedef short Piece __attribute__((ext_vector_type(8)));
    const auto at = reinterpret_cast<uintptr_t>(base) + offset;
    return __builtin_bit_cast(
        Chunk16, __builtin_amdgcn_global_load_tr_b128_v8i16((Piece __attribute__((address_space(1)))*)at));
  }
};

template <class T>
struct Atom<Rdna4, T> : amd::ConsecutiveAtom<Rdna4, T, 8> {
  using Base = amd::ConsecutiveAtom<Rdna4, T, 8>;
  using typename Base::A, typename Base::B, typename Base::C;

  static ROCM_SD_DEVICE void mma(C& c, const A& a, const B& b) {
    amd::Vector<float, 8> acc = __builtin_bit_cast(decltype(acc), c);
    if constexpr (std::is_same_v<T, Bf16>)
      acc = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(a.k, b.k, acc);
    else
      acc = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a.k, b.k, acc);
    c = __builtin_bit_cast(C, acc);
  }
  static ROCM_SD_DEVICE float column_sum(float x) { return x + amd::other_half(x); }
  static ROCM_SD_DEVICE float column_max(float x) { return Rdna4::max(x, amd::other_half(x)); }
};

}  // namespace rocm_sd
