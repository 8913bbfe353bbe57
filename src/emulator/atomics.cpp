// Global, flat and buffer atomics. Groups run on several host threads, hence real atomics on host memory.
#include <iterator>

#include "emulator/atomic_core.hpp"
#include "emulator/operations.hpp"

namespace rocm_sd::emu {
namespace {

enum class Space : uint8_t { kGlobal, kFlat, kBuffer };

// The operand that holds the data: buffer instructions name it first.
template <Space kSpace>
const Operand& data_of(const Inst& in) {
  return kSpace == Space::kBuffer ? in.src[0] : in.src[1];
}
template <Space kSpace>
void pointers(Wave& w, const Inst& in, uint32_t bytes, Pointers& p, uint32_t outside[2]) {
  if constexpr (kSpace == Space::kGlobal) global_pointers(w, in, in.src[0], in.src[2], bytes, p);
  if constexpr (kSpace == Space::kFlat) flat_pointers(w, in, in.src[0], bytes, p);
  if constexpr (kSpace == Space::kBuffer) {
    buffer_pointers(w, in, in.src[1], in.src[2], in.src[3], bytes, p, outside);
  }
  for (uint32_t h = 0; h < w.halves; ++h)
    for_active(p.active[h], [&](uint32_t l) {
      if (reinterpret_cast<uint64_t>(p.at[h * kRow + l]) % bytes)
        fault(w, in, concat("lane ", h * kRow + l, ": a misaligned atomic"));
    });
}

// What lanes beyond a buffer's end get.
void return_zeros(Wave& w, uint32_t dst, uint32_t dwords, const uint32_t outside[2]) {
  for (uint32_t h = 0; h < w.halves; ++h)
    for_active(outside[h], [&](uint32_t l) {
      for (uint32_t d = 0; d < dwords; ++d) ROCM_SD_ISA::vgpr(w, dst + d, h)[l] = 0;
    });
}

template <class T, class F, Space kSpace>
void atomic(Wave& w, const Inst& in) {
  Pointers p;
  uint32_t outside[2] = {};
  pointers<kSpace>(w, in, sizeof(T), p, outside);
  const auto apply = [](uint8_t* at, T operand) {
    auto* word = reinterpret_cast<BitsOf<T>*>(at);
    BitsOf<T> old = __atomic_load_n(word, __ATOMIC_RELAXED), next;
    do {
      next = __builtin_bit_cast(BitsOf<T>, F{}(__builtin_bit_cast(T, old), operand));
    } while (!__atomic_compare_exchange_n(word, &old, next, true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
    return __builtin_bit_cast(T, old);
  };
  const Operand& data = data_of<kSpace>(in);
  // A buffer atomic returns into its data register.
  const uint32_t dst = kSpace == Space::kBuffer ? data.reg : in.dst.reg;
  if (in.flags & kReturns)
    atomic_lanes<T, true>(w, dst, data, p, apply);
  else
    atomic_lanes<T, false>(w, dst, data, p, apply);
  if (in.flags & kReturns) return_zeros(w, dst, sizeof(T) / 4, outside);
}

// The data operand holds the new value, then the value to compare with.
template <class T, Space kSpace>
void compare_swap(Wave& w, const Inst& in) {
  constexpr uint32_t kDwords = sizeof(T) / 4;
  Pointers p;
  uint32_t outside[2] = {};
  pointers<kSpace>(w, in, sizeof(T), p, outside);
  const Operand& data = data_of<kSpace>(in);
  const uint32_t dst = kSpace == Space::kBuffer ? data.reg : in.dst.reg;
  for (uint32_t h = 0; h < w.halves; ++h)
    for_active(p.active[h], [&](uint32_t l) {
      const T next = lane_value<T>(w, data, h, l);
      T old = lane_value<T>(w, data, h, l, kDwords);
      __atomic_compare_exchange_n(reinterpret_cast<T*>(p.at[h * kRow + l]), &old, next, false,
                                  __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
      if (in.flags & kReturns)
        for (uint32_t d = 0; d < kDwords; ++d)
          ROCM_SD_ISA::vgpr(w, dst + d, h)[l] = static_cast<uint32_t>(static_cast<uint64_t>(old) >> (32 * d));
    });
  if (in.flags & kReturns) return_zeros(w, dst, kDwords, outside);
}

constexpr Type kA = Type::kWide;
constexpr Operation entry(const char* name, Handler run, uint8_t sources) {
  return {name, run, Class::kVmem, 0, sources, false, kA, {kA, kA, kA, Type::kB32}};
}
#define IN_ALL_SPACES(name, T, F)                                 \
  entry("global_atomic_" name, &atomic<T, F, Space::kGlobal>, 3), \
      entry("flat_atomic_" name, &atomic<T, F, Space::kFlat>, 2), \
      entry("buffer_atomic_" name, &atomic<T, F, Space::kBuffer>, 4)
#define COMPARE_SWAP(name, T)                                        \
  entry("global_atomic_" name, &compare_swap<T, Space::kGlobal>, 3), \
      entry("flat_atomic_" name, &compare_swap<T, Space::kFlat>, 2), \
      entry("buffer_atomic_" name, &compare_swap<T, Space::kBuffer>, 4)
#define INTEGERS(u, i, b, U, I)                                                       \
  IN_ALL_SPACES("add_" u, U, AtomicAdd), IN_ALL_SPACES("sub_" u, U, AtomicSub),       \
      IN_ALL_SPACES("min_" i, I, AtomicMin), IN_ALL_SPACES("max_" i, I, AtomicMax),   \
      IN_ALL_SPACES("min_" u, U, AtomicMin), IN_ALL_SPACES("max_" u, U, AtomicMax),   \
      IN_ALL_SPACES("and_" b, U, AtomicAnd), IN_ALL_SPACES("or_" b, U, AtomicOr),     \
      IN_ALL_SPACES("xor_" b, U, AtomicXor), IN_ALL_SPACES("inc_" u, U, AtomicInc),   \
      IN_ALL_SPACES("dec_" u, U, AtomicDec), IN_ALL_SPACES("swap_" b, U, AtomicSwap), \
      COMPARE_SWAP("cmpswap_" b, U)
// gfx9's names: the width only where it is 64.
#define GFX9_INTEGERS(suffix, U, I)                                                           \
  IN_ALL_SPACES("add" suffix, U, AtomicAdd), IN_ALL_SPACES("sub" suffix, U, AtomicSub),       \
      IN_ALL_SPACES("smin" suffix, I, AtomicMin), IN_ALL_SPACES("smax" suffix, I, AtomicMax), \
      IN_ALL_SPACES("umin" suffix, U, AtomicMin), IN_ALL_SPACES("umax" suffix, U, AtomicMax), \
      IN_ALL_SPACES("and" suffix, U, AtomicAnd), IN_ALL_SPACES("or" suffix, U, AtomicOr),     \
      IN_ALL_SPACES("xor" suffix, U, AtomicXor), IN_ALL_SPACES("inc" suffix, U, AtomicInc),   \
      IN_ALL_SPACES("dec" suffix, U, AtomicDec), IN_ALL_SPACES("swap" suffix, U, AtomicSwap), \
      COMPARE_SWAP("cmpswap" suffix, U)

constexpr Operation kTable[] = {
    INTEGERS("u32", "i32", "b32", uint32_t, int32_t),
    INTEGERS("u64", "i64", "b64", uint64_t, int64_t),
    GFX9_INTEGERS("", uint32_t, int32_t),
    GFX9_INTEGERS("_x2", uint64_t, int64_t),
    IN_ALL_SPACES("add_f32", float, AtomicAdd),
    IN_ALL_SPACES("add_f64", double, AtomicAdd),
    IN_ALL_SPACES("min_f32", float, AtomicFloatMin),
    IN_ALL_SPACES("max_f32", float, AtomicFloatMax),
    IN_ALL_SPACES("min_num_f32", float, AtomicFloatMin),
    IN_ALL_SPACES("max_num_f32", float, AtomicFloatMax),
    IN_ALL_SPACES("min_f64", double, AtomicFloatMin),
    IN_ALL_SPACES("max_f64", double, AtomicFloatMax),
    IN_ALL_SPACES("pk_add_f16", uint32_t, AtomicPkAddF16),
    IN_ALL_SPACES("pk_add_bf16", uint32_t, AtomicPkAddBf16),
};

}  // namespace

Operations atomic_operations() { return {kTable, std::size(kTable)}; }

}  // namespace rocm_sd::emu
