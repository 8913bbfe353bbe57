// WinogradUnit of the AMD families: packed instructions of f16, buffer loads. Fragment maps: their atoms.
#pragma once

#include "composable_kernels/arch/amd.hpp"
#include "composable_kernels/arch/winograd_unit.hpp"

namespace rocm_sd {

template <class Arch>
struct WinogradUnit {
  using Atom = rocm_sd::Atom<Arch, Half>;
  using Pair = amd::Vector<_Float16, 2>;
  using Four = amd::Vector<_Float16, 4>;
  using Eight = amd::Vector<_Float16, 8>;

  static ROCM_SD_DEVICE Pair pair(uint32_t x) { return __builtin_bit_cast(Pair, x); }
  static ROCM_SD_DEVICE uint32_t word(Pair x) { return __builtin_bit_cast(uint32_t, x); }
  static ROCM_SD_DEVICE Pair both(float s) { return {static_cast<_Float16>(s), static_cast<_Float16>(s)}; }

  static ROCM_SD_DEVICE uint32_t times(uint32_t a, float s) { return word(pair(a) * both(s)); }
  static ROCM_SD_DEVICE uint32_t fma(uint32_t a, float s, uint32_t c) {
    return word(__builtin_elementwise_fma(pair(a), both(s), pair(c)));
  }
  static ROCM_SD_DEVICE uint32_t add(uint32_t a, uint32_t b) { return word(pair(a) + pair(b)); }
  static ROCM_SD_DEVICE uint32_t sub(uint32_t a, uint32_t b) { return word(pair(a) - pair(b)); }

  // load(row, piece, skip): so many bytes as a half of A, or A, has, from element `skip` of the piece on.
  template <class Load>
  static ROCM_SD_DEVICE typename Atom::A fragment(const Load& load) {
    using A = typename Atom::A;
    const int row = Arch::lane() % 16;
    if constexpr (sizeof(A) == 32) {  // all 16 k of the row
      const auto low = load.template operator()<Eight>(row, 0, 0),
                 high = load.template operator()<Eight>(row, 1, 0);
      return {__builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)};
    } else if constexpr (sizeof(A) == 16) {  // 8 of them
      return { load.template operator()<Eight>(row, Arch::lane() / 16, 0) };
    } else {  // 4 of them
      return { load.template operator()<Four>(row, Arch::lane() / 32, Arch::lane() / 16 % 2 * 4) };
    }
  }
  static ROCM_SD_DEVICE typename Atom::A load_a(const Half* block) {
    const auto from = Arch::buffer(block);
    return fragment([&]<class Words>(int row, int piece, int skip) {
      return load_at<Words>(from, static_cast<uint32_t>(piece * 128 + row * 8 + skip) * 2);
    });
  }
  template <class At>
  static ROCM_SD_DEVICE typename Atom::B load_b(const At& at) {
    return fragment([&]<class Words>(int row, int piece, int skip) {
      return amd::load_vector<Words>(at(row, piece) + skip);
    });
  }

  // Statements of different immediates, which say what the scheduler may move past them.
  static ROCM_SD_DEVICE void keep_apart(int branch) {
    switch (branch % 8) {
      case 0: return __builtin_amdgcn_sched_barrier(0);
      case 1: return __builtin_amdgcn_sched_barrier(1);
      case 2: return __builtin_amdgcn_sched_barrier(2);
      case 3: return __builtin_amdgcn_sched_barrier(4);
      case 4: return __builtin_amdgcn_sched_barrier(8);
      case 5: return __builtin_amdgcn_sched_barrier(16);
      case 6: return __builtin_amdgcn_sched_barrier(32);
      default: return __builtin_amdgcn_sched_barrier(64);
    }
  }

  static constexpr uint32_t kNowhere = Arch::kNowhere;
  static ROCM_SD_DEVICE auto buffer(const void* base) { return Arch::buffer(base); }
  static ROCM_SD_DEVICE HalfQuad load_window(typename Arch::Buffer from, uint32_t at) {
    return load_at<HalfQuad>(from, at);
  }

 private:
  template <class Words>
  static ROCM_SD_DEVICE Words load_at(typename Arch::Buffer from, uint32_t at) {
    if constexpr (sizeof(Words) == 16)
      return Arch::template load_buffer<Words>(from, at);
    else
      return __builtin_bit_cast(Words,
                                __builtin_amdgcn_raw_buffer_load_b64(from, static_cast<int>(at), 0, 0));
  }
};

}  // namespace rocm_sd
