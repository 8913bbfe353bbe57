// The operations of atomics, as functions (old value, operand) -> new value, and their loop over lanes.
#pragma once

#include "emulator/lane_math.hpp"
#include "emulator/memory_core.hpp"

namespace rocm_sd::emu {

struct AtomicAdd {
  template <class T>
  T operator()(T old, T x) const {
    return old + x;
  }
};
struct AtomicSub {
  template <class T>
  T operator()(T old, T x) const {
    return old - x;
  }
};
struct AtomicReverseSub {
  template <class T>
  T operator()(T old, T x) const {
    return x - old;
  }
};
struct AtomicInc {
  template <class T>
  T operator()(T old, T x) const {
    return old >= x ? T(0) : old + 1;
  }
};
struct AtomicDec {
  template <class T>
  T operator()(T old, T x) const {
    return old == 0 || old > x ? x : old - 1;
  }
};
struct AtomicMin {
  template <class T>
  T operator()(T old, T x) const {
    return x < old ? x : old;
  }
};
struct AtomicMax {
  template <class T>
  T operator()(T old, T x) const {
    return x > old ? x : old;
  }
};
struct AtomicFloatMin {
  template <class T>
  T operator()(T old, T x) const {
    return ROCM_SD_ISA::min_num(old, x);
  }
};
struct AtomicFloatMax {
  template <class T>
  T operator()(T old, T x) const {
    return ROCM_SD_ISA::max_num(old, x);
  }
};
struct AtomicAnd {
  template <class T>
  T operator()(T old, T x) const {
    return old & x;
  }
};
struct AtomicOr {
  template <class T>
  T operator()(T old, T x) const {
    return old | x;
  }
};
struct AtomicXor {
  template <class T>
  T operator()(T old, T x) const {
    return old ^ x;
  }
};
struct AtomicSwap {
  template <class T>
  T operator()(T, T x) const {
    return x;
  }
};
struct AtomicPkAddF16 {
  uint32_t operator()(uint32_t old, uint32_t x) const {
    using namespace ROCM_SD_ISA;
    return float_to_half(half_to_float(old & 0xffff) + half_to_float(x & 0xffff)) |
           float_to_half(half_to_float(old >> 16) + half_to_float(x >> 16)) << 16;
  }
};
struct AtomicPkAddBf16 {
  uint32_t operator()(uint32_t old, uint32_t x) const {
    using namespace ROCM_SD_ISA;
    return float_to_bf16(bf16_to_float(old & 0xffff) + bf16_to_float(x & 0xffff)) |
           float_to_bf16(bf16_to_float(old >> 16) + bf16_to_float(x >> 16)) << 16;
  }
};

template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

// The value of an operand in one lane.
template <class T>
inline T lane_value(Wave& w, const Operand& o, uint32_t h, uint32_t l, uint32_t skip = 0) {
  alignas(64) uint32_t buffer[kRow];
  BitsOf<T> bits = ROCM_SD_ISA::raw_row(w, o, h, skip, buffer)[l];
  if constexpr (sizeof(T) == 8)
    bits |= static_cast<uint64_t>(ROCM_SD_ISA::raw_row(w, o, h, skip + 1, buffer)[l]) << 32;
  return __builtin_bit_cast(T, bits);
}

// apply(pointer, operand) -> old value, lane by lane from the lowest: the order that same-address atomics
// take.
template <class T, bool kReturn, class Apply>
inline void atomic_lanes(Wave& w, uint32_t dst, const Operand& data, const Pointers& p, Apply apply) {
  for (uint32_t h = 0; h < w.halves; ++h)
    for_active(p.active[h], [&](uint32_t l) {
      const T old = apply(p.at[h * kRow + l], lane_value<T>(w, data, h, l));
      if constexpr (kReturn) {
        const auto bits = static_cast<uint64_t>(__builtin_bit_cast(BitsOf<T>, old));
        ROCM_SD_ISA::vgpr(w, dst, h)[l] = static_cast<uint32_t>(bits);
        if constexpr (sizeof(T) == 8) ROCM_SD_ISA::vgpr(w, dst + 1, h)[l] = static_cast<uint32_t>(bits >> 32);
      }
    });
}

}  // namespace rocm_sd::emu
