// WinogradUnit of NVIDIA: half2 arithmetic; ldmatrix from shared memory, words from global memory. Fragment
// maps: Atom<Nvidia, T>.
#pragma once

#include "composable_kernels/arch/nvidia.hpp"
#include "composable_kernels/arch/winograd_unit.hpp"

namespace rocm_sd {

template <class Arch>
struct WinogradUnit {
  using Atom = rocm_sd::Atom<Nvidia, Half>;

  static ROCM_SD_DEVICE __half2 pair(uint32_t x) { return *reinterpret_cast<__half2*>(&x); }
  static ROCM_SD_DEVICE uint32_t word(__half2 x) { return *reinterpret_cast<uint32_t*>(&x); }

  static ROCM_SD_DEVICE uint32_t times(uint32_t a, float s) {
    return word(__hmul2(pair(a), __float2half2_rn(s)));
  }
  static ROCM_SD_DEVICE uint32_t fma(uint32_t a, float s, uint32_t c) {
    return word(__hfma2(pair(a), __float2half2_rn(s), pair(c)));
  }
  static ROCM_SD_DEVICE uint32_t add(uint32_t a, uint32_t b) { return word(__hadd2(pair(a), pair(b))); }
  static ROCM_SD_DEVICE uint32_t sub(uint32_t a, uint32_t b) { return word(__hsub2(pair(a), pair(b))); }

  static ROCM_SD_DEVICE typename Atom::A load_a(const Half* block) {
    const Half* const from = block + Nvidia::lane() / 4 * 8 + Nvidia::lane() % 4 * 2;
    typename Atom::A a;
    ROCM_SD_UNROLL
    for (int i = 0; i < 4; ++i) a.r[i] = *reinterpret_cast<const uint32_t*>(from + i % 2 * 128 + i / 2 * 64);
    return a;
  }
  template <class At>
  static ROCM_SD_DEVICE typename Atom::B load_b(const At& at) {
    const int matrix = Nvidia::lane() / 8, line = Nvidia::lane() % 8;
    typename Atom::B b;
    load_matrices(b.r, at(matrix % 2 * 8 + line, matrix / 2));
    return b;
  }

  static ROCM_SD_DEVICE void keep_apart(int) {}

  static constexpr uint32_t kNowhere = 0x80000000u;
  static ROCM_SD_DEVICE const char* buffer(const void* base) { return static_cast<const char*>(base); }
  static ROCM_SD_DEVICE HalfQuad load_window(const char* from, uint32_t at) {
    return at < kNowhere ? *reinterpret_cast<const HalfQuad*>(from + at) : HalfQuad{};
  }
};

}  // namespace rocm_sd
