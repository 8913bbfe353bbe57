// What the AMD families share: work-item ids, barriers, LDS, and maths by the compiler's builtins and OCML.
#pragma once

#include <type_traits>

#include "composable_kernels/arch/policies.hpp"
#include "composable_kernels/chunk16.hpp"
#include "composable_kernels/types.hpp"

extern "C" {
__attribute__((device, const)) float __ocml_erfc_f32(float);
__attribute__((device, const)) float __ocml_tanh_f32(float);
__attribute__((device)) float __ocml_sin_f32(float);
__attribute__((device)) float __ocml_cos_f32(float);
}

namespace rocm_sd {
namespace amd {

// What no builtin of clang 19 names.
typedef __attribute__((address_space(3))) void* LdsPointer;
__attribute__((device)) void raw_buffer_load_to_lds(
    __amdgpu_buffer_rsrc_t from, LdsPointer to, int bytes, int lane_offset, int scalar_offset, int offset,
    int cache_policy) __asm("llvm.amdgcn.raw.ptr.buffer.load.lds");

}  // namespace amd

// kLanes: of a wave.
template <int kLanes>
struct Amd {
  static constexpr int lanes = kLanes;
  static constexpr TileCopies kTileCopies = TileCopies::kThroughRegisters;
  static constexpr EpilogueCode kEpilogueCode = EpilogueCode::kUnrolled;
  // Pieces whose loads an epilogue keeps under way together: more of them cost registers that the
  // accumulators hold.
  static constexpr int kEpilogueLoads = 1;
  static constexpr bool kFewSpecials = false;
  static constexpr bool kFoldsLate =
      true;  // lanes exchange a softmax's maxima only where these move its base
  // A softmax's weights lose the bits that 16-bit elements lack in place of being rounded: one instruction
  // for two. They are summed as they are multiplied, so that what is lost cancels but for its scatter, which
  // is that of rounding.
  static constexpr bool kCutsWeights = true;
  // Workgroups that share a tile of a product sum its parts themselves (tile/tile_parts.hpp); else another
  // launch does.
  static constexpr bool kSumsParts = true;
  static constexpr bool kStagesHalves = true;  // the output's staging keeps a piece's channels in two halves
  // A GEGLU of operands of T is gated where its accumulators lie. RDNA lacks the registers for what 8 bits
  // need.
  template <class T>
  static constexpr bool kGatesInRegisters = sizeof(T) >= 2 || kLanes == 64;
  static constexpr bool kDeepAtoms = kLanes == 64;  // a lane reads 16 bytes of a row for two atoms at once

  static ROCM_SD_DEVICE int thread() { return static_cast<int>(__builtin_amdgcn_workitem_id_x()); }
  static ROCM_SD_DEVICE int lane() { return thread() % lanes; }
  // The lane's place in the order in which LDS serves 16-byte reads, eight lanes at a time: on CDNA four
  // neighbours and four of the other half of their 32 (Composable Kernel's documentation of LDS bank
  // conflicts).
  static ROCM_SD_DEVICE int wide_read_order() {
    if constexpr (kLanes == 32) return lane();
    const int upper = lane() / 16 % 2;
    return lane() / 32 * 32 + (lane() / 4 % 4 ^ upper) * 8 + upper * 4 + lane() % 4;
  }
  static ROCM_SD_DEVICE uint32_t group_x() { return __builtin_amdgcn_workgroup_id_x(); }
  static ROCM_SD_DEVICE uint32_t group_y() { return __builtin_amdgcn_workgroup_id_y(); }
  static ROCM_SD_DEVICE uint32_t group_z() { return __builtin_amdgcn_workgroup_id_z(); }
  // A value that is the same in all lanes of the wave, made known as such (a scalar register).
  static ROCM_SD_DEVICE int uniform(int x) { return __builtin_amdgcn_readfirstlane(x); }
  static ROCM_SD_DEVICE void barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
  }
  // What the wave's lanes wrote to LDS before, its lanes see after.
  static ROCM_SD_DEVICE void wave_barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
  }
  // The workgroup's LDS, aligned to 16; every call with one size and number is the same memory. Of parts with
  // different numbers the compiler knows that a load to one is no reason to wait before a read of another.
  template <int kBytes, int kNumber = 0>
  static ROCM_SD_DEVICE char* lds() {
    __shared__ Vec8<Half> data[(kBytes + 15) / 16];
    return reinterpret_cast<char*>(data);
  }

  // 16 bytes from `offset` bytes after a base that is the same in all lanes: zeros where the offset is
  // kNowhere or more. "Buffer resource" in the ISA documents: raw, of 2^31 bytes.
  static constexpr bool kBufferLoads = true;
  static constexpr bool kTransposingLoads = false;  // of a matrix, on its way from memory: RDNA 4
  static constexpr uint32_t kNowhere = 0x80000000u;
  using Buffer = __amdgpu_buffer_rsrc_t;
  // bytes: beyond them, too, loads give zeros.
  static ROCM_SD_DEVICE Buffer buffer(const void* base, uint32_t bytes = kNowhere) {
    constexpr int kFormat = kLanes == 64 ? 0x00020000 : 0x31004000;
    return __builtin_amdgcn_make_buffer_rsrc(const_cast<void*>(base), 0, static_cast<int>(bytes), kFormat);
  }
  template <class Words>
  static ROCM_SD_DEVICE Words load_buffer(Buffer from, uint32_t offset) {
    return __builtin_bit_cast(Words,
                              __builtin_amdgcn_raw_buffer_load_b128(from, static_cast<int>(offset), 0, 0));
  }

  // Loads to LDS without a register between, of CDNA ("buffer_load_dword ... lds"; gfx950 has another one of
  // 16 bytes): the lanes of the wave write kLdsLoadBytes each, one behind the other from `to` + kOffset on,
  // which is the same in all lanes. kOffset counts on both sides: lane_offset + kOffset bytes after the base
  // they read. Lanes that are out of the buffer's range write zeros. Whoever reads them waits for the wave's
  // loads (wait_loads()) and, where another wave reads, for a barrier after that.
#if defined(__gfx950__)
  static constexpr int kLdsLoadBytes = 16;
#else
  static constexpr int kLdsLoadBytes = 4;
#endif
  static constexpr int kMaxLoadOffset = 4095;
  template <int kOffset>
  static ROCM_SD_DEVICE void load_to_lds(Buffer from, uint32_t lane_offset, void* to) {
    static_assert(kOffset >= 0 && kOffset <= kMaxLoadOffset);
    amd::raw_buffer_load_to_lds(from, (amd::LdsPointer)to, kLdsLoadBytes, static_cast<int>(lane_offset), 0,
                                kOffset, 0);
  }
  // Until at most kLeft of the wave's loads are under way.
  template <int kLeft>
  static ROCM_SD_DEVICE void wait_loads() {
    static_assert(kLanes == 64 && kLeft >= 0 && kLeft < 64);
    __builtin_amdgcn_s_waitcnt(0xf70 | (kLeft & 15) | kLeft >> 4 << 14);  // vmcnt alone
  }

  // Two floats of neighbouring registers and of one column take one instruction (v_pk_add_f32), or two that
  // are issued together (v_dual_add_f32).
  static constexpr bool kFloatPairs = true;
  static ROCM_SD_DEVICE void scale_pair(float& a, float& b, float scale, float from) {
    typedef float Two __attribute__((ext_vector_type(2)));
    const Two scaled = Two{a, b} * Two{scale, scale} - Two{from, from};
    a = scaled.x;
    b = scaled.y;
  }

  // The lower, or the upper, 16 bits of two words, those of the first below.
  static ROCM_SD_DEVICE uint32_t low_halves(uint32_t first, uint32_t second) {
    return __builtin_amdgcn_perm(second, first, 0x05040100);
  }
  static ROCM_SD_DEVICE uint32_t high_halves(uint32_t first, uint32_t second) {
    return __builtin_amdgcn_perm(second, first, 0x07060302);
  }

  // The kernel's one argument once more, to be read from here on and not before: what only an epilogue needs
  // would else lie in scalar registers while the main loop runs.
  template <class Params>
  static ROCM_SD_DEVICE const Params& kernel_argument(const Params&) {
    auto at = __builtin_amdgcn_kernarg_segment_ptr();
    asm volatile("" : "+s"(at));
    return *(const Params*)at;
  }

  // The same number, of which the compiler knows only that it is the same in all lanes.
  static ROCM_SD_DEVICE int opaque(int x) {
    asm("" : "+s"(x));
    return x;
  }
  // The same number, in each lane its own, with which the compiler computes nothing before this point.
  static ROCM_SD_DEVICE int late(int x) {
    asm volatile("" : "+v"(x));
    return x;
  }
  // The compiler moves no instruction past this point.
  static ROCM_SD_DEVICE void fence_schedule() { __builtin_amdgcn_sched_barrier(0); }

  static ROCM_SD_DEVICE float shuffle_xor(float x, int mask) {
    return __builtin_bit_cast(float, shuffle_xor(__builtin_bit_cast(int, x), mask));
  }
  static ROCM_SD_DEVICE int shuffle_xor(int x, int mask) {
    return __builtin_amdgcn_ds_bpermute((lane() ^ mask) * 4, x);
  }
  static ROCM_SD_DEVICE double shuffle_xor(double x, int mask) {
    const auto bits = __builtin_bit_cast(uint64_t, x);
    const auto low = static_cast<uint32_t>(shuffle_xor(static_cast<int>(bits), mask));
    const auto high = static_cast<uint32_t>(shuffle_xor(static_cast<int>(bits >> 32), mask));
    return __builtin_bit_cast(double, static_cast<uint64_t>(high) << 32 | low);
  }
  template <class Number>
  static ROCM_SD_DEVICE Number wave_sum(Number x) {
    for (int mask = lanes / 2; mask > 0; mask /= 2) x += shuffle_xor(x, mask);
    return x;
  }
  static ROCM_SD_DEVICE float wave_max(float x) {
    for (int mask = lanes / 2; mask > 0; mask /= 2) x = max(x, shuffle_xor(x, mask));
    return x;
  }

  // Whether the value is true in any lane of the wave.
  static ROCM_SD_DEVICE bool any(bool x) {
    if constexpr (lanes == 32)
      return __builtin_amdgcn_ballot_w32(x) != 0;
    else
      return __builtin_amdgcn_ballot_w64(x) != 0;
  }

  static ROCM_SD_DEVICE float max(float a, float b) { return __builtin_fmaxf(a, b); }
  static ROCM_SD_DEVICE float abs(float x) { return __builtin_fabsf(x); }
  // v_exp_f32, v_log_f32, v_rcp_f32: 1 ulp; denormal results are flushed.
  static ROCM_SD_DEVICE float exp2(float x) { return __builtin_amdgcn_exp2f(x); }
  static ROCM_SD_DEVICE float exp(float x) { return exp2(x * 1.44269504088896f); }
  static ROCM_SD_DEVICE float log(float x) { return __builtin_amdgcn_logf(x) * 0.693147180559945f; }
  static ROCM_SD_DEVICE float reciprocal(float x) { return __builtin_amdgcn_rcpf(x); }
  static ROCM_SD_DEVICE float round(float x) { return __builtin_rintf(x); }  // half to even
  static ROCM_SD_DEVICE float sqrt(float x) { return __builtin_sqrtf(x); }
  static ROCM_SD_DEVICE double sqrt(double x) { return __builtin_sqrt(x); }
  static ROCM_SD_DEVICE float erfc(float x) { return __ocml_erfc_f32(x); }
  static ROCM_SD_DEVICE float tanh(float x) { return __ocml_tanh_f32(x); }
  static ROCM_SD_DEVICE float sin(float x) { return __ocml_sin_f32(x); }
  static ROCM_SD_DEVICE float cos(float x) { return __ocml_cos_f32(x); }
};

namespace amd {

// The value of the lane 16 away in a wave of 32. LLVM before 21 does not know that v_permlanex16 depends on
// which lanes run, and sinks it into branches (llvm/llvm-project pull request 142962): the empty statement,
// which it does know to stay, holds it.
ROCM_SD_DEVICE uint32_t other_half(uint32_t x) {
  uint32_t y = __builtin_amdgcn_permlanex16(x, x, 0x76543210, 0xfedcba98, true, false);
  asm("" : "+v"(y));
  return y;
}
ROCM_SD_DEVICE float other_half(float x) {
  return __builtin_bit_cast(float, other_half(__builtin_bit_cast(uint32_t, x)));
}

template <class T, int kCount>
using Vector = T __attribute__((ext_vector_type(kCount)));

// Elements as the matrix builtins take them: _Float16 for Half, short for Bf16.
template <class T>
struct Raw;
template <>
struct Raw<Half> {
  using Type = _Float16;
};
template <>
struct Raw<Bf16> {
  using Type = short;
};

template <class Vec>
ROCM_SD_DEVICE Vec load_vector(const void* from) {
  return *static_cast<const Vec*>(from);
}
template <class T>
ROCM_SD_DEVICE typename Raw<T>::Type raw(float x) {
  T stored;
  store(stored, x);
  return __builtin_bit_cast(typename Raw<T>::Type, stored);
}
template <class T>
ROCM_SD_DEVICE typename Raw<T>::Type raw(T x) {
  return __builtin_bit_cast(typename Raw<T>::Type, x);
}

// Two floats as a word of two elements, the first in its lower half, rounded to nearest even. A NaN stays one
// unless its payload is all ones: four instructions less than store() has for bf16.
template <class T>
ROCM_SD_DEVICE uint32_t pack(float low, float high) {
  if constexpr (std::is_same_v<T, Bf16>) {
    const auto a = __builtin_bit_cast(uint32_t, low), b = __builtin_bit_cast(uint32_t, high);
    const uint32_t x = a + 0x7fff + (a >> 16 & 1), y = b + 0x7fff + (b >> 16 & 1);
    return __builtin_amdgcn_perm(y, x, 0x07060302);
  } else {
    // Times one that the compiler does not know: by v_fma_mixlo_f16 and v_fma_mixhi_f16, which write a half
    // of a register each, instead of two conversions and what puts their results together.
    float one = 1;
    asm("" : "+s"(one));
    const Vector<_Float16, 2> pair = {static_cast<_Float16>(low * one), static_cast<_Float16>(high * one)};
    return __builtin_bit_cast(uint32_t, pair);
  }
}

// Two floats, at least 0, as a word of two elements, the first in its lower half, cut off.
template <class T>
ROCM_SD_DEVICE uint32_t cut(float low, float high) {
  if constexpr (std::is_same_v<T, Bf16>)
    return __builtin_amdgcn_perm(__builtin_bit_cast(uint32_t, high), __builtin_bit_cast(uint32_t, low),
                                 0x07060302);
  else
    return __builtin_bit_cast(uint32_t, __builtin_amdgcn_cvt_pkrtz(low, high));
}
// sum + both elements of a word. CDNA has no such instruction for bf16.
template <class Arch, class T>
ROCM_SD_DEVICE float add_elements(uint32_t word, float sum) {
  if constexpr (std::is_same_v<T, Half>) {
    return __builtin_amdgcn_fdot2(__builtin_bit_cast(Vector<_Float16, 2>, word), Vector<_Float16, 2>{1, 1},
                                  sum, false);
  } else if constexpr (Arch::lanes == 32) {
    return __builtin_amdgcn_fdot2_f32_bf16(__builtin_bit_cast(Vector<__bf16, 2>, word),
                                           __builtin_bit_cast(Vector<__bf16, 2>, 0x3f803f80), sum, false);
  } else {
    return sum + __builtin_bit_cast(float, word << 16) + __builtin_bit_cast(float, word & 0xffff0000u);
  }
}
// cut(); kSum: what it returns is added to sum.
template <class Arch, class T, bool kSum>
ROCM_SD_DEVICE uint32_t cut_and_sum(float low, float high, float& sum) {
  const uint32_t word = cut<T>(low, high);
  if constexpr (kSum) sum = add_elements<Arch, T>(word, sum);
  return word;
}

}  // namespace amd
}  // namespace rocm_sd
