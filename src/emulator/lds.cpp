// LDS instructions (ds_*): loads, stores, atomics, and the lane shuffles that share their encoding.
#include <algorithm>
#include <iterator>

#include "emulator/atomic_core.hpp"
#include "emulator/memory_core.hpp"
#include "emulator/operations.hpp"

namespace rocm_sd::emu {
namespace {

using ROCM_SD_ISA::exec_of;
using ROCM_SD_ISA::raw_row;
using ROCM_SD_ISA::store_row;
using ROCM_SD_ISA::vgpr;

template <class Width>
void ds_load(Wave& w, const Inst& in) {
  Pointers p;
  lds_pointers(w, in, in.src[0], static_cast<uint32_t>(in.offset), Width::bytes, p);
  Width::load(w, in.dst.reg, p);
}
template <class Width>
void ds_store(Wave& w, const Inst& in) {
  Pointers p;
  lds_pointers(w, in, in.src[0], static_cast<uint32_t>(in.offset), Width::bytes, p);
  Width::store(w, in.src[1], p);
}
// Two elements of kDwords at offset0 and offset1, which count elements (or 64 of them).
template <int kDwords, int kStride>
void ds_load_two(Wave& w, const Inst& in) {
  constexpr uint32_t kUnit = 4 * kDwords * kStride;
  Pointers first, second;
  lds_pointers(w, in, in.src[0], static_cast<uint32_t>(in.offset) * kUnit, 4 * kDwords, first);
  lds_pointers(w, in, in.src[0], static_cast<uint32_t>(in.offset1) * kUnit, 4 * kDwords, second);
  load_dwords<kDwords>(w, in.dst.reg, first);
  load_dwords<kDwords>(w, in.dst.reg + kDwords, second);
}
template <int kDwords, int kStride>
void ds_store_two(Wave& w, const Inst& in) {
  constexpr uint32_t kUnit = 4 * kDwords * kStride;
  Pointers first, second;
  lds_pointers(w, in, in.src[0], static_cast<uint32_t>(in.offset) * kUnit, 4 * kDwords, first);
  lds_pointers(w, in, in.src[0], static_cast<uint32_t>(in.offset1) * kUnit, 4 * kDwords, second);
  store_dwords<kDwords>(w, in.src[1], first);
  store_dwords<kDwords>(w, in.src[2], second);
}

// A group runs on one host thread, so that its LDS needs no host atomics.
template <class T, class F, bool kReturn>
void ds_atomic(Wave& w, const Inst& in) {
  Pointers p;
  lds_pointers(w, in, in.src[0], static_cast<uint32_t>(in.offset), sizeof(T), p);
  atomic_lanes<T, kReturn>(w, in.dst.reg, in.src[1], p, [](uint8_t* at, T operand) {
    T old;
    std::memcpy(&old, at, sizeof(T));
    const T next = F{}(old, operand);
    std::memcpy(at, &next, sizeof(T));
    return old;
  });
}
// Compare and store: gfx9's order of data operands is (compare, new), the later one (new, compare).
template <class T, bool kReturn, bool kCompareFirst>
void ds_compare(Wave& w, const Inst& in) {
  constexpr int kDwords = sizeof(T) / 4;
  Pointers p;
  lds_pointers(w, in, in.src[0], static_cast<uint32_t>(in.offset), sizeof(T), p);
  for (uint32_t h = 0; h < w.halves; ++h)
    for_active(p.active[h], [&](uint32_t l) {
      const T first = lane_value<T>(w, in.src[1], h, l), second = lane_value<T>(w, in.src[2], h, l);
      T old;
      std::memcpy(&old, p.at[h * kRow + l], sizeof(T));
      if (old == (kCompareFirst ? first : second))
        std::memcpy(p.at[h * kRow + l], kCompareFirst ? &second : &first, sizeof(T));
      if (kReturn)
        for (int d = 0; d < kDwords; ++d)
          vgpr(w, in.dst.reg + d, h)[l] = static_cast<uint32_t>(static_cast<uint64_t>(old) >> (32 * d));
    });
}

// ---- shuffles through the LDS crossbar; no memory is touched ----

// Lanes that an index may reach: the whole wave on gfx9, one half of it later.
uint32_t reach(const Wave& w) { return w.program->target.gfx9 ? w.lanes : 32; }

void bpermute(Wave& w, const Inst& in) {  // pull; an inactive source gives 0
  alignas(64) uint32_t index[64], data[64], buffer[kRow], result[kRow];
  for (uint32_t h = 0; h < w.halves; ++h) {
    std::memcpy(index + h * kRow, raw_row(w, in.src[0], h, 0, buffer), sizeof(buffer));
    std::memcpy(data + h * kRow, raw_row(w, in.src[1], h, 0, buffer), sizeof(buffer));
  }
  const uint32_t lanes = reach(w);
  for (uint32_t h = 0; h < w.halves; ++h) {
    if (!exec_of(w, h)) continue;
    for (uint32_t l = 0; l < kRow; ++l) {
      const uint32_t at = (index[h * kRow + l] + static_cast<uint32_t>(in.offset)) >> 2 & (lanes - 1);
      const uint32_t from = lanes == 64 ? at : h * kRow + at;
      result[l] = exec_of(w, from / kRow) >> (from % kRow) & 1 ? data[from] : 0;
    }
    store_row(w, in.dst.reg, h, result);
  }
}
void permute(Wave& w, const Inst& in) {  // push; the highest lane wins, lanes that nobody writes get 0
  alignas(64) uint32_t result[64] = {}, b0[kRow], b1[kRow];
  const uint32_t lanes = reach(w);
  for (uint32_t h = 0; h < w.halves; ++h) {
    const uint32_t* index = raw_row(w, in.src[0], h, 0, b0);
    const uint32_t* data = raw_row(w, in.src[1], h, 0, b1);
    for_active(exec_of(w, h), [&](uint32_t l) {
      const uint32_t at = (index[l] + static_cast<uint32_t>(in.offset)) >> 2 & (lanes - 1);
      result[lanes == 64 ? at : h * kRow + at] = data[l];
    });
  }
  for (uint32_t h = 0; h < w.halves; ++h) store_row(w, in.dst.reg, h, result + h * kRow);
}
void swizzle(Wave& w, const Inst& in) {
  alignas(64) uint32_t buffer[kRow], result[kRow];
  const auto control = static_cast<uint32_t>(in.offset);
  for (uint32_t h = 0; h < w.halves; ++h) {
    const uint32_t exec = exec_of(w, h);
    if (!exec) continue;
    const uint32_t* data = raw_row(w, in.src[0], h, 0, buffer);
    for (uint32_t l = 0; l < kRow; ++l) {
      uint32_t from;
      if (control >= 0xc000) {  // rotation of 32 lanes
        const uint32_t count = control >> 5 & 31, keep = control & 31,
                       by = control >> 10 & 1 ? 32 - count : count;
        from = (l & keep) | ((l + by) & 31 & ~keep);
      } else if (control & 0x8000) {
        from = (l & ~3u) | (control >> (2 * (l & 3)) & 3);
      } else {
        from = (((l & (control & 31)) | (control >> 5 & 31)) ^ (control >> 10 & 31)) & 31;
      }
      result[l] = exec >> from & 1 ? data[from] : 0;
    }
    store_row(w, in.dst.reg, h, result);
  }
}
// Adds the number of active lanes to a dword, or subtracts it; all get what it was.
template <bool kAppend>
void append(Wave& w, const Inst& in) {
  Pointers p;
  shared_pointer(w, in, (w.sgpr[kM0] & 0xffff) + static_cast<uint32_t>(in.offset), p);
  uint32_t lanes = 0, old = 0;
  for (uint32_t h = 0; h < w.halves; ++h) lanes += static_cast<uint32_t>(__builtin_popcount(exec_of(w, h)));
  for (uint32_t h = 0; h < w.halves; ++h)
    for_active(p.active[h], [&](uint32_t l) {
      std::memcpy(&old, p.at[h * kRow + l], 4);
      const uint32_t next = kAppend ? old + lanes : old - lanes;
      std::memcpy(p.at[h * kRow + l], &next, 4);
    });
  alignas(64) uint32_t row[kRow];
  std::fill_n(row, kRow, old);
  for (uint32_t h = 0; h < w.halves; ++h) store_row(w, in.dst.reg, h, row);
}
void nothing(Wave&, const Inst&) {}

constexpr Type kA = Type::kWide;
constexpr Operation entry(const char* name, Handler run, uint8_t dsts, uint8_t sources) {
  return {name, run, Class::kLds, dsts, sources, false, kA, {kA, kA, kA}};
}
#define DS_LOAD(name, W) entry(name, &ds_load<W>, 1, 1)
#define DS_STORE(name, W) entry(name, &ds_store<W>, 0, 2)
#define DS_ATOMIC(name, suffix, T, F)                          \
  entry("ds_" name "_" suffix, &ds_atomic<T, F, false>, 0, 2), \
      entry("ds_" name "_rtn_" suffix, &ds_atomic<T, F, true>, 1, 2)
#define DS_INTEGERS(u, i, b, U, I)                                                                           \
  DS_ATOMIC("add", u, U, AtomicAdd), DS_ATOMIC("sub", u, U, AtomicSub),                                      \
      DS_ATOMIC("rsub", u, U, AtomicReverseSub), DS_ATOMIC("inc", u, U, AtomicInc),                          \
      DS_ATOMIC("dec", u, U, AtomicDec), DS_ATOMIC("min", i, I, AtomicMin),                                  \
      DS_ATOMIC("max", i, I, AtomicMax), DS_ATOMIC("min", u, U, AtomicMin),                                  \
      DS_ATOMIC("max", u, U, AtomicMax), DS_ATOMIC("and", b, U, AtomicAnd), DS_ATOMIC("or", b, U, AtomicOr), \
      DS_ATOMIC("xor", b, U, AtomicXor),                                                                     \
      entry("ds_storexchg_rtn_" b, &ds_atomic<U, AtomicSwap, true>, 1, 2),                                   \
      entry("ds_wrxchg_rtn_" b, &ds_atomic<U, AtomicSwap, true>, 1, 2),                                      \
      entry("ds_cmpstore_" b, &ds_compare<U, false, false>, 0, 3),                                           \
      entry("ds_cmpstore_rtn_" b, &ds_compare<U, true, false>, 1, 3),                                        \
      entry("ds_cmpst_" b, &ds_compare<U, false, true>, 0, 3),                                               \
      entry("ds_cmpst_rtn_" b, &ds_compare<U, true, true>, 1, 3)

constexpr Operation kTable[] = {
    ROCM_SD_LOADS(DS_LOAD, "ds_"),
    ROCM_SD_STORES(DS_STORE, "ds_"),
    entry("ds_load_2addr_b32", &ds_load_two<1, 1>, 1, 1),
    entry("ds_load_2addr_b64", &ds_load_two<2, 1>, 1, 1),
    entry("ds_load_2addr_stride64_b32", &ds_load_two<1, 64>, 1, 1),
    entry("ds_load_2addr_stride64_b64", &ds_load_two<2, 64>, 1, 1),
    entry("ds_store_2addr_b32", &ds_store_two<1, 1>, 0, 3),
    entry("ds_store_2addr_b64", &ds_store_two<2, 1>, 0, 3),
    entry("ds_store_2addr_stride64_b32", &ds_store_two<1, 64>, 0, 3),
    entry("ds_store_2addr_stride64_b64", &ds_store_two<2, 64>, 0, 3),
    DS_INTEGERS("u32", "i32", "b32", uint32_t, int32_t),
    DS_INTEGERS("u64", "i64", "b64", uint64_t, int64_t),
    DS_ATOMIC("add", "f32", float, AtomicAdd),
    DS_ATOMIC("add", "f64", double, AtomicAdd),
    DS_ATOMIC("min", "f32", float, AtomicFloatMin),
    DS_ATOMIC("max", "f32", float, AtomicFloatMax),
    DS_ATOMIC("min", "f64", double, AtomicFloatMin),
    DS_ATOMIC("max", "f64", double, AtomicFloatMax),
    DS_ATOMIC("pk_add", "f16", uint32_t, AtomicPkAddF16),
    DS_ATOMIC("pk_add", "bf16", uint32_t, AtomicPkAddBf16),
    entry("ds_bpermute_b32", &bpermute, 1, 2),
    entry("ds_permute_b32", &permute, 1, 2),
    entry("ds_swizzle_b32", &swizzle, 1, 1),
    entry("ds_append", &append<true>, 1, 0),
    entry("ds_consume", &append<false>, 1, 0),
    entry("ds_nop", &nothing, 0, 0),
};

}  // namespace

Operations lds_operations() { return {kTable, std::size(kTable)}; }

}  // namespace rocm_sd::emu
